"""One Parquet file, read in blocks of rows."""

from collections.abc import Generator

import polars as pl

from cometad.data.sources import TableFile


class ParquetTable:
    """A Parquet file."""

    def __init__(self, file: TableFile) -> None:
        self.file = file

    def blocks(self, rows: int | None) -> Generator[pl.DataFrame]:
        """Blocks of `rows` rows, or one with all; each after the first repeats the first row on top."""
        try:
            if rows is None:
                yield pl.read_parquet(self.file.path)
                return
            table = pl.scan_parquet(self.file.path)
            first = table.head(1).collect()
            yield table.head(rows).collect()
            for start in range(rows, table.select(pl.len()).collect().item(), rows):
                yield pl.concat([first, table.slice(start, rows).collect()])
        except (OSError, pl.exceptions.PolarsError) as error:
            raise self.file.unreadable("a complete Parquet file", error) from error

    def where(self, row: int) -> str:
        """The number of a row, counted from 1, and the file."""
        return f"row {row + 1} of '{self.file.shown}'"

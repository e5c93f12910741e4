"""One Parquet file, read in blocks of rows."""

from collections.abc import Generator

import polars as pl

from cometad.data.dialect import Dialect
from cometad.data.table_sources import TableFile
from cometad.data.text_numbers import without_marked
from cometad.errors import InputError


class ParquetTable:
    """A Parquet file."""

    def __init__(self, file: TableFile, dialect: Dialect = Dialect()) -> None:
        self.file, self._dialect = file, dialect

    def blocks(self, rows: int | None) -> Generator[pl.DataFrame]:
        """Blocks of `rows` rows, or one with all; each after the first repeats the first row on top."""
        for block in self._read(rows):
            yield block.with_columns(without_marked(column, self._dialect) for column in block)

    def _read(self, rows: int | None) -> Generator[pl.DataFrame]:
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
        except pl.exceptions.PanicException as error:  # how polars meets some damaged files
            raise InputError(f"'{self.file.shown}' is damaged. Pass a complete Parquet file.") from error

    def where(self, row: int) -> str:
        """The number of a row, counted from 1, and the file."""
        return f"row {row + 1} of '{self.file.shown}'"

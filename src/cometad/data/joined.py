"""One or several files of readings, joined to one table and read in parts."""

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import polars as pl

from cometad.data.dialect import Dialect
from cometad.data.parquet_file import ParquetTable
from cometad.data.sources import TableFile, find_files
from cometad.data.text_file import TextTable
from cometad.errors import InputError


class Part(NamedTuple):
    """Consecutive rows of a table.

    A block may repeat the first row of its file on top, so that a change of type or time zone shows as it would in the
    whole file.
    """

    frame: pl.DataFrame
    repeats: bool
    first: int  # number of the first row that is not repeated

    @property
    def own(self) -> pl.DataFrame:
        """The rows, each once."""
        return self.frame[1:] if self.repeats else self.frame

    def step(self, row: int) -> int:
        """The number of the time step in a row of the frame."""
        return 0 if self.repeats and row == 0 else self.first + row - self.repeats


class Table(Protocol):
    """One file."""

    file: TableFile

    def blocks(self, rows: int | None) -> Iterator[pl.DataFrame]:
        """Blocks of `rows` rows, or one with all; each after the first repeats the first row on top."""


class Tables:
    """The files that make up one table, without the dropped columns."""

    def __init__(self, path: str | os.PathLike[str], drop: Sequence[str], dialect: Dialect) -> None:
        self.tables: list[Table] = [
            ParquetTable(file) if file.is_parquet else TextTable(file, dialect) for file in find_files(path)
        ]
        self.shown = self.tables[0].file.shown if len(self.tables) == 1 else os.fspath(path)
        self._drop = drop
        self._names: list[str] | None = None

    def blocks(self, rows: int | None) -> Iterator[Part]:
        """Blocks of one file after the other; refuses files with different columns."""
        seen = 0
        for table in self.tables:
            for number, frame in enumerate(table.blocks(rows)):
                block = Part(self._selected(frame, table.file), number > 0, seen)
                yield block
                seen += len(block.own)

    def whole(self) -> pl.DataFrame:
        """All files, as one frame."""
        frames = [block.frame for block in self.blocks(None)]
        for name in frames[0].columns:
            kinds = {frame.schema[name] for frame in frames}
            if pl.String in kinds and len(kinds) > 1:  # a word somewhere makes the column text
                frames = [frame.with_columns(pl.col(name).cast(pl.String)) for frame in frames]
        try:
            return pl.concat(frames, how="vertical_relaxed")
        except pl.exceptions.PolarsError as error:
            raise InputError(f"The files of '{self.shown}' have columns of different types. Convert them.") from error

    def _selected(self, frame: pl.DataFrame, file: TableFile) -> pl.DataFrame:
        for name in self._drop:
            check_column(frame, name, file.shown)
        frame = frame.drop(self._drop)
        if self._names is None:
            self._names = frame.columns
        lacking = [name for name in self._names if name not in frame.columns]
        extra = [name for name in frame.columns if name not in self._names]
        if lacking or extra:
            which = f"lacks the column {lacking[0]!r}" if lacking else f"has a column {extra[0]!r} more"
            raise InputError(
                f"'{file.shown}' {which}, compared with '{self.tables[0].file.shown}'. Pass files with the same "
                "columns."
            )
        return frame.select(self._names)


def check_column(frame: pl.DataFrame, name: str, shown: str) -> None:
    """Refuse a column that a table lacks."""
    if name not in frame.columns:
        raise InputError(f"'{shown}' has no column {name!r}. Available: {', '.join(frame.columns)}.")

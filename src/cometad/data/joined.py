"""One or several files of readings, joined to one table and read in parts."""

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple, Protocol

import polars as pl

from cometad.data.dialect import Dialect
from cometad.data.parquet_file import ParquetTable
from cometad.data.table_sources import Source, TableFile, find_files
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
    where: Callable[[int], str]  # the place of a row with such a number, in words

    @property
    def own(self) -> pl.DataFrame:
        """The rows, each once."""
        return self.frame[1:] if self.repeats else self.frame

    def place(self, row: int) -> str:
        """The file that a row of the frame comes from, and its number there, in words."""
        return self.where(0 if self.repeats and row == 0 else self.first + row - self.repeats)

    def own_place(self, row: int) -> str:
        """The same for a row of `own`."""
        return self.where(self.first + row)


class Table(Protocol):
    """One file."""

    file: TableFile

    def blocks(self, rows: int | None) -> Generator[pl.DataFrame]:
        """Blocks of `rows` rows, or one with all; each after the first repeats the first row on top."""

    def where(self, row: int) -> str:
        """The number of a row as others show it, and the file: row 52 of 'plant.csv'."""


class Tables:
    """The files that make up one table, without the dropped columns."""

    def __init__(
        self,
        path: Source,
        drop: Sequence[str],
        dialect: Dialect,
        time_column: str | None = None,
        text: Sequence[str] = (),
    ) -> None:
        self.tables: list[Table] = [
            ParquetTable(file, dialect) if file.is_parquet else TextTable(file, dialect, time_column, text)
            for file in find_files(path)
        ]
        self.shown = self.tables[0].file.shown if len(self.tables) == 1 else _shown(path)
        self._drop = drop
        self._names: list[str] | None = None
        self._lengths: list[int] = []  # rows of each file, once they were read as a whole

    def blocks(self, rows: int | None) -> Iterator[Part]:
        """Blocks of one file after the other; refuses files with different columns."""
        for table in self.tables:
            seen = 0
            for number, frame in enumerate(table.blocks(rows)):
                block = Part(self._selected(frame, table.file), number > 0, seen, table.where)
                yield block
                seen += len(block.own)

    def starts(self) -> Iterator[Part]:
        """The first row of each file, if it has one."""
        for table in self.tables:
            with closing(table.blocks(1)) as blocks:
                yield Part(self._selected(next(blocks), table.file), False, 0, table.where)

    def whole(self) -> Part:
        """All files, as one part."""
        frames = [block.frame for block in self.blocks(None)]
        self._lengths = [len(frame) for frame in frames]
        schemas = [frame.schema for frame in frames]
        for name in schemas[0]:
            kinds = {schema[name] for schema in schemas}
            if pl.String in kinds and len(kinds) > 1:  # a word somewhere makes the column text
                frames = [frame.with_columns(pl.col(name).cast(pl.String)) for frame in frames]
        try:
            return Part(pl.concat(frames, how="vertical_relaxed"), False, 0, self.where)
        except pl.exceptions.PolarsError as error:
            raise InputError(f"The files of '{self.shown}' have columns of different types. Convert them.") from error

    def where(self, row: int) -> str:
        """The place of a row of the whole table, in words."""
        for table, length in zip(self.tables, self._lengths, strict=True):
            if row < length:
                return table.where(row)
            row -= length
        raise IndexError(row)

    def _selected(self, frame: pl.DataFrame, file: TableFile) -> pl.DataFrame:
        for name in self._drop:
            check_column(frame, name, file.shown)
        frame = frame.drop(self._drop)
        if self._names is None:
            self._names = frame.columns
        columns, known = frame.columns, set(self._names)
        lacking = sorted(known.difference(columns), key=self._names.index)
        extra = [name for name in columns if name not in known]
        if lacking or extra:
            which = f"lacks the column {lacking[0]!r}" if lacking else f"has a column {extra[0]!r} more"
            raise InputError(
                f"'{file.shown}' {which}, compared with '{self.tables[0].file.shown}'. Pass files with the same "
                "columns."
            )
        return frame.select(self._names)


def _shown(path: Source) -> str:
    return os.path.commonpath(path) if isinstance(path, tuple) else os.fspath(path)


def check_column(frame: pl.DataFrame, name: str, shown: str) -> None:
    """Refuse a column that a table lacks."""
    if name not in frame.columns:
        raise InputError(f"'{shown}' has no column {name!r}. Available: {', '.join(frame.columns)}.")

"""Tables of readings in CSV and Parquet files: one row per reading, one column per variable, optionally the time."""

import codecs
import itertools
import json
import logging
import os
import re
import zlib
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from io import TextIOWrapper
from typing import Any, NamedTuple

import polars as pl

from cometad.data.columns import Columns, Part, TextNumbers, check_column, some_zones, without_marked
from cometad.data.dialect import UTF_8, Dialect, recognize_encoding
from cometad.data.table_sources import Source, TableFile, check_content, find_files
from cometad.data.text import RECOGNIZED, Rows, TextRows, clean_header, separator_hint, split_cells
from cometad.errors import InputError
from cometad.series import numbered_names, refuse_text

ROWS = 2**16  # of a chunk
SAMPLE = 2**16  # bytes from the start of a text, to recognize how it is written
SAMPLE_ROWS = 50  # of these, to recognize the separator
AHEAD = 2**16  # rows at a time, to find the decimal mark

Select = Callable[[pl.DataFrame], pl.DataFrame]
Check = Callable[[pl.DataFrame, Callable[[int], str]], object]  # of a frame, whose rows have places in words

_log = logging.getLogger("cometad")


class TextTable:
    """A CSV file, as its dialect or a look at its beginning says that it is written."""

    def __init__(
        self, file: TableFile, dialect: Dialect, time_column: str | None = None, text: Sequence[str] = ()
    ) -> None:
        self.file, self._dialect, self._time_column = file, dialect, time_column
        self._text = text  # columns that stay as they are written: 007 is no number there
        with self._errors(), file.open() as source:
            sample = source.read(SAMPLE)
        check_content(sample, file)
        self._encoding = dialect.encoding or recognize_encoding(sample)
        text = sample.decode(self._encoding, errors="replace").removeprefix("\ufeff")
        if "\0" in text:
            raise InputError(f"'{file.shown}' is not a text file. Pass a CSV or Parquet file.")
        lines = [line for line in re.split(r"\r\n|\n|\r", text) if line.strip()]
        if len(sample) == SAMPLE and len(lines) > 1:
            del lines[-1]  # it may be incomplete
        # A file with the line breaks of old Macs has no line feed at all.
        self._translates = "\n" not in text and "\r" in text
        hint = separator_hint(lines[0]) if lines else None
        self._skips_hint = hint is not None
        tabs = "\t" if file.suffix == ".tsv" else None
        self._separator = dialect.separator or hint or tabs or recognize_separator(lines[self._skips_hint :])
        self._numbers, self._looked_ahead = TextNumbers(dialect, file.shown), False

    def blocks(self, rows: int | None) -> Generator[Part]:
        """Blocks of `rows` rows, or one with all; each after the first repeats the first row on top."""
        if rows is None:
            self._looked_ahead = True  # there is nothing ahead
        with self._opened() as (names, own):
            first, block = own.take(1), own.take(None if rows is None else rows - 1)
            yield self._parsed(names, first, block)
            seen = first.length + block.length
            while rows is not None and (block := own.take(rows)).length:
                yield self._parsed(names, first, block, seen)
                seen += block.length

    def where(self, row: int) -> str:
        """The line on which a row starts, counted from 1 as an editor does, and the file."""
        with self._opened() as (_, rows):
            rows.take(row)
            rows.take(1)
            return f"row {rows.start} of '{self.file.shown}'"

    @contextmanager
    def _opened(self) -> Iterator[tuple[list[str], TextRows]]:
        """The names in the header of the file, and the rows that follow."""
        newline = None if self._translates else "\n"
        with self._errors(), self.file.open() as source, TextIOWrapper(source, self._encoding, newline=newline) as text:
            as_it_is = self._dialect.encoding is None and self._encoding == UTF_8 and not self._translates
            lines = iter(source) if as_it_is else (line.encode(errors="replace") for line in text)
            first = next(lines, b"").removeprefix(codecs.BOM_UTF8)
            rows = TextRows(itertools.chain([first], lines), self._separator, self.file.shown)
            if self._skips_hint:
                rows.skip()
            cells = rows.first(keep=not self._dialect.header)
            if cells is None:
                raise InputError(f"'{self.file.shown}' is empty. Pass a file with a header row and readings.")
            if self._dialect.header:
                yield clean_header(cells, f"The first row of '{self.file.shown}'", self._time_column), rows
            else:
                yield list(numbered_names(len(cells))), rows

    def _parsed(self, names: list[str], first: Rows, block: Rows, seen: int = 0) -> Part:
        """The first row and those of a block, which are after `seen` others."""
        frame = pl.read_csv(
            first.text + block.text,
            has_header=False,
            separator=self._separator,
            schema=dict.fromkeys(names, pl.String),
            raise_if_empty=False,
        )
        if len(frame) != first.length + block.length:  # never lose or invent a reading
            raise pl.exceptions.ComputeError(f"{first.length + block.length} rows became {len(frame)}")
        part = Part(frame, self.where, seen > 0, seen)
        kept = frame.select(name for name in self._text if name in names)
        numbers = self._numbers.converted(frame.drop(kept.columns), part.place, self._look_ahead)
        return part._replace(frame=numbers.with_columns(kept.select(pl.all().str.strip_chars())).select(names))

    def _look_ahead(self) -> None:
        """Read on until a number shows the decimal mark of the file."""
        if self._looked_ahead:
            return
        self._looked_ahead = True
        other = TextTable(self.file, self._dialect, self._time_column)
        other._looked_ahead = True
        for _ in other.blocks(AHEAD):
            if other._numbers.decided:
                self._numbers.comma, self._numbers.point = other._numbers.comma, other._numbers.point
                return

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except UnicodeError as error:
            raise InputError(f"'{self.file.shown}' is not text in {self._encoding}.", advice="encoding") from error
        except (OSError, EOFError, zlib.error, pl.exceptions.PolarsError) as error:
            raise self.file.unreadable(
                "a complete CSV file with as many cells in each row as in the header", error
            ) from error


def recognize_separator(lines: Sequence[str]) -> str:
    """The separator of a table that starts with these lines: the one that splits most rows like the header."""
    best, chosen = (0.0, 1), ","
    for separator in RECOGNIZED:
        header, *rows = [split_cells(line, separator) for line in lines if line.strip()][:SAMPLE_ROWS] or [[""]]
        alike = sum(len(row) == len(header) for row in rows) / len(rows) if rows else 1.0
        if len(header) > 1 and (alike, len(header)) > best:
            best, chosen = (alike, len(header)), separator
    if best == (0.0, 1) and lines:  # no row is like the header: trust the header
        chosen = max(RECOGNIZED, key=lambda separator: len(split_cells(lines[0], separator)))
    return chosen


class ParquetTable(NamedTuple):
    file: TableFile
    dialect: Dialect

    def blocks(self, rows: int | None) -> Generator[Part]:
        for seen, frame in self._read(rows):
            known = frame.with_columns(without_marked(column, self.dialect) for column in frame)
            yield Part(known, self.where, seen > 0, seen)

    def _read(self, rows: int | None) -> Generator[tuple[int, pl.DataFrame]]:
        try:
            if rows is None:
                yield 0, pl.read_parquet(self.file.path)
                return
            table = pl.scan_parquet(self.file.path)
            first = table.head(1).collect()
            yield 0, table.head(rows).collect()
            for start in range(rows, table.select(pl.len()).collect().item(), rows):
                yield start, pl.concat([first, table.slice(start, rows).collect()])
        except (OSError, pl.exceptions.PolarsError) as error:
            raise self.file.unreadable("a complete Parquet file", error) from error
        except pl.exceptions.PanicException as error:  # how polars meets some damaged files
            raise InputError(f"'{self.file.shown}' is damaged. Pass a complete Parquet file.") from error

    def where(self, row: int) -> str:
        return f"row {row + 1} of '{self.file.shown}'"


class TableReader:
    r"""A table in one or more files that can be read as a whole or in chunks, and that knows where its rows are.

    Takes the arguments of `read_table`. Columns named in `variables` hold no times, and those in `text` stay as they
    are written. A missing file is refused at once; its content is checked as it is read.
    """

    def __init__(
        self,
        path: Source,
        time_column: str | None = None,
        drop: Sequence[str] = (),
        dialect: Dialect = Dialect(),
        counters: bool = False,
        variables: Collection[str] = (),
        text: Sequence[str] = (),
    ) -> None:
        self.tables = [
            ParquetTable(file, dialect) if file.suffix == ".parquet" else TextTable(file, dialect, time_column, text)
            for file in find_files(path)
        ]
        common = os.path.commonpath(path) if isinstance(path, tuple) else os.fspath(path)
        self.shown = self.tables[0].file.shown if len(self.tables) == 1 else common
        self._drop, self._decimal = drop, dialect.decimal
        self._columns = Columns(self.shown, time_column, dialect, counters, variables)
        self._names: list[str] | None = None
        self._lengths: list[int] = []  # rows of each file, once they were read as a whole

    def whole(self, select: Select | None = None, check: Check | None = None) -> pl.DataFrame:
        """The whole table; `select` chooses columns, and text in these is refused with its place in the file.

        `check` may then refuse rows.
        """
        self.put_in_order()
        part = self.rows()
        frame = self._columns.apply(part, lambda: [part])
        return frame if select is None else self._checked(select(frame), part, check)

    def chunks(
        self, rows: int = ROWS, select: Select | None = None, check: Check | None = None
    ) -> Iterator[pl.DataFrame]:
        """The table in frames of `rows` rows, with only one in memory at a time; the rest as in `whole`."""
        self.put_in_order()
        zones: list[object] | None = None
        for part in self.blocks(rows):
            frame = self._columns.apply(part, lambda: self.blocks(rows))
            own = [getattr(dtype, "time_zone", None) for dtype in frame.dtypes if dtype.is_temporal()]
            if zones not in (None, own):
                raise some_zones(self.shown)
            zones = own
            yield frame if select is None else self._checked(select(frame), part, check)

    def _checked(self, frame: pl.DataFrame, part: Part, check: Check | None) -> pl.DataFrame:
        for column in frame:
            if column.dtype == pl.String:
                refuse_text(column.name, column, part.own_place, self._decimal)
        if check is not None:
            check(frame, part.own_place)
        return frame

    def rows(self) -> Part:
        """All rows, as they are in the files; from then on `where` knows them."""
        frames = [block.frame for block in self.blocks(None)]
        self._lengths = [len(frame) for frame in frames]
        try:
            return Part(joined(frames), self.where)
        except pl.exceptions.PolarsError as error:
            raise InputError(f"The files of '{self.shown}' have columns of different types. Convert them.") from error

    def where(self, row: int) -> str:
        """The place of a row of the whole table, in words."""
        for table, length in zip(self.tables, self._lengths, strict=True):
            if row < length:
                return table.where(row)
            row -= length
        raise IndexError(row)

    def blocks(self, rows: int | None) -> Iterator[Part]:
        """Blocks of one file after the other, as they are there; refuses files with different columns."""
        for table in self.tables:
            for block in table.blocks(rows):
                yield self._selected(block, table.file)

    def put_in_order(self) -> None:
        """Sort several files by their first time, if there are times; files without readings are left out."""
        if len(self.tables) == 1:
            return
        blocks = [(table, self._start(table)) for table in self.tables]
        blocks = [(table, block) for table, block in blocks if len(block.frame)] or blocks[:1]
        starts: list[Any] = []
        for _, block in blocks:
            frame = self._columns.apply(block, lambda: self.blocks(rows=2**12))
            starts.append(next((column[0] for column in frame if column.dtype.is_temporal()), None))
        self.tables = [table for table, _ in blocks]
        if None not in starts:
            try:
                self.tables = [self.tables[k] for k in sorted(range(len(starts)), key=starts.__getitem__)]
            except TypeError as error:  # only some have a time zone
                raise some_zones(self.shown) from error
        elif len(blocks) > 1:
            first, last = self.tables[0].file.path.name, self.tables[-1].file.path.name
            _log.info(
                "The files of '%s' are in order of their names, because they have no times: '%s' is the first, '%s' "
                "the last.",
                *(self.shown, first, last),
            )

    def _start(self, table: "TextTable | ParquetTable") -> Part:
        with closing(table.blocks(1)) as blocks:
            return self._selected(next(blocks), table.file)

    def _selected(self, block: Part, file: TableFile) -> Part:
        for name in self._drop:
            check_column(block.frame, name, file.shown)
        frame = block.frame.drop(self._drop)
        if self._names is None:
            self._names = frame.columns
        columns, known = set(frame.columns), set(self._names)
        lacking = [name for name in self._names if name not in columns]
        extra = [name for name in frame.columns if name not in known]
        if lacking or extra:
            which = f"lacks the column {lacking[0]!r}" if lacking else f"has a column {extra[0]!r} more"
            raise InputError(
                f"'{file.shown}' {which}, compared with '{self.tables[0].file.shown}'. Pass files with the same "
                "columns."
            )
        return block._replace(frame=frame.select(self._names))


def joined(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """One frame; a word anywhere turns its column into text."""
    schemas = [frame.schema for frame in frames]
    kinds = {name: {schema[name] for schema in schemas} for name in schemas[0]}
    words = [name for name, own in kinds.items() if pl.String in own and len(own) > 1]
    return pl.concat([frame.with_columns(pl.col(words).cast(pl.String)) for frame in frames], how="vertical_relaxed")


@dataclass(frozen=True)
class ReadOptions:
    """How to read readings, from one file or from those of many entities."""

    time_column: str | None = None
    drop: tuple[str, ...] = ()
    resample: str | None = None
    dialect: Dialect = field(default_factory=Dialect)

    def reader(self, path: Source, variables: Collection[str] = (), text: Sequence[str] = ()) -> TableReader:
        """The table at a path, not yet resampled; see `TableReader` for `variables` and `text`."""
        return TableReader(path, self.time_column, self.drop, self.dialect, variables=variables, text=text)

    def as_json(self) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]


def read_table(
    path: str | os.PathLike[str],
    time_column: str | None = None,
    drop: Sequence[str] = (),
    dialect: Dialect = Dialect(),
    counters: bool = False,
) -> pl.DataFrame:
    r"""Read CSV (.csv, .csv.gz, .csv.zst, .tsv) or Parquet readings into a frame that detectors accept.

    `path` is a file, a folder or a pattern of files, which are put in order of time, or "-" for standard input.
    Separator, decimal mark, encoding and the order of day and month are recognized, unless the `dialect` gives them.

    Numbers become floats, and an empty cell (also NA, null, none) becomes NaN. The time column is `time_column` if
    given, else a column of dates, else one named like a time. It becomes datetimes; times with a zone are converted to
    UTC. Numbers in a column that is given or named as the time must be seconds, milli-, micro- or nanoseconds since
    1970. A column named like a time that only counts (0, 1, 2) is refused, because as a variable it would leave its
    training range with every new reading; `counters` keeps it.
    """
    return TableReader(path, time_column, drop, dialect, counters).whole()


def table_chunks(
    path: str | os.PathLike[str],
    time_column: str | None = None,
    drop: Sequence[str] = (),
    dialect: Dialect = Dialect(),
    rows: int = ROWS,
) -> Iterator[pl.DataFrame]:
    r"""Read a table like `read_table`, in frames of `rows` rows, with only one in memory at a time."""
    return TableReader(path, time_column, drop, dialect).chunks(rows)

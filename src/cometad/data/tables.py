"""Tables of readings in CSV and Parquet files: one row per reading, one column per variable, optionally the time."""

import codecs
import csv
import itertools
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from io import IncrementalNewlineDecoder, StringIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

import polars as pl

from cometad.data.cells import LARGEST, MISSING, clean_header, epoch_unit, named_like_time, numbered_names
from cometad.data.dialect import UTF_8, Dialect, recognize_encoding, recognize_separator, separator_hint, to_utf_8
from cometad.data.sources import TableFile, check_source, find_files
from cometad.data.times import YEAR_FIRST, find_order, fitting_orders, parse_date
from cometad.errors import InputError, ParameterError
from cometad.files import parts_of, write_whole

SAMPLE = 2**16  # bytes from the start of a text, to recognize how it is written


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

    >>> import tempfile
    >>> from pathlib import Path
    >>> from cometad.data.tables import read_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "plant.csv"
    ...     _ = path.write_text("time;flow\n31.03.2024 04:10;1,5\n31.03.2024 04:11;\n")
    ...     read_table(path).rows()
    [(datetime.datetime(2024, 3, 31, 4, 10), 1.5), (datetime.datetime(2024, 3, 31, 4, 11), nan)]
    """
    tables = _Tables(path, drop, dialect)
    columns = _Columns(tables.shown, time_column, dialect, counters)
    columns.put_in_order(tables)
    block = _Part(tables.whole(), False, 0)
    return columns.apply(block, lambda: [block])


def table_chunks(
    path: str | os.PathLike[str],
    time_column: str | None = None,
    drop: Sequence[str] = (),
    dialect: Dialect = Dialect(),
    rows: int = 2**16,
) -> Iterator[pl.DataFrame]:
    r"""Read a table like `read_table`, in frames of `rows` rows, with only one in memory at a time.

    A missing file is refused at once; its content is checked as it is read.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from cometad.data.tables import table_chunks
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "plant.csv"
    ...     _ = path.write_text("flow,level\n1,2\n3,4\n5,6\n")
    ...     [chunk.rows() for chunk in table_chunks(path, rows=2)]
    [[(1.0, 2.0), (3.0, 4.0)], [(5.0, 6.0)]]
    """
    tables = _Tables(path, drop, dialect)
    return _chunks(tables, _Columns(tables.shown, time_column, dialect), rows)


def check_table(path: str | os.PathLike[str]) -> None:
    """Refuse a path that is not a file, folder or pattern of files in a format that `read_table` supports.

    >>> from cometad.data.tables import check_table
    >>> check_table("plant.xlsx")
    Traceback (most recent call last):
    ...
    cometad.errors.InputError: The name 'plant.xlsx' does not end in .csv, .csv.gz, .csv.zst, .tsv or .parquet. Choose
    one of these formats.
    """
    check_source(path)


def write_table(path: str | os.PathLike[str], frame: pl.DataFrame) -> None:
    r"""Write a table as CSV (.csv) or Parquet (.parquet), completely or not at all.

    >>> import tempfile
    >>> import polars as pl
    >>> from pathlib import Path
    >>> from cometad.data.tables import write_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_table(Path(folder) / "scores.csv", pl.DataFrame({"step": [0], "score": [0.5]}))
    ...     (Path(folder) / "scores.csv").read_text()
    'step,score\n0,0.5\n'
    """
    write_chunks(path, [frame])


def write_chunks(path: str | os.PathLike[str], frames: Iterable[pl.DataFrame]) -> None:
    r"""Write a table that arrives in parts, completely or not at all, with only one part in memory at a time.

    >>> import tempfile
    >>> import polars as pl
    >>> from pathlib import Path
    >>> from cometad.data.tables import write_chunks
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_chunks(Path(folder) / "scores.csv", (pl.DataFrame({"step": [step]}) for step in range(2)))
    ...     (Path(folder) / "scores.csv").read_text()
    'step\n0\n1\n'
    """
    write = _writer(Path(path))
    write_whole(path, lambda temporary: write(frames, temporary))


def check_suffix(path: str | os.PathLike[str]) -> None:
    """Refuse a path whose suffix is not a format that `write_table` supports.

    >>> from cometad.data.tables import check_suffix
    >>> check_suffix("scores.xlsx")
    Traceback (most recent call last):
    ...
    cometad.errors.ParameterError: The name 'scores.xlsx' does not end in .csv or .parquet. Choose one of these formats.
    """
    _writer(Path(path))


def csv_text(frame: pl.DataFrame, header: bool = True) -> str:
    r"""A table as CSV text, with or without its header.

    A text that a spreadsheet would run as a formula, because it begins with =, +, - or @, gets an apostrophe in front.

    >>> import polars as pl
    >>> from datetime import datetime
    >>> from cometad.data.tables import csv_text
    >>> csv_text(pl.DataFrame({"time": [datetime(2024, 3, 1, 4, 10)], "variable": ["=flow"]}))
    "time,variable\n2024-03-01T04:10:00,'=flow\n"
    """
    zoned = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.Datetime) and dtype.time_zone]
    words = [name for name, dtype in frame.schema.items() if dtype == pl.String]
    frame = frame.with_columns(
        pl.col(zoned).dt.to_string("%Y-%m-%dT%H:%M:%S%.f%:z"), pl.col(words).str.replace(_FORMULA, "'$0")
    )
    frame = frame.rename({name: re.sub(_FORMULA, r"'\g<0>", name) for name in frame.columns})
    return frame.write_csv(include_header=header, datetime_format="%Y-%m-%dT%H:%M:%S%.f")


_FORMULA = r"^[=+\-@\t\r]"  # how cells start that a spreadsheet runs


def csv_texts(frames: Iterable[pl.DataFrame]) -> Iterator[str]:
    r"""A table that arrives in parts as CSV text, part by part.

    >>> import polars as pl
    >>> from cometad.data.tables import csv_texts
    >>> list(csv_texts([pl.DataFrame({"step": [0]}), pl.DataFrame({"step": [1]})]))
    ['step\n0\n', '1\n']
    """
    return (csv_text(frame, header=number == 0) for number, frame in enumerate(frames))


# --- files ------------------------------------------------------------------------------------------------------------


class _Part(NamedTuple):
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


class _Table(Protocol):
    """One file."""

    file: TableFile

    def blocks(self, rows: int | None) -> Iterator[pl.DataFrame]:
        """Blocks of `rows` rows, or one with all; each after the first repeats the first row on top."""


class _ParquetTable:
    """A Parquet file."""

    def __init__(self, file: TableFile) -> None:
        self.file = file

    def blocks(self, rows: int | None) -> Iterator[pl.DataFrame]:
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
            raise _unreadable(self.file, "a complete Parquet file", error) from error


class _TextTable:
    """A CSV file, as its dialect or a look at its beginning says that it is written."""

    def __init__(self, file: TableFile, dialect: Dialect) -> None:
        self.file, self._dialect = file, dialect
        with self._errors(), file.open() as source:
            sample = source.read(SAMPLE)
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
        self._marks: dict[str, str] = {}  # the decimal mark of each column that has one

    def blocks(self, rows: int | None) -> Iterator[pl.DataFrame]:
        with self._errors(), self.file.open() as source:
            lines = self._lines(source)
            top = self._top(lines)
            names = self._names(top)
            if not self._dialect.header:
                lines = itertools.chain(top.splitlines(keepends=True), lines)
                top = (self._separator.join(names) + "\n").encode()
            first = self._taken(lines, 1)
            block = self._taken(lines, None if rows is None else rows - 1)
            yield self._parsed([top, first, block], names)
            while rows is not None and (block := self._taken(lines, rows)):
                yield self._parsed([top, first, block], names)

    def _lines(self, source: BinaryIO) -> Iterator[bytes]:
        """The lines in UTF-8, or in whatever was taken for UTF-8."""
        if self._dialect.encoding is None and self._encoding == UTF_8 and not self._translates:
            lines: Iterator[bytes] = iter(source)
        else:
            lines = _recoded(source, self._encoding, self._translates)
        yield next(lines, b"").removeprefix(codecs.BOM_UTF8)
        yield from lines

    def _taken(self, lines: Iterator[bytes], count: int | None) -> bytes:
        """The next `count` lines, plus any that continue a quoted cell."""
        taken = b"".join(itertools.islice(lines, count))
        quotes = taken.count(b'"')
        more = []
        while quotes % 2 and (line := next(lines, None)) is not None:
            more.append(line)
            quotes += line.count(b'"')
        taken += b"".join(more)
        return to_utf_8(taken) if self._dialect.encoding is None else taken

    def _top(self, lines: Iterator[bytes]) -> bytes:
        """The first line that is not blank, after a hint about the separator."""
        if self._skips_hint:
            next(line for line in lines if line.strip())
        while top := self._taken(lines, 1):
            if top.strip():
                return top
        raise InputError(f"'{self.file.shown}' is empty. Pass a file with a header row and readings.")

    def _names(self, top: bytes) -> list[str]:
        cells = next(csv.reader(StringIO(top.decode(), newline=""), delimiter=self._separator), [])
        if not self._dialect.header:
            return numbered_names(len(cells))
        return clean_header(cells, f"The first row of '{self.file.shown}'")

    def _parsed(self, parts: list[bytes], names: list[str]) -> pl.DataFrame:
        # Infer types from all rows: a word in the last row then makes the column text instead of failing halfway.
        text = b"".join(parts)
        try:
            # With a given decimal comma, 1.234 is no number.
            infers = self._dialect.decimal != ","
            frame = pl.read_csv(text, separator=self._separator, infer_schema_length=None, infer_schema=infers)
        except pl.exceptions.PolarsError:
            self._check_cells(text, len(names))
            raise
        frame.columns = names
        return frame.with_columns(self._converted(column) for column in frame)

    def _check_cells(self, text: bytes, count: int) -> None:
        """Refuse a row with more cells than the header."""
        for row in csv.reader(StringIO(text.decode(), newline=""), delimiter=self._separator):
            if len(row) > count:
                shown = self._separator.join(row)[:60]
                raise InputError(
                    f"'{self.file.shown}' cannot be read: a row has {len(row)} cells, but the header has {count} "
                    f"({shown!r}). Correct that row."
                )

    def _converted(self, column: pl.Series) -> pl.Series:
        """A column without missing markers, as numbers if all its cells are.

        polars leaves " 1.5" and "nan" as text.
        """
        if column.dtype != pl.String:
            if column.dtype.is_float():
                self._take_mark(column.name, ".", column)
            missing = [number for marker in self._dialect.missing if (number := _as_number(marker)) is not None]
            if not (missing and column.dtype.is_numeric()):
                return column
            return column.set(column.cast(pl.Float64).is_in(missing), None)
        text = column.str.strip_chars()
        markers = [*MISSING, *(marker.strip().lower() for marker in self._dialect.missing)]
        text = text.set(text.str.to_lowercase().is_in(markers), None)
        known = len(text) - text.null_count()
        for mark in _DECIMALS if self._dialect.decimal is None else (self._dialect.decimal,):
            numbers = _decimal(text, mark, self._separator).cast(pl.Float64, strict=False)
            if len(numbers) - numbers.null_count() == known:
                if known and mark == "," and text.str.contains(",", literal=True).any():
                    self._take_mark(column.name, mark, text)
                return numbers
        words = text.drop_nulls().str.to_lowercase()
        if known and words.is_in(["true", "false"]).all():
            return (text.str.to_lowercase() == "true").alias(column.name)
        return text

    def _take_mark(self, name: str, mark: str, column: pl.Series) -> None:
        if self._marks.setdefault(name, mark) != mark and self._dialect.decimal is None:
            cell = next(cell for cell in column if isinstance(cell, float) or "," in (cell or ""))
            raise InputError(
                f"Column {name!r} has numbers with a decimal point and with a decimal comma ({str(cell)!r}).",
                advice="decimal",
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except pl.exceptions.NoDataError as error:
            raise InputError(f"'{self.file.shown}' is empty. Pass a file with a header row and readings.") from error
        except UnicodeError as error:
            raise InputError(f"'{self.file.shown}' is not text in {self._encoding}.", advice="encoding") from error
        except (OSError, EOFError, zlib.error, csv.Error, pl.exceptions.PolarsError) as error:
            raise _unreadable(
                self.file, "a complete CSV file with as many cells in each row as in the header", error
            ) from error


def _recoded(source: BinaryIO, encoding: str, translates: bool) -> Iterator[bytes]:
    """Lines in another encoding as UTF-8; `translates` also breaks lines at carriage returns."""
    decoder: Any = codecs.getincrementaldecoder(encoding)()
    if translates:
        decoder = IncrementalNewlineDecoder(decoder, translate=True)
    partial, more = "", True
    while more:
        chunk = source.read(SAMPLE)
        more = bool(chunk)
        *lines, partial = (partial + decoder.decode(chunk, final=not more)).split("\n")
        yield from ((line + "\n").encode(errors="replace") for line in lines)
    if partial:
        yield partial.encode(errors="replace")


_DECIMALS = (".", ",")
_COMMA = r"^[+-]?\d*,\d+([eE][+-]?\d+)?$"
_THOUSANDS = r"^[+-]?\d{1,3}(,\d{3})+$"


def _decimal(text: pl.Series, mark: str, separator: str) -> pl.Series:
    """Numbers with this decimal mark, written with a point; a number with the other mark is null."""
    if mark == ".":
        return text
    if separator == "," and text.drop_nulls().str.contains(_THOUSANDS).all():
        return text  # quoted cells: "1,234" may also be a thousand
    fits = text.str.contains(_COMMA).fill_null(False)
    points = text.str.contains(".", literal=True).fill_null(False)
    return text.str.replace(",", ".", literal=True).zip_with(fits, text.set(points, None))


def _as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


class _Tables:
    """The files that make up one table, without the dropped columns."""

    def __init__(self, path: str | os.PathLike[str], drop: Sequence[str], dialect: Dialect) -> None:
        self.tables: list[_Table] = [
            _ParquetTable(file) if file.is_parquet else _TextTable(file, dialect) for file in find_files(path)
        ]
        self.shown = self.tables[0].file.shown if len(self.tables) == 1 else os.fspath(path)
        self._drop = drop
        self._names: list[str] | None = None

    def blocks(self, rows: int | None) -> Iterator[_Part]:
        """Blocks of one file after the other; refuses files with different columns."""
        seen = 0
        for table in self.tables:
            for number, frame in enumerate(table.blocks(rows)):
                block = _Part(self._selected(frame, table.file), number > 0, seen)
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
            _check_column(frame, name, file.shown)
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


def _write_csv(frames: Iterable[pl.DataFrame], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(csv_texts(frames))


def _write_parquet(frames: Iterable[pl.DataFrame], path: Path) -> None:
    # Write one file per part, then merge them: polars cannot append to a Parquet file.
    with parts_of(path) as folder:
        parts = []
        for number, frame in enumerate(frames):
            parts.append(folder / f"{number}.parquet")
            with _disk_errors():
                frame.write_parquet(parts[-1])
        with _disk_errors():
            pl.scan_parquet(parts).sink_parquet(path)


@contextmanager
def _disk_errors() -> Iterator[None]:
    """Turn the error of polars for a full disk into the usual one."""
    try:
        yield
    except pl.exceptions.ComputeError as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from error


_WRITERS: dict[str, Callable[[Iterable[pl.DataFrame], Path], None]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}


def _writer(path: Path) -> Callable[[Iterable[pl.DataFrame], Path], None]:
    for suffix, writer in _WRITERS.items():
        if path.name.lower().endswith(suffix):
            return writer
    raise ParameterError(f"The name '{path}' does not end in {' or '.join(_WRITERS)}. Choose one of these formats.")


def _unreadable(file: TableFile, wanted: str, error: Exception) -> InputError:
    reason = str(getattr(error, "strerror", None) or error).partition("\n")[0].rstrip(".")
    return InputError(f"'{file.shown}' cannot be read ({reason}). Pass {wanted}.")


# --- columns ----------------------------------------------------------------------------------------------------------


def _chunks(tables: _Tables, columns: "_Columns", rows: int) -> Iterator[pl.DataFrame]:
    columns.put_in_order(tables)
    zones: list[object] | None = None
    for block in tables.blocks(rows):
        frame = columns.apply(block, lambda: tables.blocks(rows))
        times = [dtype for dtype in frame.dtypes if dtype.is_temporal()]
        if zones is None:
            zones = [getattr(dtype, "time_zone", None) for dtype in times]
        elif zones != [getattr(dtype, "time_zone", None) for dtype in times]:
            raise _some_zones(tables.shown)
        yield frame


def _some_zones(which: str) -> InputError:
    return InputError(f"The times in {which!r} have a time zone in some rows only. Write it in all rows or in none.")


def _check_column(frame: pl.DataFrame, name: str, shown: str) -> None:
    if name not in frame.columns:
        raise InputError(f"'{shown}' has no column {name!r}. Available: {', '.join(frame.columns)}.")


class _Columns:
    """Which columns hold times and how they are written, decided by the first block, and the rest as numbers."""

    def __init__(self, shown: str, given: str | None, dialect: Dialect, counters: bool = False) -> None:
        self._shown, self._given, self._dialect, self._counters = shown, given, dialect, counters
        self._names: list[str] | None = None
        self._orders: dict[str, str] = {}  # of day, month and year

    def apply(self, block: _Part, blocks: Callable[[], Iterable[_Part]]) -> pl.DataFrame:
        """The block's own rows with times and numbers; `blocks` rereads the table, for checks that need all of it."""
        frame = block.frame
        if self._names is None:
            if frame.height == 0:
                raise InputError(f"'{self._shown}' has a header but no readings. Pass a file with at least one.")
            names = self._candidates(frame)
            made = frame.with_columns(self._times(frame[name], block, blocks) for name in names)
            # The time columns of the first block are those of the whole table.
            self._names = [name for name in names if made[name].dtype.is_temporal()]
        else:
            made = frame.with_columns(self._times(frame[name], block, blocks) for name in self._names)
        return _with_numbers(block._replace(frame=made))

    def put_in_order(self, tables: _Tables) -> None:
        """Sort several files by their first time, if there are times."""
        if len(tables.tables) == 1:
            return
        starts: list[Any] = []
        for block in tables.blocks(rows=1):
            if block.repeats:
                continue
            frame = self.apply(block._replace(first=0), lambda: tables.blocks(rows=2**12))
            times = next((column for column in frame if column.dtype.is_temporal()), None)
            starts.append(None if times is None else times[0])
        if len(starts) == len(tables.tables) and None not in starts:
            try:
                places = sorted(range(len(starts)), key=starts.__getitem__)
            except TypeError as error:  # only some have a time zone
                raise _some_zones(self._shown) from error
            tables.tables = [tables.tables[place] for place in places]

    def _candidates(self, frame: pl.DataFrame) -> list[str]:
        """The names of the columns that may hold times."""
        if self._given is not None:
            _check_column(frame, self._given, self._shown)
            return [self._given]
        if any(dtype.is_temporal() for dtype in frame.dtypes):
            return []
        # Includes a pandas index that was written without a name.
        return [column.name for column in frame if self._may_be_time(column)]

    def _may_be_time(self, column: pl.Series) -> bool:
        if column.null_count() == len(column):
            return False
        if column.dtype != pl.String:
            return named_like_time(column.name) and not (self._counters and column.dtype == pl.Boolean)
        return named_like_time(column.name) or fitting_orders(column.drop_nulls()[0]) != []

    def _times(self, column: pl.Series, block: _Part, blocks: Callable[[], Iterable[_Part]]) -> pl.Series:
        """A column as datetimes; unchanged if it is only named like a time and holds other numbers."""
        decided = self._given is not None or self._names is not None
        if column.dtype == pl.String:
            return _from_text(column, block, self._order(column, blocks))
        if not column.dtype.is_numeric():
            if decided and column.dtype not in (pl.Datetime, pl.Date):
                raise InputError(
                    f"The time column {column.name!r} holds no dates (it is {column.dtype}).", advice="no dates"
                )
            return column
        seconds = _from_epoch(column)
        if seconds is not None:
            return seconds
        if self._counters and not decided:
            return column
        if decided or _is_counter(block.own[column.name] for block in blocks()):
            raise InputError(
                f"The time column {column.name!r} holds numbers that are not dates (the first is {column[0]}).",
                advice="bad dates",
                name=column.name,
            )
        return column

    def _order(self, column: pl.Series, blocks: Callable[[], Iterable[_Part]]) -> str:
        """The order of day, month and year in a column of text."""
        name = column.name
        if name not in self._orders:
            # Only the end of a long file may tell days from months.
            rest = (text for block in blocks() for text in block.own[name].cast(pl.String))
            order = find_order(itertools.chain(column, rest))
            if self._dialect.date_order is not None and order != YEAR_FIRST:
                order = self._dialect.date_order
            if order is None:
                raise InputError(
                    f"The dates in the time column {name!r} can be read with the day or with the month first "
                    f"(such as {column.drop_nulls()[0]!r}).",
                    advice="day or month",
                )
            self._orders[name] = order
        return self._orders[name]


def _with_numbers(block: _Part) -> pl.DataFrame:
    """The rows of a block with numbers and booleans as floats and empty cells as NaN."""
    frame = block.frame
    if "" in frame.columns and not frame[""].dtype.is_temporal():
        if len(frame[""]) > frame[""].null_count():
            raise InputError(
                "A column has no name. Name it or, if it only counts the readings, write the file without it "
                "(pandas: to_csv(..., index=False))."
            )
        frame = frame.drop("")  # rows that end with a separator
    for column in frame:
        if column.dtype.is_integer():
            _check_exact(column, block)
    frame = frame.with_columns(
        pl.col(name).cast(pl.Float64).fill_null(float("nan"))
        for name, dtype in frame.schema.items()
        if dtype.is_numeric() or dtype in (pl.Boolean, pl.Null)
    )
    for column in frame:
        if column.dtype.is_float():
            _check_size(column, block)
    return frame[1:] if block.repeats else frame


def _check_size(column: pl.Series, block: _Part) -> None:
    """Refuse numbers whose squares overflow; infinities are left to the checks of a series."""
    huge = column.is_finite() & (column.abs() > LARGEST)
    if huge.any():
        row = huge.arg_max() or 0
        raise InputError(
            f"Column {column.name!r} has {column[row]} at time step {block.step(row)}, too large to compute with.",
            advice="bad cell",
            name=column.name,
            value=column[row],
        )


def _check_exact(column: pl.Series, block: _Part) -> None:
    """Refuse integers that a float would round."""
    large = column.is_between(-(2**53), 2**53).not_().fill_null(False)
    for row in large.arg_true():
        if int(float(column[row])) != column[row]:
            raise InputError(
                f"Column {column.name!r} has {column[row]} at time step {block.step(row)}, an integer too large to be "
                "exact.",
                advice="too large",
                name=column.name,
            )


def _is_counter(parts: Iterable[pl.Series]) -> bool:
    """Whether a column increases from row to row."""
    rows, last = 0, None
    for part in parts:
        if not len(part):
            continue
        if not (part.dtype.is_numeric() and part.is_sorted() and part.n_unique() == len(part)):
            return False
        if last is not None and (part[0] is None or part[0] <= last):
            return False
        rows, last = rows + len(part), part[-1]
    return rows > 1


def _from_text(column: pl.Series, block: _Part, order: str) -> pl.Series:
    times: list[datetime | None] = []
    for row, text in enumerate(column):
        try:
            times.append(None if text is None else parse_date(text, order))
        except (ValueError, OverflowError) as error:
            raise InputError(
                f"The time column {column.name!r} has {text!r} at time step {block.step(row)}.",
                advice="bad dates",
                name=column.name,
            ) from error
    zoned = {time.tzinfo is not None for time in times if time is not None}
    if len(zoned) > 1:
        raise InputError(
            f"The time column {column.name!r} has a time zone in some rows only. Write it in all rows or in none."
        )
    if zoned == {True}:
        try:
            utc = [None if time is None else time.astimezone(UTC) for time in times]
        except OverflowError as error:
            raise InputError(f"The time column {column.name!r} has dates out of range. Correct them.") from error
        return pl.Series(column.name, utc, dtype=pl.Datetime("us", "UTC"))
    return pl.Series(column.name, times, dtype=pl.Datetime("us"))


def _from_epoch(column: pl.Series) -> pl.Series | None:
    numbers = column.cast(pl.Float64)
    least, most = (float(edge) if isinstance(edge, float) else 0.0 for edge in (numbers.min(), numbers.max()))
    unit = epoch_unit(least, most)
    if unit is None:
        return None
    if column.dtype.is_integer():  # exact, also for nanoseconds
        integers = column.cast(pl.Int64)
        microseconds = integers // round(unit / 1e6) if unit > 1e6 else integers * round(1e6 / unit)
    else:
        microseconds = (numbers * (1e6 / unit)).round().cast(pl.Int64)
    return microseconds.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")

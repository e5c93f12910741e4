"""Tables of readings in CSV and Parquet files: one row per reading, one column per variable, optionally the time."""

import csv
import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

import polars as pl

from cometad.data.cells import MISSING, clean_header, epoch_unit, named_like_time, parse_time
from cometad.errors import CometadError, InputError, ParameterError
from cometad.files import parts_of, write_whole

Use = TypeVar("Use")


def read_table(path: str | os.PathLike[str], time_column: str | None = None, drop: Sequence[str] = ()) -> pl.DataFrame:
    r"""Read a CSV (.csv, .csv.gz, .tsv) or Parquet file of readings into a frame that detectors accept.

    Numbers become floats, and an empty cell (also NA, null, none) becomes NaN. The time column is `time_column` if
    given, else a column of dates, else one named like a time. It becomes datetimes; times with a zone are converted to
    UTC. Write times year first (2024-03-01 04:10:00): other orders of day and month are ambiguous. Numbers in a column
    that is given or named as the time must be seconds, milli-, micro- or nanoseconds since 1970. A column named like a
    time that only counts (0, 1, 2) is refused: as a variable it would leave its training range with every new reading.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from cometad.data.tables import read_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "plant.csv"
    ...     _ = path.write_text("time,flow\n2024-03-01 04:10,1\n2024-03-01 04:11,\n")
    ...     read_table(path).rows()
    [(datetime.datetime(2024, 3, 1, 4, 10), 1.0), (datetime.datetime(2024, 3, 1, 4, 11), nan)]
    """
    target = Path(path)
    frame = _dropped(_format(target).whole(target), drop, target)
    _check_rows(frame, target)
    names = _time_columns(frame, time_column, target)
    return _with_numbers(_with_times(frame, names, time_column is not None, lambda: [frame]))


def table_chunks(
    path: str | os.PathLike[str], time_column: str | None = None, drop: Sequence[str] = (), rows: int = 2**16
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
    target = Path(path)
    return _chunks(target, partial(_format(target).blocks, target, rows), time_column, drop)


def check_table(path: str | os.PathLike[str]) -> None:
    """Refuse a path that is not a file in a format that `read_table` supports.

    >>> from cometad.data.tables import check_table
    >>> check_table("plant.xlsx")
    Traceback (most recent call last):
    ...
    cometad.errors.InputError: The name 'plant.xlsx' does not end in .csv, .csv.gz, .tsv or .parquet. Choose one of
    these formats.
    """
    _format(Path(path))


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
    write = _by_suffix(Path(path), _WRITERS, ParameterError)
    write_whole(path, lambda temporary: write(frames, temporary))


def check_suffix(path: str | os.PathLike[str]) -> None:
    """Refuse a path whose suffix is not a format that `write_table` supports.

    >>> from cometad.data.tables import check_suffix
    >>> check_suffix("scores.xlsx")
    Traceback (most recent call last):
    ...
    cometad.errors.ParameterError: The name 'scores.xlsx' does not end in .csv or .parquet. Choose one of these formats.
    """
    _by_suffix(Path(path), _WRITERS, ParameterError)


def csv_text(frame: pl.DataFrame, header: bool = True) -> str:
    r"""A table as CSV text, with or without its header.

    >>> import polars as pl
    >>> from datetime import datetime
    >>> from cometad.data.tables import csv_text
    >>> csv_text(pl.DataFrame({"time": [datetime(2024, 3, 1, 4, 10)]}))
    'time\n2024-03-01T04:10:00\n'
    """
    zoned = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.Datetime) and dtype.time_zone]
    frame = frame.with_columns(pl.col(zoned).dt.to_string("%Y-%m-%dT%H:%M:%S%.f%:z"))
    return frame.write_csv(include_header=header, datetime_format="%Y-%m-%dT%H:%M:%S%.f")


def csv_texts(frames: Iterable[pl.DataFrame]) -> Iterator[str]:
    r"""A table that arrives in parts as CSV text, part by part.

    >>> import polars as pl
    >>> from cometad.data.tables import csv_texts
    >>> list(csv_texts([pl.DataFrame({"step": [0]}), pl.DataFrame({"step": [1]})]))
    ['step\n0\n', '1\n']
    """
    return (csv_text(frame, header=number == 0) for number, frame in enumerate(frames))


# --- files ------------------------------------------------------------------------------------------------------------


class _Format(NamedTuple):
    """How to read a file format."""

    whole: Callable[[Path], pl.DataFrame]
    # Blocks of a given number of rows. Each block after the first repeats the file's first row on top, so that a change
    # of type or time zone in a later block shows as it would in the whole file.
    blocks: Callable[[Path, int], Iterator[pl.DataFrame]]


def _read_parquet(path: Path) -> pl.DataFrame:
    with _parquet_errors(path):
        return pl.read_parquet(path)


def _parquet_blocks(path: Path, rows: int) -> Iterator[pl.DataFrame]:
    with _parquet_errors(path):
        table = pl.scan_parquet(path)
        first = table.head(1).collect()
        yield table.head(rows).collect()
        for start in range(rows, table.select(pl.len()).collect().item(), rows):
            yield pl.concat([first, table.slice(start, rows).collect()])


@contextmanager
def _parquet_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _unreadable(path, "a complete Parquet file", error) from error


def _read_csv(path: Path, separator: str = ",") -> pl.DataFrame:
    with _csv_errors(path):
        return _parsed(path, _header(path, separator), separator)


def _csv_blocks(path: Path, rows: int, separator: str = ",") -> Iterator[pl.DataFrame]:
    with _csv_errors(path):
        names = _header(path, separator)
        with _opened(path) as file:
            top = _lines(file, 1)
            first = _lines(file, 1)
            yield _parsed(top + first + _lines(file, rows - 1), names, separator)
            while block := _lines(file, rows):
                yield _parsed(top + first + block, names, separator)


def _lines(file: BinaryIO | gzip.GzipFile, count: int) -> bytes:
    """The next `count` lines, plus any that continue a quoted cell."""
    lines = b"".join(islice(file, count))
    quotes = lines.count(b'"')
    more = []
    while quotes % 2 and (line := file.readline()):
        more.append(line)
        quotes += line.count(b'"')
    return lines + b"".join(more)


def _parsed(table: Path | bytes, names: list[str], separator: str) -> pl.DataFrame:
    # Infer types from all rows: a word in the last row then makes the column text instead of failing halfway.
    frame = pl.read_csv(table, separator=separator, infer_schema_length=None)
    frame.columns = names
    return frame.with_columns(_read_text(frame[name]) for name in names if frame[name].dtype == pl.String)


@contextmanager
def _csv_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except pl.exceptions.NoDataError as error:
        raise InputError(f"'{path}' is empty. Pass a file with a header row and readings.") from error
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error, pl.exceptions.PolarsError) as error:
        raise _unreadable(path, "a CSV file in UTF-8 with as many cells in each row as in the header", error) from error


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


_CSV = _Format(_read_csv, _csv_blocks)
_FORMATS = {
    ".csv": _CSV,
    ".csv.gz": _CSV,
    ".tsv": _Format(partial(_read_csv, separator="\t"), partial(_csv_blocks, separator="\t")),
    ".parquet": _Format(_read_parquet, _parquet_blocks),
}
_WRITERS: dict[str, Callable[[Iterable[pl.DataFrame], Path], None]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}


def _format(path: Path) -> _Format:
    form = _by_suffix(path, _FORMATS, InputError)
    if not path.is_file():
        problem = "is a folder" if path.is_dir() else "does not exist"
        raise InputError(f"The file '{path}' {problem}. Pass a file of readings.")
    return form


def _by_suffix(path: Path, table: dict[str, Use], refusal: type[CometadError]) -> Use:
    for suffix, use in table.items():
        if path.name.lower().endswith(suffix):
            return use
    *others, last = table
    raise refusal(f"The name '{path}' does not end in {', '.join(others)} or {last}. Choose one of these formats.")


def _unreadable(path: Path, wanted: str, error: Exception) -> InputError:
    reason = str(getattr(error, "strerror", None) or error).partition("\n")[0].rstrip(".")
    return InputError(f"'{path}' cannot be read ({reason}). Pass {wanted}.")


def _opened(path: Path) -> BinaryIO | gzip.GzipFile:
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb")


def _header(path: Path, separator: str) -> list[str]:
    """The column names in the first row."""
    with _opened(path) as file:
        text = TextIOWrapper(file, encoding="utf-8-sig", newline="")
        cells = next(csv.reader(text, delimiter=separator), [])
    if not cells:
        raise InputError(f"'{path}' is empty. Pass a file with a header row and readings.")
    if any("\0" in cell for cell in cells):
        raise InputError(f"'{path}' is not a text file. Pass a CSV file in UTF-8.")
    return clean_header(cells, f"The first row of '{path}'")


def _read_text(column: pl.Series) -> pl.Series:
    """Convert a text column to numbers if all its cells are numbers (polars leaves " 1.5" and "nan" as text)."""
    text = column.str.strip_chars()
    text = text.set(text.str.to_lowercase().is_in(MISSING), None)
    numbers = text.cast(pl.Float64, strict=False)
    return numbers if numbers.null_count() == text.null_count() else text


# --- columns ----------------------------------------------------------------------------------------------------------


def _chunks(
    path: Path, blocks: Callable[[], Iterator[pl.DataFrame]], time_column: str | None, drop: Sequence[str]
) -> Iterator[pl.DataFrame]:
    parts = (_dropped(block, drop, path) for block in blocks())
    first = next(parts)
    _check_rows(first, path)
    names = _time_columns(first, time_column, path)
    # Telling a counter from a variable may take the whole file: only the end may show that it decreases.
    first = _with_times(first, names, time_column is not None, blocks)
    yield _with_numbers(first)
    # The time columns of the first part are those of the whole file.
    times = [name for name in names if first[name].dtype.is_temporal()]
    before = len(first)
    for part in parts:
        yield _with_numbers(_with_times(part, times, True, blocks, before - 1))[1:]
        before += len(part) - 1


def _dropped(frame: pl.DataFrame, drop: Sequence[str], path: Path) -> pl.DataFrame:
    for name in drop:
        _check_column(frame, name, path)
    return frame.drop(drop)


def _check_rows(frame: pl.DataFrame, path: Path) -> None:
    if frame.height == 0:
        raise InputError(f"'{path}' has a header but no readings. Pass a file with at least one.")


def _check_column(frame: pl.DataFrame, name: str, path: Path) -> None:
    if name not in frame.columns:
        raise InputError(f"'{path}' has no column {name!r}. Available: {', '.join(frame.columns)}.")


def _with_numbers(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with numbers and booleans as floats and empty cells as NaN."""
    if "" in frame.columns and not frame[""].dtype.is_temporal():
        raise InputError(
            "A column has no name. Name it or, if it only counts the readings, write the file without it "
            "(pandas: to_csv(..., index=False))."
        )
    return frame.with_columns(
        pl.col(name).cast(pl.Float64).fill_null(float("nan"))
        for name, dtype in frame.schema.items()
        if dtype.is_numeric() or dtype in (pl.Boolean, pl.Null)
    )


def _time_columns(frame: pl.DataFrame, given: str | None, path: Path) -> list[str]:
    """The names of the columns that may hold times."""
    if given is not None:
        _check_column(frame, given, path)
        return [given]
    if any(dtype.is_temporal() for dtype in frame.dtypes):
        return []
    # Includes a pandas index that was written without a name.
    return [column.name for column in frame if named_like_time(column.name) or _begins_with_date(column)]


def _with_times(
    frame: pl.DataFrame,
    names: Sequence[str],
    given: bool,
    blocks: Callable[[], Iterable[pl.DataFrame]],
    skipped: int = 0,
) -> pl.DataFrame:
    """The frame with these columns as datetimes.

    `blocks` rereads the file, for checks that need all of it. Between the frame's first two rows, `skipped` rows of the
    file are left out.
    """
    return frame.with_columns(_times(frame[name], given, blocks, skipped) for name in names)


def _begins_with_date(column: pl.Series) -> bool:
    if column.dtype != pl.String or column.null_count() == len(column):
        return False
    try:
        parse_time(column.drop_nulls()[0])
    except ValueError:
        return False
    return True


def _times(column: pl.Series, given: bool, blocks: Callable[[], Iterable[pl.DataFrame]], skipped: int) -> pl.Series:
    """A column as datetimes; unchanged if it is only named like a time and holds other numbers."""
    if column.dtype == pl.String:
        return _from_text(column, skipped)
    if not column.dtype.is_numeric():
        if given and column.dtype not in (pl.Datetime, pl.Date):
            raise InputError(
                f"The time column {column.name!r} holds no dates (it is {column.dtype}).", advice="no dates"
            )
        return column
    seconds = _from_epoch(column)
    if seconds is not None:
        return seconds
    if given or _is_counter(block[column.name] for block in blocks()):
        raise InputError(
            f"The time column {column.name!r} holds numbers that are not dates (the first is {column[0]}).",
            advice="bad dates",
            name=column.name,
        )
    return column


def _is_counter(parts: Iterable[pl.Series]) -> bool:
    """Whether a column increases from row to row; each part after the first repeats the first row on top."""
    rows, last = 0, None
    for part in parts:
        if not (part.dtype.is_numeric() and part.is_sorted() and part.n_unique() == len(part)):
            return False
        if last is not None and part[1] <= last:
            return False
        rows, last = rows + len(part), part[-1]
    return rows > 1


def _from_text(column: pl.Series, skipped: int) -> pl.Series:
    times: list[datetime | None] = []
    for row, text in enumerate(column):
        try:
            times.append(None if text is None else parse_time(text))
        except ValueError as error:
            raise InputError(
                f"The time column {column.name!r} has {text!r} at time step {row + skipped if row else 0}.",
                advice="bad dates",
                name=column.name,
            ) from error
    zoned = {time.tzinfo is not None for time in times if time is not None}
    if len(zoned) > 1:
        raise InputError(
            f"The time column {column.name!r} has a time zone in some rows only. Write it in all rows or in none."
        )
    if zoned == {True}:
        utc = [None if time is None else time.astimezone(UTC) for time in times]
        return pl.Series(column.name, utc, dtype=pl.Datetime("us", "UTC"))
    return pl.Series(column.name, times, dtype=pl.Datetime("us"))


def _from_epoch(column: pl.Series) -> pl.Series | None:
    numbers = column.cast(pl.Float64)
    least, most = (float(edge) if isinstance(edge, float) else 0.0 for edge in (numbers.min(), numbers.max()))
    unit = epoch_unit(least, most)
    if unit is None:
        return None
    microseconds = (numbers * (1e6 / unit)).round().cast(pl.Int64)
    return microseconds.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")

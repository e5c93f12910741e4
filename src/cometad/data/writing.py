"""Tables written to CSV, Parquet and JSON lines files, completely or not at all."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from cometad.errors import ParameterError
from cometad.files import parts_of, write_whole


def write_table(path: str | os.PathLike[str], frame: pl.DataFrame) -> None:
    r"""Write a table as CSV (.csv), Parquet (.parquet) or JSON lines (.jsonl), completely or not at all."""
    write_chunks(path, [frame])


def write_chunks(path: str | os.PathLike[str], frames: Iterable[pl.DataFrame]) -> None:
    r"""Write a table that arrives in parts, completely or not at all, with only one part in memory at a time."""
    write = _writer(Path(path))
    write_whole(path, lambda temporary: write(frames, temporary))


def check_suffix(path: str | os.PathLike[str]) -> None:
    _writer(Path(path))


def csv_text(frame: pl.DataFrame, header: bool = True) -> str:
    r"""A table as CSV text, with or without its header.

    A text that a spreadsheet would run as a formula, because it begins with =, +, - or @, gets an apostrophe in front.
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
    return (csv_text(frame, header=number == 0) for number, frame in enumerate(frames))


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


def _write_json_lines(frames: Iterable[pl.DataFrame], path: Path) -> None:
    with path.open("wb") as file:
        for frame in frames:
            file.write(frame.write_ndjson().encode())


_WRITERS: dict[str, Callable[[Iterable[pl.DataFrame], Path], None]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
    ".jsonl": _write_json_lines,
}


def _writer(path: Path) -> Callable[[Iterable[pl.DataFrame], Path], None]:
    for suffix, writer in _WRITERS.items():
        if path.name.lower().endswith(suffix):
            return writer
    *first, last = _WRITERS
    raise ParameterError(
        f"The name '{path}' does not end in {', '.join(first)} or {last}. Choose one of these formats."
    )

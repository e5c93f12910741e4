"""Where tables come from: a file, a folder or pattern of files, or standard input; plain or compressed."""

import glob
import gzip
import io
import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple, cast

import polars as pl

from cometad.errors import InputError

STDIN = "-"
SUFFIXES = (".csv", ".csv.gz", ".csv.zst", ".tsv", ".parquet")
_MAGIC = {b"PAR1": ".parquet", b"\x1f\x8b": ".csv.gz", b"\x28\xb5\x2f\xfd": ".csv.zst"}


class TableFile(NamedTuple):
    """A file with a table."""

    path: Path
    shown: str  # in messages
    suffix: str  # one of SUFFIXES
    held: Any = None  # removes a temporary file when it is no longer needed

    @property
    def is_parquet(self) -> bool:
        """Whether this is a Parquet file, not a text."""
        return self.suffix == ".parquet"

    def open(self) -> BinaryIO:
        """Open the file, decompressed."""
        if self.suffix.endswith(".gz"):
            return cast(BinaryIO, gzip.open(self.path, "rb"))
        if self.suffix.endswith(".zst"):
            return _open_zstd(self.path)
        return self.path.open("rb")

    def unreadable(self, wanted: str, error: Exception) -> InputError:
        """The error for a file that cannot be read, and what to pass instead."""
        reason = str(getattr(error, "strerror", None) or error).partition("\n")[0].rstrip(".")
        return InputError(f"'{self.shown}' cannot be read ({reason}). Pass {wanted}.")


def suffix_of(path: Path) -> str:
    """The suffix that says how to read a file; refuses any other.

    >>> from pathlib import Path
    >>> from cometad.data.sources import suffix_of
    >>> suffix_of(Path("plant.CSV.gz"))
    '.csv.gz'
    """
    name = path.name.lower()
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return suffix
    raise InputError(
        f"The name '{path}' does not end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}. Choose one of these formats."
    )


def check_source(path: str | os.PathLike[str]) -> list[Path]:
    """The files behind a file name, folder or pattern, by name; none for standard input. Refuses what is no table.

    >>> from cometad.data.sources import check_source
    >>> check_source("nowhere/*.csv")
    Traceback (most recent call last):
    ...
    cometad.errors.InputError: No file matches 'nowhere/*.csv'. Check the pattern.
    """
    text, target = os.fspath(path), Path(path)
    if text == STDIN:
        return []
    if target.is_dir():
        found = sorted(file for file in target.iterdir() if _is_table(file))
        if not found:
            raise InputError(f"'{target}' is a folder without tables ({', '.join(SUFFIXES)}). Pass a file of readings.")
        return found
    if not target.exists() and glob.has_magic(text):
        found = sorted(file for file in map(Path, glob.glob(text, recursive=True)) if file.is_file())  # noqa: PTH207
        if not found:
            raise InputError(f"No file matches '{text}'. Check the pattern.")
    else:
        found = [target]
    for file in found:
        suffix_of(file)
        if not file.is_file():
            raise InputError(f"The file '{file}' does not exist. Pass a file of readings.")
    return found


def find_files(path: str | os.PathLike[str]) -> list[TableFile]:
    """The tables behind a file name, folder, pattern or "-", which reads all of standard input."""
    if os.fspath(path) == STDIN:
        return [_from_stdin(sys.stdin.buffer)]
    return [TableFile(file, str(file), suffix_of(file)) for file in check_source(path)]


def _is_table(file: Path) -> bool:
    return file.is_file() and not file.name.startswith(".") and file.name.lower().endswith(SUFFIXES)


def _from_stdin(source: IO[bytes]) -> TableFile:
    """Standard input, copied to a temporary file, because tables are read more than once."""
    held = _TemporaryFile()
    with held.path.open("wb") as copy:
        shutil.copyfileobj(source, copy)
    with held.path.open("rb") as file:
        start = file.read(4)
    suffix = next((suffix for magic, suffix in _MAGIC.items() if start.startswith(magic)), ".csv")
    return TableFile(held.path, "standard input", suffix, held)


class _TemporaryFile:
    """A file that is removed with this object; none is open, so that the garbage collector may take its time."""

    def __init__(self) -> None:
        handle, name = tempfile.mkstemp(prefix="cometad-")
        os.close(handle)
        self.path = Path(name)
        weakref.finalize(self, self.path.unlink, missing_ok=True)


def _open_zstd(path: Path) -> BinaryIO:
    with suppress(ImportError):
        from pyarrow import input_stream

        return cast(BinaryIO, io.BufferedReader(input_stream(str(path), compression="zstd")))
    # Without pyarrow, polars decompresses: all at once, and only UTF-8.
    lines = pl.read_csv(
        path, has_header=False, separator="\x01", quote_char=None, infer_schema=False, truncate_ragged_lines=True
    )
    return io.BytesIO("\n".join(_filled(lines.to_series(0))).encode())


def _filled(lines: Iterable[str | None]) -> Iterable[str]:
    return (line or "" for line in lines)

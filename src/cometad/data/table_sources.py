"""Where tables come from: a file, a folder or pattern of files, or standard input; plain or compressed."""

import errno
import fnmatch
import glob
import gzip
import io
import logging
import os
import re
import shutil
import stat
import sys
import tempfile
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, cast

import polars as pl

from cometad.errors import InputError, OutputError
from cometad.files import is_temporary, status_of

STDIN = "-"
Source = str | os.PathLike[str] | tuple[Path, ...]
SUFFIXES = (".csv", ".csv.gz", ".csv.zst", ".tsv", ".parquet")
_MAGIC = {b"PAR1": ".parquet", b"\x1f\x8b": ".csv.gz", b"\x28\xb5\x2f\xfd": ".csv.zst"}
_CONTENTS = {".parquet": "a Parquet file", ".csv.gz": "compressed with gzip", ".csv.zst": "compressed with Zstandard"}

_log = logging.getLogger("cometad")


@dataclass
class TableFile:
    path: Path
    shown: str  # in messages
    suffix: str  # one of SUFFIXES

    def open(self) -> BinaryIO:
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
    """The suffix that says how to read a file; refuses any other."""
    name = path.name.lower()
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return suffix
    raise InputError(
        f"The name '{path}' does not end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}. Choose one of these formats."
    )


def check_source(path: str | os.PathLike[str]) -> list[Path]:
    """The files behind a file name, folder or pattern, by name; none for standard input. Refuses what is no table."""
    text = os.fspath(path)
    if text == STDIN:
        return []
    names = names_behind(path)
    if names is None:
        _check_file(Path(path))
        return [Path(path)]
    found = sorted((name for name in names if _is_file(name)), key=by_name)
    if not found and Path(path).is_dir():
        raise InputError(f"'{path}' is a folder without tables ({', '.join(SUFFIXES)}). Pass a file of readings.")
    if not found:
        raise InputError(f"No file matches '{text}'. Check the pattern.")
    for file in found:
        _check_file(file)
    return found


def names_behind(path: str | os.PathLike[str]) -> list[Path] | None:
    """What a folder or pattern means, in any order, including broken links; None if the path means itself."""
    text, target = os.fspath(path), Path(path)
    status = _status(target)
    if status is None:
        return list(map(Path, glob.glob(text, recursive=True))) if glob.has_magic(text) else None  # noqa: PTH207
    if not stat.S_ISDIR(status.st_mode):
        return None
    try:
        return [file for file in target.iterdir() if _named_like_table(file)]
    except OSError as error:
        raise _unreadable(target, error) from error


def would_mean(path: Path, new: Path) -> bool:
    """Whether a folder or pattern would mean a file, if that existed."""
    place = Path(os.path.realpath(new))
    if _status(path) is not None:
        return place.parent == Path(os.path.realpath(path)) and _named_like_table(place)
    start, pattern = Path(os.path.abspath(path)), list[str]()  # noqa: PTH100
    while glob.has_magic(str(start)):
        start, pattern = start.parent, [start.name, *pattern]
    start = Path(os.path.realpath(start))
    return place.is_relative_to(start) and _matches(place.relative_to(start).parts, pattern)


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the parts of a path match those of a pattern, as in `glob.glob`."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[skipped:], pattern[1:]) for skipped in range(len(parts) + 1))
    if not parts or (parts[0].startswith(".") and not pattern[0].startswith(".")):
        return False
    return fnmatch.fnmatch(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])


def find_files(path: Source) -> list[TableFile]:
    """The tables behind a file name, folder, pattern or "-", which reads all of standard input; or the given files."""
    if isinstance(path, tuple):
        return [TableFile(file, str(file), suffix_of(file)) for file in path]
    if os.fspath(path) == STDIN:
        return [_from_stdin(sys.stdin)]
    found = [TableFile(file, str(file), suffix_of(file)) for file in check_source(path)]
    for name in sorted(names_behind(path) or ()):
        if name.is_symlink() and not name.exists():
            _log.warning("'%s' is a broken link and was left out.", name)
    return found


def check_content(start: bytes, file: TableFile) -> None:
    """Refuse a table that, by its first bytes, is no text; says what it is."""
    suffix = next((suffix for magic, suffix in _MAGIC.items() if start.startswith(magic)), None)
    # A column may be called PAR1.
    if suffix is not None and file.suffix in (".csv", ".tsv") and (suffix != ".parquet" or b"\0" in start):
        raise InputError(f"'{file.shown}' is {_CONTENTS[suffix]}. Rename it: its name must end in {suffix}.")
    if start.startswith(b"PK\3\4"):
        raise InputError(f"'{file.shown}' is a ZIP archive or a spreadsheet. Save the table as CSV or Parquet.")


def _check_file(file: Path) -> None:
    status = _status(file)
    # Behind /dev/stdin there may be a file, but nothing says in which format.
    if _STREAM.fullmatch(str(file)) or (status is not None and not stat.S_ISREG(status.st_mode)):
        raise InputError(f"'{file}' is a pipe or a device. To read it, send it on standard input and pass -.")
    if is_temporary(file):
        raise InputError(f"'{file}' is a temporary file of cometad, which the next write may delete. Rename it.")
    suffix_of(file)
    if status is None:
        raise InputError(f"The file '{file}' does not exist. Pass a file of readings.")


def _status(path: Path) -> os.stat_result | None:
    try:
        return status_of(path)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(f"'{path}' cannot be read ({error.strerror}). Pass a file of readings.")


def _is_file(path: Path) -> bool:
    try:
        status = status_of(path)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise _unreadable(path, error) from error
        return False
    return status is not None and stat.S_ISREG(status.st_mode)


def _named_like_table(file: Path) -> bool:
    return not file.name.startswith(".") and file.name.lower().endswith(SUFFIXES)


def by_name(file: Path) -> tuple[list[list[tuple[str, int]]], str]:
    """A key that sorts by name, with numbers by their size: day2 is before day10."""
    parts = [[(words, int(number or 0)) for words, number in _NUMBERS.findall(part)] for part in file.parts]
    return parts, str(file)


_NUMBERS = re.compile(r"([^0-9]*)([0-9]{,18})")  # Python refuses to convert thousands of digits
_STREAM = re.compile(r"/dev/(stdin|fd/\d+)|/proc/[^/]+/fd/\d+")


def _from_stdin(source: IO[str] | None) -> TableFile:
    """Standard input, copied to a file that is removed with the object, because tables are read more than once."""
    if source is None:
        raise InputError("Standard input is closed. Send the readings on it, or pass a file of readings.")
    try:
        handle, name = tempfile.mkstemp(prefix="cometad-")
        held = TableFile(Path(name), "standard input", ".csv")
        weakref.finalize(held, held.path.unlink, missing_ok=True)
        with os.fdopen(handle, "wb") as copy:
            shutil.copyfileobj(source.buffer, copy)  # type: ignore[attr-defined]
    except OSError as error:
        raise OutputError(
            f"Cannot copy standard input to a temporary file: {error.strerror}. Free some space in "
            f"'{tempfile.gettempdir()}', or set TMPDIR to another folder."
        ) from error
    with held.path.open("rb") as file:
        start = file.read(4)
    held.suffix = next((suffix for magic, suffix in _MAGIC.items() if start.startswith(magic)), held.suffix)
    return held


def _open_zstd(path: Path) -> BinaryIO:
    with suppress(ImportError):
        from pyarrow import input_stream

        return cast(BinaryIO, io.BufferedReader(input_stream(str(path), compression="zstd")))
    # Without pyarrow, polars decompresses: all at once, and only UTF-8.
    lines = pl.read_csv(
        path, has_header=False, separator="\x01", quote_char=None, infer_schema=False, truncate_ragged_lines=True
    )
    return io.BytesIO("\n".join(lines.to_series(0).fill_null("")).encode())

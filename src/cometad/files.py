"""Atomic file writes: a file is written completely or not at all.

A temporary file is hidden and named after its process (.cometad-PID-16 HEX DIGITS.SUFFIX). Its process holds a lock on
it while it runs, so whatever a killed process left behind can be recognized and deleted by the next write to the same
folder. Any other name, such as .cometad-notes, is somebody else's.
"""

import errno
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cometad.errors import OutputError

if sys.platform != "win32":
    import fcntl

PREFIX = ".cometad-"
PARTS = ".parts"  # ends the name of a folder that belongs to a temporary file
_OWN = re.compile(rf"{re.escape(PREFIX)}\d+-[0-9a-f]{{16}}(\.[^.]*)?", re.DOTALL)  # the names of _new_file


def write_whole(path: str | os.PathLike[str], write: Callable[[Path], object]) -> None:
    """Write a file through a temporary one beside it, so that readers see either the old file or the new one.

    `write` gets the temporary path; the finished file then replaces the target. A link stays a link: the file it leads
    to is replaced. A file that is replaced keeps its permissions.
    """
    try:
        status = status_of(path)  # refuses a loop of links
        mode = None if status is None else status.st_mode
        if mode is not None and stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if mode is not None and not stat.S_ISREG(mode):  # replacing /dev/null would delete the device
            raise OSError(errno.EINVAL, "Not a regular file")
        target = Path(os.path.realpath(path))
        clean_up(target.parent)
        with _temporary(target) as (temporary, file):
            if mode is not None:  # nobody else may read a private file while it is written
                temporary.chmod(stat.S_IMODE(mode) | stat.S_IRUSR | stat.S_IWUSR)
            write(temporary)
            os.fsync(file)
            if mode is not None:
                temporary.chmod(stat.S_IMODE(mode))
            temporary.replace(target)
    except OSError as error:
        raise OutputError(
            f"Cannot write '{os.fspath(path)}': {error.strerror or error}. "
            "Choose an existing, writable folder with enough free space."
        ) from error


def status_of(path: str | os.PathLike[str]) -> os.stat_result | None:
    """The file that a path leads to, or None if there is none; raises OSError if that cannot be known.

    `Path.exists` and its like raise some of these errors and hide others: a folder that may not be searched, a name
    that is too long, a loop of links.
    """
    try:
        return Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def lock(file: int) -> bool:
    """Lock an open file until it is closed; False if another process has locked it."""
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def is_temporary(path: str | os.PathLike[str]) -> bool:
    """Whether a path has the name of a temporary file, which the next write to its folder may delete."""
    return _OWN.fullmatch(Path(path).name) is not None and Path(path).suffix != PARTS


@contextmanager
def parts_of(temporary: Path) -> Iterator[Path]:
    """A folder for the parts of a file that `write_whole` is writing; deleted with them."""
    folder = temporary.with_name(temporary.name + PARTS)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def clean_up(folder: Path) -> None:
    """Delete the temporary files in a folder whose process is gone."""
    if sys.platform == "win32":  # no such locks
        return
    for temporary in folder.glob(f"{PREFIX}*"):
        if not is_temporary(temporary):
            continue
        with suppress(OSError):  # locked by a running process, or deleted by another one
            file = os.open(temporary, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(temporary.with_name(temporary.name + PARTS), ignore_errors=True)
                temporary.unlink()
            finally:
                os.close(file)


@contextmanager
def _temporary(target: Path) -> Iterator[tuple[Path, int]]:
    """A new locked file beside a target, and its descriptor; deleted unless it was renamed."""
    temporary, file = _new_file(target)
    try:
        yield temporary, file
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
        os.close(file)


def _new_file(target: Path) -> tuple[Path, int]:
    while True:
        # Keep the suffix: some writers choose the file format by it.
        path = target.parent / f"{PREFIX}{os.getpid()}-{secrets.token_hex(8)}{target.suffix}"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        if _locked(file):
            return path, file
        os.close(file)


def _locked(file: int) -> bool:
    """Lock a new file; False if another process deletes it, because it was not locked yet."""
    return lock(file) and os.fstat(file).st_nlink > 0

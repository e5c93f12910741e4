"""Atomic file writes: a file is written completely or not at all."""

import errno
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from cometad.errors import OutputError


def write_whole(path: str | os.PathLike[str], write: Callable[[Path], object]) -> None:
    """Write a file through a temporary one beside it, so that readers see either the old file or the new one.

    `write` gets the temporary path; the finished file then replaces the target.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from cometad.files import write_whole
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder) / "note.txt", lambda temporary: temporary.write_text("whole"))
    ...     [file.name for file in Path(folder).iterdir()]
    ['note.txt']
    """
    target = Path(path)
    # Keep the suffix: some writers choose the file format by it.
    temporary = target.parent / f".{secrets.token_hex(8)}{target.suffix}"
    try:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        write(temporary)
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        temporary.replace(target)
    except OSError as error:
        raise OutputError(
            f"Cannot write '{target}': {error.strerror or error}. "
            "Choose an existing, writable folder with enough free space."
        ) from error
    finally:
        if temporary.exists():
            temporary.unlink()

"""Files written whole or not at all."""

import errno
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from cometad.errors import OutputError


def write_whole(path: str | os.PathLike[str], write: Callable[[Path], object]) -> None:
    """Call `write` on a path beside the target and rename the result over it: readers see the old file or the new one.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from cometad.files import write_whole
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder) / "note.txt", lambda aside: aside.write_text("whole"))
    ...     [file.name for file in Path(folder).iterdir()]
    ['note.txt']
    """
    target = Path(path)
    # The suffix stays last: some writers choose the format by it.
    aside = target.parent / f".{secrets.token_hex(8)}{target.suffix}"
    try:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        write(aside)
        with aside.open("rb+") as written:
            os.fsync(written.fileno())
        aside.replace(target)
    except OSError as error:
        raise OutputError(
            f"Cannot write '{target}': {error.strerror or error}. "
            "Choose a folder that exists, is writable and has room."
        ) from error
    finally:
        if aside.exists():
            aside.unlink()

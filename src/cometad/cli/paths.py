"""Checks of output paths before any long work starts."""

import tempfile
from pathlib import Path

from cometad.errors import OutputError


def check_writable(path: Path) -> None:
    """Refuse a path that cannot be written."""
    if path.is_dir():
        raise OutputError(f"Cannot write '{path}': it is a folder. Pass the name of a file in it.")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise OutputError(
            f"Cannot write '{path}': {error.strerror or error}. Choose a folder that exists, is writable and has space."
        ) from error

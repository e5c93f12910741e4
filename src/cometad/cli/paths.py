"""Paths looked at before the long work begins."""

import tempfile
from pathlib import Path

from cometad.errors import ModelFileError, OutputError


def check_readable(model: Path) -> None:
    """Refuse a detector's file that is not there, before torch is loaded to read it."""
    if not model.is_file():
        problem = "is a folder" if model.is_dir() else "does not exist"
        raise ModelFileError(f"The detector '{model}' {problem}. Make one with cometad fit DATA -o MODEL.")


def check_writable(path: Path) -> None:
    """Refuse an output that could not be written later on."""
    if path.is_dir():
        raise OutputError(f"Cannot write '{path}': it is a folder. Pass the name of a file in it.")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise OutputError(
            f"Cannot write '{path}': {error.strerror or error}. Choose a folder that exists, is writable and has room."
        ) from error

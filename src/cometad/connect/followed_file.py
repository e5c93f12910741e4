"""Finds the new lines of one file that may grow, be renamed or be truncated."""

import hashlib
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO

from cometad.connect.file_lines import FileLine

CHUNK = 256 * 1024  # bytes read at once
TAIL = 64  # bytes before the position that identify the file's content


@dataclass
class FollowedFile:
    r"""How far a file was read. Identified by inode, not by name, so it survives a rename."""

    path: str
    identity: str  # device and inode
    offset: int = 0  # bytes read; for a Parquet file, rows
    lines: int = 0  # lines read
    tail: str = ""  # digest of the last bytes read
    form: str = ""  # csv, jsonl or table; empty if not known yet
    header: list[str] = field(default_factory=list)
    mark: str | None = None  # decimal mark
    good: bool = False  # whether it has had a usable reading
    bad: int = 0  # unusable lines at its start
    done: str = ""  # if read as a whole or skipped: its size and modification time at that point

    @classmethod
    def at(cls, path: Path, status: os.stat_result | None = None) -> "FollowedFile":
        """An unread file."""
        return cls(str(path), identity_of(status or path.stat()))

    @classmethod
    def restored(cls, state: dict[str, Any]) -> "FollowedFile":
        """A file from its saved state; fields of later versions are ignored."""
        return cls(**{one.name: state[one.name] for one in fields(cls) if one.name in state})

    def state(self) -> dict[str, Any]:
        """Everything a restart needs, as JSON, without default values."""
        start = FollowedFile(self.path, self.identity)
        return {
            name: value
            for name, value in asdict(self).items()
            if name in ("path", "identity") or value != getattr(start, name)
        }

    def start_over(self) -> None:
        """Read from the start: the file was truncated or replaced."""
        other = FollowedFile(self.path, self.identity)
        for one in fields(self):
            setattr(self, one.name, getattr(other, one.name))

    def was_replaced(self, handle: BinaryIO) -> bool:
        """Whether the content already read has changed: the file was truncated, and perhaps rewritten."""
        size = os.fstat(handle.fileno()).st_size
        return size < self.offset or (0 < self.offset < size and self._digest(handle) != self.tail)

    def new_lines(self, handle: BinaryIO, final: bool = False) -> list[FileLine]:
        """The next complete lines, at most one chunk; counts them as read.

        A last line without a line break is incomplete, unless this is `final`.
        """
        handle.seek(self.offset)
        found = handle.read(CHUNK)
        end = found.rfind(b"\n") + 1
        if end == 0 and (final or len(found) == CHUNK):  # a line that long is unusable anyway
            end = len(found)
        if final and len(found) < CHUNK:
            end = len(found)
        contents = found[:end].removesuffix(b"\n").split(b"\n") if end else []
        lines = [FileLine(self.lines + i, content.rstrip(b"\r")) for i, content in enumerate(contents, 1)]
        self.offset += end
        self.lines += len(lines)
        if end:
            self.tail = self._digest(handle)
        return lines

    def _digest(self, handle: BinaryIO) -> str:
        start = max(0, self.offset - TAIL)
        handle.seek(start)
        return hashlib.sha256(handle.read(self.offset - start)).hexdigest()[:16]


def identity_of(status: os.stat_result) -> str:
    """The device and the inode of a file."""
    return f"{status.st_dev}-{status.st_ino}"


def version_of(status: os.stat_result) -> str:
    """The size and the time of the last change of a file."""
    return f"{status.st_size}-{status.st_mtime_ns}"

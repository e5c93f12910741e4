"""Files: a growing folder, followed like `tail -F`, or read once.

CSV and JSON lines are read as they are written; a last line waits for its line break. Parquet and compressed files are
read once they are complete. The position in each file is stored with its readings, so a restart resumes exactly there.
New, renamed, truncated and deleted files are noticed.
"""

import asyncio
import glob
import os
import stat
import time
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import unquote

import polars as pl

from cometad.connect.address import Address, keyword
from cometad.connect.bodies import LayoutOf
from cometad.connect.contract import Lost, Rejection
from cometad.connect.followed_file import (
    FileLine,
    FilePiece,
    FollowedFile,
    Rows,
    form_of,
    from_csv,
    from_rows,
    identity_of,
    piece_of,
    piece_of_json,
    split_header,
    table_rows,
    version_of,
)
from cometad.connect.intake import Intake
from cometad.data.cells import StreamNumbers
from cometad.data.table_sources import SUFFIXES, by_name
from cometad.data.text import Layout, separator_hint
from cometad.errors import InputError, ParameterError

OPTIONS = {
    "follow": keyword(("yes", "no"), "The option follow is {}. Choose yes or no."),
    "order": keyword(("name", "time"), "The option order is {}. Choose name or time."),
}
POLL = 0.25  # seconds between scans of the folder
ROTATION = 5.0  # seconds that a file may be missing during rotation
TEXTS = (".csv", ".tsv", ".jsonl", ".ndjson")
QUIET = 10.0  # seconds without a change after which an abandoned file is complete
INCOMPLETE = 60.0  # seconds after which an unreadable file is no longer expected to be completed
MOST_BAD = 100  # unusable lines at the start of a file after which it is skipped
MOST_KNOWN = 200  # files remembered individually
OLD = 3600.0  # seconds without a change after which a file may be forgotten
MOST_OPEN = 64  # files held open, so that a renamed one is read to its end
LEFT_OUT = "left out"


class FilesSource:
    """Readings from files: a folder, a pattern or one file.

    `file:///var/log/plant/` reads every table in a folder, `file:///var/log/plant/*.csv` those that match. Files are
    read in natural order of their names, day2 before day10, or with `order=time` by modification time. With
    `follow=no`, reading ends at the last line of the last file.
    """

    def __init__(self, address: Address) -> None:
        options = address.read_options(OPTIONS)
        if address.host not in ("", "localhost"):
            raise ParameterError(f"Write {address.shown!r} with three slashes, as in file:///var/log/plant/.")
        if address.tags:
            raise ParameterError("Files have one column per variable and need no tags. Remove them.")
        self._follow = options["follow"] == "yes"
        text = unquote(address.parts.path)
        if not text:
            raise ParameterError(f"{address.shown!r} names no folder. Write something like file:///var/log/plant/.")
        self._place = FolderPlace(Path(text), glob.has_magic(text), text.endswith("/"), options["order"] == "time")
        self._stream = address.stream

    async def run(self, intake: Intake) -> None:
        self._check_place()
        position = await asyncio.to_thread(lambda: intake.position)
        folder = FollowedFolder(self._place, self._stream, intake.layout, position, self._follow)
        try:
            await self._read(folder, intake)
        finally:
            folder.close()

    def _check_place(self) -> None:
        """Refuse a missing folder; a file may appear later."""
        path, base = self._place.path, self._place.base
        if not base.is_dir():
            raise InputError(f"The folder '{base}' does not exist. Create it, or correct the address.")
        if not self._follow and not self._place.pattern and not path.exists():
            raise InputError(f"The file '{path}' does not exist. Correct the address.")

    async def _read(self, folder: "FollowedFolder", intake: Intake) -> None:
        missing, pieces = 0.0, folder.pieces()
        while True:
            try:
                piece = await asyncio.to_thread(next, pieces)
            except OSError as error:
                raise Lost(f"The folder '{self._place.base}' cannot be read ({error.strerror or error}).") from error
            missing = 0.0 if folder.found or self._place.may_be_empty else missing + POLL
            if missing == 0.0:
                intake.connected()
            elif missing > ROTATION:
                intake.mark("lost", f"The file '{self._place.path}' does not exist. It will be read once it does.")
            if piece is not None:
                await intake.reject(piece.rejected, self._stream or "")
                await intake.deliver(piece.batches, piece.origin, folder.position())
            elif self._follow:
                await asyncio.sleep(POLL)
            else:
                return


class FolderPlace(NamedTuple):
    path: Path
    pattern: bool  # whether the path is a pattern
    folder: bool  # whether the path ends with a slash, so it must be a folder
    by_time: bool  # order of the files: by modification time, not by name

    @property
    def may_be_empty(self) -> bool:
        return self.pattern or self.folder or self.path.is_dir()

    @property
    def base(self) -> Path:
        path = self.path
        while self.pattern and glob.has_magic(str(path)):
            path = path.parent
        return path if self.may_be_empty else path.parent


class Found(NamedTuple):
    path: Path
    status: os.stat_result


class FollowedFolder:
    """All files at a place, and how far each was read."""

    def __init__(
        self, place: FolderPlace, stream: str | None, layout_of: LayoutOf, position: Any, follow: bool
    ) -> None:
        self._place, self._stream, self._layout_of, self._follow = place, stream, layout_of, follow
        state: Mapping[str, Any] = position if isinstance(position, dict) and "files" in position else {}
        known = map(FollowedFile.model_validate, state.get("files", ()))
        self._files = {file.identity: file for file in known}
        self._before: str | int | None = state.get("before")  # the last forgotten file
        self._headers: dict[str, list[str]] = {file.path: file.header for file in self._files.values()}
        self._handles: OrderedDict[str, BinaryIO] = OrderedDict()
        self._sizes: dict[str, tuple[int, float]] = {}  # size of a file, and when it last changed
        self._tables: dict[str, tuple[str, Rows]] = {}  # tables being read, with their versions
        self._told: set[str] = set()  # files that cannot be opened
        self._closed = False
        self.found = False  # whether there is any file

    def position(self) -> dict[str, Any]:
        return {
            "files": [file.model_dump(exclude_defaults=True) for file in self._files.values()],
            "before": self._before,
        }

    def pieces(self) -> Iterator[FilePiece | None]:
        """What is new in each file, in order; None if there is nothing for now."""
        while True:
            for file, is_left_behind in self._look():
                while (piece := self._piece(file, is_left_behind)) is not None:
                    yield piece
            yield None

    def close(self) -> None:
        self._closed = True
        while self._handles:
            self._handles.popitem()[1].close()

    # -- finding files -----------------------------------------------------------------------------------------------

    def _look(self) -> list[tuple[FollowedFile, bool]]:
        """The files to check, and whether later ones exist; first those renamed or deleted while being read."""
        there = self._there()
        self.found = bool(there)
        for identity, (path, _) in there.items():
            file = self._files.setdefault(identity, FollowedFile(path=str(path), identity=identity))
            file.path = str(path)
        gone = [(file, True) for identity, file in self._files.items() if identity not in there]
        self._forget(there)
        newest = next(reversed(there), None)
        return gone + [(self._files[one], one != newest) for one in there if one in self._files]

    def _there(self) -> dict[str, Found]:
        """The files in order, by their identity."""
        path = self._place.path
        if self._place.pattern:
            paths = list(map(Path, glob.glob(str(path), recursive=True)))  # noqa: PTH207
        elif self._place.folder or path.is_dir():
            paths = [one for one in path.iterdir() if _is_table(one)]
        else:
            paths = [path]
        found = []
        for one in paths:
            with suppress(FileNotFoundError):  # deleted just now, or a broken link
                found.append(Found(one, one.stat()))
        there = {
            identity_of(one.status): one for one in sorted(found, key=self._key) if stat.S_ISREG(one.status.st_mode)
        }
        if self._before is None:
            return there
        limit = self._before if self._place.by_time else by_name(Path(str(self._before)))
        return {name: one for name, one in there.items() if name in self._files or self._key(one)[0] > limit}

    def _key(self, found: Found) -> tuple[Any, ...]:
        if self._place.by_time:
            return found.status.st_mtime_ns, by_name(found.path)
        return (by_name(found.path),)

    def _forget(self, there: Mapping[str, Found]) -> None:
        """Forget the oldest finished files to keep the position small; none of them will be read again."""
        for identity, (path, status) in there.items():
            file = self._files[identity]
            is_read = file.done or file.offset == status.st_size
            if len(self._files) <= MOST_KNOWN or not is_read or time.time() - status.st_mtime < OLD:
                return
            self._before = status.st_mtime_ns if self._place.by_time else str(path)
            self._drop(file)

    def _drop(self, file: FollowedFile) -> None:
        for known in (self._files, self._sizes, self._tables):
            known.pop(file.identity, None)
        if file.identity in self._handles:
            self._handles.pop(file.identity).close()

    # -- reading a file ----------------------------------------------------------------------------------------------

    def _piece(self, file: FollowedFile, is_left_behind: bool) -> FilePiece | None:
        handle = self._handle(file)
        if handle is None:
            return self._unopened(file)
        status = os.fstat(handle.fileno())
        if file.done == LEFT_OUT and status.st_size < file.offset:
            file.start_over()
        if file.done in (LEFT_OUT, version_of(status)):
            return None
        if file.form in ("csv", "jsonl") and file.was_replaced(handle):
            file.start_over()
        if not file.form:
            file.form = form_of(handle)
        if file.form == "table":
            return self._table_piece(file, status)
        return self._text_piece(file, handle, status, is_left_behind)

    def _handle(self, file: FollowedFile) -> BinaryIO | None:
        """The open file; None if it is gone or unreadable."""
        handle = self._handles.get(file.identity)
        if handle is None:
            path = file.path_now()
            if path is None or self._closed:
                return None
            try:
                handle = path.open("rb", buffering=0)  # a buffer could return stale content
            except (PermissionError, FileNotFoundError):
                return None
            if identity_of(os.fstat(handle.fileno())) != file.identity:  # replaced just now
                handle.close()
                return None
            self._handles[file.identity] = handle
        self._handles.move_to_end(file.identity)
        while len(self._handles) > MOST_OPEN:
            self._handles.popitem(last=False)[1].close()
        return handle

    def _unopened(self, file: FollowedFile) -> FilePiece | None:
        path = file.path_now()
        if path is None:  # deleted
            self._drop(file)
            return None
        if file.path in self._told or os.access(path, os.R_OK):
            return None
        self._told.add(file.path)
        return _rejected(file, "cannot be read (Permission denied). Let the user of this process read it.")

    def _quiet(self, file: FollowedFile, size: int) -> float:
        known, since = self._sizes.get(file.identity, (-1, 0.0))
        if known != size:
            self._sizes[file.identity] = (size, time.monotonic())
            return 0.0
        return time.monotonic() - since

    def _text_piece(
        self, file: FollowedFile, handle: BinaryIO, status: os.stat_result, is_left_behind: bool
    ) -> FilePiece | None:
        quiet = self._quiet(file, status.st_size)
        # Abandoned: a later file has begun, or this one was renamed or deleted, so its writer has moved on.
        final = not self._follow or (is_left_behind and quiet > QUIET)
        lines = file.new_lines(handle, final)
        if not lines:
            if final and not file.is_at(Path(file.path)):
                self._drop(file)
            return None
        if file.form == "jsonl":
            return self._judged(file, piece_of_json(lines, self._stream, self._layout_of, file.name))
        return self._csv_piece(file, lines)

    def _csv_piece(self, file: FollowedFile, lines: Sequence[FileLine]) -> FilePiece | None:
        layout = self._layout()
        if not file.header:
            try:
                file.header, rest = split_header(lines, layout, self._headers.get(file.path, []))
            except InputError:
                return self._left_out(file, "is not UTF-8. Write it in UTF-8.")
            if len(file.header) == 1 and separator_hint(file.header[0]) is not None:  # the rest is not written yet
                file.start_over()
                return None
            lines = rest
            self._headers[file.path] = file.header
        numbers = StreamNumbers(layout.dialect, layout.gaps, file.mark)
        found = from_csv(lines, file.header, layout, numbers)
        try:
            piece = piece_of(found, self._needed_stream(), layout, file.name)
        except InputError as error:
            return self._left_out(file, f"was skipped. {error}")
        file.mark = numbers.mark
        return self._judged(file, piece)

    def _judged(self, file: FollowedFile, piece: FilePiece) -> FilePiece:
        file.good = file.good or bool(piece.batches)
        if not file.good:
            file.bad += len(piece.rejected)
            if file.bad >= MOST_BAD:
                first = piece.rejected[0].reason
                return self._left_out(file, f"was skipped: none of its first {file.bad} lines is usable. {first}")
        return piece

    def _left_out(self, file: FollowedFile, reason: str) -> FilePiece:
        file.done = LEFT_OUT
        return _rejected(file, reason)

    def _table_piece(self, file: FollowedFile, status: os.stat_result) -> FilePiece | None:
        version = version_of(status)
        if self._tables.get(file.identity, ("",))[0] != version:
            self._tables[file.identity] = (version, table_rows(Path(file.path), file.offset))
        try:
            rows = next(self._tables[file.identity][1], None)
        except (OSError, EOFError, zlib.error, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            del self._tables[file.identity]
            if self._follow and time.time() - status.st_mtime < INCOMPLETE:
                return None
            file.done = version
            said = str(error).partition("\n")[0].rstrip(".")
            return _rejected(file, f"is incomplete or damaged ({said}). Write it again.")
        if rows is None:
            file.done = version
            del self._tables[file.identity]
            return FilePiece()
        file.offset += len(rows)
        if isinstance(rows[0], FileLine):
            return self._csv_piece(file, rows)
        layout = self._layout()
        return self._judged(file, piece_of(from_rows(rows, layout), self._needed_stream(), layout, file.name))

    def _layout(self) -> Layout:
        return self._layout_of(self._needed_stream())

    def _needed_stream(self) -> str:
        if self._stream is None:
            raise ParameterError("These files need a stream. Name it with stream or --stream.")
        return self._stream


def _is_table(path: Path) -> bool:
    return not path.name.startswith(".") and path.name.lower().endswith((*SUFFIXES, *TEXTS))


def _rejected(file: FollowedFile, reason: str) -> FilePiece:
    return FilePiece(rejected=[Rejection(file.path, b"", f"The file '{file.path}' {reason}")])

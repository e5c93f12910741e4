"""One file that may grow, be renamed or be truncated: how far it was read, its new lines, and the readings in them."""

import codecs
import datetime
import gzip
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import polars as pl
from pydantic import BaseModel, Field

from cometad.connect.bodies import LayoutOf, parse_messages
from cometad.connect.contract import Message, ReadingBatch, Rejection
from cometad.data.cells import StreamNumbers
from cometad.data.text import CsvLines, Fields, Layout, Reading, separator_hint
from cometad.errors import InputError

CHUNK = 256 * 1024  # bytes read at once
ROWS = 5000  # rows of a table read at once
TAIL = 64  # bytes before the position that identify the file's content

Rows = Iterator[list[Any]]


class FileLine(NamedTuple):
    number: int  # from 1
    content: bytes


class FilePiece(NamedTuple):
    """What was read from a file: readings with the lines they come from, and what cannot be used."""

    batches: Sequence[ReadingBatch] = ()
    origin: Sequence[Message] = ()  # the line of each reading, by the lines of the batches, from 1
    rejected: Sequence[Rejection] = ()


class FollowedFile(BaseModel):
    """How far a file was read. Identified by inode, not by name, so it survives a rename."""

    path: str
    identity: str  # device and inode
    offset: int = 0  # bytes read; for a Parquet file, rows
    lines: int = 0  # lines read
    tail: str = ""  # digest of the last bytes read
    form: str = ""  # csv, jsonl or table; empty if not known yet
    header: list[str] = Field(default_factory=list)
    mark: str | None = None  # decimal mark
    good: bool = False  # whether it has had a usable reading
    bad: int = 0  # unusable lines at its start
    done: str = ""  # if read as a whole or skipped: its size and modification time at that point

    def start_over(self) -> None:
        """Read from the start: the file was truncated or replaced."""
        for name, value in FollowedFile(path=self.path, identity=self.identity):
            setattr(self, name, value)

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
        end, is_full = found.rfind(b"\n") + 1, len(found) == CHUNK
        if (final and not is_full) or (is_full and end == 0):  # a line that long is unusable anyway
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

    @property
    def name(self) -> str:
        return Path(self.path).name

    def is_at(self, path: Path) -> bool:
        try:
            return identity_of(path.stat()) == self.identity
        except OSError:
            return False

    def path_now(self) -> Path | None:
        """The path of the file, even if renamed within its folder; None if it is gone."""
        path = Path(self.path)
        if self.is_at(path):
            return path
        try:
            return next(filter(self.is_at, path.parent.iterdir()), None)
        except OSError:
            return None


def identity_of(status: os.stat_result) -> str:
    return f"{status.st_dev}-{status.st_ino}"


def version_of(status: os.stat_result) -> str:
    return f"{status.st_size}-{status.st_mtime_ns}"


def form_of(handle: BinaryIO) -> str:
    """The form of a file, by its first bytes; empty for an empty file."""
    handle.seek(0)
    start = handle.read(4096)
    if start.startswith((b"PAR1", b"\x1f\x8b", b"\x28\xb5\x2f\xfd")):
        return "table"
    first = start.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    return "" if not first else "jsonl" if first in (b"{", b"[") else "csv"


# -- readings ----------------------------------------------------------------------------------------------------------


def split_header(
    lines: Sequence[FileLine], layout: Layout, before: Sequence[str]
) -> tuple[list[str], Sequence[FileLine]]:
    """The header at the start of a file, and the lines after it.

    The header is the first line, with the one before it if that declares the separator. If the first line names no
    variable, it is the header of the previous file, if known: some loggers write the header only once.
    """
    rest = [line for line in lines if line.content.removeprefix(codecs.BOM_UTF8).strip()]
    own = list(map(_text, rest[:1]))
    if own and separator_hint(own[0]) is not None:
        own += map(_text, rest[1:2])
    continues = own and before and layout.named and not any(name in own[-1] for name in layout.names)
    header = list(before) if continues else own
    return header, rest[len(own) :] if header == own else rest


Found = Iterator[tuple[FileLine, Reading | InputError]]  # a reading, or why a line is none


def from_csv(lines: Iterable[FileLine], header: Sequence[str], layout: Layout, numbers: StreamNumbers) -> Found:
    parser: CsvLines | None = None
    for line in lines:
        parser = parser or CsvLines(enumerate(header, 1), Fields(layout, numbers))
        try:
            text = _text(line).strip("\r\n")
            if text.strip(" "):
                yield line, parser.reading(text, line.number)
        except InputError as error:
            parser = None  # what a bad line shows does not count
            yield line, error


def from_rows(rows: Iterable[tuple[int, Mapping[str, Any]]], layout: Layout) -> Found:
    fields = Fields(layout, StreamNumbers(layout.dialect, layout.gaps), "Row {}".format)
    for number, row in rows:
        cells = {name: _cell(value) for name, value in row.items()}
        line = FileLine(number, repr(cells).encode())
        try:
            yield line, fields.reading(tuple(cells), tuple(cells.values()), number)
        except InputError as error:
            yield line, error


def piece_of(found: Found, stream: str, layout: Layout, shown: str) -> FilePiece:
    """The readings of one stream in a file, which is `shown` under that name."""
    good, rejected = list[tuple[Message, Reading]](), list[Rejection]()
    for line, reading in found:
        where = f"{shown}, line {line.number}"
        if isinstance(reading, Reading):
            good.append((Message(line.content, where, stream), reading))
        else:
            rejected.append(Rejection(where, line.content, str(reading)))
    if not good:
        return FilePiece(rejected=rejected)
    origin, readings = zip(*good, strict=True)
    values = np.array([reading.values for reading in readings], np.float64)
    times, lines = [reading.time for reading in readings], range(1, len(good) + 1)
    batch = ReadingBatch(stream, layout.names, values, times, [None] * len(good), lines)
    return FilePiece([batch], origin, rejected)


def piece_of_json(lines: Iterable[FileLine], stream: str | None, layout_of: LayoutOf, shown: str) -> FilePiece:
    """The readings in JSON lines; without `stream`, they name their own."""
    lines = [line for line in lines if line.content.strip()]
    origin = [Message(line.content, f"{shown}, line {line.number}", stream) for line in lines]
    batches, refused = parse_messages(origin, layout_of, lambda number: f"Line {lines[number - 1].number}")
    rejected = [Rejection(origin[one.line - 1].where, origin[one.line - 1].body, one.reason) for one in refused]
    return FilePiece(batches, origin, rejected)


def _text(line: FileLine) -> str:
    try:
        return line.content.decode("utf-8-sig" if line.number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"Line {line.number} is not UTF-8. Write the file in UTF-8.") from error


def _cell(value: Any) -> Any:
    """A cell of a table as it would be in JSON: times as text."""
    return value.isoformat(sep=" ") if isinstance(value, datetime.datetime) else value


# -- tables that are read as a whole -----------------------------------------------------------------------------------


def table_rows(path: Path, offset: int) -> Rows:
    """The rows of a complete file from `offset` on, in chunks: cells by column, or lines."""
    with path.open("rb") as handle:
        start = handle.read(4)
    if start == b"PAR1":
        table = pl.scan_parquet(path)
        for first in range(offset, table.select(pl.len()).collect().item(), ROWS):
            yield list(enumerate(table.slice(first, ROWS).collect().iter_rows(named=True), first + 1))
        return
    lines = _unpacked(path, start)
    for first in range(offset, len(lines), ROWS):
        yield [FileLine(first + i, line) for i, line in enumerate(lines[first : first + ROWS], 1)]


def _unpacked(path: Path, start: bytes) -> list[bytes]:
    if start.startswith(b"\x1f\x8b"):
        return gzip.decompress(path.read_bytes()).splitlines()
    text = pl.read_csv(path, has_header=False, separator="\x01", quote_char=None, infer_schema=False)
    return [(line or "").encode() for line in text.to_series(0)]

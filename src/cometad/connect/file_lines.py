"""Parse lines and rows of a file into batches of readings; unusable ones are returned with the reason."""

import datetime
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cometad.connect.bodies import parse_messages
from cometad.connect.contract import ReadingBatch
from cometad.connect.intake import Message
from cometad.data.dialect import separator_hint
from cometad.errors import InputError
from cometad.live.numbers import StreamNumbers
from cometad.live.readings import Fields, Layout, Reading, readings


class FileLine(NamedTuple):
    """A line of a file."""

    number: int  # from 1
    content: bytes


class Unusable(NamedTuple):
    """An unusable line, and why it is unusable."""

    line: FileLine
    reason: str


class ParsedLines(NamedTuple):
    """Parsed lines of a file."""

    batches: list[ReadingBatch]
    origin: list[Message]  # the source line of each reading, indexed by the batches' lines, from 1
    unusable: list[Unusable]


def header_of(lines: Sequence[FileLine], layout: Layout, before: Sequence[str]) -> list[str]:
    r"""The header at the start of a file: its first line, with the one before it if that declares the separator.

    If the first line names no variable, the header of the previous file is used, if known: some loggers write
    the header only once.
    """
    found = [line for line in lines if line.content.strip()][:2]
    if not found:
        return []
    header = [_text(found[0])]
    if separator_hint(header[0]) is not None:
        header += map(_text, found[1:])
    continues = before and layout.named and not any(name in header[-1] for name in layout.names)
    return list(before) if continues else header


def parse_csv(
    lines: Sequence[FileLine], header: Sequence[str], stream: str, layout: Layout, numbers: StreamNumbers, shown: str
) -> ParsedLines:
    """The readings in lines of a CSV file, without its header."""
    good, unusable = list[tuple[FileLine, Reading]](), list[Unusable]()
    start = 0
    while start < len(lines):
        feed = _CountedLines(header, lines[start:])
        try:
            for reading in readings(feed, "csv", layout, numbers):
                good.append((lines[start + feed.place(reading.line)], reading))
            break
        except InputError as error:
            if feed.pulled == 0:  # the header
                raise
            start += feed.pulled
            bad = lines[start - 1]
            unusable.append(Unusable(bad, re.sub(r"^Line \d+", f"Line {bad.number}", str(error))))
    return _parsed(good, unusable, stream, layout, shown)


class _CountedLines:
    """Iterates over the header and the lines after it; counts the lines pulled."""

    def __init__(self, header: Sequence[str], lines: Sequence[FileLine]) -> None:
        self._header, self._lines, self.pulled = header, lines, 0

    def place(self, number: int) -> int:
        """The index of a line, from 0, given its number from 1."""
        return number - 1 - len(self._header)

    def __iter__(self) -> Iterator[str]:
        yield from self._header
        for line in self._lines:
            self.pulled += 1
            try:
                yield _text(line)
            except UnicodeDecodeError as error:
                raise InputError(f"Line {line.number} is not UTF-8. Write the file in UTF-8.") from error


def parse_rows(
    rows: Iterable[tuple[int, Mapping[str, Any]]], stream: str, fields: Fields, layout: Layout, shown: str
) -> ParsedLines:
    """The readings in rows of a table, given as row numbers and cells by column."""
    good, unusable = list[tuple[FileLine, Reading]](), list[Unusable]()
    for number, row in rows:
        cells = {name: _cell(value) for name, value in row.items()}
        line = FileLine(number, repr(cells).encode())
        try:
            good.append((line, fields.reading(cells, number)))
        except InputError as error:
            unusable.append(Unusable(line, re.sub(r"^Line ", "Row ", str(error))))
    return _parsed(good, unusable, stream, layout, shown)


def parse_json(
    lines: Sequence[FileLine], stream: str | None, layout_of: Callable[[str], Layout], shown: str
) -> ParsedLines:
    """The readings in JSON lines; without `stream`, they name their own."""
    lines = [line for line in lines if line.content.strip()]
    origin = [Message(line.content, f"{shown}, line {line.number}", stream) for line in lines]
    batches, refused = parse_messages([(one.body, one.stream) for one in origin], layout_of)
    unusable = [
        Unusable(
            lines[one.line - 1], re.sub(r"^(Reading \d+|The body)", f"Line {lines[one.line - 1].number}", one.reason)
        )
        for one in refused
    ]
    return ParsedLines(batches, origin, unusable)


def _parsed(
    good: Sequence[tuple[FileLine, Reading]], unusable: list[Unusable], stream: str, layout: Layout, shown: str
) -> ParsedLines:
    if not good:
        return ParsedLines([], [], unusable)
    values = np.array([reading.values for _, reading in good], np.float64)
    times = [reading.time for _, reading in good]
    lines = range(1, len(good) + 1)
    batch = ReadingBatch(stream, layout.names, values, times, [None] * len(good), lines)
    origin = [Message(line.content, f"{shown}, line {line.number}", stream) for line, _ in good]
    return ParsedLines([batch], origin, unusable)


def _text(line: FileLine) -> str:
    return line.content.decode("utf-8-sig" if line.number == 1 else "utf-8")


def _cell(value: Any) -> Any:
    """A cell of a table as it would be in JSON: times as text."""
    return value.isoformat(sep=" ") if isinstance(value, datetime.datetime) else value

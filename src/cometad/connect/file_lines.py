"""Parse lines and rows of a file into batches of readings; unusable ones are returned with the reason."""

import codecs
import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cometad.connect.bodies import parse_messages
from cometad.connect.contract import ReadingBatch
from cometad.connect.intake import Message
from cometad.data.cells import StreamNumbers
from cometad.data.text import CsvLines, Fields, Layout, Reading, separator_hint
from cometad.errors import InputError


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


def split_header(
    lines: Sequence[FileLine], layout: Layout, before: Sequence[str]
) -> tuple[list[str], Sequence[FileLine]]:
    r"""The header at the start of a file, and the lines after it.

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


def parse_csv(
    lines: Sequence[FileLine], header: Sequence[str], stream: str, layout: Layout, numbers: StreamNumbers, shown: str
) -> ParsedLines:
    """The readings in lines of a CSV file, without its header."""
    good, unusable = list[tuple[FileLine, Reading]](), list[Unusable]()
    parser: CsvLines | None = None
    for line in lines:
        parser = parser or CsvLines(enumerate(header, 1), Fields(layout, numbers))
        try:
            text = _text(line).strip("\r\n")
            if text.strip(" "):
                good.append((line, parser.reading(text, line.number)))
        except InputError as error:
            unusable.append(Unusable(line, str(error)))
            parser = None  # what a bad line shows does not count
    return _parsed(good, unusable, stream, layout, shown)


def parse_rows(rows: Iterable[tuple[int, Mapping[str, Any]]], stream: str, layout: Layout, shown: str) -> ParsedLines:
    """The readings in rows of a table, given as row numbers and cells by column."""
    good, unusable = list[tuple[FileLine, Reading]](), list[Unusable]()
    fields = Fields(layout, StreamNumbers(layout.dialect, layout.gaps), "Row {}".format)
    for number, row in rows:
        cells = {name: _cell(value) for name, value in row.items()}
        line = FileLine(number, repr(cells).encode())
        try:
            good.append((line, fields.reading(tuple(cells), tuple(cells.values()), number)))
        except InputError as error:
            unusable.append(Unusable(line, str(error)))
    return _parsed(good, unusable, stream, layout, shown)


def parse_json(
    lines: Sequence[FileLine], stream: str | None, layout_of: Callable[[str], Layout], shown: str
) -> ParsedLines:
    """The readings in JSON lines; without `stream`, they name their own."""
    lines = [line for line in lines if line.content.strip()]
    origin = [Message(line.content, f"{shown}, line {line.number}", stream) for line in lines]
    bodies = [(one.body, one.stream) for one in origin]
    batches, refused = parse_messages(bodies, layout_of, lambda number: f"Line {lines[number - 1].number}")
    return ParsedLines(batches, origin, [Unusable(lines[one.line - 1], one.reason) for one in refused])


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
    try:
        return line.content.decode("utf-8-sig" if line.number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"Line {line.number} is not UTF-8. Write the file in UTF-8.") from error


def _cell(value: Any) -> Any:
    """A cell of a table as it would be in JSON: times as text."""
    return value.isoformat(sep=" ") if isinstance(value, datetime.datetime) else value

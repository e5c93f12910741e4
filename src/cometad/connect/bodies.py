"""Readings in the body of an HTTP request or a message: JSON, JSON lines or CSV, parsed into batches.

A JSON reading is an object with the values by name, or with a field `values` that holds them by name or in the
detector's order. `time` (or any field that holds a date) and `sequence` are optional; `stream` names the stream where
a body has readings of several. Readings with the same fields, which is nearly all of them, are read column by column.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from pydantic_core import from_json

from cometad.arrays import Floats
from cometad.connect.contract import Message, ReadingBatch, Refusal
from cometad.data.cells import StreamNumbers, TimeFields, lacks, repeated
from cometad.data.prepare import EXACT
from cometad.data.text import Layout, readings
from cometad.errors import CometadError, InputError
from cometad.parameters import is_integer

LARGEST_SEQUENCE = 2**63 - 1
_OWN_FIELDS = ("stream", "sequence", "values")  # unless a variable has that name

LayoutOf = Callable[[str], Layout]  # of the stream with this name
Where = Callable[[int], str]  # names the reading with this number, in messages
Item = tuple[Any, int, str | None, str | None]  # a parsed reading, its line, its stream, and that of one without
Row = tuple[str, Sequence[Any], str | float | None, int | None, int]  # stream, cells, time, sequence, line


class _Object(NamedTuple):
    """A JSON object as it was sent: repeated fields can be seen."""

    keys: tuple[str, ...]
    cells: tuple[Any, ...]

    def __repr__(self) -> str:  # in messages
        return repr(dict(zip(self.keys, self.cells, strict=True)))


class _Places(NamedTuple):
    """Where the parts of a reading are, for all readings with the same fields in the same order."""

    time: int | None
    sequence: int | None
    nested: int  # the field `values`, unless the values are fields themselves
    values: Callable[[Sequence[Any]], tuple[Any, ...]] | None  # picks the values in the detector's order


def parse_body(body: bytes, form: str, stream: str, layout: Layout) -> ReadingBatch:
    r"""All readings of one stream in a body; a bad reading refuses the whole body.

    `form` is "json", "ndjson" or "csv".
    """
    if form == "csv":
        lines = _decoded(body, "The body").splitlines()
        found = list(readings(lines, "csv", layout, StreamNumbers(layout.dialect, layout.gaps)))
        if not found:
            raise InputError("The body has no readings.", advice="no readings")
        numbers, values, times, _ = map(list, zip(*found, strict=True))
        return ReadingBatch(stream, layout.names, np.array(values, np.float64), times, [None] * len(found), numbers)
    part = _Gathered(layout, None)
    for line, item in enumerate(_items(body, form), 1):
        part.add(item, line, stream)
    return part.batch(stream)


def parse_mixed(body: bytes, form: str, layout_of: LayoutOf) -> tuple[list[ReadingBatch], list[Refusal]]:
    """The readings of many streams in a body, one batch per stream; each is taken or refused by itself."""
    return _batches([(item, line, None, None) for line, item in enumerate(_items(body, form), 1)], layout_of)


def parse_messages(
    messages: Sequence[Message], layout_of: LayoutOf, where: Where | None = None
) -> tuple[list[ReadingBatch], list[Refusal]]:
    """The readings in messages of a broker, one batch per stream; each is taken or refused by itself.

    The line of a reading is the number of its message, from 1.
    """
    items, refused = list[Item](), list[Refusal]()
    for number, one in enumerate(messages, 1):
        try:
            found = _items(one.body, "json", where(number) if where else "The body")
            items += [(item, number, one.stream, one.key) for item in found]
        except InputError as error:
            refused.append(Refusal(number, one.stream or one.key or "", str(error)))
    batches, others = _batches(items, layout_of, where)
    return batches, sorted(refused + others)


def _batches(
    items: Iterable[Item], layout_of: LayoutOf, where: Where | None = None
) -> tuple[list[ReadingBatch], list[Refusal]]:
    """The good readings of each stream, and why the others are refused."""
    layouts: dict[str, Layout] = {}
    parts: dict[int, _Gathered] = {}  # by layout: streams of one detector share theirs
    batches, refused = list[ReadingBatch](), list[Refusal]()
    for item, line, stream, key in items:
        named = isinstance(item, _Object) and "stream" in item.keys
        name = stream if stream is not None else item.cells[item.keys.index("stream")] if named else key
        if not isinstance(name, str):
            reading = (where or _reading)(line)
            refused.append(Refusal(line, "", f"{reading} names no stream. Add the field 'stream'."))
            continue
        try:
            layout = layouts.get(name) or layouts.setdefault(name, layout_of(name))
            part = parts.get(id(layout)) or parts.setdefault(id(layout), _Gathered(layout, where))
            part.add(item, line, name)
        except CometadError as error:
            refused.append(Refusal(line, name, str(error)))
    for part in parts.values():
        good, bad = part.batches()
        batches += good
        refused += bad
    return batches, sorted(refused)


def _reading(line: int) -> str:
    return f"Reading {line}"


class _Gathered:
    """Readings of streams with one layout; their values are checked at the end, many at once."""

    def __init__(self, layout: Layout, where: Where | None) -> None:
        self._layout, self._where = layout, where or _reading
        self._places: dict[tuple[str, ...], _Places] = {}  # by fields
        self._rows: list[Row] = []  # not checked yet
        numbers = StreamNumbers(gaps=layout.gaps)
        self._times = TimeFields(layout.names, layout.time_column, numbers, where or "Line {}".format)
        self._numbers: dict[str, StreamNumbers] = {}  # by stream: one never decides how another writes its values

    def add(self, item: Any, line: int, stream: str) -> None:
        if isinstance(item, list):
            if len(item) != len(self._layout.names):
                count = len(self._layout.names)
                raise InputError(f"{self._where(line)} is a list of {len(item)}, not of {count} numbers.")
            self._rows.append((stream, item, None, None, line))
            return
        if not isinstance(item, _Object):
            raise InputError(f"{self._where(line)} is neither an object nor a list of numbers.")
        keys, cells = item
        places = self._places.get(keys) or self._found(keys, cells, line)
        time = None if places.time is None else self._times.sent(cells[places.time], keys[places.time], line)
        sequence = None if places.sequence is None else self._checked_sequence(cells[places.sequence], line)
        values = self._nested(cells[places.nested], line) if places.values is None else places.values(cells)
        self._rows.append((stream, values, time, sequence, line))

    def _found(self, keys: tuple[str, ...], cells: Sequence[Any], line: int) -> _Places:
        twice = repeated(keys)
        if twice is not None:
            raise InputError(f"{self._where(line)} has the field {twice!r} twice.")
        names = self._layout.names
        place = {key: i for i, key in enumerate(keys)}
        _, sequence, nested = (place.pop(word, None) if word not in names else None for word in _OWN_FIELDS)
        values = self._picked(place, line) if nested is None else None
        time_field = self._times.field({key: cells[i] for key, i in place.items()}, line)
        found = _Places(None if time_field is None else place[time_field], sequence, nested or 0, values)
        if time_field is not None or place.keys() <= set(names):  # else a later reading may have a time in its place
            self._places[keys] = found
        return found

    def _picked(self, place: Mapping[str, int], line: int) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
        names = self._layout.names
        lacking = [name for name in names if name not in place]
        if lacking and (len(lacking) == len(names) or not self._layout.gaps):
            raise InputError(lacks(self._where(line), lacking[0]))
        places = [place.get(name) for name in names]
        if not lacking and len(names) > 1:
            return itemgetter(*places)
        return lambda cells: tuple(None if i is None else cells[i] for i in places)

    def _nested(self, values: Any, line: int) -> Sequence[Any]:
        names = self._layout.names
        if isinstance(values, list) and len(values) == len(names):
            return values
        if isinstance(values, list):
            raise InputError(f"{self._where(line)} has {len(values)} values, not {len(names)}.")
        if not isinstance(values, _Object):
            raise InputError(f"The field 'values' of {self._where(line).lower()} is neither an object nor a list.")
        keys, cells = values
        twice = repeated(keys)
        if twice is not None:
            raise InputError(f"{self._where(line)} has the variable {twice!r} twice.")
        return self._picked({key: i for i, key in enumerate(keys)}, line)(cells)

    def _checked_sequence(self, number: Any, line: int) -> int | None:
        if number is None:
            return None
        if not is_integer(number) or not 0 <= number <= LARGEST_SEQUENCE:
            raise InputError(f"{self._where(line)}: the field 'sequence' is not a whole number from 0 to 2^63 - 1.")
        return int(number)

    def batch(self, stream: str) -> ReadingBatch:
        """All readings as those of one stream; the first bad one raises an error."""
        values = _plain(self._rows, len(self._layout.names))
        if values is None:
            values = np.array([self._checked(row) for row in self._rows])
        return self._batch(stream, self._rows, values)

    def batches(self) -> tuple[list[ReadingBatch], list[Refusal]]:
        rows, width, bad = self._rows, len(self._layout.names), list[Refusal]()
        values = _plain(rows, width)
        if values is None:
            good = list[tuple[Row, list[float]]]()
            for row in rows:
                try:
                    good.append((row, self._checked(row)))
                except InputError as error:
                    bad.append(Refusal(row[-1], row[0], str(error)))
            rows, values = [row for row, _ in good], np.array([found for _, found in good]).reshape(-1, width)
        places: dict[str, list[int]] = {}
        for i, row in enumerate(rows):
            places.setdefault(row[0], []).append(i)
        return [self._batch(name, [rows[i] for i in own], values[own]) for name, own in places.items()], bad

    def _batch(self, stream: str, rows: Sequence[Row], values: Floats) -> ReadingBatch:
        _, _, times, sequences, lines = map(list, zip(*rows, strict=True))
        return ReadingBatch(stream, self._layout.names, values, times, sequences, lines)

    def _checked(self, row: Row) -> list[float]:
        stream, cells, *_, line = row
        where, names = self._where(line), self._layout.names
        numbers = self._numbers.setdefault(stream, StreamNumbers(gaps=self._layout.gaps))
        values = [numbers.value(name, cell, where) for name, cell in zip(names, cells, strict=True)]
        if np.isnan(values).all():
            raise InputError(f"{where} has no value at all. Leave it out.")
        return values


def _plain(rows: Sequence[Row], width: int) -> Floats | None:
    """Rows of finite numbers as an array (reading, variable); None if any has to be looked at closely."""
    try:
        values = np.array([row[1] for row in rows])
    except (ValueError, OverflowError):  # a list or an object among the values, or an integer that is far too large
        return None
    if values.dtype.kind not in "iufb" or values.shape != (len(rows), width):
        return None
    values = values.astype(np.float64, copy=False)
    # Larger integers may have been rounded. False for NaN, too.
    return values if len(values) and np.abs(values).max() < EXACT else None


def _items(body: bytes, form: str, what: str = "The body") -> list[Any]:
    text = _decoded(body, what)
    if form == "ndjson":
        lines = [line for line in text.split("\n") if line.strip()]
        items = [_json(line, f"Line {number} of the body") for number, line in enumerate(lines, 1)]
    else:
        found = _quick_items(body) or _json(text, what)
        items = found if isinstance(found, list) else [found]
    if not items:
        raise InputError(f"{what} has no readings.", advice="no readings")
    return items


def _quick_items(body: bytes) -> list[_Object] | None:
    """Fast path: a flat object, or a list of them, without repeated fields; None for any other body."""
    try:
        found = from_json(body, allow_inf_nan=False)
    except ValueError:
        return None
    found = [found] if isinstance(found, dict) else found
    if not isinstance(found, list) or set(map(type, found)) != {dict}:
        return None
    texts = 0  # names of fields and values that are text, as they are known
    for item in found:
        kinds = list(map(type, item.values()))
        if dict in kinds:
            return None
        texts += len(kinds) + kinds.count(str)
    # A repeated field, text inside a list or an object, and an escaped quote all have quotes beyond these.
    return [_Object(tuple(item), tuple(item.values())) for item in found] if body.count(b'"') == 2 * texts else None


def _decoded(body: bytes, what: str) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{what} is not UTF-8. Send text in UTF-8.") from error


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what} is not JSON. Send a JSON object or a list of them.") from error


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    return _Object(*zip(*pairs, strict=True)) if pairs else _Object((), ())


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is not JSON")

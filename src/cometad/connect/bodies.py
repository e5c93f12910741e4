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
from cometad.connect.contract import ReadingBatch, Refusal
from cometad.data.cells import repeated
from cometad.data.dialect import Dialect
from cometad.errors import CometadError, InputError
from cometad.live.numbers import StreamNumbers
from cometad.live.readings import Fields, Layout, readings
from cometad.live.stream import EXACT
from cometad.parameters import is_integer

LARGEST_SEQUENCE = 2**63 - 1
_OWN_FIELDS = ("stream", "sequence", "values")  # unless a variable has that name


class _Object(NamedTuple):
    """A JSON object as it was sent: repeated fields can be seen."""

    keys: tuple[str, ...]
    cells: tuple[Any, ...]

    def __repr__(self) -> str:  # in messages
        return repr(dict(zip(self.keys, self.cells, strict=True)))


class _Plan(NamedTuple):
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
        return _csv_batch(body, stream, layout)
    part = _Gathered(layout)
    for line, item in enumerate(_items(body, form), 1):
        part.add(item, line, stream)
    return part.batch(stream)


def parse_mixed(body: bytes, form: str, layout_of: Callable[[str], Layout]) -> tuple[list[ReadingBatch], list[Refusal]]:
    """The readings of many streams in a body, one batch per stream; each is taken or refused by itself."""
    mixed = _MixedReadings(layout_of)
    for line, item in enumerate(_items(body, form), 1):
        mixed.add(item, line, None)
    return mixed.batches()


def parse_messages(
    messages: Sequence[tuple[bytes, str | None] | tuple[bytes, str | None, str | None]],
    layout_of: Callable[[str], Layout],
) -> tuple[list[ReadingBatch], list[Refusal]]:
    """The readings in messages of a broker, one batch per stream; each is taken or refused by itself.

    A message is its JSON, the stream it belongs to (None if its readings name their streams), and optionally the stream
    of readings that name none. The line of a reading is the number of its message, from 1.
    """
    mixed = _MixedReadings(layout_of)
    for number, (body, stream, *keys) in enumerate(messages, 1):
        key = keys[0] if keys else None
        try:
            items = _items(body, "json")
        except InputError as error:
            mixed.refused.append(Refusal(number, stream or key or "", str(error)))
            continue
        for item in items:
            mixed.add(item, number, stream, key)
    return mixed.batches()


class _MixedReadings:
    """Readings of many streams, gathered one by one; each is taken or refused by itself."""

    def __init__(self, layout_of: Callable[[str], Layout]) -> None:
        self._layout_of, self._layouts = layout_of, dict[str, Layout]()
        self._parts: dict[int, _Gathered] = {}  # by layout: streams of one detector share theirs
        self.refused: list[Refusal] = []

    def add(self, item: Any, line: int, stream: str | None, key: str | None = None) -> None:
        """Add a parsed reading; without `stream`, it names its own or falls back to `key`."""
        named = isinstance(item, _Object) and "stream" in item.keys
        name = stream if stream is not None else item.cells[item.keys.index("stream")] if named else key
        if not isinstance(name, str):
            self.refused.append(Refusal(line, "", f"Reading {line} names no stream. Add the field 'stream'."))
            return
        try:
            layout = self._layouts.get(name) or self._layouts.setdefault(name, self._layout_of(name))
            part = self._parts.get(id(layout)) or self._parts.setdefault(id(layout), _Gathered(layout))
            part.add(item, line, name)
        except CometadError as error:
            self.refused.append(Refusal(line, name, str(error)))

    def batches(self) -> tuple[list[ReadingBatch], list[Refusal]]:
        """The good readings of each stream, and why the others are refused."""
        batches, refused = list[ReadingBatch](), self.refused
        for part in self._parts.values():
            good, bad = part.batches()
            batches += good
            refused += bad
        return batches, sorted(refused)


class _Gathered:
    """Readings with one layout, gathered one by one."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._streams: list[str] = []
        self._plans: dict[tuple[str, ...], _Plan] = {}
        self._rows: list[Sequence[Any]] = []
        self._times: list[str | float | None] = []
        self._sequences: list[int | None] = []
        self._lines: list[int] = []
        self._fields = Fields(layout, StreamNumbers(gaps=layout.gaps))
        self._numbers: dict[str, StreamNumbers] = {}  # by stream: one never decides how another writes its values

    def add(self, item: Any, line: int, stream: str) -> None:
        """Add a parsed reading of a stream; its values are checked later, many at once."""
        names = self._layout.names
        if isinstance(item, list):
            if len(item) != len(names):
                raise InputError(f"Reading {line} is a list of {len(item)}, not of {len(names)} numbers.")
            self._append(stream, item, None, None, line)
            return
        if not isinstance(item, _Object):
            raise InputError(f"Reading {line} is neither an object nor a list of numbers.")
        keys, cells = item
        plan = self._plans.get(keys) or self._planned(keys, cells, line)
        time = None if plan.time is None else self._fields.sent(cells[plan.time], keys[plan.time], line)
        sequence = None if plan.sequence is None else _checked_sequence(cells[plan.sequence], line)
        row = self._nested(cells[plan.nested], line) if plan.values is None else plan.values(cells)
        self._append(stream, row, time, sequence, line)

    def _append(
        self, stream: str, row: Sequence[Any], time: str | float | None, sequence: int | None, line: int
    ) -> None:
        self._streams.append(stream)
        self._rows.append(row)
        self._times.append(time)
        self._sequences.append(sequence)
        self._lines.append(line)

    def _planned(self, keys: tuple[str, ...], cells: Sequence[Any], line: int) -> _Plan:
        twice = repeated(keys)
        if twice is not None:
            raise InputError(f"Reading {line} has the field {twice!r} twice.")
        names = self._layout.names
        place = {key: i for i, key in enumerate(keys)}
        own = [place.pop(word) if word in place and word not in names else None for word in _OWN_FIELDS]
        _, sequence, nested = own
        values = self._picked(place, line) if nested is None else None
        time_field = self._fields.time_field({key: cells[i] for key, i in place.items()}, line)
        plan = _Plan(None if time_field is None else place[time_field], sequence, nested or 0, values)
        if time_field is not None or place.keys() <= set(names):  # else a later reading may have a time in its place
            self._plans[keys] = plan
        return plan

    def _picked(self, place: Mapping[str, int], line: int) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
        """A function that picks the values from the cells of a reading."""
        names = self._layout.names
        lacking = [name for name in names if name not in place]
        if not lacking:
            pick = itemgetter(*(place[name] for name in names))
            return pick if len(names) > 1 else lambda cells: (pick(cells),)
        if len(lacking) == len(names) or not self._layout.gaps:
            raise InputError(
                f"Reading {line}: there is no value for variable {lacking[0]!r}. "
                "Send every variable the detector was fitted on."
            )
        places = [place.get(name) for name in names]
        return lambda cells: tuple(None if i is None else cells[i] for i in places)

    def _nested(self, values: Any, line: int) -> Sequence[Any]:
        names = self._layout.names
        if isinstance(values, list) and len(values) == len(names):
            return values
        if isinstance(values, list):
            raise InputError(f"Reading {line} has {len(values)} values, not {len(names)}.")
        if not isinstance(values, _Object):
            raise InputError(f"The field 'values' of reading {line} is neither an object nor a list.")
        keys, cells = values
        twice = repeated(keys)
        if twice is not None:
            raise InputError(f"Reading {line} has the variable {twice!r} twice.")
        return self._picked({key: i for i, key in enumerate(keys)}, line)(cells)

    def batch(self, stream: str) -> ReadingBatch:
        """All readings as those of one stream; the first bad one raises an error."""
        values = _plain(self._rows, len(self._layout.names))
        if values is None:
            values = np.array([self._checked(i) for i in range(len(self._rows))])
        return ReadingBatch(stream, self._layout.names, values, self._times, self._sequences, self._lines)

    def batches(self) -> tuple[list[ReadingBatch], list[Refusal]]:
        """The good readings of each stream, and why the others are refused."""
        values, bad = _plain(self._rows, len(self._layout.names)), dict[int, Refusal]()
        if values is None:
            values, bad = self._checked_one_by_one()
        places: dict[str, list[int]] = {}
        for i, stream in enumerate(self._streams):
            if i not in bad:
                places.setdefault(stream, []).append(i)
        return [self._batch_of(stream, values, own) for stream, own in places.items()], list(bad.values())

    def _batch_of(self, stream: str, values: Floats, own: list[int]) -> ReadingBatch:
        columns = ([column[i] for i in own] for column in (self._times, self._sequences, self._lines))
        return ReadingBatch(stream, self._layout.names, values[own], *columns)  # type: ignore[arg-type]

    def _checked_one_by_one(self) -> tuple[Floats, dict[int, Refusal]]:
        values, bad = np.full((len(self._rows), len(self._layout.names)), np.nan), dict[int, Refusal]()
        for i, line in enumerate(self._lines):
            try:
                values[i] = self._checked(i)
            except InputError as error:
                bad[i] = Refusal(line, self._streams[i], str(error))
        return values, bad

    def _checked(self, i: int) -> list[float]:
        """The values of one reading, each checked as in a stream."""
        where, names = f"Reading {self._lines[i]}", self._layout.names
        numbers = self._numbers.setdefault(self._streams[i], StreamNumbers(gaps=self._layout.gaps))
        row = [numbers.value(name, cell, where) for name, cell in zip(names, self._rows[i], strict=True)]
        if np.isnan(row).all():
            raise InputError(f"{where} has no value at all. Leave it out.")
        return row


def _plain(rows: Sequence[Sequence[Any]], width: int) -> Floats | None:
    """Rows of finite numbers as an array (reading, variable); None if any has to be looked at closely."""
    try:
        values = np.array(rows)
    except (ValueError, OverflowError):  # a list or an object among the values, or an integer that is far too large
        return None
    if values.dtype.kind not in "iufb" or values.shape != (len(rows), width):
        return None
    values = values.astype(np.float64, copy=False)
    # Larger integers may have been rounded. False for NaN, too.
    return values if len(values) and np.abs(values).max() < EXACT else None


def _items(body: bytes, form: str) -> list[Any]:
    """The readings in a body, as JSON."""
    text = _decoded(body)
    if form == "ndjson":
        lines = [line for line in text.split("\n") if line.strip()]
        items = [_json(line, f"Line {number} of the body") for number, line in enumerate(lines, 1)]
    else:
        found = _quick_items(body) or _json(text, "The body")
        items = found if isinstance(found, list) else [found]
    if not items:
        raise InputError("The body has no readings.", advice="no readings")
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


def _decoded(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError("The body is not UTF-8. Send text in UTF-8.") from error


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what} is not JSON. Send a JSON object or a list of them.") from error


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    return _Object(*zip(*pairs, strict=True)) if pairs else _Object((), ())


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is not JSON")


def _checked_sequence(number: Any, line: int) -> int | None:
    if number is None:
        return None
    if not is_integer(number) or not 0 <= number <= LARGEST_SEQUENCE:
        raise InputError(f"Reading {line}: the field 'sequence' is not a whole number from 0 to 2^63 - 1.")
    return int(number)


def _csv_batch(body: bytes, stream: str, layout: Layout) -> ReadingBatch:
    found = list(readings(_decoded(body).splitlines(), "csv", layout, StreamNumbers(layout.dialect, layout.gaps)))
    if not found:
        raise InputError("The body has no readings.", advice="no readings")
    lines: Iterable[int] = (reading.line for reading in found)
    values = np.array([reading.values for reading in found], np.float64)
    return ReadingBatch(
        stream, layout.names, values, [reading.time for reading in found], [None] * len(found), list(lines)
    )


def layout_of(names: Sequence[str], named: bool, gaps: bool) -> Layout:
    """The layout of readings that a service takes: dates with the year first, no other dialect."""
    return Layout(names, named, None, gaps, Dialect())

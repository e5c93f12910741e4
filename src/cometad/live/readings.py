"""Readings parsed from lines of text as they arrive: CSV with a header, or JSON lines."""

import itertools
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cometad.data.cells import clean_header, epoch_unit, named_like_time, numbered_names, parse_number
from cometad.data.dialect import RECOGNIZED, Dialect, separator_hint, split_cells
from cometad.data.gaps import warn_lacking
from cometad.data.matching import ignored
from cometad.data.text_rows import cell_count
from cometad.data.times import fitting_orders
from cometad.errors import InputError, unknown
from cometad.live.numbers import CORRECT, StreamNumbers

Lines = Iterator[tuple[int, str]]  # line number from 1, text without the line break

_log = logging.getLogger("cometad")


class Reading(NamedTuple):
    """One row of the input."""

    line: int  # for error messages
    values: list[float]  # (variable,) in the detector's order
    time: str | float | None  # as it was sent
    at: float | None = None  # in seconds since 1970, if it is a date


class Layout(NamedTuple):
    """The fields a reading must have."""

    names: Sequence[str]  # the detector's variables
    named: bool  # whether these names came with the training data
    time_column: str | None
    gaps: bool = False  # whether values may be missing; they become NaN
    dialect: Dialect = Dialect()


def readings(
    lines: Iterable[str], form: str, layout: Layout, numbers: StreamNumbers | None = None
) -> Iterator[Reading]:
    r"""Parse lines into readings as they arrive; blank lines are skipped.

    Fields are matched by name, in any order, and unknown fields are ignored with a note. `numbers` reads the values; by
    default, those of a new stream. JSON lists, and CSV for a detector fitted
    without names, are matched by position. If gaps are allowed, some values or fields may be missing, but not all.
    """
    check_form(form)
    numbered = ((number, text) for number, line in enumerate(lines, 1) if (text := line.strip("\r\n")).strip(" "))
    first = next(numbered, None)
    if first is None:
        return
    if form == "auto":
        form = "jsonl" if first[1].lstrip().startswith(("{", "[")) else "csv"
    fields = Fields(layout, numbers or StreamNumbers(layout.dialect, layout.gaps))
    yield from _FORMS[form](itertools.chain([first], numbered), fields)


def check_form(form: str) -> None:
    """Refuse an unknown format."""
    if form not in ("auto", *_FORMS):
        raise unknown("format", form, ["auto", *_FORMS])


def _from_csv(lines: Lines, fields: "Fields") -> Iterator[Reading]:
    layout = fields.layout
    number, text = next(lines)
    dialect = layout.dialect
    separator = dialect.separator or separator_hint(text)
    if separator_hint(text) is not None:
        number, text = next(lines, (number + 1, ""))
    separator = separator or _separator(text, layout.names)
    header = split_cells(text, separator)
    if dialect.header:
        header = clean_header(header, f"Line {number}", layout.time_column)
    else:
        lines, header = itertools.chain([(number, text)], lines), numbered_names(len(header))
    fields.check_given(header, number)
    comma = separator != "," if dialect.decimal is None else dialect.decimal == ","
    names: list[str] | None = None
    for number, text in lines:
        cells = split_cells(text, separator)
        if len(cells) == len(header) + 1 and not cells[-1].strip():
            del cells[-1]  # rows that end with a separator
        if len(cells) != len(header):
            raise InputError(f"Line {number} has {cell_count(cells)}, but the header has {len(header)}. {CORRECT}")
        if names is None:
            time_field = fields.time_field(dict(zip(header, cells, strict=True)), number)
            names = _matched(header, time_field, layout)
        yield fields.reading(dict(zip(names, cells, strict=True)), number, comma)


def _matched(header: list[str], time_field: str | None, layout: Layout) -> list[str]:
    """The names of the columns; for a detector that was fitted on an array they are matched by position."""
    if not layout.named and not set(layout.names) <= set(header):
        names = iter(layout.names)
        header = [name if name == time_field else next(names, name) for name in header]
    lacking = [name for name in layout.names if name not in header]
    if layout.gaps and 0 < len(lacking) < len(layout.names):
        warn_lacking(lacking)
    return header


def _from_jsonl(lines: Lines, fields: "Fields") -> Iterator[Reading]:
    names = fields.layout.names
    for number, text in lines:
        try:
            found = json.loads(text, object_pairs_hook=_each_once)
        except (ValueError, RecursionError) as error:
            raise InputError(f"Line {number} is not JSON.", advice="not json") from error
        except _RepeatedKey as error:
            raise InputError(f"Line {number} has the field {error.args[0]!r} twice. {CORRECT}") from error
        if isinstance(found, list) and len(found) == len(names):
            found = dict(zip(names, found, strict=True))
        if not isinstance(found, dict):
            raise InputError(f"Line {number} is neither a JSON object nor a list of {len(names)} numbers. {CORRECT}")
        fields.check_given(found, number)
        yield fields.reading(found, number)


class _RepeatedKey(Exception):
    """A JSON object has a key twice."""


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise _RepeatedKey(name)
        fields[name] = value
    return fields


_FORMS: dict[str, Callable[[Lines, "Fields"], Iterator[Reading]]] = {"csv": _from_csv, "jsonl": _from_jsonl}


def _separator(header: str, names: Sequence[str]) -> str:
    """The separator that finds the most variables in a header, or else the most cells."""

    def found(separator: str) -> tuple[int, int]:
        cells = [cell.strip() for cell in split_cells(header, separator)]
        return len(set(cells).intersection(names)), len(cells)

    return max(RECOGNIZED, key=found)


class Fields:
    """Turns fields into readings; finds the one with the times, and notes once which are ignored."""

    def __init__(self, layout: Layout, numbers: StreamNumbers) -> None:
        self.layout, self.numbers = layout, numbers
        self._time = layout.time_column
        self._noted = False

    def check_given(self, names: Iterable[str], line: int) -> None:
        """Refuse fields without the time column that was given."""
        given = self.layout.time_column
        if given is not None and given not in names:
            raise InputError(f"Line {line} has no time column {given!r}. Available: {', '.join(names)}.")

    def reading(self, fields: Mapping[str, Any], line: int, comma: bool = False) -> Reading:
        """The reading on a line; `comma` if numbers may have a decimal comma."""
        time_field = self.time_field(fields, line)
        if not self._noted:
            extra = [name for name in fields if name and name != time_field and name not in self.layout.names]
            self._noted = bool(extra)
            if extra:
                _log.info("%s", ignored(extra))
        values = self._values(fields, line, comma)
        return Reading(line, values, None if time_field is None else self.sent(fields[time_field], time_field, line))

    def time_field(self, fields: Mapping[str, Any], line: int) -> str | None:
        """The field with the times: the one given or found before, else one with a date or named like a time."""
        if self._time is None or self._time not in fields:
            found = [name for name in fields if name not in self.layout.names and _may_be_time(name, fields[name])]
            if len(found) > 1:  # a number may just be named like a time
                found = [name for name in found if _is_time(fields[name])] or found
            if len(found) > 1:
                listed = ", ".join(map(repr, found))
                raise InputError(f"Line {line} has more than one time: {listed}.", advice="two time fields")
            self._time = found[0] if found else self._time
        return self._time if self._time in fields else None

    def sent(self, time: Any, field: str, line: int) -> str | float | None:
        """A time as it was sent; None if it is missing."""
        if self.numbers.is_missing(time):
            return None
        if isinstance(time, bool) or not isinstance(time, str | int | float):
            raise InputError(f"Line {line}: the time {field!r} is neither text nor a number. {CORRECT}")
        return time.strip() if isinstance(time, str) else time

    def _values(self, fields: Mapping[str, Any], line: int, comma: bool) -> list[float]:
        names = self.layout.names
        may_lack = self.layout.gaps and any(name in fields for name in names)
        values = []
        for name in names:
            if name not in fields and not may_lack:
                raise InputError(
                    f"Line {line}: there is no value for variable {name!r}. "
                    "Send every variable the detector was fitted on."
                )
            values.append(self.numbers.value(name, fields.get(name), f"Line {line}", comma))
        return values


def _may_be_time(name: str, value: Any) -> bool:
    return named_like_time(name) or (isinstance(value, str) and _number(value) is None and fitting_orders(value) != [])


def _is_time(value: Any) -> bool:
    """Whether a value may be a time if another field may be one, too: no small number, and not missing."""
    number = _number(value)
    return number is None or epoch_unit(number, number) is not None


def _number(value: Any) -> float | None:
    """The number in a field, or NaN if it is missing; None if it is something else."""
    try:
        return parse_number(value)
    except ValueError:
        return None

"""Readings parsed from lines of text as they arrive: CSV with a header, or JSON lines."""

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cometad.data.cells import LARGEST, clean_header, named_like_time, numbered_names, parse_number
from cometad.data.dialect import RECOGNIZED, Dialect, separator_hint, split_cells
from cometad.data.gaps import warn_lacking
from cometad.errors import InputError, unknown

Lines = Iterator[tuple[int, str]]  # line number from 1, text without the line break

CORRECT = "Correct that reading and send it again."


class Reading(NamedTuple):
    """One row of the input."""

    line: int  # for error messages
    values: list[float]  # (variable,) in the detector's order
    time: str | float | None  # as it was sent


class Layout(NamedTuple):
    """The fields a reading must have."""

    names: Sequence[str]  # the detector's variables
    named: bool  # whether these names came with the training data
    time_column: str | None
    gaps: bool = False  # whether values may be missing; they become NaN
    dialect: Dialect = Dialect()


def readings(lines: Iterable[str], form: str, layout: Layout) -> Iterator[Reading]:
    r"""Parse lines into readings as they arrive; blank lines are skipped.

    Fields are matched by name, in any order, and unknown fields are ignored. JSON lists, and CSV for a detector fitted
    without names, are matched by position. If gaps are allowed, some values or fields may be missing, but not all.

    >>> from cometad.live.readings import Layout, readings
    >>> [*readings(["flow,time\n", "1.5,noon\n"], "auto", Layout(["flow"], True, None))]
    [Reading(line=2, values=[1.5], time='noon')]
    >>> [*readings(['{"flow": "x"}'], "jsonl", Layout(["flow"], True, None))]
    Traceback (most recent call last):
    ...
    cometad.errors.InputError: Line 1: variable 'flow' is 'x', not a number. Correct that reading and send it again.
    """
    check_form(form)
    numbered = ((number, text) for number, line in enumerate(lines, 1) if (text := line.strip("\r\n")).strip(" "))
    first = next(numbered, None)
    if first is None:
        return
    if form == "auto":
        form = "jsonl" if first[1].lstrip().startswith(("{", "[")) else "csv"
    yield from _FORMS[form](itertools.chain([first], numbered), layout)


def check_form(form: str) -> None:
    """Refuse an unknown format."""
    if form not in ("auto", *_FORMS):
        raise unknown("format", form, ["auto", *_FORMS])


def _from_csv(lines: Lines, layout: Layout) -> Iterator[Reading]:
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
    comma = separator != "," if dialect.decimal is None else dialect.decimal == ","
    time_field = _time_field(header, layout, number)
    if not layout.named and not set(layout.names) <= set(header):  # fitted on an array: match columns by position
        names = iter(layout.names)
        header = [name if name == time_field else next(names, name) for name in header]
    lacking = [name for name in layout.names if name not in header]
    if layout.gaps and 0 < len(lacking) < len(layout.names):
        warn_lacking(lacking)
    for number, text in lines:
        cells = split_cells(text, separator)
        if len(cells) == len(header) + 1 and not cells[-1].strip():
            del cells[-1]  # rows that end with a separator
        if len(cells) != len(header):
            raise InputError(f"Line {number} has {len(cells)} cells, but the header has {len(header)}. {CORRECT}")
        fields = dict(zip(header, cells, strict=True))
        time = fields[time_field].strip() if time_field is not None else None
        yield Reading(number, _values(fields, layout, number, comma), time or None)


def _from_jsonl(lines: Lines, layout: Layout) -> Iterator[Reading]:
    for number, text in lines:
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"Line {number} is not JSON.", advice="not json") from error
        if isinstance(fields, list) and len(fields) == len(layout.names):
            fields = dict(zip(layout.names, fields, strict=True))
        if not isinstance(fields, dict):
            raise InputError(
                f"Line {number} is neither a JSON object nor a list of {len(layout.names)} numbers. {CORRECT}"
            )
        time_field = _time_field(fields, layout, number)
        time = fields[time_field] if time_field is not None else None
        if not isinstance(time, str | int | float | None):
            raise InputError(f"Line {number}: the time {time_field!r} is neither text nor a number. {CORRECT}")
        yield Reading(number, _values(fields, layout, number), time)


_FORMS: dict[str, Callable[[Lines, Layout], Iterator[Reading]]] = {"csv": _from_csv, "jsonl": _from_jsonl}


def _separator(header: str, names: Sequence[str]) -> str:
    """The separator that finds the most variables in a header, or else the most cells."""

    def found(separator: str) -> tuple[int, int]:
        cells = [cell.strip() for cell in split_cells(header, separator)]
        return len(set(cells).intersection(names)), len(cells)

    return max(RECOGNIZED, key=found)


def _time_field(fields: Iterable[str], layout: Layout, number: int) -> str | None:
    if layout.time_column is not None:
        if layout.time_column not in fields:
            raise InputError(
                f"Line {number} has no time column {layout.time_column!r}. Available: {', '.join(fields)}."
            )
        return layout.time_column
    return next((name for name in fields if named_like_time(name) and name not in layout.names), None)


def _values(fields: Mapping[str, Any], layout: Layout, number: int, comma: bool = False) -> list[float]:
    may_lack = layout.gaps and any(name in fields for name in layout.names)
    values = []
    for name in layout.names:
        if name not in fields and not may_lack:
            raise InputError(
                f"Line {number}: there is no value for variable {name!r}. "
                "Send every variable the detector was fitted on."
            )
        cell = fields.get(name)
        if isinstance(cell, str):
            cell = _plain(cell, layout.dialect, comma)
        values.append(_value(cell, f"Line {number}: variable {name!r} is", layout.gaps))
    return values


def _plain(cell: str, dialect: Dialect, comma: bool) -> str | None:
    """A cell with a decimal point, or None if it is a marker of a missing value."""
    if cell.strip().lower() in (marker.strip().lower() for marker in dialect.missing):
        return None
    return cell.replace(",", ".", 1) if comma and "." not in cell else cell


def _value(cell: Any, which: str, gaps: bool) -> float:
    try:
        value = parse_number(cell)
    except ValueError as error:
        raise InputError(f"{which} {cell!r}, not a number. {CORRECT}") from error
    if isinstance(cell, int) and int(value) != cell:
        raise InputError(f"{which} {cell}, an integer too large to be exact. {CORRECT}")
    if math.isnan(value) and not gaps:
        raise InputError(f"{which} missing. {CORRECT}")
    if math.isinf(value):
        raise InputError(f"{which} {value}, not a finite number. {CORRECT}")
    if abs(value) > LARGEST:
        raise InputError(f"{which} {value}, too large to compute with. {CORRECT}")
    return value

"""Readings on standard input, line by line: CSV with a header, or JSON lines."""

import csv
import itertools
import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cometad.data.tables import MISSING, named_like_time
from cometad.errors import InputError, unknown

_log = logging.getLogger("cometad")

Lines = Iterator[tuple[int, str]]  # the line's number, counted from 1, and its text without the line break


class Reading(NamedTuple):
    """One row of the input."""

    line: int
    values: list[float]  # (variable,) in the detector's order
    time: str | float | None  # as it was sent


class Layout(NamedTuple):
    """What a reading must hold."""

    names: Sequence[str]  # the detector's variables
    named: bool  # whether these names came with the data it was fitted on
    time_column: str | None
    gaps: bool = False  # whether values may be missing: they come as NaN


def readings(lines: Iterable[str], form: str, layout: Layout) -> Iterator[Reading]:
    r"""The readings in some lines, each as soon as its line is there; blank lines do not count.

    Fields are found by their names, in any order; what the detector was not fitted on is left aside. Where readings
    may have gaps, a value or a whole field may be missing, but not all of them.

    >>> from cometad.live.readings import Layout, readings
    >>> [*readings(["flow,time\n", "1.5,noon\n"], "auto", Layout(["flow"], True, None))]
    [Reading(line=2, values=[1.5], time='noon')]
    >>> [*readings(['{"flow": "x"}'], "jsonl", Layout(["flow"], True, None))]
    Traceback (most recent call last):
    ...
    cometad.errors.InputError: Line 1: variable 'flow' is 'x', not a number. Correct that reading and send it again.
    """
    check_form(form)
    numbered = ((number, text) for number, line in enumerate(lines, 1) if (text := line.strip("\r\n")).strip())
    first = next(numbered, None)
    if first is None:
        return
    if form == "auto":
        form = "jsonl" if first[1].lstrip()[0] in "{[" else "csv"
    yield from _FORMS[form](itertools.chain([first], numbered), layout)


def check_form(form: str) -> None:
    """Refuse a format that does not exist."""
    if form not in ("auto", *_FORMS):
        raise unknown("format", form, ["auto", *_FORMS])


def _from_csv(lines: Lines, layout: Layout) -> Iterator[Reading]:
    number, text = next(lines)
    header = [cell.strip() for cell in _cells(text)]
    time_field = _time_field(header, layout, number)
    _check_header(header, number)
    if not layout.named and not set(layout.names) <= set(header):  # fitted on an array: the columns count by place
        places = iter(layout.names)
        header = [name if name == time_field else next(places, name) for name in header]
    gone = [repr(name) for name in layout.names if name not in header]
    if layout.gaps and 0 < len(gone) < len(layout.names):
        _log.warning("There is no column %s. All its readings count as missing.", ", ".join(gone))
    for number, text in lines:
        cells = _cells(text)
        if len(cells) != len(header):
            raise InputError(
                f"Line {number} has {len(cells)} cells where the header has {len(header)}. "
                "Correct that reading and send it again."
            )
        fields = dict(zip(header, cells, strict=True))
        time = fields[time_field].strip() if time_field is not None else None
        yield Reading(number, _values(fields, layout, number), time or None)


def _from_jsonl(lines: Lines, layout: Layout) -> Iterator[Reading]:
    for number, text in lines:
        try:
            fields = json.loads(text)
        except ValueError as error:
            raise InputError(
                f"Line {number} is not JSON. Send one JSON object per line, or pass --format csv."
            ) from error
        if isinstance(fields, list) and len(fields) == len(layout.names):
            fields = dict(zip(layout.names, fields, strict=True))
        if not isinstance(fields, dict):
            raise InputError(
                f"Line {number} is neither an object of fields nor a list of {len(layout.names)} numbers. "
                "Correct that reading and send it again."
            )
        time_field = _time_field(fields, layout, number)
        time = fields[time_field] if time_field is not None else None
        if not isinstance(time, str | int | float | None):
            raise InputError(f"Line {number}: the time {time_field!r} is neither text nor a number. Correct it.")
        yield Reading(number, _values(fields, layout, number), time)


_FORMS: dict[str, Callable[[Lines, Layout], Iterator[Reading]]] = {"csv": _from_csv, "jsonl": _from_jsonl}


def _cells(text: str) -> list[str]:
    return next(csv.reader([text]))


def _check_header(header: list[str], number: int) -> None:
    if all(isinstance(_number(cell), float) for cell in header):
        raise InputError(f"Line {number} holds numbers, not names. Send a header line with the variables' names first.")
    twice = [name for name in header if header.count(name) > 1]
    if twice:
        raise InputError(f"Line {number} names the column {twice[0]!r} twice. Give each column its own name.")


def _time_field(fields: Iterable[str], layout: Layout, number: int) -> str | None:
    if layout.time_column is not None:
        if layout.time_column not in fields:
            raise InputError(f"Line {number} has no time column {layout.time_column!r}; there are {', '.join(fields)}.")
        return layout.time_column
    return next((name for name in fields if named_like_time(name) and name not in layout.names), None)


def _values(fields: Mapping[str, Any], layout: Layout, number: int) -> list[float]:
    values = []
    there = layout.gaps and any(name in fields for name in layout.names)
    for name in layout.names:
        if name not in fields and there:
            values.append(math.nan)
            continue
        if name not in fields:
            raise InputError(
                f"Line {number}: there is no value for the variable {name!r}. "
                "Send every variable that the detector was fitted on."
            )
        value = _number(fields[name])
        if layout.gaps and value in ABSENT:
            value = math.nan
        if isinstance(value, str):
            raise InputError(f"Line {number}: variable {name!r} is {value}. Correct that reading and send it again.")
        values.append(value)
    return values


ABSENT = ("missing", "nan, not a finite number")  # what is wrong with a number that is not there


def _number(field: Any) -> float | str:
    """The number in a field, or what is wrong with it."""
    if field is None or (isinstance(field, str) and field.strip().lower() in MISSING):
        return "missing"
    try:
        # float("1_000") is a number to Python, and to nobody else.
        value = float(field) if not isinstance(field, str) or "_" not in field else None
    except (TypeError, ValueError, OverflowError):
        value = None
    if value is None:
        return f"{field!r}, not a number"
    return value if math.isfinite(value) else f"{value}, not a finite number"

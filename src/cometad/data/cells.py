"""Parsing of headers, missing values, numbers and times, shared by all table readers."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from cometad.errors import InputError
from cometad.parameters import is_number

WORDS = {"true": 1.0, "false": 0.0}  # booleans, in any case
MISSING = ("", "na", "n/a", "nan", "null", "none")  # how tables write an empty cell, in any case
LARGEST = 1e150  # its square still fits a float64
EPOCH_UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
EPOCH_SECONDS = (1e9, 1e10)  # 2001 to 2286: in this range no unit can be mistaken for another

COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+([eE][+-]?[0-9]+)?")  # a number with a decimal comma

_TIME_NAME = re.compile(r"(date|time|datetime|timestamp)([^a-z].*)?", re.IGNORECASE)


def clean_header(cells: Sequence[str], where: str, time_column: str | None = None) -> list[str]:
    """The column names in a header, stripped of spaces; refuses numbers, times and repeated names.

    Sensors may have numbers as names if another column is `time_column` or named like a time: then the row cannot be a
    reading. `where` names the header in errors.
    """
    names = [cell.strip() for cell in cells]
    odd = next((name for name in names if _is_number(name) or _is_time(name)), None)
    if odd is not None and not any(named_like_time(name) or name == time_column for name in names):
        kind = "number" if _is_number(odd) else "time"
        raise InputError(f"{where} holds {odd!r}, which is a {kind}, not a name.", advice="no header")
    twice = repeated(names)
    if twice is not None:
        raise InputError(f"{where} has two columns named {twice!r}. Give each column its own name.")
    return names


def numbered_names(count: int) -> list[str]:
    """Names for columns without a header."""
    return [f"v{number}" for number in range(count)]


def repeated(names: Sequence[str]) -> str | None:
    """The first name that occurs more than once, if any."""
    counts = Counter(names)
    return next((name for name in names if counts[name] > 1), None)


def named_like_time(name: str) -> bool:
    """Whether a column with this name may hold the times."""
    return _TIME_NAME.fullmatch(name) is not None


def parse_number(cell: Any) -> float:
    """The number in a cell, or NaN if it is missing; raises ValueError for anything else."""
    if isinstance(cell, str):
        cell = cell.strip()
        if cell.lower() in MISSING:
            return math.nan
        if "_" in cell or not cell.isascii():  # float() accepts 1_000 and other digits, but no table reader does
            raise ValueError(cell)
    elif cell is None:
        return math.nan
    try:
        return float(cell)
    except (TypeError, OverflowError) as error:
        raise ValueError(cell) from error


def marked_numbers(markers: Sequence[str]) -> list[float]:
    """The numbers among the markers of missing cells, which mean all cells with that value: -999 also means -999.0."""
    numbers = []
    for marker in map(str.strip, markers):
        with suppress(ValueError):
            numbers.append(parse_number(marker.replace(",", ".") if COMMA.fullmatch(marker) else marker))
    return [number for number in numbers if not math.isnan(number)]


def parse_time(text: str) -> datetime:
    """Parse a time, year first as in ISO 8601; raises ValueError for anything else."""
    return datetime.fromisoformat(text.strip().replace("/", "-"))


def epoch_unit(lowest: float, highest: float) -> float | None:
    """Units per second, if numbers in this range can only be times since 1970 in that unit; else None."""
    low, high = EPOCH_SECONDS
    return next((unit for unit in EPOCH_UNITS.values() if low * unit <= lowest and highest < high * unit), None)


def _is_number(text: str) -> bool:
    return is_number(text.replace(",", ".", 1))  # also with a decimal comma


def _is_time(text: str) -> bool:
    return _DIGITS.match(text) is not None


_DIGITS = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ,].*)?$|\d{1,2}:\d{2}(:\d{2})?([.,]\d+)?$")

"""Times in text: ISO 8601, other common orders of year, month and day, and which order a column has."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, timezone

from cometad.data.cells import parse_time

YEAR_FIRST, DAY_FIRST, MONTH_FIRST = "year-first", "day-first", "month-first"

_DATE = re.compile(
    r"(?P<a>\d{1,4})(?P<mark>[-/.])(?P<b>\d{1,2})(?P=mark)(?P<c>\d{1,4})"
    r"(?:(?:T|,?\s+)(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<part>\d{1,9}))?)?"
    r"\s*(?P<half>[AP])?(?:(?<=[AP])\.?M\.?)?\s*(?P<zone>Z|UTC|GMT|[+-]\d{2}:?\d{2})?)?",
    re.IGNORECASE,
)


def parse_date(text: str, order: str) -> datetime:
    """The time in a text, with its date in this order; raises ValueError for anything else."""
    if order == YEAR_FIRST:
        try:
            return parse_time(text)
        except ValueError:
            pass  # perhaps 2026.12.31, or 2026-1-5
    match = _DATE.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    first, second, third = match["a"], match["b"], match["c"]
    year, month, day = {
        YEAR_FIRST: (first, second, third),
        DAY_FIRST: (third, second, first),
        MONTH_FIRST: (third, first, second),
    }[order]
    if len(year) != 4:
        raise ValueError(text)
    return datetime(int(year), int(month), int(day), tzinfo=_zone(match["zone"])) + _time_of_day(match)


def _time_of_day(match: re.Match[str]) -> timedelta:
    hour, half = int(match["hour"] or 0), (match["half"] or "").upper()
    if (half and not 1 <= hour <= 12) or hour > 23:
        raise ValueError(match[0])
    if half:
        hour = hour % 12 + (12 if half == "P" else 0)
    minute, second = int(match["minute"] or 0), int(match["second"] or 0)
    if minute > 59 or second > 59:
        raise ValueError(match[0])
    microseconds = int((match["part"] or "0").ljust(9, "0")[:6])
    return timedelta(hours=hour, minutes=minute, seconds=second, microseconds=microseconds)


def _zone(text: str | None) -> timezone | None:
    if text is None:
        return None
    if text[0] not in "+-":
        return UTC
    digits = text[1:].replace(":", "")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-offset if text[0] == "-" else offset)


def fitting_orders(text: str) -> list[str]:
    """The orders of year, month and day in which a text is a date; a dot means that the day is before the month."""
    found = []
    for order in (YEAR_FIRST, DAY_FIRST, MONTH_FIRST):
        if order == MONTH_FIRST and "." in text[:10]:
            continue
        try:
            parse_date(text, order)
        except (ValueError, OverflowError):
            continue
        found.append(order)
    return found


def find_order(texts: Iterable[str | None]) -> str | None:
    """The order of year, month and day in a column; None if each of its dates can be read with either first.

    It looks only as far as it needs to. Texts that are no dates are skipped.
    """
    matters = False
    for text in texts:
        fits = [] if text is None else fitting_orders(text)
        if len(fits) == 1:
            return fits[0]
        if fits and text is not None and not matters:
            matters = parse_date(text, fits[0]) != parse_date(text, fits[1])
    return None if matters else DAY_FIRST

"""The times of a stream as numbers, read as in a file but without looking ahead."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from cometad.data.cells import EPOCH_UNITS, epoch_unit, parse_number
from cometad.data.dialect import DATE_ORDERS
from cometad.data.times import DAY_FIRST, YEAR_FIRST, fitting_orders, parse_date
from cometad.errors import InputError
from cometad.saving import require_state

NUMBER, PLAIN, ZONED = "a number", "a date without a time zone", "a date with a time zone"
KINDS = (NUMBER, PLAIN, ZONED)


class StreamDates:
    """Reads times; the first ones decide how all are written, and others are refused.

    Times are numbers, dates, or dates with a time zone. Numbers are since 1970 in a unit that their size tells, or else
    count anything. `order` is that of dates with the year last; else the first date that tells decides.
    """

    def __init__(self, order: str | None = None) -> None:
        self.order = order
        self._kind: str | None = None  # one of KINDS
        self._unit: float | None = None  # of numbers, per second

    @property
    def known(self) -> bool:
        """Whether there was a time."""
        return self._kind is not None

    def dated(self, seconds: float) -> bool:
        """Whether a time is a date: a number may count anything, unless it can only be since 1970."""
        return self._kind != NUMBER or epoch_unit(seconds, seconds) is not None

    def seconds(self, time: str | float | None, line: int) -> float | None:
        """A time as a number: of seconds since 1970 (UTC if it has no zone), unless it counts something else."""
        if time is None:
            return None
        number = _number(time)
        if number is not None:
            self._take(NUMBER, time, line)
            self._unit = self._unit or epoch_unit(number, number) or 1.0
            return number / self._unit
        moment = self._date(str(time), line)
        self._take(PLAIN if moment.tzinfo is None else ZONED, time, line)
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()

    def seconds_of_many(self, times: Sequence[str | float | None], lines: Sequence[int]) -> list[float | None]:
        """`seconds` for times and their lines; most are read without a look at every way to write a date."""
        return [self._quick(time) or self.seconds(time, line) for time, line in zip(times, lines, strict=True)]

    def _quick(self, time: str | float | None) -> float | None:
        """The seconds of a time that is written like the one before, in ISO 8601; None for any other."""
        if isinstance(time, float):
            known = self._kind == NUMBER and self._unit is not None and math.isfinite(time)
            return time / self._unit if known and self._unit is not None else None
        if not isinstance(time, str) or len(time) < 19 or not (time[4] == time[7] == "-" and time[13] == ":"):
            return None
        try:
            moment = datetime.fromisoformat(time)
        except ValueError:
            return None
        if self._kind != (PLAIN if moment.tzinfo is None else ZONED):
            return None
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()

    def _take(self, kind: str, time: object, line: int) -> None:
        if self._kind not in (None, kind):
            raise InputError(
                f"Line {line}: the time {time} is {kind}, but the one before is {self._kind}. Write all times alike."
            )
        self._kind = kind

    def _date(self, time: str, line: int) -> datetime:
        fits = fitting_orders(time)
        if not fits:
            raise InputError(f"Line {line}: {time!r} is not a time.", advice="bad time")
        if YEAR_FIRST in fits:
            return parse_date(time, YEAR_FIRST)
        if self.order is None and len(fits) == 1:
            self.order = fits[0]
        if self.order is None:
            first, second = (parse_date(time, order) for order in fits)
            if first != second:
                raise InputError(
                    f"Line {line}: the time {time!r} can be read with the day or with the month first.",
                    advice="day or month",
                )
            return first
        try:
            return parse_date(time, self.order)
        except ValueError as error:
            which = "day" if self.order == DAY_FIRST else "month"
            raise InputError(
                f"Line {line}: the time {time!r} is not a date with the {which} first. Correct that reading and send "
                "it again."
            ) from error

    def facts(self) -> dict[str, Any]:
        """The state to save as JSON; without what is not known yet."""
        facts = {"date_order": self.order, "times_are": self._kind, "time_unit": self._unit}
        return {name: fact for name, fact in facts.items() if fact is not None}

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Continue from a saved state; an order that was given stays."""
        order, kind, unit = (facts.get(name) for name in ("date_order", "times_are", "time_unit"))
        require_state(order is None or order in DATE_ORDERS, "its 'date_order' is not one")
        require_state(kind is None or kind in KINDS, "its 'times_are' is not one of its kinds")
        require_state(unit is None or unit in EPOCH_UNITS.values(), "its 'time_unit' is not one")
        self.order, self._kind, self._unit = self.order or order, kind, unit


def _number(time: str | float) -> float | None:
    """A time that is a finite number; None for any other."""
    try:
        number = parse_number(time)
    except ValueError:
        return None
    return number if math.isfinite(number) else None

"""The times of a stream as numbers; the order of day and month is found as in a file, but without looking ahead."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from cometad.data.cells import seconds
from cometad.data.dialect import DATE_ORDERS
from cometad.data.times import DAY_FIRST, YEAR_FIRST, fitting_orders, parse_date
from cometad.errors import InputError
from cometad.restored import require_state


class StreamDates:
    """Reads times, and remembers whether the day or the month comes first, once a date tells; `order` gives it.

    >>> from cometad.live.dates import StreamDates
    >>> dates = StreamDates()
    >>> dates.seconds("31/12/2025", line=2), dates.seconds("01/02/2026", line=3), dates.order
    (1767139200.0, 1769904000.0, 'day-first')
    >>> dates.seconds(7.5, line=4), dates.seconds("noon", line=5)
    (7.5, None)
    >>> StreamDates().seconds("01/02/2026", line=2)
    Traceback (most recent call last):
    ...
    cometad.errors.InputError: Line 2: the time '01/02/2026' can be read with the day or with the month first. ...
    """

    def __init__(self, order: str | None = None) -> None:
        self.order = order

    def seconds(self, time: str | float | None, line: int) -> float | None:
        """A time as a number, as in `cometad.data.cells.seconds`; None if it is no time."""
        known = seconds(time)
        if known is not None or not isinstance(time, str):
            return known
        fits = fitting_orders(time)
        if not fits:
            return None
        if YEAR_FIRST in fits:
            return _seconds(parse_date(time, YEAR_FIRST))
        if self.order is None and len(fits) == 1:
            self.order = fits[0]
        if self.order is None:
            first, second = (parse_date(time, order) for order in fits)
            if first != second:
                raise InputError(
                    f"Line {line}: the time {time!r} can be read with the day or with the month first.",
                    advice="day or month",
                )
            return _seconds(first)
        try:
            return _seconds(parse_date(time, self.order))
        except ValueError as error:
            which = "day" if self.order == DAY_FIRST else "month"
            raise InputError(
                f"Line {line}: the time {time!r} is not a date with the {which} first. Correct that reading and send "
                "it again."
            ) from error

    def facts(self) -> dict[str, Any]:
        """The state to save as JSON: empty if it is not known yet."""
        return {} if self.order is None else {"date_order": self.order}

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Continue from a saved state; an order that was given stays."""
        order = facts.get("date_order")
        require_state(order is None or order in DATE_ORDERS, "its 'date_order' is not one")
        self.order = self.order or order


def _seconds(moment: datetime) -> float:
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()

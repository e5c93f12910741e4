"""The gate that keeps the readings of a stream in time order."""

from collections.abc import Mapping
from typing import Any, ClassVar

from cometad.arrays import Array
from cometad.data.cells import CORRECT, StreamDates
from cometad.data.text import Reading
from cometad.errors import InputError, ModelFileError
from cometad.saving import InvalidState, counted, require_state
from cometad.series import Order


class Clock:
    """A gate that passes readings in time order; late ones are refused or dropped.

    Readings without times pass, but either all of them have one or none has. A time that is neither a number nor a
    date is refused. `date_order` is that of dates with the year last; else the first date that tells decides.

    >>> from cometad.live.clock import Clock
    >>> from cometad.data.text import Reading
    >>> clock = Clock(late="drop")
    >>> [len(clock.admit(Reading(2, [1.5], time))) for time in (10, 11, 11, 9, 12)], clock.summary()
    ([1, 1, 0, 0, 1], ['Dropped 2 late or repeated readings.'])
    """

    leaves_gaps: ClassVar[bool] = False

    def __init__(self, last: str | float | None = None, late: str = "refuse", date_order: str | None = None) -> None:
        self._order, self._dates = Order(late), StreamDates(date_order)
        self._take(last, self._dates.seconds(last, line=0))
        self.admitted = 0

    def admit(self, reading: Reading) -> list[Reading]:
        """The reading, if it is on time."""
        time = self._dates.seconds(reading.time, reading.line)
        if time is None and self._dates.known:
            raise InputError(f"Line {reading.line} has no time, but the readings before it have one. {CORRECT}")
        if time is not None:
            if self.admitted and self._last is None:
                raise InputError(
                    f"Line {reading.line} has a time, but the readings before it have none. Send one with every "
                    "reading, or with none."
                )
            late = f"Line {reading.line}: the time {reading.time} is not after {self._last}, the previous time."
            if not self._order.admits(time, late):
                return []
            self._take(reading.time, time)
        self.admitted += 1
        return [reading if time is None or not self._dates.dated(time) else reading._replace(at=time)]

    def finish(self) -> list[Reading]:
        """No readings, because a clock holds none back."""
        return []

    def summary(self) -> list[str]:
        """Sentences that sum up what the gate did."""
        return dropped(self._order)

    def facts(self) -> dict[str, Any]:
        """The part of the state to save as JSON."""
        return {"kind": "clock", "last": self._last, "dropped": self._order.dropped, **self._dates.facts()}

    def arrays(self) -> dict[str, Array]:
        """The part of the state to save as arrays: none."""
        return {}

    def restore(self, facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Continue from a saved state."""
        check_gate(facts, "clock")
        last = facts["last"]
        require_state(last is None or type(last) in (str, int, float), "its 'last' is not a time")
        self._dates.restore(facts)
        try:
            self._take(last, self._dates.seconds(last, line=0))
        except InputError as error:
            raise InvalidState("its 'last' is not a time.") from error
        self._order.dropped = counted(facts["dropped"], "dropped")

    def _take(self, time: str | float | None, moment: float | None) -> None:
        self._last = time  # as it was sent
        self._order.take(moment)


class Ordered:
    """A gate that passes every reading: whoever feeds the session has put them in order and left out the late ones."""

    leaves_gaps: ClassVar[bool] = False
    admitted = 0  # not counted

    def admit(self, reading: Reading) -> list[Reading]:
        """The reading."""
        return [reading]

    def finish(self) -> list[Reading]:
        """No readings, because none is held back."""
        return []

    def summary(self) -> list[str]:
        """No sentences, because nothing happens here."""
        return []

    def facts(self) -> dict[str, Any]:
        """The part of the state to save as JSON."""
        return {"kind": "ordered"}

    def arrays(self) -> dict[str, Array]:
        """The part of the state to save as arrays: none."""
        return {}

    def restore(self, facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Continue from a saved state."""
        check_gate(facts, "ordered")


def dropped(order: Order) -> list[str]:
    """A sentence with the number of dropped readings, or nothing if there are none."""
    return [f"Dropped {order.dropped:,} late or repeated readings."] if order.dropped else []


def check_gate(facts: Mapping[str, Any], kind: str) -> None:
    """Refuse to resume with a different gate."""
    if facts["kind"] != kind:
        raise ModelFileError(
            "The snapshot was taken with different resampling, or with none. Resume with the same resampling."
        )

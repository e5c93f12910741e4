"""The order of readings in time."""

from collections.abc import Mapping
from datetime import UTC
from typing import Any

from cometad.arrays import Array
from cometad.data.tables import parse_time
from cometad.errors import InputError, ParameterError
from cometad.live.readings import Reading


class Clock:
    """Refuses or drops readings whose times do not increase.

    Times that it cannot read (other than numbers and ISO 8601) it lets pass.

    >>> from cometad.live.clock import Clock
    >>> from cometad.live.readings import Reading
    >>> clock = Clock(late="drop")
    >>> [len(clock.admit(Reading(2, [1.5], time))) for time in (10, 11, 11, 9, 12)], clock.told()
    ([1, 1, 0, 0, 1], ['Dropped 2 readings that came late or twice.'])
    """

    def __init__(self, last: str | float | None = None, late: str = "refuse") -> None:
        self._late, self._last, self._dropped = late, last, 0
        self.admitted = 0

    def admit(self, reading: Reading) -> list[Reading]:
        """The reading, if its time is after the last one's."""
        now, before = instant(reading.time), instant(self._last)
        if now is not None and before is not None and now <= before:
            if self._late == "drop":
                self._dropped += 1
                return []
            raise InputError(
                f"Line {reading.line}: the time {reading.time} is not after {self._last}, that of the reading before. "
                "Send readings in the order of time, each once, or pass --late drop."
            )
        self._last = reading.time if now is not None else self._last
        self.admitted += 1
        return [reading]

    def finish(self) -> list[Reading]:
        """Nothing is held back."""
        return []

    def told(self) -> list[str]:
        """What was done, in sentences."""
        return [dropped(self._dropped)] if self._dropped else []

    def facts(self) -> dict[str, Any]:
        """What a later `restore` needs, as JSON can hold it."""
        return {"kind": "clock", "last": self._last, "dropped": self._dropped}

    def arrays(self) -> dict[str, Array]:
        """What a later `restore` needs besides: nothing."""
        return {}

    def restore(self, facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Become the clock whose state it is."""
        check_gate(facts, "clock")
        self._last, self._dropped = facts["last"], facts["dropped"]


def dropped(count: int) -> str:
    """How many readings were dropped, as a sentence.

    >>> from cometad.live.clock import dropped
    >>> dropped(1200)
    'Dropped 1,200 readings that came late or twice.'
    """
    return f"Dropped {count:,} readings that came late or twice."


def check_gate(facts: Mapping[str, Any], kind: str) -> None:
    """Refuse to go on with another grid than before, or without one.

    >>> from cometad.live.clock import check_gate
    >>> check_gate({"kind": "clock"}, "clock")
    """
    if facts["kind"] != kind:
        raise ParameterError(
            "The snapshot is of a stream with another --resample, or without one. Pass what that stream had."
        )


def instant(time: str | float | None) -> float | None:
    """A time as a number that can be compared, where it is one or is written in ISO 8601.

    >>> from cometad.live.clock import instant
    >>> instant("1970-01-01 00:01"), instant("7.5"), instant("noon")
    (60.0, 7.5, None)
    """
    if isinstance(time, str):
        try:
            return float(time)
        except ValueError:
            pass
        try:
            parsed = parse_time(time)
        except ValueError:
            return None
        return (parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)).timestamp()
    return time

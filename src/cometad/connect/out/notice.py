"""The message that receivers get about an event."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

EARLIEST, LATEST = 0.0, 253_402_300_800.0  # 1970 and the year 10000; other times are numbers, not dates
SHOWN = 3  # variables in a message

Told = Literal["opened", "closed"]


@dataclass(frozen=True)
class NoticedVariable:
    """A variable of an event, with its reading furthest from the expected value."""

    name: str
    share: float | None = None  # of the score of the event; None if the event could not be explained
    observed: float | None = None
    expected: float | None = None  # None if no particular value was expected
    sentence: str = ""


@dataclass(frozen=True)
class Notice:
    """A message about an event. A redelivery has the same `id`, so that receivers can deduplicate.

    >>> from cometad.connect.out import Notice, NoticedVariable
    >>> flow = NoticedVariable("flow", 0.8, 7.1, 4.2, "Not what its last readings lead to: it read 7.1, expected 4.2.")
    >>> notice = Notice("6f0c", "3-1", "pump-7", "pump", "opened", "open", 1_772_366_400.0, None, 1_772_366_401.5, None,
    ...     0.4, 9.2, 3.1, (flow,), "http://127.0.0.1:8080/#/events/3-1")
    >>> notice.message
    'pump-7: event opened at 2026-03-01T12:00:00Z, severity 0.40. flow: Not what its last readings lead to: it read 7.1,
    expected 4.2. http://127.0.0.1:8080/#/events/3-1'
    """

    id: str  # of this message
    event: str
    stream: str
    detector: str
    change: Told
    state: Literal["open", "closed"]  # of the event when the message was written
    start_time: float | None  # of its readings, in seconds since 1970
    stop_time: float | None
    opened_at: float  # by the clock of the service
    closed_at: float | None
    severity: float  # 0 to 1
    score: float  # at its peak
    threshold: float  # at its peak
    variables: tuple[NoticedVariable, ...]  # highest first
    link: str  # to the page of the event

    @property
    def message(self) -> str:
        """The notice as text: stream, time, variables, expected values and link."""
        when = self.start_time if self.change == "opened" else self.stop_time
        at = "" if when is None else f" at {moment_of(when)}"
        reasons = " ".join(f"{one.name}: {one.sentence}" for one in self.variables[:SHOWN] if one.sentence)
        names = ", ".join(one.name for one in self.variables[:SHOWN])
        reasons = reasons or (f"Variables: {names}." if names else "")
        head = f"{self.stream}: event {self.change}{at}, severity {self.severity:.2f}."
        return " ".join(part for part in (head, reasons, self.link) if part)

    @property
    def content(self) -> dict[str, Any]:
        """All fields as JSON, with the text as `message`."""
        return {**asdict(self), "variables": [asdict(one) for one in self.variables], "message": self.message}


EXAMPLE = Notice(
    id="00000000000000000000000000000000",
    event="0-0",
    stream="example",
    detector="example",
    change="opened",
    state="open",
    start_time=1_772_366_400.0,
    stop_time=1_772_366_400.0,
    opened_at=1_772_366_400.0,
    closed_at=None,
    severity=0.5,
    score=2.0,
    threshold=1.0,
    variables=(NoticedVariable("flow", 1.0, 7.1, 4.2, "Not what was expected: it read 7.1, expected 4.2."),),
    link="http://127.0.0.1:8080/#/events/0-0",
)  # for validating templates


def moment_of(seconds: float) -> str:
    """A time as a date in UTC; one outside the calendar stays a number.

    >>> from cometad.connect.out.notice import moment_of
    >>> moment_of(1_772_366_400.25), moment_of(-3.0)
    ('2026-03-01T12:00:00.250Z', '-3')
    """
    if not EARLIEST <= seconds < LATEST:
        return f"{seconds:g}"
    found = datetime.fromtimestamp(round(seconds, 3), UTC)
    return found.isoformat(timespec="milliseconds" if found.microsecond else "seconds").replace("+00:00", "Z")

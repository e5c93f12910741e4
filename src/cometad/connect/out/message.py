"""The message that receivers get about an event, and templates for it: sandboxed jinja2, validated with an example."""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from cometad.errors import ParameterError

EARLIEST, LATEST = 0.0, 253_402_300_800.0  # 1970 and the year 10000; other times are numbers, not dates
SHOWN = 3  # variables in a message
QUESTION = "Is it a fault, or normal from now on? Give a verdict:"

Told = Literal["opened", "closed"]


@dataclass(frozen=True)
class MessageVariable:
    """A variable of an event, with its reading furthest from the expected value."""

    name: str
    share: float | None = None  # of the score of the event; None if the event could not be explained
    observed: float | None = None
    expected: float | None = None  # None if no particular value was expected
    sentence: str = ""


@dataclass(frozen=True)
class EventMessage:
    """A message about an event. A redelivery has the same `id`, so that receivers can deduplicate.

    >>> from cometad.connect.out import EventMessage, MessageVariable
    >>> flow = MessageVariable("flow", 0.8, 7.1, 4.2, "Not what its last readings lead to: it read 7.1, expected 4.2.")
    >>> message = EventMessage("6f0c", "3-1", "pump-7", "pump", "opened", "open", 1_772_366_400.0, None,
    ...     1_772_366_401.5, None, 0.4, 9.2, 3.1, (flow,), "http://127.0.0.1:8080/#/events/3-1")
    >>> message.text
    'pump-7: alert opened at 2026-03-01T12:00:00Z, severity 0.40. flow: Not what its last readings lead to: it read 7.1,
    expected 4.2. http://127.0.0.1:8080/#/events/3-1'
    """

    id: str  # of this message
    event: str
    stream: str
    detector: str
    change: Told
    state: Literal["open", "closed"]  # of the event when the message was written
    start_time: float | None  # of its readings, in seconds since 1970, UTC
    stop_time: float | None
    opened_at: float  # by the clock of the service
    closed_at: float | None
    severity: float  # 0 to 1
    score: float  # at its peak
    threshold: float  # at its peak
    variables: tuple[MessageVariable, ...]  # highest first
    link: str  # to the page of the event
    peak_time: float | None = None
    level: Literal["alert", "notice"] = "alert"  # notices are not sent
    new_level: bool = False  # it closed because its state lasted so long that it is no longer news
    rarity: int | None = None  # normal operation reaches this severity once in that many readings
    meaning: str = ""  # the same as a sentence

    @property
    def text(self) -> str:
        """The message as text: stream, time, severity and its meaning, variables, expected values and link."""
        reasons = " ".join(f"{one.name}: {one.sentence}" for one in self.variables[:SHOWN] if one.sentence)
        names = ", ".join(one.name for one in self.variables[:SHOWN])
        reasons = reasons or (f"Variables: {names}." if names else "")
        if self.change == "closed" and self.new_level:
            since = "" if self.start_time is None else f" since {_since(self.start_time, self.stop_time)}"
            news, question = f"New level{since}", QUESTION
        else:
            when = self.start_time if self.change == "opened" else self.stop_time
            news, question = f"alert {self.change}{'' if when is None else f' at {moment_of(when)}'}", ""
        head = f"{self.stream}: {news}, severity {self.severity:.2f}."
        return " ".join(part for part in (head, self.meaning, reasons, question, self.link) if part)

    @property
    def content(self) -> dict[str, Any]:
        return {**asdict(self), "variables": [asdict(one) for one in self.variables], "message": self.text}


EXAMPLE = EventMessage(
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
    variables=(MessageVariable("flow", 1.0, 7.1, 4.2, "Not what was expected: it read 7.1, expected 4.2."),),
    link="http://127.0.0.1:8080/#/events/0-0",
)  # for validating templates


def moment_of(seconds: float) -> str:
    """A time as a date in UTC; one outside the calendar stays a number."""
    if not EARLIEST <= seconds < LATEST:
        return f"{seconds:g}"
    found = datetime.fromtimestamp(round(seconds, 3), UTC)
    return found.isoformat(timespec="milliseconds" if found.microsecond else "seconds").replace("+00:00", "Z")


def _since(start: float, stop: float | None) -> str:
    """The time of day of the start, with its date unless that is the day of the stop."""
    if not EARLIEST <= start < LATEST or stop is None:
        return moment_of(start)
    begin, end = datetime.fromtimestamp(start, UTC), datetime.fromtimestamp(min(stop, LATEST - 1), UTC)
    return f"{begin:{'%H:%M' if begin.date() == end.date() else '%Y-%m-%d %H:%M'} UTC}"


_ENVIRONMENT = SandboxedEnvironment(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=False)
_ENVIRONMENT.filters["time"] = moment_of


@dataclass(frozen=True)
class MessageTemplate:
    """A template for the messages of a receiver; its variables are the fields of an `EventMessage`."""

    source: str
    receiver: str
    json_wanted: bool = False

    def __post_init__(self) -> None:
        try:
            text = self._rendered(EXAMPLE)
        except Exception as error:  # a template can fail in any way Python can
            problem = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            raise ParameterError(
                f"The template of the receiver {self.receiver!r} is invalid: {problem}. Correct it."
            ) from error
        try:
            if self.json_wanted:
                json.loads(text)
        except ValueError as error:
            raise ParameterError(
                f"The template of the receiver {self.receiver!r} does not produce JSON. Write strings as "
                "{{ message | tojson }}, or set content_type."
            ) from error

    def text(self, message: EventMessage) -> str:
        """The message about an event; falls back to the default if the template fails."""
        try:
            return self._rendered(message)
        except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError):
            return json.dumps(message.content) if self.json_wanted else message.text

    def _rendered(self, message: EventMessage) -> str:
        return _ENVIRONMENT.from_string(self.source).render(message.content)

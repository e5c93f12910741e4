"""What clients send and get: the schema of the API."""

import math
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from cometad.alerting.alerts import Level
from cometad.alerting.budget import Budget
from cometad.alerting.thresholds import parse_threshold
from cometad.alerting.verdicts import Called
from cometad.errors import ParameterError

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
EVENT = r"^[0-9]{1,10}-[0-9]{1,18}$"
MOST_POINTS = 5000

Name = Annotated[str, StringConstraints(pattern=NAME)]
Numbers = list[float | None]
Top = list[tuple[str, float]]  # variables and their scores, highest first
State = Literal["waiting", "normal", "event", "silent", "disconnected", "paused"]


def is_name(text: str) -> bool:
    return re.fullmatch(NAME, text) is not None


class Problem(BaseModel):
    """Why a request was refused, and what to do."""

    error: str


BUDGETS = 'Write "1/1000", "3/day", {"alerts": 1, "per": 1000}, {"alerts_per_day": 3} or {"rate": 0.01}.'


class BudgetOf(BaseModel):
    """A budget of alerts, per readings or a day (of both, the lower one applies), or of flagged readings."""

    model_config = ConfigDict(extra="forbid")

    rate: float | None = Field(None, description="Share of readings to flag, above 0 and below 1.")
    alerts: float | None = Field(None, description="Alerts per `per` readings, above 0 and fewer than one per reading.")
    per: float = Field(1000, description="Readings, above 0.")
    alerts_per_day: float | None = Field(None, description="Above 0, at most 86,400.")

    @model_validator(mode="before")
    @classmethod
    def _in_words(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            rule = parse_threshold(value)
        except ParameterError as error:
            raise ValueError(str(error)) from error
        if not isinstance(rule, Budget):
            raise ValueError(f"{value!r} is no budget. {BUDGETS}")
        given = {name: getattr(rule, name) for name in cls.model_fields}
        return {name: limit for name, limit in given.items() if limit is not None}

    @model_validator(mode="after")
    def _possible(self) -> "BudgetOf":
        of_alerts = self.alerts is not None or self.alerts_per_day is not None
        if of_alerts == (self.rate is not None):
            raise ValueError(f"A budget limits either alerts or flagged readings. {BUDGETS}")
        limits = {"rate": 1.0, "alerts": self.per, "per": math.inf, "alerts_per_day": 86_400.001}
        for name, below in limits.items():
            value = getattr(self, name)
            if value is not None and not 0 < value < below:
                most = "" if below == math.inf else f" and {'at most 86,400' if below > 86_400 else f'below {below:g}'}"
                raise ValueError(f"{name} must be above 0{most}. {BUDGETS}")
        return self


class StreamSettings(BaseModel):
    """How a stream is scored."""

    model_config = ConfigDict(extra="forbid")

    detector: Name
    budget: BudgetOf | None = None  # default: as fitted
    period: Annotated[str, StringConstraints(max_length=20)] | None = None  # between readings, such as 1s
    resample: Annotated[str, StringConstraints(max_length=40)] | None = None  # such as 60s:mean
    late: Literal["refuse", "drop"] = "refuse"
    min_length: Annotated[int, Field(ge=1, le=100_000)] = 1
    merge_gap: Annotated[int, Field(ge=0, le=100_000)] = 0
    hold_off: Annotated[int, Field(ge=0, le=100_000)] = 0
    longest: Annotated[int, Field(ge=1, le=100_000)] | None = None  # readings an event may last
    longest_hours: Annotated[float, Field(gt=0, le=100_000)] | None = None  # the same in hours; the shorter counts
    alert_from: Annotated[float, Field(ge=0, le=1)] | None = None  # severity from which an event is an alert


class EventSummary(BaseModel):
    """An event. Times are in seconds since 1970, UTC."""

    id: str
    stream: str
    number: int
    state: Literal["open", "closed"]
    level: Level  # a notice is listed and shown, but never sent
    new_level: bool  # it closed because its state lasted so long that it is no longer news
    start: int
    stop: int
    peak: int
    steps: int
    start_time: float | None
    stop_time: float | None
    peak_time: float | None
    opened_at: float
    closed_at: float | None
    peak_score: float
    threshold: float
    severity: float
    rarity: int  # normal operation reaches this severity once in that many readings
    meaning: str  # the same as a sentence
    variables: Top
    verdict: Called | None
    verdict_at: float | None


class Recent(BaseModel):
    """The last scores of a stream."""

    times: list[float]
    scores: list[float]
    thresholds: list[float]


class StreamState(BaseModel):
    """How a stream is now."""

    name: str
    detector: str
    state: State
    reason: str | None
    readings: int
    late: int
    repeated: int
    last_time: float | None
    last_received: float | None
    score: float | None
    threshold: float | None
    flagged: bool
    top: Top
    open_event: EventSummary | None
    events: int
    budget: dict[str, float] | None
    budget_reduced: str | None  # a sentence, if the budget is too large for the data
    budget_used: float | None
    drift: float | None
    lag: float
    recent: Recent | None = None


class StreamDetails(StreamState):
    """How a stream is now, with its variables and settings."""

    variables: list[str]
    settings: StreamSettings


class Streams(BaseModel):
    """All streams."""

    streams: list[StreamState]


class ScoreHistory(BaseModel):
    """Scores of a stretch, thinned."""

    stream: str
    total: int
    steps: list[int]
    times: list[float]
    scores: list[float]
    thresholds: list[float]
    flags: list[int]


class VariableReason(BaseModel):
    """What a variable read in a stretch, and what was expected."""

    name: str
    share: float
    view: str
    why: str
    sentence: str
    observed: Numbers
    expected: Numbers
    band: float | None


class Variables(BaseModel):
    """What the highest variables read in a stretch."""

    stream: str
    times: list[float]
    variables: list[VariableReason]


class Explained(BaseModel):
    """Which variables raised the score of an event."""

    sentence: str
    times: list[float]
    variables: list[VariableReason]


class Similar(BaseModel):
    """An earlier event that looked alike."""

    id: str
    stream: str
    similarity: float
    start_time: float | None
    level: Level
    severity: float
    verdict: Called | None


class EventDetails(EventSummary):
    """An event, and why."""

    explanation: Explained | None
    similar: list[Similar]
    taught: bool | None
    note: str | None


class EventList(BaseModel):
    """Events, newest first."""

    events: list[EventSummary]


class VerdictOf(BaseModel):
    """What a person says about an event; null withdraws it."""

    model_config = ConfigDict(extra="forbid")

    verdict: Called | None


class DetectorState(BaseModel):
    """A detector, or one that is being fitted."""

    name: str
    state: Literal["fitting", "ready", "failed"]
    kind: str
    variables: list[str]
    progress: float
    error: str | None
    sha256: str
    bytes: int
    created: float
    streams: int


class Detectors(BaseModel):
    """All detectors."""

    detectors: list[DetectorState]


class RefusedReading(BaseModel):
    """A reading that was not taken."""

    line: int
    stream: str
    reason: str


class ReadingsTaken(BaseModel):
    """What became of the readings in a request; accepted ones are on disk."""

    accepted: int
    repeated: int
    dropped: int
    refused: list[RefusedReading]  # at most 100 of them


class DeliveryState(BaseModel):
    """A message about an event to a receiver, and what became of it."""

    id: int
    receiver: str
    message: str  # the id that the receiver gets
    event: str
    stream: str
    change: Literal["opened", "closed"]
    state: Literal["waiting", "delivered", "undelivered"]
    created: float
    attempts: int
    next_attempt: float | None  # null if it is not tried any more
    error: str | None  # of the last attempt
    done_at: float | None  # when it was delivered or given up


class ReceiverState(BaseModel):
    """A receiver of `cometad.toml`, and whether it takes messages."""

    name: str
    url: str
    gets: Literal["events", "scores"]
    waiting: int  # messages or scores
    delivered: int
    undelivered: int
    last_delivered: float | None
    error: str | None  # why the last message was not taken


class DeliveryList(BaseModel):
    """All receivers of events, and messages to them, newest first."""

    receivers: list[ReceiverState]
    deliveries: list[DeliveryState]


class Retried(BaseModel):
    """How many messages were sent, or are tried again now."""

    count: int


class ConnectionState(BaseModel):
    """A source of readings, and whether it answers."""

    name: str
    url: str
    streams: list[str]
    state: Literal["connecting", "connected", "lost", "failed"]
    reason: str | None
    since: float  # when the state changed
    readings: int  # accepted since the start of the service
    set_aside: int  # messages that could not be used since then
    last_message: float | None


class ConnectionList(BaseModel):
    """All sources of `cometad.toml`."""

    connections: list[ConnectionState]


class AsideMessage(BaseModel):
    """A message that could not be used, and why."""

    time: float
    stream: str
    where: str
    content: str  # its beginning
    reason: str


class AsideMessages(BaseModel):
    """Messages of a connection that were set aside, newest first."""

    messages: list[AsideMessage]


class SessionInfo(BaseModel):
    """What this client may do, and what there is."""

    version: str
    tokens: bool
    scopes: list[str]
    streams: int
    detectors: int


class DemoState(BaseModel):
    """The demo plant."""

    stream: str
    state: Literal["starting", "running", "stopped"]
    error: str | None = None


class Health(BaseModel):
    """Whether the service is well."""

    status: str
    details: dict[str, Any] = {}

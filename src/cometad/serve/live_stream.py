"""A stream in memory, as four objects with one writer each: its row, its arrivals, its scoring, and what people see."""

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from cometad.alerting.alerts import Alerts
from cometad.alerting.budget import SECONDS_PER_DAY, Budget
from cometad.arrays import Floats
from cometad.connect.intake import Connection
from cometad.data.cells import StreamDates
from cometad.data.resample import Resampling, parse_period, parse_resampling
from cometad.data.text import Layout
from cometad.detector import Detector
from cometad.errors import ParameterError
from cometad.live.session import Grid, Ordered, Session
from cometad.live.stream import EARLIEST, LATEST
from cometad.serve.models import EventSummary, Recent, State, StreamSettings, StreamState, Top

RECENT = 1024  # scores kept in memory
DRIFT_EVERY = 64  # scores
SILENT_AFTER = 10  # periods without a reading
LEAST_SILENCE = 5.0  # seconds
LEAST_WINDOW = 1000  # readings over which a budget of alerts is counted
EVER = 1e15  # seconds: no time is further from 1970
# Settings that are parameters of `Alerts`:
ALERTS = {"min_length", "merge_gap", "hold_off", "longest", "longest_hours", "alert_from"}


@dataclass(frozen=True)
class StreamRow:
    """What the database has of a stream; `LiveStream.change` replaces it as a whole."""

    id: int
    name: str
    settings: StreamSettings
    first_seq: int = 0  # numbers before these belong to earlier settings
    first_step: int = 0
    first_event: int = 0
    paused: bool = False
    reason: str | None = None
    epoch: int = 0  # how often it had been taken or released when it was read or released here
    lost_detector: bool = False  # whether its detector cannot be loaded; the one in memory is a placeholder


@dataclass
class Arrivals:
    """What the next readings are compared with. Only the recorder changes it: in a copy, kept after the commit."""

    next_seq: int = 0
    last_at: float | None = None
    last_sequence: int | None = None
    timed: bool | None = None  # whether readings come with times; None before the first
    dates: StreamDates = field(default_factory=StreamDates)  # replaced, never changed: copies share it
    late: int = 0
    repeated: int = 0
    last_received: float | None = None

    def copy(self) -> "Arrivals":
        """A copy to change while a transaction is open; `replace` would take most of the time of a reading."""
        copied = object.__new__(Arrivals)
        copied.__dict__.update(self.__dict__)
        return copied

    def keep_dates(self, dates: StreamDates) -> None:
        """Keep how times are written; the object changes only if that does, which is then stored."""
        if vars(dates) != vars(self.dates):
            self.dates = dates


class LastScores:
    """The last scores of a stream (at most 1,024), in a ring; who adds and who reads take turns."""

    def __init__(self) -> None:
        self._ats, self._cells = np.zeros(RECENT), np.zeros((RECENT, 3))
        self._lock = threading.Lock()
        self.count = 0  # ever
        self._flagged = 0  # of those in the ring
        self.newest: tuple[float, ...] | None = None  # time, alert score, threshold and flag

    def add(self, ats: Floats, cells: Floats) -> None:
        """Add times (time,) and alert scores, thresholds and flags (time, 3)."""
        with self._lock:
            self.count += max(len(ats) - RECENT, 0)
            ats, cells = ats[-RECENT:], cells[-RECENT:]
            place = self.count % RECENT
            if place + len(ats) <= RECENT:  # fast path: mostly one score
                places: Any = slice(place, place + len(ats))
            else:
                places = np.arange(self.count, self.count + len(ats)) % RECENT
            self._flagged += int(np.count_nonzero(cells[:, 2]) - np.count_nonzero(self._cells[places, 2]))
            self._ats[places], self._cells[places] = ats, cells
            self.count += len(ats)
            self.newest = (float(ats[-1]), *cells[-1].tolist())

    @property
    def cells(self) -> Floats:
        """Alert scores, thresholds and flags (time, 3), in any order."""
        return self._cells[: self.count]

    def last(self, most: int) -> tuple[Floats, Floats]:
        with self._lock:
            places = np.arange(max(0, self.count - min(most, RECENT)), self.count) % RECENT
            return self._ats[places], self._cells[places]

    def at(self, back: int) -> float | None:
        """The time of the score `back` steps before the last one, if it is still known."""
        return float(self._ats[(self.count - 1 - back) % RECENT]) if 0 <= back < min(self.count, RECENT) else None

    @property
    def flagged_share(self) -> float:
        return self._flagged / min(self.count, RECENT) if self.count else 0.0


@dataclass
class Scoring:
    """The session of a stream, and how far it is. Only the scorer changes it, while this process has the stream."""

    session: Session | None = None
    scored_seq: int = 0  # the next reading to score
    stored_step: int = 0  # scores before this one are stored already
    known_verdict: int = 0  # the last one the session knows
    snapshot_due: int = 0  # readings until the next snapshot
    last: LastScores = field(default_factory=LastScores)
    drift: float | None = None
    drift_at: int = -DRIFT_EVERY  # how many scores there were when the drift was computed
    events: int = 0
    openings: tuple[int, ...] = ()  # first steps of the events that the budget counts
    open_event: EventSummary | None = None
    peak_profile: bytes = b""


class Shown(NamedTuple):
    """What the scorer lets others see after each block, all of one moment."""

    at: float | None = None  # the time of the last score
    score: float | None = None
    threshold: float | None = None
    flagged: bool = False
    variables: tuple[Sequence[str], Floats] = ((), np.empty(0))  # their names and scores
    flagged_share: float = 0.0
    step: int = 0  # the next one
    openings: tuple[int, ...] = ()
    drift: float | None = None  # where the median of the last scores lies among those of training: 0.5 is no drift
    events: int = 0
    open_event: EventSummary | None = None


_rows = threading.Lock()  # of all streams


@dataclass(eq=False)
class LiveStream:
    row: StreamRow
    detector: Detector
    layout: Layout  # shared by the streams of a detector
    arrivals: Arrivals = field(default_factory=Arrivals)
    scoring: Scoring = field(default_factory=Scoring)
    shown: Shown = field(default_factory=Shown)
    source: Connection | None = None  # where its readings come from, unless clients send them
    is_copy: bool = False  # as it was read to be shown; this process has never scored it
    owned: bool = False  # whether this process scores it; whatever is on its way for one that it lost is not stored

    def change(self, **facts: Any) -> None:
        with _rows:
            self.row = replace(self.row, **facts)

    @property
    def id(self) -> int:
        return self.row.id

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def settings(self) -> StreamSettings:
        return self.row.settings

    @property
    def is_scored(self) -> bool:
        return self.owned and not self.row.paused

    def new_session(self, snapshot: bytes | None) -> Session:
        alerts = Alerts(**self.settings.model_dump(include=ALERTS, exclude_none=True))
        resampling = resampling_of(self.settings)
        gate = Ordered() if resampling is None else Grid(resampling, self.detector.names_)
        if snapshot is None:
            return Session(self.detector, gate, alerts)
        return Session.resume(snapshot, self.detector, gate, alerts)

    @property
    def period(self) -> float | None:
        """Seconds between readings: as the settings say, or as in training."""
        if self.settings.period is not None:
            return seconds_of(self.settings.period)
        learned = self._trained_period
        return None if math.isnan(learned) else learned

    @property
    def _trained_period(self) -> float:
        return math.nan if self.row.lost_detector else self.detector.statistics_.period

    def can_have(self, at: float) -> bool:
        """Whether a reading may have this time: bins and seasons need dates, which are not written for every number."""
        dated = self.settings.resample is not None or self.detector.season_ is not None
        return EARLIEST <= at < LATEST if dated else -EVER <= at <= EVER

    def state(self, now: float) -> tuple[State, str | None]:
        """One word for how the stream is, and why if it is paused, disconnected or silent."""
        if self.row.paused:
            return "paused", self.row.reason
        if self.source is not None and self.source.state in ("lost", "failed"):
            return "disconnected", self.source.reason
        silence = self._silence(now)
        if silence is not None:
            return "silent", f"No reading for {silence:,.0f} s."
        if self.shown.score is None:
            return "waiting", None
        return ("event" if self.shown.open_event is not None else "normal"), None

    def _silence(self, now: float) -> float | None:
        if self.arrivals.last_received is None or self.period is None:
            return None
        silent = now - self.arrivals.last_received
        return silent if silent > max(SILENT_AFTER * self.period, LEAST_SILENCE) else None

    @property
    def has_alert(self) -> bool:
        event = self.shown.open_event
        return event is not None and event.level == "alert"

    @property
    def budget(self) -> dict[str, float] | None:
        """The promise of the threshold."""
        rule = self.detector.threshold
        if isinstance(rule, Budget) and rule.rate is None:
            alerts, daily = rule.limits
            timed = rule.period is not None or not math.isnan(self._trained_period)  # else no daily limit applies
            limits = {"alerts": alerts, "per": alerts and rule.per, "alerts_per_day": daily if timed else None}
            return {name: float(limit) for name, limit in limits.items() if limit is not None}
        return None if rule.rate is None else {"rate": float(rule.rate)}

    @property
    def budget_reduced(self) -> str | None:
        """What the budget is reduced to, if it is too large for the data."""
        rule = self.detector.threshold
        return rule.reduced(self._trained_period) if isinstance(rule, Budget) else None

    @property
    def budget_window(self) -> tuple[int, float]:
        """Over how many readings a budget of alerts is counted, and how many events may open in them.

        They are those of a day and at least 1,000; of more, if the budget does not even allow one event in these.
        """
        rule = self.detector.threshold
        share = rule.share(self._trained_period) if isinstance(rule, Budget) else 1.0
        day = 0.0 if self.period is None else SECONDS_PER_DAY / self.period
        window = math.ceil(max(day, LEAST_WINDOW, 1 / share))
        return window, share * window

    def numbers(self) -> dict[str, Any]:
        """What the last score was: for a line of a table, or a message."""
        shown = self.shown
        return {
            "score": shown.score,
            "threshold": shown.threshold,
            "flagged": shown.flagged,
            "top": top_of(*shown.variables),
            "budget_used": self.budget_used,
            "drift": shown.drift,
        }

    @property
    def budget_used(self) -> float | None:
        """How much of the promise is used: 1 is all of it."""
        shown, budget = self.shown, self.budget
        if budget is None or shown.score is None:
            return None
        if "rate" in budget:
            return shown.flagged_share / budget["rate"]
        window, allowed = self.budget_window
        return sum(start >= shown.step - window for start in shown.openings) / allowed

    def publish(self, variables: Floats | None = None) -> None:
        """Let people see the last scores; for the thread that adds them, after each block.

        `variables` has those of the last score; without them, those of before stay.
        """
        scoring = self.scoring
        at, score, threshold, flagged = scoring.last.newest or (None, None, None, False)
        self.shown = Shown(
            at,
            score,
            threshold,
            bool(flagged),
            self.shown.variables if variables is None else (self.detector.names_, variables),
            scoring.last.flagged_share,
            scoring.stored_step,
            scoring.openings,
            self._current_drift(),
            scoring.events,
            scoring.open_event,
        )

    def _current_drift(self) -> float | None:
        """The drift, computed anew after 64 scores: it moves slowly."""
        scoring = self.scoring
        count = scoring.last.count
        if count < DRIFT_EVERY or self.row.lost_detector:
            return None
        if not 0 <= count - scoring.drift_at < DRIFT_EVERY:  # below 0 if scores were read again from disk
            middle, training = float(np.median(scoring.last.cells[:, 0])), self.detector.alert_scores_
            scoring.drift = float(((training < middle).mean() + (training <= middle).mean()) / 2)
            scoring.drift_at = count
        return scoring.drift

    def describe(self, lag: float, recent: int = 0) -> StreamState:
        """How the stream is now; `lag` is how long its oldest unscored reading has waited."""
        state, reason = self.state(time.time())
        arrivals, shown = self.arrivals, self.shown
        return StreamState(
            name=self.name,
            detector=self.settings.detector,
            state=state,
            reason=reason,
            readings=arrivals.next_seq,
            late=arrivals.late,
            repeated=arrivals.repeated,
            last_time=shown.at,
            last_received=arrivals.last_received,
            open_event=shown.open_event,
            events=shown.events,
            budget=self.budget,
            budget_reduced=self.budget_reduced,
            lag=lag,
            recent=self._recent(recent) if recent else None,
            **self.numbers(),
        )

    def _recent(self, count: int) -> Recent:
        ats, cells = self.scoring.last.last(count)
        cells = cells.round(4)  # enough for a small chart
        return Recent(times=ats.round(3).tolist(), scores=cells[:, 0].tolist(), thresholds=cells[:, 1].tolist())


def resampling_of(settings: StreamSettings) -> Resampling | None:
    return None if settings.resample is None else parse_resampling(settings.resample)


def seconds_of(period: str) -> float:
    return parse_period(period) / 1e6


def threshold_of(settings: StreamSettings, detector: Detector) -> Budget | None:
    """The threshold rule that the settings ask for; None keeps that of the detector.

    A detector that was fitted without times learns from the settings how many readings a day has.
    """
    budget, own = settings.budget, detector.threshold
    period = None if settings.period is None else seconds_of(settings.period)
    if budget is not None:
        return Budget(**budget.model_dump(), period=None if budget.rate is not None else period)
    if period is None or not isinstance(own, Budget) or own.rate is not None or own.period is not None:
        return None
    return replace(own, period=period) if math.isnan(detector.statistics_.period) else None


def check_settings(settings: StreamSettings, detector: Detector) -> None:
    if not detector.can_stream:
        raise ParameterError(
            f"{settings.detector!r} is a {type(detector).__name__}, which cannot score a stream. Use a Comet."
        )
    if settings.period is not None:
        seconds_of(settings.period)
    resampling = resampling_of(settings)
    if resampling is not None:
        Session(detector, Grid(resampling, detector.names_))  # refuses gaps without a rule


def top_of(names: Sequence[str], scores: Floats, most: int = 3) -> Top:
    order = np.argsort(-scores, kind="stable")[:most].tolist()
    return [(names[i], float(scores[i])) for i in order]

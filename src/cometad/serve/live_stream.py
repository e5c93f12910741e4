"""A stream in memory: what puts its readings in order, its session, and what people see of it."""

import math
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
from cometad.live.clock import Ordered
from cometad.live.grid import EARLIEST, LATEST, Grid
from cometad.live.session import Session
from cometad.serve.models import EventSummary, StreamSettings, Top

RECENT = 1024  # scores kept in memory
DRIFT_EVERY = 64  # scores
SILENT_AFTER = 10  # periods without a reading
LEAST_SILENCE = 5.0  # seconds
LEAST_WINDOW = 1000  # readings over which a budget of alerts is counted
EVER = 1e15  # seconds: no time is further from 1970
ALERTS = {
    "min_length",
    "merge_gap",
    "hold_off",
    "longest",
    "longest_hours",
    "alert_from",
}  # settings that are parameters of `Alerts`


@dataclass
class Arrivals:
    """What the next readings of a stream are compared with; copied while a transaction is open."""

    next_seq: int = 0
    last_at: float | None = None
    last_sequence: int | None = None
    timed: bool | None = None  # whether readings come with times; None before the first
    dates: StreamDates = field(default_factory=StreamDates)  # replaced, never changed: copies share it
    late: int = 0
    repeated: int = 0


class LastScores:
    """The last scores of a stream (at most 1,024), in a ring."""

    def __init__(self) -> None:
        self._ats, self._cells = np.zeros(RECENT), np.zeros((RECENT, 3))
        self.count = 0  # ever

    def add(self, ats: Floats, cells: Floats) -> None:
        """Add times (time,) and alert scores, thresholds and flags (time, 3)."""
        if len(ats) == 1:  # fast path
            place = self.count % RECENT
            self._ats[place], self._cells[place] = ats[0], cells[0]
            self.count += 1
            return
        self.count += max(len(ats) - RECENT, 0)
        ats, cells = ats[-RECENT:], cells[-RECENT:]
        places = np.arange(self.count, self.count + len(ats)) % RECENT
        self._ats[places], self._cells[places] = ats, cells
        self.count += len(ats)

    def _places(self, most: int) -> Any:
        return np.arange(max(0, self.count - min(most, RECENT)), self.count) % RECENT

    @property
    def cells(self) -> Floats:
        """Alert scores, thresholds and flags (time, 3), in any order."""
        return self._cells[: self.count]

    def last(self, most: int) -> tuple[Floats, Floats]:
        """The last times and cells, oldest first."""
        places = self._places(most)
        return self._ats[places], self._cells[places]

    def at(self, back: int) -> float | None:
        """The time of the score `back` steps before the last one, if it is still known."""
        return float(self._ats[(self.count - 1 - back) % RECENT]) if 0 <= back < min(self.count, RECENT) else None

    def flagged_share(self) -> float | None:
        """The share of flagged scores; None if there are none."""
        return float(self.cells[:, 2].mean()) if self.count else None


class Numbers(NamedTuple):
    """What the last score of a stream was: for a line of a table, or a message."""

    score: float | None
    threshold: float | None
    flagged: bool
    top: Top
    budget_used: float | None  # of the promise: 1 is all of it
    drift: float | None  # where the median of the last scores lies among those of training: 0.5 if nothing has changed


@dataclass
class LiveStream:
    """A stream of the service. The recorder owns `arrivals`, the scorer everything else that changes."""

    id: int
    name: str
    settings: StreamSettings
    detector: Detector
    layout: Layout  # shared by the streams of a detector
    first_seq: int = 0
    first_step: int = 0
    first_event: int = 0
    paused: bool = False
    reason: str | None = None
    lost_detector: bool = False  # whether its detector cannot be loaded; the one here is a placeholder
    arrivals: Arrivals = field(default_factory=Arrivals)
    stored_dates: dict[str, Any] = field(default_factory=dict)  # what is on disk of them
    session: Session | None = None
    scored_seq: int = 0  # the next reading to score
    stored_step: int = 0  # scores before this one are stored already
    known_verdict: int = 0  # the last one the session knows
    snapshot_due: int = 0  # readings until the next snapshot
    last: LastScores = field(default_factory=LastScores)
    shown: Numbers = field(default_factory=lambda: Numbers(None, None, False, [], None, None))
    open_event: EventSummary | None = None
    peak_profile: bytes = b""
    events: int = 0
    openings: list[int] = field(default_factory=list)  # first steps of the events that the budget counts
    last_received: float | None = None
    waiting_since: float | None = None  # when the oldest unscored reading was accepted, by `time.monotonic`
    silence_told: bool = False
    # Where several processes share a database:
    owned: bool = True  # whether this process scores it
    gone: bool = False  # another process took it: whatever is still on its way here is not stored
    epoch: int = 0  # what is known here is what was stored when the stream had been taken or released that often
    fed: bool = False  # whether readings came to this process
    source: Connection | None = None  # where its readings come from, unless clients send them
    _drift: float = 0.5
    _drift_at: int = -64

    def new_session(self, snapshot: bytes | None) -> Session:
        """A session, resumed from a snapshot if there is one."""
        chosen = self.settings.model_dump(include=ALERTS, exclude_none=True)
        alerts = Alerts(**chosen)
        resampling = resampling_of(self.settings)
        gate = Ordered() if resampling is None else Grid(resampling, self.detector.names_)
        if snapshot is None:
            return Session(self.detector, gate, alerts)
        return Session.resume_bytes(snapshot, self.detector, gate, alerts)

    @property
    def period(self) -> float | None:
        """Seconds between readings: as the settings say, or as in training."""
        if self.settings.period is not None:
            return seconds_of(self.settings.period)
        learned = self._trained_period
        return None if math.isnan(learned) else learned

    @property
    def _trained_period(self) -> float:
        return math.nan if self.lost_detector else self.detector.statistics_.period

    def can_have(self, at: float) -> bool:
        """Whether a reading may have this time: bins have dates, which are not written for every number."""
        return -EVER <= at <= EVER if self.settings.resample is None else EARLIEST <= at < LATEST

    def state(self, now: float) -> tuple[str, str | None]:
        """One word for how the stream is, and why if it is paused, disconnected or silent."""
        if self.paused:
            return "paused", self.reason
        if self.source is not None and self.source.state in ("lost", "failed"):
            return "disconnected", self.source.reason
        silence = self._silence(now)
        if silence is not None:
            return "silent", f"No reading for {silence:,.0f} s."
        if self.last.count == 0:
            return "waiting", None
        return ("event" if self.open_event is not None else "normal"), None

    def _silence(self, now: float) -> float | None:
        if self.last_received is None or self.period is None:
            return None
        silent = now - self.last_received
        return silent if silent > max(SILENT_AFTER * self.period, LEAST_SILENCE) else None

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

    def _budget_used(self) -> float | None:
        budget = self.budget
        if budget is None or not self.last.count:
            return None
        if "rate" in budget:
            share = self.last.flagged_share()
            return None if share is None else share / budget["rate"]
        window, allowed = self.budget_window
        return sum(start >= self.stored_step - window for start in self.openings) / allowed

    def _current_drift(self) -> float | None:
        """The drift, computed anew after 64 scores: it moves slowly."""
        if self.last.count < DRIFT_EVERY or self.lost_detector:
            return None
        if not 0 <= self.last.count - self._drift_at < DRIFT_EVERY:  # below 0 if scores were read again from disk
            middle, training = float(np.median(self.last.cells[:, 0])), self.detector.alert_scores_
            self._drift = float(((training < middle).mean() + (training <= middle).mean()) / 2)
            self._drift_at = self.last.count
        return self._drift

    @property
    def lag(self) -> float:
        """Seconds that the oldest unscored reading has waited."""
        since = self.waiting_since
        return 0.0 if since is None else max(0.0, time.monotonic() - since)

    def publish(self, top: Top | None = None) -> None:
        """Let people see the last scores; for the thread that adds them, after each block. `top` changes if given."""
        _, cells = self.last.last(1)
        score, threshold, flagged = cells[0].tolist() if len(cells) else (None, None, False)
        top = self.shown.top if top is None else top
        self.shown = Numbers(score, threshold, bool(flagged), top, self._budget_used(), self._current_drift())

    def describe(self, recent: int = 0) -> dict[str, Any]:
        """How the stream is now, as `StreamState`."""
        now = time.time()
        state, reason = self.state(now)
        found: dict[str, Any] = {
            "name": self.name,
            "detector": self.settings.detector,
            "state": state,
            "reason": reason,
            "readings": self.arrivals.next_seq,
            "late": self.arrivals.late,
            "repeated": self.arrivals.repeated,
            "last_time": self.last.at(0),
            "last_received": self.last_received,
            "open_event": self.open_event,
            "events": self.events,
            "budget": self.budget,
            "budget_reduced": self.budget_reduced,
            "lag": self.lag,
            **self.shown._asdict(),
        }
        if recent:
            ats, cells = self.last.last(recent)
            cells = cells.round(4)  # enough for a small chart
            found["recent"] = {"times": ats.round(3), "scores": cells[:, 0], "thresholds": cells[:, 1]}
            found["recent"] = {name: column.tolist() for name, column in found["recent"].items()}
        return found


def resampling_of(settings: StreamSettings) -> Resampling | None:
    """How the readings of a stream are resampled, if they are."""
    return None if settings.resample is None else parse_resampling(settings.resample)


def seconds_of(period: str) -> float:
    """The seconds in a period such as 500ms or 1min."""
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
    """Refuse settings that a detector cannot be used with."""
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
    """The variables with the highest scores."""
    order = np.argsort(-scores, kind="stable")[:most].tolist()
    return [(names[i], float(scores[i])) for i in order]

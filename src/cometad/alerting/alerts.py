"""From scores to flags and events, which open, update and close exactly once.

`Alerts` defines what counts as one event; an `AlertRun` takes scores in chunks of any size; a `Judge` flags them
first. A batch is one long run, so batch and stream agree by construction. docs/alerts.md has pictures.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cometad.alerting import watch as at
from cometad.alerting.severity import DIGITS, ScoreTail, severity_of
from cometad.alerting.watch import Threshold, as_scores
from cometad.arrays import Flags, Floats, Integers
from cometad.errors import InputError
from cometad.parameters import check, integer, number
from cometad.saving import Saved, Table, array, part, require_state

BLOCK, FEW = 4096, 8  # time steps that share memory for their changes, and that need none of their own
LONGEST = 64  # readings: an event this long is no longer news
LONGEST_HOURS, SHORTEST = 8.0, 8  # the hours are at least that many readings
PAUSE = 10  # readings below the low mark that do not end an event under a budget: scores flicker
NOTEWORTHY = 0.15  # severity: one reading in 22. Alerts then find 0.014 less than all events (select entities)

Kind = Literal["opened", "updated", "closed"]
Level = Literal["alert", "notice"]

_RULES = {
    "low": number(0, 1, above=True),
    "min_length": integer(1),
    "merge_gap": integer(0),
    "hold_off": integer(0),
    "longest": integer(1),
    "longest_hours": number(0, math.inf, above=True),
    "alert_from": number(0, 1),
}
_KINDS: tuple[Kind, ...] = ("opened", "updated", "closed")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Most chunks have neither gaps nor times. The kernel reads as many as there are scores.
_MEASURED, _NO_TIMES = np.ones(BLOCK, np.bool_), np.full(BLOCK, at.UNKNOWN)


@dataclass(frozen=True)
class Event:
    """Consecutive time steps that belong to one anomaly.

    >>> from cometad.alerting.alerts import Event
    >>> event = Event(number=1, start=7, stop=9, peak=8, peak_score=3.5, severity=0.4, steps=2, open=False)
    >>> event.stop, event.level, event.rarity
    (9, 'alert', 3981)
    """

    number: int  # 1, 2, 3, ... in opening order
    start: int  # first time step, which is hot
    stop: int  # one after the last time step at or above the low mark
    peak: int  # time step of the highest hot score, the first one on a tie
    peak_score: float
    severity: float  # of the peak, from 0 to 1
    steps: int  # number of hot time steps
    open: bool  # more time steps may join
    level: Level = "alert"  # a notice is listed, but never sent; it may become an alert while it is open
    new_level: bool = False  # it was closed because its state lasted so long that it is no longer news
    start_time: datetime | None = None  # of the first reading, in UTC; None if times are unknown
    stop_time: datetime | None = None  # of the last reading
    peak_time: datetime | None = None

    @property
    def rarity(self) -> int:
        """Normal operation reaches this severity once in that many readings."""
        return round(10 ** (DIGITS * self.severity))

    def as_json(self) -> dict[str, Any]:
        """The event in types that JSON can hold; without times if they are unknown."""
        found = {**asdict(self), "rarity": self.rarity}
        times = {name: found.pop(name) for name in ("start_time", "stop_time", "peak_time")}
        return found | {name: written(time) for name, time in times.items() if time is not None}


def written(time: datetime) -> str:
    """A time as JSON and tables have it, in UTC.

    >>> from datetime import UTC, datetime
    >>> from cometad.alerting.alerts import written
    >>> written(datetime(2026, 3, 1, 12, 0, 0, 250_000, UTC))
    '2026-03-01T12:00:00.250Z'
    """
    digits = "microseconds" if time.microsecond % 1000 else "milliseconds" if time.microsecond else "seconds"
    return time.isoformat(timespec=digits).replace("+00:00", "Z")


class Change(NamedTuple):
    """A change to an event, and the time step that caused it.

    >>> from cometad.alerting.alerts import Alerts
    >>> from cometad.alerting.severity import ScoreTail
    >>> change = Alerts().start(ScoreTail.fit([0.0])).push([3.0], 2.0)[0]
    >>> change.kind, change.event.number, change.step
    ('opened', 1, 0)
    """

    kind: Kind
    event: Event  # after the change
    step: int


@dataclass(frozen=True)
class Alerts:
    """What counts as one event, and which events are alerts.

    A time step is *hot* if its score is above the threshold and *quiet* if it is below the low mark; an imputed time
    step is neither. The low mark lies between the median of the training scores and the threshold, at
    low * threshold + (1 - low) * median, and never above the threshold. During an event it never rises above where it
    was at the start: a fault must not end because the threshold tracks it.

    * A hot step outside of events starts a candidate, which becomes an event once it has `min_length` measured steps. A
      quiet step before that drops the candidate; its hot steps count as `short`.
    * An event ends with its last step at or above the low mark. It closes once more than `merge_gap` quiet steps follow
      that one; any earlier step at or above the low mark extends it.
    * An event that has lasted `longest` readings (or `longest_hours`, if that is less) closes as a *new level*. While
      that state lasts, no event opens again, unless a score is 1.1 times as far above the median as the state has been
      lately; such an event lasts while that is so. The state is over after more than `merge_gap`
      steps below the low mark of its event, at least 10; its hot steps count as `suppressed`.
    * For `hold_off` time steps after the closing one no candidate starts; hot steps there count as `suppressed`.

    So every hot step belongs to an event, or is short, or is suppressed.

    Parameters
    ----------
    low
        Position of the low mark between the median of the training scores (0) and the threshold (1); above 0.
    min_length
        Measured time steps an event needs, from its first hot one on and without a quiet one in between.
    merge_gap
        Longest run of quiet time steps that does not end an event.
    hold_off
        Time steps after an event closes in which no other starts.
    longest, longest_hours
        Readings and hours after which an event that lasts is no longer news.
    alert_from
        Severity from which an event is an alert; below it is a notice.

    >>> from cometad.alerting.alerts import Alerts, find_events
    >>> from cometad.alerting.severity import ScoreTail
    >>> tail = ScoreTail.fit([0.0, 0.0, 1.0])
    >>> events = find_events([0, 3, 3, 0, 3, 0, 0, 0, 3], 2.0, Alerts(merge_gap=1), tail)
    >>> [(event.start, event.stop) for event in events]
    [(1, 5), (8, 9)]
    """

    low: float = 0.8
    min_length: int = 1
    merge_gap: int = 0
    hold_off: int = 0
    # Not part of the text, which is part of a stream's fingerprint: a snapshot can be resumed with others.
    longest: int = field(default=LONGEST, repr=False)
    longest_hours: float = field(default=LONGEST_HOURS, repr=False)
    alert_from: float = field(default=NOTEWORTHY, repr=False)

    def __post_init__(self) -> None:
        check(vars(self), _RULES)

    def start(self, tail: ScoreTail, step: int = 0) -> "AlertRun":
        """A run over scores, given the tail of the training scores; `step` is the time step of the first score."""
        return AlertRun(self, tail, step)

    def lasting(self, period: float) -> int:
        """Readings that an event may last, if they are `period` seconds apart (NaN: unknown).

        >>> from cometad.alerting.alerts import Alerts
        >>> Alerts().lasting(60.0), Alerts().lasting(3600.0)
        (64, 8)
        """
        hours = math.inf if math.isnan(period) else self.longest_hours * 3600 / period
        return int(min(self.longest, max(hours, SHORTEST)))


class Judged(NamedTuple):
    """Flags, thresholds and event changes of consecutive scores."""

    flags: NDArray[np.int64]  # (time,)  1 where a measured score is above its threshold
    thresholds: Floats  # (time,)
    changes: list[Change]  # opened, updated and closed events

    @classmethod
    def joined(cls, parts: Sequence["Judged"]) -> "Judged":
        flags, thresholds, changes = zip(*parts, strict=True)
        return cls(np.concatenate(flags), np.concatenate(thresholds), [change for own in changes for change in own])


class AlertRun(Saved):
    """Events of scores that arrive in chunks of any size, in constant memory; created by `Alerts.start`.

    With a `track`, the state of a budget of alerts, the run sets the thresholds itself: each event that opens raises
    the next ones.

    >>> from cometad.alerting.alerts import Alerts
    >>> from cometad.alerting.severity import ScoreTail
    >>> run = Alerts(min_length=2).start(ScoreTail.fit([0.0, 0.0, 1.0]))
    >>> run.push([0.0, 3.0], 2.0)  # one hot step is not enough
    []
    >>> changes = run.push([4.0, 5.0, 0.0], 2.0) + run.finish()
    >>> [(change.kind, change.step, change.event.start, change.event.peak) for change in changes]
    [('opened', 2, 1, 2), ('updated', 3, 1, 3), ('closed', 4, 1, 3)]
    """

    saved: ClassVar[Table] = {
        "counts": array("_counts", "number", dtype=np.int64, make=at.all_counts),
        "peak_score": array("_marks", "mark", unknown=True, make=at.all_marks),
    }

    def __init__(
        self, alerts: Alerts, tail: ScoreTail, step: int = 0, track: Floats | None = None, period: float = math.nan
    ) -> None:
        self._alerts, self._tail = alerts, tail
        self._numbers = np.array(tail)
        self.track = np.empty(0) if track is None else np.array(track, np.float64)
        self._counts, self._marks = at.new_counts(step), np.zeros(at.MARKS)
        self._marks[at.M_MARK] = math.inf
        lasting = alerts.lasting(period)
        rules = (alerts.low, alerts.min_length, alerts.merge_gap, alerts.hold_off, lasting, alerts.alert_from)
        self._rules = np.array(rules, np.float64)
        # Memory for the changes of short chunks.
        self._changed = np.empty((FEW, at.COUNTS + 1), np.int64), np.empty(FEW)

    @property
    def threshold(self) -> float:
        """The next score is flagged if it is above this; only if the run sets its thresholds itself."""
        return float(at.shown_threshold(at.tracked(self.track), self._counts, self._marks, self._tail.center))

    @property
    def step(self) -> int:
        return int(self._counts[at.N_STEP])

    @property
    def event(self) -> Event | None:
        """The open event, if there is one."""
        if self._counts[at.N_PHASE] != at.OPEN:
            return None
        return self._event(self._counts, float(self._marks[at.M_PEAK_SCORE]))

    @property
    def opened(self) -> int:
        """The number of events opened so far."""
        return int(self._counts[at.N_NUMBER])

    @property
    def since(self) -> int | None:
        """The time step at which the open event, or a candidate for one, began; None if there is neither."""
        phase = self._counts.item(at.N_PHASE)
        return self._counts.item(at.N_START) if phase in (at.CANDIDATE, at.OPEN) else None

    @property
    def suppressed(self) -> int:
        """The number of hot steps in hold-offs, and in a state that is no longer news."""
        return int(self._counts[at.N_SUPPRESSED])

    @property
    def short(self) -> int:
        """The number of hot steps in candidates dropped before `min_length`."""
        return int(self._counts[at.N_SHORT])

    def push(self, scores: ArrayLike, thresholds: ArrayLike, imputed: ArrayLike | None = None) -> list[Change]:
        """The changes to events caused by the next scores (time,), given one threshold or one per score (time,).

        The scores of `imputed` time steps (time,) are ignored and may be NaN: such a step does not start, extend or end
        an event, but counts towards a hold-off. Each hot step that is a new peak updates the event. Refused input
        leaves the run unchanged.
        """
        values, tops = np.asarray(scores, np.float64), np.asarray(thresholds, np.float64)
        skipped = None if imputed is None else np.asarray(imputed, np.bool_)
        _check_shapes(values, tops, skipped)
        measured = None if skipped is None else ~skipped
        tops = np.broadcast_to(tops, values.shape)
        for what, numbers in (("score", values), ("threshold", tops)):
            unknown = np.isnan(numbers) if measured is None else measured & np.isnan(numbers)
            if unknown.any():
                raise InputError(
                    f"The {what} of time step {self.step + unknown.argmax()} is NaN. Mark steps without a reading as "
                    "imputed."
                )
        return self.advance(values, tops, measured).changes

    def advance(
        self, scores: Floats, thresholds: Floats, measured: Flags | None = None, times: Integers | None = None
    ) -> Judged:
        """`push` without checks; with `times` (time,), in microseconds since 1970, events know theirs.

        The thresholds are ignored if the run sets them itself.
        """
        if self._counts.item(at.N_PHASE) == at.FINISHED:
            raise InputError("The run is finished. Start a new one with Alerts.start().")
        count = len(scores)
        if count > BLOCK:
            parts = []
            for begin in range(0, count, BLOCK):
                one = slice(begin, begin + BLOCK)
                mask, known = None if measured is None else measured[one], None if times is None else times[one]
                parts.append(self.advance(scores[one], thresholds[one], mask, known))
            return Judged.joined(parts)
        judged = Judged(np.empty(count, np.int64), np.empty(count), [])
        rows, peaks = self._changed if count <= FEW else (np.empty((count, at.COUNTS + 1), np.int64), np.empty(count))
        changed = at.advance(
            scores, thresholds, _MEASURED if measured is None else measured, _NO_TIMES if times is None else times,
            self._counts, self._marks, self._rules, self._numbers, self.track,
            judged.flags, judged.thresholds, rows, peaks,
        )  # fmt: skip
        for k in range(changed):
            event = self._event(rows[k, 1:], float(peaks[k]))
            judged.changes.append(Change(_KINDS[rows[k, 0]], event, int(rows[k, 1 + at.N_STEP])))
        return judged

    def finish(self) -> list[Change]:
        """Close the open event at the end of the series; the run accepts no scores after that."""
        counts, changes = self._counts, []
        phase, counts[at.N_PHASE] = counts[at.N_PHASE], at.FINISHED
        if phase == at.OPEN:
            changes = [Change("closed", self._event(counts, float(self._marks[at.M_PEAK_SCORE])), self.step - 1)]
        elif phase == at.CANDIDATE:
            counts[at.N_SHORT] += counts[at.N_HOT]
        return changes

    def check_state(self) -> None:
        """Complete the marks of earlier versions: their threshold at the start follows from the low mark."""
        if math.isnan(self._marks[at.M_TOP]):
            self._marks[at.M_TOP] = self._tail.center + (self._marks[at.M_MARK] - self._tail.center) / self._alerts.low

    def _event(self, counts: Integers, peak_score: float) -> Event:
        found = severity_of(peak_score, self._numbers)
        times = (
            None if time == at.UNKNOWN else EPOCH + timedelta(microseconds=int(time))
            for time in counts[at.N_START_TIME : at.N_NEW_LEVEL]
        )
        return Event(
            int(counts[at.N_NUMBER]),
            int(counts[at.N_START]),
            int(counts[at.N_LAST]) + 1,
            int(counts[at.N_PEAK]),
            peak_score,
            found,
            int(counts[at.N_HOT]),
            bool(counts[at.N_PHASE] == at.OPEN),
            "alert" if counts[at.N_IS_ALERT] else "notice",
            bool(counts[at.N_NEW_LEVEL]),
            *times,
        )


def find_events(
    scores: ArrayLike, threshold: ArrayLike, alerts: Alerts, tail: ScoreTail, imputed: ArrayLike | None = None
) -> list[Event]:
    """The events of a complete series of scores (time,), in order.

    >>> from cometad.alerting.alerts import Alerts, find_events
    >>> from cometad.alerting.severity import ScoreTail
    >>> events = find_events([0, 5, 4, 0], 2.0, Alerts(), ScoreTail.fit([0.0, 0.0, 1.0]))
    >>> [(event.number, event.start, event.stop, event.peak, event.steps) for event in events]
    [(1, 1, 3, 1, 2)]
    """
    run = alerts.start(tail)
    changes = run.push(scores, threshold, imputed) + run.finish()
    return [change.event for change in changes if change.kind == "closed"]


def _check_shapes(scores: Floats, thresholds: Floats, imputed: NDArray[np.bool_] | None) -> None:
    if scores.ndim != 1:
        raise InputError(f"Expected scores of shape (time,), got {scores.shape}.")
    if thresholds.ndim and thresholds.shape != scores.shape:
        raise InputError(
            f"Got {len(scores)} scores and thresholds of shape {thresholds.shape}. "
            "Pass one threshold, or one per score."
        )
    if imputed is not None and imputed.shape != scores.shape:
        raise InputError(f"Got {len(scores)} scores and imputed of shape {imputed.shape}. Pass one flag per score.")


class Judge(Saved):
    """Flags and events of scores that arrive in chunks of any size, in bounded memory.

    Under a budget of alerts, each event that opens raises the threshold. Pauses of up to ten readings do not end an
    event there, even if `merge_gap` is smaller: scores flicker. `period` is the seconds between readings (NaN:
    unknown), for events that may last some hours.

    >>> import numpy as np
    >>> from cometad.alerting.alerts import Alerts, Judge
    >>> from cometad.alerting.severity import ScoreTail
    >>> from cometad.alerting.thresholds import Quantile
    >>> rule, training = Quantile(0.1), np.arange(11.0)
    >>> judge = Judge(rule, rule.fit(training), Alerts(), ScoreTail.fit(training))
    >>> judged = judge.push([3.0, 12.0, 4.0])
    >>> judged.flags, [change.kind for change in judged.changes]
    (array([0, 1, 0]), ['opened', 'closed'])
    """

    saved: ClassVar[Table] = {"watch": array("_learned", "number"), "alerts": part("alerts")}

    def __init__(
        self, rule: Threshold, state: Floats, alerts: Alerts, tail: ScoreTail, period: float = math.nan
    ) -> None:
        self._rule, self._watch = rule, rule.watch(state)
        track: Floats | None = getattr(self._watch, "track", None)  # of a budget of alerts, which depends on the events
        self._tracks = track is not None
        if self._tracks:
            alerts = replace(alerts, merge_gap=max(alerts.merge_gap, PAUSE))
        self.alerts = AlertRun(alerts, tail, track=track, period=period)  # groups flagged time steps into events

    def push(
        self, scores: ArrayLike, imputed: NDArray[np.bool_] | None = None, times: Integers | None = None
    ) -> Judged:
        """Judge the next scores (time,), in time order; with `times` in microseconds since 1970, events know theirs.

        Scores of `imputed` time steps (time,) are neither flagged nor learned from.
        """
        if imputed is None:
            values, measured = as_scores(scores), None
        else:
            values, measured = np.atleast_1d(np.asarray(scores, np.float64)), ~imputed
            as_scores(values[measured])
        tops = values if self._tracks else self._follow_measured(values, measured)
        return self.alerts.advance(values, tops, measured, times)

    def _follow_measured(self, values: Floats, measured: Flags | None) -> Floats:
        """The threshold of each time step; an unmeasured step takes that of the next measured one."""
        if measured is None or measured.all():
            return self._watch.follow(values)
        known = np.append(self._watch.follow(values[measured]), self._watch.threshold)
        followed: Floats = known[np.cumsum(measured) - measured]
        return followed

    def finish(self) -> list[Change]:
        return self.alerts.finish()

    @property
    def _learned(self) -> Floats:
        """The state of the watch."""
        return self.alerts.track if self._tracks else self._watch.state()

    @_learned.setter
    def _learned(self, state: Floats) -> None:
        self._watch = self._rule.watch(state)
        if self._tracks:
            own = self.alerts.track
            require_state(state.shape == own.shape, "the state of its threshold has another length")
            self.alerts.track = np.where(np.arange(len(state)) == at.FLOOR, own, state)  # 0.2 had no floor

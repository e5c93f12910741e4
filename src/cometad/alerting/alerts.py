"""Group time steps above the threshold into events that open, update and close exactly once.

`Alerts` defines what counts as one event; an `AlertRun` takes scores in chunks of any size. A batch is one long run, so
batch and stream agree by construction. docs/alerts.md has pictures.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cometad.alerting.severity import DIGITS, RAREST, ScoreTail, log_probability, severity
from cometad.alerting.tracking import cost, follow_reading, tracked
from cometad.arrays import Flags, Floats, Integers
from cometad.compiled import jit
from cometad.errors import InputError
from cometad.parameters import check, integer, number
from cometad.saving import require_state, taken

BLOCK = 4096  # time steps that share the memory for their changes
LONGEST = 64  # readings: an event this long is no longer news
LONGEST_HOURS, SHORTEST = 8.0, 8  # the hours are at least that many readings
NOTEWORTHY = 0.15  # severity: one reading in 22. Alerts then find 0.014 less than all events (select entities)
SETTLED_GAP = 10  # readings below the low mark that end a lasting state, at least: scores flicker
STRONGER = 1.1  # times as far above the median as the state that lasts: that is news
FORGET = 0.998  # of that distance, a reading: after an hour at one a second, as much again is news

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
PHASES = range(4)
_IDLE, _CANDIDATE, _OPEN, _FINISHED = PHASES  # of a run
_OPENED, _UPDATED, _CLOSED = range(3)
_KINDS: tuple[Kind, ...] = ("opened", "updated", "closed")
UNKNOWN = np.iinfo(np.int64).min  # a time that is not known, as numpy's NaT
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# The integers that change in a run, by their place in its state. Those from START to QUIET describe the candidate or
# event, the times are in microseconds since 1970.
_STEP, _PHASE, _NUMBER, _START, _LAST, _PEAK, _HOT, _LENGTH, _QUIET, _HOLD, _SUPPRESSED, _SHORT = range(12)
_START_TIME, _STOP_TIME, _PEAK_TIME, _NEW_LEVEL, _SETTLED, _CALM, _IS_ALERT = range(12, 19)
COUNTS, _EARLIER_COUNTS = 19, 12  # numbers now, and in 0.2
# The floats: the score of the peak; the low mark and the threshold at the start; the score of the state that lasts, and
# the mark below which it is over.
_PEAK_SCORE, _MARK, _TOP, _STATE, _STATE_MARK = range(5)
MARKS = 5


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


class Advanced(NamedTuple):
    """What became of a chunk of scores."""

    thresholds: Floats  # (time,)  a score above it is flagged
    changes: list[Change]


class AlertRun:
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

    def __init__(
        self, alerts: Alerts, tail: ScoreTail, step: int = 0, track: Floats | None = None, period: float = math.nan
    ) -> None:
        self._alerts, self._tail = alerts, tail
        self._numbers = np.array(tail)
        self.track = np.empty(0) if track is None else np.array(track, np.float64)
        self._counts, self._marks = np.zeros(COUNTS, np.int64), np.zeros(MARKS)
        self._counts[[_STEP, _HOLD]] = step
        self._counts[[_START_TIME, _STOP_TIME, _PEAK_TIME]] = UNKNOWN
        self._marks[_MARK] = math.inf
        lasting = alerts.lasting(period)
        rules = (alerts.low, alerts.min_length, alerts.merge_gap, alerts.hold_off, lasting, alerts.alert_from)
        self._rules = np.array(rules, np.float64)

    @property
    def threshold(self) -> float:
        """The next score is flagged if it is above this; only if the run sets its thresholds itself."""
        return float(_shown(tracked(self.track), self._counts, self._marks, self._tail.center))

    @property
    def step(self) -> int:
        """The next time step."""
        return int(self._counts[_STEP])

    @property
    def event(self) -> Event | None:
        """The open event, if there is one."""
        return self._event(self._counts, float(self._marks[_PEAK_SCORE])) if self._counts[_PHASE] == _OPEN else None

    @property
    def opened(self) -> int:
        """The number of events opened so far."""
        return int(self._counts[_NUMBER])

    @property
    def since(self) -> int | None:
        """The time step at which the open event, or a candidate for one, began; None if there is neither."""
        return int(self._counts[_START]) if self._counts[_PHASE] in (_CANDIDATE, _OPEN) else None

    @property
    def suppressed(self) -> int:
        """The number of hot steps in hold-offs, and in a state that is no longer news."""
        return int(self._counts[_SUPPRESSED])

    @property
    def short(self) -> int:
        """The number of hot steps in candidates dropped before `min_length`."""
        return int(self._counts[_SHORT])

    def push(self, scores: ArrayLike, thresholds: ArrayLike, imputed: ArrayLike | None = None) -> list[Change]:
        """The changes to events caused by the next scores (time,), given one threshold or one per score (time,).

        The scores of `imputed` time steps (time,) are ignored and may be NaN: such a step does not start, extend or end
        an event, but counts towards a hold-off. Each hot step that is a new peak updates the event. Refused input
        leaves the run unchanged.
        """
        values, tops = np.asarray(scores, np.float64), np.asarray(thresholds, np.float64)
        skipped = None if imputed is None else np.asarray(imputed, np.bool_)
        _check_shapes(values, tops, skipped)
        measured = np.ones(len(values), np.bool_) if skipped is None else ~skipped
        tops = np.broadcast_to(tops, values.shape)
        for what, numbers in (("score", values), ("threshold", tops)):
            unknown = measured & np.isnan(numbers)
            if unknown.any():
                raise InputError(
                    f"The {what} of time step {self.step + unknown.argmax()} is NaN. Mark steps without a reading as "
                    "imputed."
                )
        return self.advance(values, tops, measured).changes

    def advance(self, scores: Floats, thresholds: Floats, measured: Flags, times: Integers | None = None) -> Advanced:
        """`push` without checks; with `times` (time,), in microseconds since 1970, events know theirs.

        The thresholds are ignored if the run sets them itself.
        """
        if self._counts[_PHASE] == _FINISHED:
            raise InputError("The run is finished. Start a new one with Alerts.start().")
        known = np.full(len(scores), UNKNOWN) if times is None else times
        shown, changes = np.empty(len(scores)), []
        for begin in range(0, len(scores), BLOCK):
            part = slice(begin, begin + BLOCK)
            rows = np.empty((len(scores[part]), COUNTS + 1), np.int64)
            peaks = np.empty(len(rows))
            count = _advance(
                scores[part], thresholds[part], measured[part], known[part], self._counts, self._marks, self._rules,
                self._numbers, self.track, shown[part], rows, peaks,
            )  # fmt: skip
            changes += [
                Change(_KINDS[rows[k, 0]], self._event(rows[k, 1:], float(peaks[k])), int(rows[k, 1 + _STEP]))
                for k in range(count)
            ]
        return Advanced(shown, changes)

    def finish(self) -> list[Change]:
        """Close the open event at the end of the series; the run accepts no scores after that."""
        counts, changes = self._counts, []
        phase, counts[_PHASE] = counts[_PHASE], _FINISHED
        if phase == _OPEN:
            changes = [Change("closed", self._event(counts, float(self._marks[_PEAK_SCORE])), self.step - 1)]
        elif phase == _CANDIDATE:
            counts[_SHORT] += counts[_HOT]
        return changes

    def state(self) -> dict[str, NDArray[Any]]:
        """The complete state, by name, without the tail and the parameters."""
        return {"counts": self._counts.copy(), "peak_score": self._marks.copy()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Resume from a state of a run with the same `Alerts` and tail."""
        counts = taken(state, "counts", ("number",), np.int64)
        fits = len(counts) in (COUNTS, _EARLIER_COUNTS) and bool((counts[:12] >= 0).all()) and counts[_PHASE] in PHASES
        require_state(fits, "its array 'counts' is not that of events")
        marks = taken(state, "peak_score", ("number",), unknown=True)
        require_state(len(marks) in (1, 2, MARKS), "its array 'peak_score' is not that of events")
        self._counts[: len(counts)] = counts
        if len(counts) == _EARLIER_COUNTS:
            self._counts[_IS_ALERT] = counts[_PHASE] == _OPEN  # 0.2 knew no notices: an open event has been sent
        self._marks[: len(marks)] = marks
        if len(marks) < MARKS:  # 0.1 had no mark, 0.2 only that of a threshold, which is the top
            self._marks[_TOP] = self._tail.center + (self._marks[_MARK] - self._tail.center) / self._alerts.low

    def _event(self, counts: Integers, peak_score: float) -> Event:
        found = float(severity(peak_score, self._tail))
        times = (
            None if at == UNKNOWN else EPOCH + timedelta(microseconds=int(at)) for at in counts[_START_TIME:_NEW_LEVEL]
        )
        return Event(
            int(counts[_NUMBER]),
            int(counts[_START]),
            int(counts[_LAST]) + 1,
            int(counts[_PEAK]),
            peak_score,
            found,
            int(counts[_HOT]),
            bool(counts[_PHASE] == _OPEN),
            "alert" if counts[_IS_ALERT] else "notice",
            bool(counts[_NEW_LEVEL]),
            *times,
        )


@jit
def _news(marks: Floats, center: float) -> float:
    """The score that a state that lasts has to pass to be news."""
    return float(center + STRONGER * max(marks[_STATE] - center, 0.0))


@jit
def _shown(top: float, counts: Integers, marks: Floats, center: float) -> float:
    """The threshold of a budget of alerts that applies now: that of its start during an event."""
    if counts[_PHASE] == _OPEN:
        return float(marks[_TOP])
    return max(top, _news(marks, center)) if counts[_SETTLED] else top


@jit
def _advance(
    scores: Floats,
    tops: Floats,
    measured: Flags,
    times: Integers,
    counts: Integers,
    marks: Floats,
    rules: Floats,
    tail: Floats,
    track: Floats,
    shown: Floats,
    rows: Integers,
    peaks: Floats,
) -> int:
    """Take steps; write the thresholds to `shown` (time,), changes to `rows` and `peaks`; returns their number."""
    low, min_length, merge_gap, hold_off, longest, alert_from = rules
    center, tracks, changed = tail[0], len(track) > 0, 0
    for i in range(len(scores)):
        top = tracked(track) if tracks else tops[i]
        shown[i] = _shown(top, counts, marks, center) if tracks else top
        step = counts[_STEP]
        counts[_STEP] += 1
        if not measured[i]:
            continue
        score, hot, kind = scores[i], scores[i] > shown[i], -1
        if counts[_SETTLED]:
            counts[_CALM] = 0 if score >= marks[_STATE_MARK] else counts[_CALM] + 1
            if counts[_CALM] > max(merge_gap, SETTLED_GAP):
                counts[_SETTLED] = 0
        mark = min(top, low * top + (1 - low) * center)
        if counts[_SETTLED]:  # an event that stands out from the state must not be held by it
            mark = marks[_MARK] if counts[_PHASE] != _IDLE else max(top, _news(marks, center))
            if not score > mark:
                counts[_SUPPRESSED] += hot
                hot = False
                if counts[_PHASE] == _IDLE:
                    marks[_STATE] = max(score, center + FORGET * (marks[_STATE] - center))
        if counts[_PHASE] == _IDLE and hot:
            if step < counts[_HOLD]:
                counts[_SUPPRESSED] += 1
            else:
                counts[_PHASE] = _CANDIDATE
                counts[_START] = counts[_PEAK] = step
                counts[_START_TIME] = counts[_PEAK_TIME] = times[i]
                counts[_HOT] = counts[_LENGTH] = counts[_NEW_LEVEL] = counts[_IS_ALERT] = 0
                marks[_PEAK_SCORE], marks[_MARK], marks[_TOP] = score, mark, shown[i]
        if counts[_PHASE] == _CANDIDATE or counts[_PHASE] == _OPEN:
            if score >= min(mark, marks[_MARK]):
                counts[_LAST], counts[_STOP_TIME], counts[_QUIET] = step, times[i], 0
                counts[_LENGTH] += 1
                counts[_HOT] += hot
                rises = hot and score > marks[_PEAK_SCORE]
                if rises:
                    counts[_PEAK], counts[_PEAK_TIME], marks[_PEAK_SCORE] = step, times[i], score
                if min(log_probability(marks[_PEAK_SCORE], tail) / RAREST, 1.0) >= alert_from:
                    counts[_IS_ALERT] = 1
                if counts[_PHASE] == _CANDIDATE:
                    if counts[_LENGTH] >= min_length:
                        counts[_PHASE] = _OPEN
                        counts[_NUMBER] += 1
                        kind = _OPENED
                elif step - counts[_START] + 1 >= longest:
                    if not counts[_SETTLED] or marks[_MARK] < marks[_STATE_MARK]:
                        marks[_STATE_MARK] = marks[_MARK]  # a state that gets worse and better again is one state
                    counts[_NEW_LEVEL] = counts[_SETTLED] = 1
                    counts[_CALM] = 0
                    marks[_STATE] = marks[_PEAK_SCORE]
                    kind = _CLOSED
                elif rises:
                    kind = _UPDATED
            elif counts[_PHASE] == _CANDIDATE:
                counts[_PHASE] = _IDLE
                counts[_SHORT] += counts[_HOT]
            else:
                counts[_QUIET] += 1
                if counts[_QUIET] > merge_gap:
                    kind = _CLOSED
        if kind == _CLOSED:
            counts[_PHASE] = _IDLE
            counts[_HOLD] = step + 1 + hold_off
        if tracks:
            follow_reading(track, score, cost(marks[_PEAK_SCORE], tail) if kind == _OPENED else 0.0)
        if kind >= 0:
            rows[changed, 0] = kind
            rows[changed, 1:] = counts
            rows[changed, 1 + _STEP] = step
            peaks[changed] = marks[_PEAK_SCORE]
            changed += 1
    return changed


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

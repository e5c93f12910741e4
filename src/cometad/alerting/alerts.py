"""Group time steps above the threshold into events that open, update and close exactly once.

`Alerts` defines what counts as one event; an `AlertRun` takes scores in chunks of any size. A batch is one long run, so
batch and stream agree by construction. docs/alerts.md has pictures.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, fields
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cometad.alerting.severity import ScoreTail, severity
from cometad.arrays import Floats
from cometad.errors import InputError
from cometad.restored import require_state, taken
from cometad.validation import check, integer, number

BLOCK = 256  # time steps that are skipped together if none is hot
PATIENCE = 500  # time steps for which an event keeps the low mark it started with

Kind = Literal["opened", "updated", "closed"]

_RULES = {
    "low": number(0, 1, above=True),
    "min_length": integer(1),
    "merge_gap": integer(0),
    "hold_off": integer(0),
}
PHASES = range(4)
_IDLE, _CANDIDATE, _OPEN, _FINISHED = PHASES  # of a run


@dataclass(frozen=True)
class Event:
    """Consecutive time steps that belong to one anomaly.

    >>> from cometad.alerting.alerts import Event
    >>> Event(number=1, start=7, stop=9, peak=8, peak_score=3.5, severity=0.4, steps=2, open=False).stop
    9
    """

    number: int  # 1, 2, 3, ... in opening order
    start: int  # first time step, which is hot
    stop: int  # one after the last time step at or above the low mark
    peak: int  # time step of the highest hot score, the first one on a tie
    peak_score: float
    severity: float  # of the peak, from 0 to 1
    steps: int  # number of hot time steps
    open: bool  # more time steps may join


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
    """What counts as one event.

    A time step is *hot* if its score is above the threshold and *quiet* if it is below the low mark; an imputed time
    step is neither. The low mark lies between the median of the training scores and the threshold, at
    low * threshold + (1 - low) * median, and never above the threshold. For the first 500 time steps of an event, a
    threshold that rises does not raise it: a fault must not end because the threshold tracks it.

    * A hot step outside of events starts a candidate, which becomes an event once it has `min_length` measured steps. A
      quiet step before that drops the candidate; its hot steps count as `short`.
    * An event ends with its last step at or above the low mark. It closes once more than `merge_gap` quiet steps follow
      that one; any earlier step at or above the low mark extends it.
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

    def __post_init__(self) -> None:
        check(vars(self), _RULES)

    def start(self, tail: ScoreTail, step: int = 0) -> "AlertRun":
        """A run over scores, given the tail of the training scores; `step` is the time step of the first score."""
        return AlertRun(self, tail, step)

    def low_marks(self, thresholds: ArrayLike, center: float) -> Floats:
        """The low mark (time,) for each threshold (time,), given the median of the training scores.

        >>> from cometad.alerting.alerts import Alerts
        >>> Alerts(low=0.5).low_marks([4.0, -6.0], center=-2.0)  # a threshold below the median is its own mark
        array([ 1., -6.])
        """
        tops = np.asarray(thresholds, np.float64)
        marks: Floats = np.minimum(tops, self.low * tops + (1 - self.low) * center)
        return marks


@dataclass
class _Now:
    """The integers that change in a run."""

    step: int  # the next time step
    phase: int = _IDLE
    number: int = 0  # events opened so far
    start: int = 0  # this and the next five describe the candidate or event
    last: int = 0  # its last step at or above the low mark
    peak: int = 0
    hot: int = 0  # number of hot steps
    length: int = 0  # measured steps at or above the low mark
    quiet: int = 0  # quiet steps since `last`
    hold: int = 0  # no candidate starts before this step
    suppressed: int = 0
    short: int = 0


class _Steps(NamedTuple):
    """The measured time steps of a chunk."""

    numbers: NDArray[np.int64]  # (time,)
    scores: Floats  # (time,)
    hot: NDArray[np.bool_]  # (time,)  above the threshold
    marks: Floats  # (time,)  low marks


class AlertRun:
    """Events of scores that arrive in chunks of any size, in constant memory; created by `Alerts.start`.

    >>> from cometad.alerting.alerts import Alerts
    >>> from cometad.alerting.severity import ScoreTail
    >>> run = Alerts(min_length=2).start(ScoreTail.fit([0.0, 0.0, 1.0]))
    >>> run.push([0.0, 3.0], 2.0)  # one hot step is not enough
    []
    >>> changes = run.push([4.0, 5.0, 0.0], 2.0) + run.finish()
    >>> [(change.kind, change.step, change.event.start, change.event.peak) for change in changes]
    [('opened', 2, 1, 2), ('updated', 3, 1, 3), ('closed', 4, 1, 3)]
    """

    def __init__(self, alerts: Alerts, tail: ScoreTail, step: int = 0) -> None:
        self._alerts, self._tail = alerts, tail
        self._now = _Now(int(step), hold=int(step))
        self._peak_score, self._mark = 0.0, math.inf  # of the candidate or event; the mark is that of its start

    @property
    def step(self) -> int:
        """The next time step."""
        return self._now.step

    @property
    def event(self) -> Event | None:
        """The open event, if there is one."""
        return self._event() if self._now.phase == _OPEN else None

    @property
    def opened(self) -> int:
        """The number of events opened so far."""
        return self._now.number

    @property
    def since(self) -> int | None:
        """The time step at which the open event, or a candidate for one, began; None if there is neither."""
        return self._now.start if self._now.phase in (_CANDIDATE, _OPEN) else None

    @property
    def suppressed(self) -> int:
        """The number of hot steps in hold-offs."""
        return self._now.suppressed

    @property
    def short(self) -> int:
        """The number of hot steps in candidates dropped before `min_length`."""
        return self._now.short

    def push(self, scores: ArrayLike, thresholds: ArrayLike, imputed: ArrayLike | None = None) -> list[Change]:
        """The changes to events caused by the next scores (time,), given one threshold or one per score (time,).

        The scores of `imputed` time steps (time,) are ignored and may be NaN: such a step does not start, extend or end
        an event, but counts towards a hold-off. Each hot step that is a new peak updates the event. Refused input
        leaves the run unchanged.
        """
        if self._now.phase == _FINISHED:
            raise InputError("The run is finished. Start a new one with Alerts.start().")
        values, tops = np.asarray(scores, np.float64), np.asarray(thresholds, np.float64)
        skipped = None if imputed is None else np.asarray(imputed, np.bool_)
        _check_shapes(values, tops, skipped)
        # Fast path for most chunks: nothing in progress, nothing hot. NaN fails the comparison and is checked below.
        if self._now.phase == _IDLE and np.count_nonzero(values <= tops) == len(values):
            changes = []
        elif len(values) == 1 and skipped is None and not np.isnan(values[0] - tops.item()):
            changes = self._through_one(values.item(), tops.item())
        else:
            changes = self._through(self._measured(values, np.broadcast_to(tops, values.shape), skipped))
        self._now.step += len(values)
        return changes

    def finish(self) -> list[Change]:
        """Close the open event at the end of the series; the run accepts no scores after that."""
        changes = []
        if self._now.phase == _OPEN:
            changes = [self._close(self._now.step - 1)]
        elif self._now.phase == _CANDIDATE:
            self._drop()
        self._now.phase = _FINISHED
        return changes

    def state(self) -> dict[str, NDArray[Any]]:
        """The complete state, by name, without the tail and the parameters."""
        return {
            "counts": np.array(astuple(self._now), np.int64),
            "peak_score": np.array([self._peak_score, self._mark]),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Resume from a state of a run with the same `Alerts` and tail."""
        counts = taken(state, "counts", ("number",), np.int64)
        fits = len(counts) <= len(fields(_Now)) and bool((counts >= 0).all()) and counts[1] in PHASES
        require_state(fits, "its array 'counts' is not that of events")
        self._now = _Now(*counts.tolist())
        scores = taken(state, "peak_score", ("number",), unknown=True).tolist()
        self._peak_score, self._mark = (*scores, math.inf)[:2]  # 0.1 had no mark

    def _measured(self, values: Floats, tops: Floats, skipped: NDArray[np.bool_] | None) -> _Steps:
        numbers = np.arange(self._now.step, self._now.step + len(values))
        if skipped is not None:
            numbers, values, tops = numbers[~skipped], values[~skipped], tops[~skipped]
        _check_numbers(numbers, values, "score")
        _check_numbers(numbers, tops, "threshold")
        return _Steps(numbers, values, values > tops, self._alerts.low_marks(tops, self._tail.center))

    def _through(self, steps: _Steps) -> list[Change]:
        """Process blocks of steps; skip those with nothing hot while nothing is in progress."""
        changes: list[Change] = []
        for first in range(0, len(steps.numbers), BLOCK):
            block = slice(first, first + BLOCK)
            if self._now.phase != _IDLE or steps.hot[block].any():
                # Lists, because reading single numbers from arrays would take most of the time.
                changes += self._through_block(*(column[block].tolist() for column in steps))
        return changes

    def _through_one(self, score: float, top: float) -> list[Change]:
        """`_through` for a single step of a stream, without arrays, which would take most of the time."""
        mark = float(self._alerts.low_marks(top, self._tail.center))
        return list(self._through_block([self._now.step], [score], [score > top], [mark]))

    def _through_block(
        self, numbers: list[int], scores: list[float], hot: list[bool], marks: list[float]
    ) -> Iterator[Change]:
        for step, score, is_hot, mark in zip(numbers, scores, hot, marks, strict=True):
            if self._now.phase != _IDLE or is_hot:
                change = self._take(step, score, is_hot, mark)
                if change is not None:
                    yield change

    def _take(self, step: int, score: float, hot: bool, mark: float) -> Change | None:
        """Process one measured step, which must be hot if nothing is in progress."""
        if self._now.phase == _IDLE and not self._start(step, score, mark):
            return None
        if step - self._now.start < PATIENCE:
            mark = min(mark, self._mark)
        return self._prolong(step, score, hot) if score >= mark else self._quiet(step)

    def _start(self, step: int, score: float, mark: float) -> bool:
        """Start a candidate with a hot step, unless a hold-off is in force."""
        now = self._now
        if step < now.hold:
            now.suppressed += 1
            return False
        now.phase, now.start, now.peak = _CANDIDATE, step, step
        self._peak_score, self._mark = score, mark
        now.hot = now.length = 0
        return True

    def _prolong(self, step: int, score: float, hot: bool) -> Change | None:
        now = self._now
        now.last, now.quiet = step, 0
        now.length += 1
        now.hot += hot
        rises = hot and score > self._peak_score
        if rises:
            now.peak, self._peak_score = step, score
        if now.phase == _CANDIDATE:
            return self._open(step) if now.length >= self._alerts.min_length else None
        return Change("updated", self._event(), step) if rises else None

    def _quiet(self, step: int) -> Change | None:
        now = self._now
        if now.phase == _CANDIDATE:
            self._drop()
            return None
        now.quiet += 1
        return self._close(step) if now.quiet > self._alerts.merge_gap else None

    def _open(self, step: int) -> Change:
        self._now.phase = _OPEN
        self._now.number += 1
        return Change("opened", self._event(), step)

    def _close(self, step: int) -> Change:
        self._now.phase = _IDLE
        self._now.hold = step + 1 + self._alerts.hold_off
        return Change("closed", self._event(), step)

    def _drop(self) -> None:
        self._now.phase = _IDLE
        self._now.short += self._now.hot

    def _event(self) -> Event:
        now = self._now
        return Event(
            number=now.number,
            start=now.start,
            stop=now.last + 1,
            peak=now.peak,
            peak_score=self._peak_score,
            severity=float(severity(self._peak_score, self._tail)),
            steps=now.hot,
            open=now.phase == _OPEN,
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


def _check_numbers(steps: NDArray[np.int64], values: Floats, what: str) -> None:
    unknown = np.isnan(values)
    if unknown.any():
        raise InputError(
            f"The {what} of time step {steps[unknown.argmax()]} is NaN. Mark steps without a reading as imputed."
        )

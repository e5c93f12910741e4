"""What is done with each score: the threshold that applies to it, and the events that it opens, updates and closes.

A threshold rule is a value. `fit` turns training scores into an array, its state, which can be saved. `watch` starts a
watch from that state: it decides which scores to flag, and may learn from them. The threshold of a budget of alerts
depends on the events, so one compiled function follows both.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from cometad.alerting.severity import RAREST, log_probability, severity_of
from cometad.arrays import Flags, Floats, Integers
from cometad.compute import jit
from cometad.errors import InputError
from cometad.saving import Numbered, require_state

# -- threshold rules ---------------------------------------------------------------------------------------------------


class Watch(Numbered, ABC):
    """Applies a threshold to a stream of scores that arrive in chunks of any size, in bounded memory.

    `rule.watch(watch.state())` resumes from its state, bit for bit.
    """

    @property
    @abstractmethod
    def threshold(self) -> float:
        """The next score is flagged if it is above this."""

    @abstractmethod
    def follow(self, scores: ArrayLike) -> Floats:
        """The threshold (time,) that applies to each score; scores come in time order, one or several (time,)."""

    def push(self, scores: ArrayLike) -> Flags:
        """Flags (time,): True for each score above its threshold."""
        return np.atleast_1d(np.asarray(scores, np.float64)) > self.follow(scores)


class Threshold(Protocol):
    """The interface of a threshold rule, built in or your own."""

    @property
    def rate(self) -> float | None:
        """The share of normal readings that the rule may flag; None if it does not limit readings."""

    def fit(self, scores: ArrayLike) -> Floats:
        """The initial state, from training scores (time,)."""

    def watch(self, state: Floats) -> Watch:
        """A watch that starts from a state and does not modify it."""


class FixedWatch(Watch):
    """A threshold that never changes.

    >>> import numpy as np
    >>> from cometad.alerting.watch import FixedWatch
    >>> FixedWatch(np.array([2.0])).push([1.0, 2.0, 3.0])
    array([False, False,  True])
    """

    numbers = ("_threshold",)

    def __init__(self, state: Floats) -> None:
        require_state(state.shape == (1,), "the state of its threshold is not one number")
        self._threshold = float(state[0])

    @property
    def threshold(self) -> float:
        return self._threshold

    def follow(self, scores: ArrayLike) -> Floats:
        """The same threshold for each score."""
        return np.full(len(as_scores(scores)), self._threshold)


def as_scores(scores: ArrayLike) -> Floats:
    """One or several scores as an array (time,); refuses values that are not finite."""
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1:
        values = np.atleast_1d(values)
        if values.ndim != 1:
            raise InputError(f"Expected scores of shape (time,), got {values.shape}.")
    if len(values) == 1 and math.isfinite(values[0]):  # of a stream; the general way takes three times as long
        return values
    finite = np.isfinite(values)
    if np.count_nonzero(finite) < len(values):
        first = int(np.argmin(finite))
        raise InputError(f"The score at position {first} is {values[first]}; a threshold needs finite scores.")
    return values


def training_scores(scores: ArrayLike, least: int = 1) -> Floats:
    """Training scores (time,); refuses fewer than `least`."""
    values = as_scores(scores)
    if len(values) < least:
        raise InputError(
            f"This threshold needs at least {least:,} training scores; there are {len(values):,}. "
            "Fit on a longer series."
        )
    return values


# -- what a rule promises ----------------------------------------------------------------------------------------------

FACTOR = 3  # a share this many times above or below the promised one is worth a warning
LEAST = 30  # flagged readings, or promised ones: fewer may be chance
SOME = 500  # readings: among fewer, a single fault is a large share
NAMED = 3  # variables, at most


class Promise:
    """Counts flagged readings, in constant memory, and says when they are far more or fewer than promised."""

    def __init__(self, rate: float | None) -> None:
        self._rate, self._judged, self._flagged = rate, 0, 0
        self._blamed: Counter[str] = Counter()

    def push(self, judged: int, blamed: Iterable[str]) -> None:
        """Count more readings that were judged, and the variable behind each flagged one: "" if it is unknown."""
        variables = list(blamed)
        self._judged += judged
        self._flagged += len(variables)
        self._blamed.update(name for name in variables if name)

    def warning(self) -> str | None:
        """What to know if the promise is broken, else None; there is none without a rate."""
        if self._rate is None:
            return None
        promised = self._rate * self._judged
        if self._judged >= SOME and self._flagged >= LEAST and self._flagged > FACTOR * promised:
            return (
                f"{self._share()} of {self._judged:,} readings are flagged, {self._flagged / promised:.2g} times the "
                f"promised {_percent(self._rate)}{self._because()}. Unless these are faults, the readings are no "
                "longer like those of training: fit on newer ones."
            )
        if promised >= LEAST and FACTOR * self._flagged < promised:
            return (
                f"Only {self._share()} of {self._judged:,} readings are flagged, less than a third of the promised "
                f"{_percent(self._rate)}. The readings vary less than those of training, so faults may go unnoticed: "
                "fit on newer ones."
            )
        return None

    def _share(self) -> str:
        return _percent(self._flagged / self._judged)

    def _because(self) -> str:
        names = [name for name, _ in self._blamed.most_common(NAMED)]
        if not names:
            return ""
        before = f"{', '.join(names[:-1])} and " if names[1:] else ""
        return f", mostly because of {before}{names[-1]}"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


# -- budgets of alerts -------------------------------------------------------------------------------------------------

# The state of a budget of alerts: start, spread, position, floor, one that is no longer used, the last score, and the
# share of readings that may open an event. `Budget` explains them.
START, SPREAD, POSITION, FLOOR, _, LAST, SHARE = range(7)
STEP = 0.25  # positions by which an event raises the threshold; 0.15 to 0.3 do about as well on the select entities
EXTRA_COST = 0.8  # an ordinary event costs 1.8, so that quiet data does not spend the budget
ORDINARY, RARE = 0.3, 0.4  # severities up to which an event costs most, and from which it costs 1
SAME = 1e-6  # spreads: scores no further apart count as equal, so that rounding does not decide what the threshold does
FARTHEST = 709.0  # positions; beyond it the exponential overflows


@jit
def score_at(position: float, start: float, spread: float) -> float:
    """The score at a position."""
    return start + math.copysign(spread * math.expm1(min(abs(position), FARTHEST)), position)


@jit
def position_of(score: float, start: float, spread: float) -> float:
    """The position of a score: the inverse of `score_at`."""
    return math.copysign(math.log1p(abs(score - start) / spread), score - start)


@jit
def tracked(track: Floats) -> float:
    """The threshold of a budget of alerts."""
    return float(max(score_at(track[POSITION], track[START], track[SPREAD]), track[FLOOR]))


@jit
def cost(score: float, tail: Floats) -> float:
    """What an event with this peak costs of the budget, from 1 (rare) to 1.8 (ordinary)."""
    found = log_probability(score, tail) / RAREST
    return 1.0 + EXTRA_COST * min(max((RARE - found) / (RARE - ORDINARY), 0.0), 1.0)


# Why the bound holds. Let A of T readings open an event. Each of them raises the position by STEP (cost - s) at least,
# where cost >= 1, every other one lowers it by STEP s at most, and the floor never lowers it. The position starts at 0
# or above, so it ends at p >= STEP (A - s T), and A <= s T + p / STEP. The threshold rises only at a score above it, by
# 1.8 STEP at most, so p <= max(0, position(highest)) + 1.8 STEP.
@jit
def follow_reading(track: Floats, score: float, paid: float) -> None:
    """Move the threshold after a reading, given what it costs: 0 unless it opened an event."""
    start, spread = track[START], track[SPREAD]
    moved = track[POSITION] + STEP * (paid - track[SHARE])
    # Scores that do not change do not pull the threshold below themselves.
    if paid > 0.0 or abs(score - track[LAST]) > SAME * spread or score <= score_at(moved, start, spread):
        track[POSITION] = moved
    if score_at(track[POSITION], start, spread) < track[FLOOR]:
        track[POSITION] = position_of(track[FLOOR], start, spread)
    track[LAST] = score


# -- events ------------------------------------------------------------------------------------------------------------

SETTLED_GAP = 10  # readings below the low mark that end a lasting state, at least: scores flicker
STRONGER = 1.1  # times as far above the median as the state that lasts: that is news
FORGET = 0.998  # of that distance, a reading: after an hour at one a second, as much again is news

PHASES = range(4)
IDLE, CANDIDATE, OPEN, FINISHED = PHASES  # of a run
OPENED, UPDATED, CLOSED = range(3)  # kinds of changes
UNKNOWN = np.iinfo(np.int64).min  # a time that is not known, as numpy's NaT

# The integers that change in a run, by their place in its state. Those from START to QUIET describe the candidate or
# event, the times are in microseconds since 1970.
N_STEP, N_PHASE, N_NUMBER, N_START, N_LAST, N_PEAK, N_HOT, N_LENGTH, N_QUIET, N_HOLD = range(10)
N_SUPPRESSED, N_SHORT, N_START_TIME, N_STOP_TIME, N_PEAK_TIME = range(10, 15)
N_NEW_LEVEL, N_SETTLED, N_CALM, N_IS_ALERT = range(15, 19)
COUNTS, EARLIER_COUNTS = 19, 12  # numbers now, and in 0.2
# The floats: the score of the peak; the low mark and the threshold at the start; the score of the state that lasts, and
# the mark below which it is over.
M_PEAK_SCORE, M_MARK, M_TOP, M_STATE, M_STATE_MARK = range(5)
MARKS = 5


def new_counts(step: int) -> Integers:
    """The integers of a new run, given the time step of its first score."""
    counts = np.zeros(COUNTS, np.int64)
    counts[[N_STEP, N_HOLD]] = step
    counts[[N_START_TIME, N_STOP_TIME, N_PEAK_TIME]] = UNKNOWN
    return counts


def all_counts(saved: Integers) -> Integers:
    """The integers of a run from saved ones."""
    fits = len(saved) in (COUNTS, EARLIER_COUNTS) and bool((saved[:EARLIER_COUNTS] >= 0).all())
    require_state(fits and saved[N_PHASE] in PHASES, "its array 'counts' is not that of events")
    counts = new_counts(0)
    counts[: len(saved)] = saved
    if len(saved) == EARLIER_COUNTS:
        counts[N_IS_ALERT] = saved[N_PHASE] == OPEN  # 0.2 knew no notices: an open event has been sent
    return counts


def all_marks(saved: Floats) -> Floats:
    """The floats of a run from saved ones: 0.1 had no marks, and 0.2 only that of a threshold."""
    require_state(len(saved) in (1, 2, MARKS), "its array 'peak_score' is not that of events")
    marks = np.array([0.0, math.inf, math.nan, 0.0, 0.0])
    marks[: len(saved)] = saved
    return marks


@jit
def _news(marks: Floats, center: float) -> float:
    """The score that a state that lasts has to pass to be news."""
    return float(center + STRONGER * max(marks[M_STATE] - center, 0.0))


@jit
def shown_threshold(top: float, counts: Integers, marks: Floats, center: float) -> float:
    """The threshold of a budget of alerts that applies now: that of its start during an event."""
    if counts[N_PHASE] == OPEN:
        return float(marks[M_TOP])
    return max(top, _news(marks, center)) if counts[N_SETTLED] else top


@jit
def advance(
    scores: Floats,
    tops: Floats,
    measured: Flags,
    times: Integers,
    counts: Integers,
    marks: Floats,
    rules: Floats,
    tail: Floats,
    track: Floats,
    flags: Integers,
    shown: Floats,
    rows: Integers,
    peaks: Floats,
) -> int:
    """Take steps; set `flags` and `shown`, the thresholds (time,); changes go to `rows` and `peaks`.

    Returns the number of changes.
    """
    low, min_length, merge_gap, hold_off, longest, alert_from = rules
    center, tracks, changed = tail[0], len(track) > 0, 0
    for i in range(len(scores)):
        top = tracked(track) if tracks else tops[i]
        shown[i] = shown_threshold(top, counts, marks, center) if tracks else top
        step = counts[N_STEP]
        counts[N_STEP] += 1
        flags[i] = 0
        if not measured[i]:
            continue
        score, hot, kind = scores[i], scores[i] > shown[i], -1
        flags[i] = hot
        if counts[N_SETTLED]:
            counts[N_CALM] = 0 if score >= marks[M_STATE_MARK] else counts[N_CALM] + 1
            if counts[N_CALM] > max(merge_gap, SETTLED_GAP):
                counts[N_SETTLED] = 0
        mark = min(top, low * top + (1 - low) * center)
        if counts[N_SETTLED]:  # an event that stands out from the state must not be held by it
            mark = marks[M_MARK] if counts[N_PHASE] != IDLE else max(top, _news(marks, center))
            if not score > mark:
                counts[N_SUPPRESSED] += hot
                hot = False
                if counts[N_PHASE] == IDLE:
                    marks[M_STATE] = max(score, center + FORGET * (marks[M_STATE] - center))
        if counts[N_PHASE] == IDLE and hot:
            if step < counts[N_HOLD]:
                counts[N_SUPPRESSED] += 1
            else:
                counts[N_PHASE] = CANDIDATE
                counts[N_START] = counts[N_PEAK] = step
                counts[N_START_TIME] = counts[N_PEAK_TIME] = times[i]
                counts[N_HOT] = counts[N_LENGTH] = counts[N_NEW_LEVEL] = counts[N_IS_ALERT] = 0
                marks[M_PEAK_SCORE], marks[M_MARK], marks[M_TOP] = score, mark, shown[i]
        if counts[N_PHASE] == CANDIDATE or counts[N_PHASE] == OPEN:
            if score >= min(mark, marks[M_MARK]):
                counts[N_LAST], counts[N_STOP_TIME], counts[N_QUIET] = step, times[i], 0
                counts[N_LENGTH] += 1
                counts[N_HOT] += hot
                rises = hot and score > marks[M_PEAK_SCORE]
                if rises:
                    counts[N_PEAK], counts[N_PEAK_TIME], marks[M_PEAK_SCORE] = step, times[i], score
                if severity_of(marks[M_PEAK_SCORE], tail) >= alert_from:
                    counts[N_IS_ALERT] = 1
                if counts[N_PHASE] == CANDIDATE:
                    if counts[N_LENGTH] >= min_length:
                        counts[N_PHASE] = OPEN
                        counts[N_NUMBER] += 1
                        kind = OPENED
                elif step - counts[N_START] + 1 >= longest:
                    if not counts[N_SETTLED] or marks[M_MARK] < marks[M_STATE_MARK]:
                        marks[M_STATE_MARK] = marks[M_MARK]  # a state that gets worse and better again is one state
                    counts[N_NEW_LEVEL] = counts[N_SETTLED] = 1
                    counts[N_CALM] = 0
                    marks[M_STATE] = marks[M_PEAK_SCORE]
                    kind = CLOSED
                elif rises:
                    kind = UPDATED
            elif counts[N_PHASE] == CANDIDATE:
                counts[N_PHASE] = IDLE
                counts[N_SHORT] += counts[N_HOT]
            else:
                counts[N_QUIET] += 1
                if counts[N_QUIET] > merge_gap:
                    kind = CLOSED
        if kind == CLOSED:
            counts[N_PHASE] = IDLE
            counts[N_HOLD] = step + 1 + hold_off
        if tracks:
            follow_reading(track, score, cost(marks[M_PEAK_SCORE], tail) if kind == OPENED else 0.0)
        if kind >= 0:
            rows[changed, 0] = kind
            for k in range(len(counts)):  # not a slice: for its error message numba would compile for two more seconds
                rows[changed, 1 + k] = counts[k]
            rows[changed, 1 + N_STEP] = step
            peaks[changed] = marks[M_PEAK_SCORE]
            changed += 1
    return changed

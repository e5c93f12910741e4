"""A threshold that keeps its rate on scores that drift and jump: online quantile tracking.

I. Gibbs, E. Candès: Adaptive conformal inference under distribution shift, NeurIPS 2021.
A. Angelopoulos, E. Candès, R. Tibshirani: Conformal PID control for time series prediction, NeurIPS 2023.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cometad.alerting.watch import Watch, as_scores, training_scores
from cometad.arrays import Floats, Integers
from cometad.compiled import jit
from cometad.errors import InputError
from cometad.registry import register
from cometad.restored import require_state
from cometad.validation import check_between, check_integer, require

STEP = 0.5  # positions by which a flag raises the threshold; chosen on real scores, where 0.4 to 0.6 do about as well
ALERT_STEP = 0.15  # the same for an alert: there are fewer of them, and one should not hide the next
PAUSE = 30  # readings without a flag that do not end an alert, at most: scores flicker, and one fault is one alert
PAUSE_SHARE = 0.1  # of the mean time between alerts: a longer pause would leave no room for them
EXTRA = 0.5  # held flags allowed per flag of the budget
AT_FIRST = 20.0  # held flags allowed at the start of a stream
NEARBY = 2  # an event is open if one of the last two readings was flagged; 8 would hold chance flags at a rate of 0.1
SAME = 1e-6  # spreads: scores no further apart count as equal, so that rounding does not decide what the threshold does
LEAST_SPREAD = 1e-6  # relative to the scores: about the rounding of a float32 score
FAINTEST = 1e-30  # a smaller spread counts as none: from it, the farthest position would not reach every score
FARTHEST = 709.0  # positions; beyond it the exponential overflows
SECONDS_PER_DAY = 86_400
NUMBERS = 7  # in a state


@register("Budget")
@dataclass(frozen=True)
class Budget:
    """A threshold that tracks its own rate, of flagged readings or of alerts: each raises it, other readings lower it.

    It starts at the quantile 1 - `rate` of the training scores. Every reading moves it by STEP (flagged - rate) on a
    scale that is linear near the start and logarithmic further away, the *position* of a score: ln(1 + |score - start|
    / spread), negative below the start. The spread is start - median of the training scores. So steps grow with the
    distance from the start, and a jump by a million spreads takes 28 flags to catch up with.

    Two exceptions:

    * *Long faults.* While an event is open (one of the last two readings was flagged), a flag that one step would not
      clear leaves the threshold where it is. Such held flags are paid from an allowance that starts at 20, gains
      rate / 2 per reading and never exceeds `patience`. Once it is spent, the threshold tracks again.
    * *Constant scores.* A score equal to the one before it, to within a millionth of the spread, does not pull the
      threshold below itself, so scores that do not change are not flagged.

    **Bound.** Whatever the scores (up to 1e270), the number N of flags among the first T of a stream obeys

        rate (T - K) - max(0, -position(lowest)) / STEP - 1 <= N <= 1.5 rate T + max(0, position(highest)) / STEP + 21

    with the lowest and highest of these scores, and K readings covered by the second exception. Drift, jumps, outliers
    and faults are included. With `patience=0`, rate replaces 1.5 rate, and 1 replaces 21. A stretch of T readings
    anywhere in a stream obeys the upper bound with `patience` instead of 20, and positions counted from the threshold
    at its first reading.

    **A budget of alerts**, `Budget(alerts_per_day=3)`, counts alerts instead of readings. With the share
    s = alerts_per_day * period / 86,400 of readings that may begin an alert, one begins with a flag after more than
    min(30, 0.1 / s) readings without one. The flags that follow with shorter pauses are free, up to `patience` of them,
    and leave the threshold where it is. With steps of 0.15 (begins - s), the number A of alerts among the first T
    readings obeys

        A <= s T + max(0, position(highest)) / 0.15 + 1

    There are no more events than alerts, because `Judge` merges events over such pauses too.

    Parameters
    ----------
    rate
        Share of readings to flag; 0.01 unless there is a budget of alerts.
    alerts_per_day
        Number of alerts to raise a day, instead of a rate.
    period
        Seconds between readings, for a budget of alerts. Default: as in the times of the training series.
    patience
        Most readings that a fault holds the threshold for; 0 to track through every fault. Beyond the first 20 they
        have to be earned: one in 2 / rate readings.

    >>> import numpy as np
    >>> from cometad.alerting.budget import Budget
    >>> rule, random = Budget(rate=0.01), np.random.default_rng(0)
    >>> watch = rule.watch(rule.fit(random.exponential(size=5000)))
    >>> round(watch.threshold, 1)  # the starting value; log(100) = 4.6 is the true quantile
    4.7
    >>> watch.push(100 + random.exponential(size=20_000)).mean().round(3)  # a fixed threshold would flag all
    np.float64(0.011)
    """

    rate: float | None = None
    patience: int = 500
    alerts_per_day: float | None = None
    period: float | None = None

    def __post_init__(self) -> None:
        if self.alerts_per_day is None:
            object.__setattr__(self, "rate", 0.01 if self.rate is None else self.rate)
            check_between("rate", self.rate, 0, 1)
        else:
            require(self.rate is None, "rate", "left out if there are alerts_per_day", self.rate)
            check_between("alerts_per_day", self.alerts_per_day, 0, math.inf)
        if self.period is not None:
            check_between("period", self.period, 0, math.inf)
        check_integer("patience", self.patience, 0)

    def fit(self, scores: ArrayLike, period: float = math.nan) -> Floats:
        """The state before the first reading, from training scores (time,) that are `period` seconds apart.

        Start, spread, position, allowance (or, for a budget of alerts, the flags of the current alert), readings since
        the last flag (as many as matter), the last score, and the share of readings to flag or to begin an alert.
        Training scores that hardly differ get the smallest spread that a float32 score can show.
        """
        values, share = training_scores(scores), self.share(period)
        middle = np.quantile(values, 0.5)
        start = np.quantile(values, 1 - share) if self.alerts_per_day is None else _start(values, share)
        spread = max(start - middle, LEAST_SPREAD * np.abs(values).max())
        spread = spread if spread > FAINTEST else LEAST_SPREAD
        allowance, quiet = (min(AT_FIRST, self.patience), NEARBY) if self.alerts_per_day is None else (0.0, PAUSE + 1)
        return np.array([start, spread, 0.0, allowance, quiet, values[-1], share])

    def share(self, period: float) -> float:
        """The share of readings to flag or to begin an alert, if they are `period` seconds apart (NaN: unknown).

        >>> from cometad import Budget
        >>> Budget(rate=0.01).share(60), Budget(alerts_per_day=14.4).share(60)
        (0.01, 0.01)
        """
        if self.alerts_per_day is None:
            assert self.rate is not None
            return self.rate
        seconds = period if self.period is None else self.period
        if math.isnan(seconds):
            raise InputError("A budget of alerts per day needs the time between readings.", advice="no period")
        share = self.alerts_per_day * seconds / SECONDS_PER_DAY
        if share >= 1:
            raise InputError(
                f"At one reading every {seconds:g} s there are {SECONDS_PER_DAY / seconds:,.0f} readings a day, no "
                f"more than the budget of {self.alerts_per_day:g} alerts. Choose a smaller budget."
            )
        return share

    def watch(self, state: Floats) -> "BudgetWatch":
        """A watch that resumes from a state."""
        spread = state[1] if state.shape == (NUMBERS,) else math.nan
        require_state(spread > 0, f"the state of its threshold is not {NUMBERS} numbers with a positive spread")
        return BudgetWatch(self, state)


class BudgetWatch(Watch):
    """Tracks the threshold along a stream of scores; created by `Budget.watch`; see `Budget` for an example."""

    def __init__(self, rule: Budget, state: Floats) -> None:
        self._track = _track if rule.alerts_per_day is None else _track_alerts
        self._patience, self._state = float(rule.patience), np.array(state, np.float64)
        self.pause = 0 if rule.alerts_per_day is None else _pause(self._state[-1])

    @property
    def threshold(self) -> float:
        """The next score is flagged if it is above this."""
        start, spread, position = self._state[:3].tolist()
        return float(_score_at(position, start, spread))

    def follow(self, scores: ArrayLike) -> Floats:
        """The threshold (time,) that applies to each score."""
        values = as_scores(scores)
        thresholds = np.empty(len(values))
        self._track(values, self._state, self._patience, thresholds)
        return thresholds

    def state(self) -> Floats:
        """The complete state of the watch."""
        return self._state.copy()


@jit
def _score_at(position: float, start: float, spread: float) -> float:
    """The score at a position."""
    return start + math.copysign(spread * math.expm1(min(abs(position), FARTHEST)), position)


# Why the bound holds. Let N of T scores be flagged, H of them held, and K others not lower the threshold. The position
# starts at 0 and ends at p = STEP ((1 - rate) (N - H) - rate (T - N - K)), so that
#     N = rate T + p / STEP + (1 - rate) H - rate K.
# Upper side: the threshold rises only at a score above it, so p <= max(0, position(highest)) + STEP. Each held flag is
# paid from an allowance that was AT_FIRST and gained EXTRA rate per reading, so H <= AT_FIRST + EXTRA rate T. And
# K >= 0.
# Lower side: the threshold falls only at a score at or below it, so p >= min(0, position(lowest)) - STEP rate. And
# H >= 0. Neither side assumes anything about the scores.
@jit
def _track(scores: Floats, state: Floats, patience: float, thresholds: Floats) -> None:
    """Set `thresholds` (time,) to those that apply to `scores` (time,), and update the state."""
    start, spread, position, allowance, quiet, last, rate = state
    threshold = _score_at(position, start, spread)
    for i in range(len(scores)):
        score = scores[i]
        thresholds[i] = threshold
        allowance = min(patience, allowance + EXTRA * rate)
        if score > threshold:
            raised = position + STEP * (1 - rate)
            above = _score_at(raised, start, spread)
            if quiet < NEARBY and allowance >= 1 and score > above:
                allowance -= 1
            else:
                position, threshold = raised, above
            quiet = 0.0
        else:
            lowered = position - STEP * rate
            below = _score_at(lowered, start, spread)
            if abs(score - last) > SAME * spread or score <= below:
                position, threshold = lowered, below
            quiet = min(quiet + 1, NEARBY)
        last = score
    state[2], state[3], state[4], state[5] = position, allowance, quiet, last


# Why the bound holds. Let M flags raise the threshold, A of them at the beginning of an alert, and L <= T - M readings
# lower it. The position ends at p = STEP ((1 - s) M - s L) >= STEP (M - s T), so A <= M <= s T + p / STEP. And the
# threshold rises only at a score above it, so p <= max(0, position(highest)) + STEP.
@jit
def _track_alerts(scores: Floats, state: Floats, patience: float, thresholds: Floats) -> None:
    """`_track` for a budget of alerts."""
    start, spread, position, length, quiet, last, share = state
    pause = _pause(share)
    threshold = _score_at(position, start, spread)
    for i in range(len(scores)):
        score = scores[i]
        thresholds[i] = threshold
        if score > threshold:
            if quiet <= pause and length < patience:
                length += 1
            else:
                position, length = position + ALERT_STEP * (1 - share), 0.0
            quiet = 0.0
        else:
            lowered = position - ALERT_STEP * share
            if abs(score - last) > SAME * spread or score <= _score_at(lowered, start, spread):
                position = lowered
            quiet = min(quiet + 1, PAUSE + 1)
        threshold, last = _score_at(position, start, spread), score
    state[2], state[3], state[4], state[5] = position, length, quiet, last


def _start(scores: Floats, share: float) -> float:
    """The lowest threshold at which at most the given share of the training scores (time,) begin an alert.

    Alerts merge at low thresholds, so one far below may keep to the share too. It does not count: every threshold above
    the one returned keeps to the share. None is below the median.
    """
    order = np.argsort(-scores, kind="stable")
    return float(max(_lowest(scores, order, _pause(share), share * len(scores)), np.median(scores)))


@jit
def _lowest(scores: Floats, order: Integers, pause: int, limit: float) -> float:
    """The last of the scores (time,) in descending `order` down to which there are at most `limit` alerts."""
    flagged, alerts, threshold = np.zeros(len(scores), np.bool_), 0, scores[order[0]]
    for k in range(len(order)):
        i = order[k]
        if scores[i] < threshold:
            if alerts > limit:
                break
            threshold = scores[i]
        left = right = 1  # distances to the flags next to this one, up to those that are too far
        while left <= pause + 1 and (i < left or not flagged[i - left]):
            left += 1
        while right <= pause + 1 and (i + right >= len(scores) or not flagged[i + right]):
            right += 1
        if left > pause + 1 and right > pause + 1:
            alerts += 1
        elif left <= pause + 1 and right <= pause + 1 and left + right > pause + 1:
            alerts -= 1  # it joins two
        flagged[i] = True
    return float(threshold)


@jit
def _pause(share: float) -> int:
    """The longest run of readings without a flag that does not end an alert."""
    return int(min(PAUSE, PAUSE_SHARE / share))

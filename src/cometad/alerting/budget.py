"""A threshold that keeps its budget on scores that drift and jump: online quantile tracking.

I. Gibbs, E. Candès: Adaptive conformal inference under distribution shift, NeurIPS 2021.
A. Angelopoulos, E. Candès, R. Tibshirani: Conformal PID control for time series prediction, NeurIPS 2023.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cometad.alerting.alerts import PAUSE, AlertRun, Alerts
from cometad.alerting.severity import ScoreTail
from cometad.alerting.watch import (
    COUNTS,
    FLOOR,
    MARKS,
    POSITION,
    SAME,
    SHARE,
    SPREAD,
    START,
    Watch,
    as_scores,
    score_at,
    training_scores,
)
from cometad.arrays import Floats
from cometad.compute import jit
from cometad.errors import InputError, ParameterError
from cometad.parameters import check_between, check_integer, require
from cometad.registry import register
from cometad.saving import require_state

RATE_STEP = 0.5  # positions by which a flag raises the threshold of a rate; 0.4 to 0.6 do about as well on real scores
EXTRA = 0.5  # held flags allowed per flag of the budget
AT_FIRST = 20.0  # held flags allowed at the start of a stream
NEARBY = 2  # an event is open if one of the last two readings was flagged; 8 would hold chance flags at a rate of 0.1
ALERTS, PER, PER_DAY = 1, 1000, 3  # the default budget
READINGS = 0.3  # of the share: where it starts, a third of the flags, and so an event has about three, open an event
SEEN = 10  # training scores above a quantile that make it known; a rarer one is that of the fitted tail
FLOOR_SHARE = 0.2  # of the training scores are above the floor: less would miss anomalies of SMAP and MSL
MOST = 0.01  # of the readings open an event, at most: with more, people would always be in alarm
LEAST_SPREAD = 1e-6  # relative to the scores: about the rounding of a float32 score
FAINTEST = 1e-30  # a smaller spread counts as none: from it, the farthest position would not reach every score
SECONDS_PER_DAY = 86_400
# Numbers in the state of a rate (and, in 0.2, of every budget), of a budget of alerts, and of that with its events.
NUMBERS, WITH_TAIL, WITH_EVENTS = 7, 13, 13 + COUNTS + MARKS


@register("Budget", alerts=None, per=PER)
@dataclass(frozen=True)
class Budget:
    """A threshold that tracks its own rate, of alerts or of flagged readings: each raises it, other readings lower it.

    `Budget()` allows one alert per 1,000 readings, and at most three a day where times are known.
    `Budget(alerts=2, per=1000)` and `Budget(alerts_per_day=3)` say it otherwise; if both are given, the lower one
    applies. `Budget(rate=0.01)` limits flagged readings instead. A budget is a ceiling and need not be spent.

    Every reading moves the threshold on a scale that is linear near its start and logarithmic further away, the
    *position* of a score: ln(1 + |score - start| / spread), negative below the start. The spread is start - median of
    the training scores. So steps grow with the distance from the start, and the threshold catches up with any level.

    **A budget of alerts.** With the share s of readings that may open an event, a reading moves the position by
    0.25 (cost - s): an event that opens costs 1 to 1.8, the more the more ordinary it is; any other reading costs 0.
    The threshold starts at the score that a share of s / 0.3 of the training readings exceeds (or would by the fitted
    tail, if the history is too short to know), and never falls below their 80 % quantile. A score equal to the one
    before it, to within a millionth of the spread, does not pull the threshold below itself. Whatever the scores, the
    number A of events that open among the first T of a stream obeys

        A <= s T + max(0, position(highest)) / 0.25 + 1.8

    A share above 0.01 is reduced to that.

    **A budget of flagged readings** starts at the quantile 1 - rate. A reading moves the position by 0.5 (flagged -
    rate), with the same exception for constant scores and one for *long faults*: while an event is open (one of the
    last two readings was flagged), a flag that one step would not clear leaves the threshold where it is. Such held
    flags are paid from an allowance that starts at 20, gains rate / 2 per reading and never exceeds `patience`. The
    number N of flags among the first T scores (up to 1e270) obeys, with K readings covered by the exception for
    constant scores,

        rate (T - K) - max(0, -position(lowest)) / 0.5 - 1 <= N <= 1.5 rate T + max(0, position(highest)) / 0.5 + 21

    With `patience=0`, rate replaces 1.5 rate, and 1 replaces 21. A stretch of T readings anywhere in a stream obeys the
    upper bound with `patience` instead of 20, and positions counted from the threshold at its first reading.

    Parameters
    ----------
    rate
        Share of readings to flag, instead of a number of alerts.
    alerts, per
        Number of alerts per so many readings.
    alerts_per_day
        Number of alerts a day.
    period
        Seconds between readings, for a number of alerts a day. Default: as in the times of the training series.
    patience
        For a rate: most readings that a fault holds the threshold for; 0 to track through every fault. Beyond the first
        20 they have to be earned: one in 2 / rate readings.

    >>> import numpy as np
    >>> from cometad.alerting.budget import Budget
    >>> Budget().share(period=1.0) * 86_400, Budget(alerts=2, per=1000).share()
    (3.0, 0.002)
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
    alerts: float | None = None
    per: float = PER

    def __post_init__(self) -> None:
        if self.rate is not None and not (self.alerts is None and self.alerts_per_day is None):
            raise ParameterError(
                "A budget limits alerts or flagged readings, not both. Pass alerts=2, per=1000 or alerts_per_day=3, or "
                "only a rate."
            )
        if self.rate is not None:
            check_between("rate", self.rate, 0, 1)
        check_between("per", self.per, 0, math.inf)
        for name, most, instead in (
            ("alerts", self.per, "above 0 and fewer than one per reading, such as alerts=1, per=1000"),
            ("alerts_per_day", math.inf, "a number above 0, such as alerts_per_day=3"),
        ):
            value = getattr(self, name)
            if value is not None:
                known = isinstance(value, int | float | np.number) and not isinstance(value, bool)
                require(known and 0 < value < most, name, instead, value)
        if self.period is not None:
            check_between("period", self.period, 0, math.inf)
        check_integer("patience", self.patience, 0)

    def fit(self, scores: ArrayLike, period: float = math.nan) -> Floats:
        """The state before the first reading, from training scores (time,) that are `period` seconds apart.

        Start, spread, position, allowance (or, for a budget of alerts, the floor), readings since the last flag (as
        many as matter), the last score, and the share of readings to flag or to open an event. Training scores that
        hardly differ get the smallest spread that a float32 score can show.
        """
        values, share = training_scores(scores), self.share(period)
        middle = float(np.quantile(values, 0.5))
        allowance, quiet = min(AT_FIRST, self.patience), NEARBY
        if self.rate is not None:
            start = float(np.quantile(values, 1 - share))
        else:
            flagged, tail, quiet = share / READINGS, ScoreTail.fit(values), 0
            known = flagged * len(values) >= SEEN
            start = float(np.quantile(values, 1 - flagged)) if known else tail.reached(flagged)
            allowance = min(float(np.quantile(values, 1 - FLOOR_SHARE)), start)  # the floor
        spread = max(start - middle, LEAST_SPREAD * float(np.abs(values).max()))
        spread = spread if spread > FAINTEST else LEAST_SPREAD
        numbers = [start, spread, 0.0, allowance, quiet, values[-1], share]
        return np.array(numbers if self.rate is not None else [*numbers, *tail])

    def share(self, period: float = math.nan) -> float:
        """The share of readings to flag or to open an event, if they are `period` seconds apart (NaN: unknown).

        >>> from cometad import Budget
        >>> Budget(rate=0.01).share(60), Budget(alerts_per_day=7.2).share(60), Budget().share()
        (0.01, 0.005, 0.001)
        """
        if self.rate is not None:
            return self.rate
        return min(self._asked(period), MOST)

    @property
    def limits(self) -> tuple[float | None, float | None]:
        """Alerts per `per` readings, and a day; the default budget if neither is given."""
        given = self.alerts, self.alerts_per_day
        return (ALERTS * self.per / PER, PER_DAY) if given == (None, None) else given

    def _asked(self, period: float) -> float:
        seconds, (alerts, daily) = period if self.period is None else self.period, self.limits
        limits = [] if alerts is None else [alerts / self.per]
        if daily is not None and not math.isnan(seconds):
            limits.append(daily * seconds / SECONDS_PER_DAY)
        if not limits:
            raise InputError("A budget of alerts per day needs the time between readings.", advice="no period")
        if min(limits) >= 1:
            raise InputError(f"A budget of {self} is more than one per reading. Ask for fewer, such as 1 in 1,000.")
        return min(limits)

    def reduced(self, period: float = math.nan) -> str | None:
        """A sentence about what a budget that is too large for the data is reduced to; None if it is not.

        >>> from cometad import Budget
        >>> print(Budget(alerts_per_day=3).reduced(period=3600.0))
        The budget of 3 alerts a day is one in 8 readings, too many to look at. It is reduced to one in 100: 0.24 a day.
        """
        if self.rate is not None or self._asked(period) <= MOST:
            return None
        seconds, asked = (period if self.period is None else self.period), self._asked(period)
        a_day = "" if math.isnan(seconds) else f": {MOST * SECONDS_PER_DAY / seconds:.2g} a day"
        return (
            f"The budget of {self} is one in {1 / asked:.3g} readings, too many to look at. It is reduced to one in "
            f"{1 / MOST:.0f}{a_day}."
        )

    def __str__(self) -> str:
        """The budget in words: "1 alert per 1,000 readings, at most 3 a day"."""
        if self.rate is not None:
            return f"{100 * self.rate:g} % of the readings"
        alerts, daily = self.limits
        if alerts is None:
            return f"{daily:,g} alert{'' if daily == 1 else 's'} a day"
        often = f"{alerts:,g} alert{'' if alerts == 1 else 's'} per {self.per:,g} readings"
        return often if daily is None else f"{often}, at most {daily:g} a day"

    def watch(self, state: Floats) -> "BudgetWatch | AlertBudgetWatch":
        """A watch that resumes from a state."""
        sizes = (NUMBERS,) if self.rate is not None else (NUMBERS, WITH_TAIL, WITH_EVENTS)
        spread = state[SPREAD] if state.shape in [(size,) for size in sizes] else math.nan
        wanted = " or ".join(map(str, sizes))
        require_state(spread > 0, f"the state of its threshold is not {wanted} numbers with a positive spread")
        return BudgetWatch(self, state) if self.rate is not None else AlertBudgetWatch(state)


class BudgetWatch(Watch):
    """Tracks the threshold of a rate along a stream of scores; created by `Budget.watch`; see `Budget`."""

    numbers = ("_numbers",)

    def __init__(self, rule: Budget, state: Floats) -> None:
        self._patience, self._numbers = float(rule.patience), np.array(state, np.float64)

    @property
    def threshold(self) -> float:
        return float(score_at(self._numbers[POSITION], self._numbers[START], self._numbers[SPREAD]))

    def follow(self, scores: ArrayLike) -> Floats:
        values = as_scores(scores)
        thresholds = np.empty(len(values))
        _track(values, self._numbers, self._patience, thresholds)
        return thresholds


class AlertBudgetWatch(Watch):
    """Tracks the threshold of a budget of alerts; created by `Budget.watch`.

    What it does depends on the events. By itself it follows events of the default kind; `Judge` has its own.
    """

    numbers = ("_run.track", "tail", "_run._counts", "_run._marks")

    def __init__(self, state: Floats) -> None:
        self.track, tail, events = np.array(state[:NUMBERS], np.float64), state[NUMBERS:WITH_TAIL], state[WITH_TAIL:]
        start, spread = self.track[[START, SPREAD]].tolist()
        earlier = (start - spread, start, start, self.track[SHARE], 0.0, spread)  # 0.2 kept no tail
        self.tail = ScoreTail(*(tail.tolist() or earlier))
        if not len(tail):  # nor a floor
            self.track[FLOOR] = start - spread
        self._run = AlertRun(Alerts(merge_gap=PAUSE), self.tail, track=self.track)
        if len(events):
            self._run.restore({"counts": events[:COUNTS].astype(np.int64), "peak_score": events[COUNTS:]})

    @property
    def threshold(self) -> float:
        return self._run.threshold

    def follow(self, scores: ArrayLike) -> Floats:
        values = as_scores(scores)
        return self._run.advance(values, values).thresholds


# Why the bound holds. Let N of T scores be flagged, H of them held, and K others not lower the threshold. The position
# starts at 0 and ends at p = RATE_STEP ((1 - rate) (N - H) - rate (T - N - K)), so that
#     N = rate T + p / RATE_STEP + (1 - rate) H - rate K.
# Upper side: the threshold rises only at a score above it, so p <= max(0, position(highest)) + RATE_STEP. Each held
# flag is paid from an allowance that was AT_FIRST and gained EXTRA rate per reading, so H <= AT_FIRST + EXTRA rate T.
# And K >= 0.
# Lower side: the threshold falls only at a score at or below it, so p >= min(0, position(lowest)) - RATE_STEP rate. And
# H >= 0. Neither side assumes anything about the scores.
@jit
def _track(scores: Floats, state: Floats, patience: float, thresholds: Floats) -> None:
    """Set `thresholds` (time,) to those that apply to `scores` (time,), and update the state."""
    start, spread, position, allowance, quiet, last, rate = state
    threshold = score_at(position, start, spread)
    for i in range(len(scores)):
        score = scores[i]
        thresholds[i] = threshold
        allowance = min(patience, allowance + EXTRA * rate)
        if score > threshold:
            raised = position + RATE_STEP * (1 - rate)
            above = score_at(raised, start, spread)
            if quiet < NEARBY and allowance >= 1 and score > above:
                allowance -= 1
            else:
                position, threshold = raised, above
            quiet = 0.0
        else:
            lowered = position - RATE_STEP * rate
            below = score_at(lowered, start, spread)
            if abs(score - last) > SAME * spread or score <= below:
                position, threshold = lowered, below
            quiet = min(quiet + 1, NEARBY)
        last = score
    state[2], state[3], state[4], state[5] = position, allowance, quiet, last

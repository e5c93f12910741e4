"""How rare a score is, as a severity from 0 to 1 with a meaning: normal operation reaches it once in 40 days.

The tail of the scores is a generalized Pareto distribution; peaks over threshold use it, too. The tails of the *errors*
of each view are something else: see `cometad.scoring.scores`.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cometad.arrays import Array, Floats
from cometad.compute import jit
from cometad.errors import InputError
from cometad.saving import require_state

LEAST = 20  # with fewer excesses the shape is too uncertain: its standard deviation at 20 is 1 / sqrt(20) = 0.22
NEGLIGIBLE = 15.0  # a log-likelihood this much below the highest has no weight
RATIOS = 128  # tails in a posterior
HIGHEST = 1e300  # mean excesses
HALVINGS = 50  # bisection steps to a limit
ALMOST = -1 + 1e-15  # an excess at this multiple of shape to scale is the end of a bounded tail
ALIKE = 1e-9  # excesses that differ by less than this share of their mean, by rounding only, count as equal

TAIL_SHARE = 0.02  # share of the training scores, the highest ones, that form the tail
FEWEST = 50  # minimum number of scores in the tail, or half of all scores if that is fewer
LEAST_UNIT = 1e-6  # about the rounding of a float32 score: a narrower tail would turn rounding into severity
BODY = (0.5, 0.8)  # quantiles that faults in the history do not move much: they are a tenth of it at most
WIDE = 2.0  # how much further its scores may lie above its start, in the mean
SLACK = 1.2  # how much further from the median than expected the tail may start before faults are suspected
MIDDLE = 0.5  # the probability of a score above the median
DIGITS = 9  # severity 1 is a probability of 1e-9
RAREST = -DIGITS * math.log(10)
MOST_YEARS = 1000  # that the meaning of a severity names
_UNITS = (("year", 31_557_600), ("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1))
CONFIDENCE = 1.645  # standard errors: 95 % one-sided
MOST_SHAPE = 0.9  # a tail of shape 1 has no mean


class ScoreTail(NamedTuple):
    """How rare high scores are among normal readings: a generalized Pareto tail of the training scores above `start`.

    Six numbers: `np.array(tail)` is its state, and `ScoreTail(*state)` restores it.

    >>> import numpy as np
    >>> from cometad.alerting.severity import ScoreTail
    >>> tail = ScoreTail.fit(np.random.default_rng(0).exponential(size=100_000))
    >>> print(f"{tail.probability(10.0):.0e}")  # exp(-10) is 5e-05
    5e-05
    """

    center: float  # the median of the training scores
    base: float  # the threshold in training
    start: float  # where the tail starts
    share: float  # the probability of a score above the start
    shape: float  # 0 for an exponential tail, above 0 for a heavier one
    scale: float

    @classmethod
    def fit(cls, scores: ArrayLike, threshold: float | None = None) -> "ScoreTail":
        """Fit the tail of training scores (time,): the highest 2 % of them, at least 50, or half.

        Its shape is the lower 95 % confidence bound of the maximum-likelihood shape, and at least 0: the tail counts as
        heavier than exponential only if the scores show it, and no score is ever impossible.

        If the tail starts much higher than an exponential through the median and the 80 % quantile would have it, or is
        much wider, faults in the history may be the reason. Then it starts where that exponential has it and is no
        wider, so that a tenth of the history may be faulty.
        """
        known = np.asarray(scores, np.float64)
        if known.ndim != 1 or not len(known) or not np.isfinite(known).all():
            raise InputError("Expected training scores of shape (time,), at least one and all of them finite.")
        count = len(known)
        tail_count = max(TAIL_SHARE * count, min(FEWEST, count / 2))
        middle, high, start = np.quantile(known, [*BODY, 1 - tail_count / count]).tolist()
        excess = known[known > start] - start
        share = (len(excess) + 1) / (count + 1)  # never 0
        shape, scale = _cautious(excess) if len(excess) else (0.0, start - middle or 1.0)
        body = (high - middle) / math.log((1 - BODY[0]) / (1 - BODY[1]))
        expected = middle + body * max(math.log(MIDDLE / share), 0.0)
        far, wide = start - middle > SLACK * (expected - middle), len(excess) and excess.mean() > WIDE * body
        if body > 0 and (far or wide):
            start, shape, scale = min(start, expected), 0.0, min(scale, body)
        finest = LEAST_UNIT * max(abs(middle), abs(start))
        return cls(middle, start if threshold is None else float(threshold), start, share, shape, max(scale, finest))

    @classmethod
    def of(cls, numbers: Array) -> "ScoreTail":
        """The tail with these six numbers, of a saved state."""
        tail = cls(*numbers.tolist())
        fits = 0 < tail.share <= 1 and 0 <= tail.shape <= 1 and tail.scale > 1e-300
        require_state(fits, "its array 'tail' is not a tail")
        return tail

    def probability(self, scores: ArrayLike) -> Floats:
        """The probability (...,) that a normal reading scores this high or higher; 0.5 up to the median."""
        return np.exp(self.log_probability(scores))

    def log_probability(self, scores: ArrayLike) -> Floats:
        """The natural logarithm of `probability`, which does not underflow; linear from the median to the start."""
        values = np.asarray(scores, np.float64)
        return _log_probabilities(values.ravel(), np.array(self)).reshape(values.shape)

    def reached(self, share: float) -> float:
        """The score that a share of normal readings reaches, at most the share of the tail."""
        return self.start + Tail(self.shape, self.scale).above(min(share / self.share, 1.0))


@jit
def log_probability(score: float, tail: Floats) -> float:
    """The natural logarithm of the probability that a normal reading scores this high or higher."""
    center, _, start, share, shape, scale = tail
    if score >= start:
        units = (score - start) / scale
        return float(math.log(share) - (units if shape == 0.0 else math.log1p(shape * units) / shape))
    middle: float = math.log(max(MIDDLE, share))
    if not score > center:
        return middle
    return float(middle + (math.log(share) - middle) * (score - center) / (start - center))


@jit
def severity_of(score: float, tail: Floats) -> float:
    """`severity` of one score; `tail` are the numbers of the tail."""
    return float(min(max(log_probability(score, tail) / RAREST, 0.0), 1.0))


@jit
def _log_probabilities(scores: Floats, tail: Floats) -> Floats:
    found = np.empty(len(scores))
    for i in range(len(scores)):
        found[i] = log_probability(scores[i], tail)
    return found


def _cautious(excess: Floats) -> "Tail":
    """The tail of excesses (excess,), with its shape at its lower confidence bound and the mean of the excesses."""
    shape = fit_tail(excess, np.zeros(len(excess), bool)).shape
    shape -= CONFIDENCE * (1 + shape) / math.sqrt(len(excess))  # the standard error of the estimate
    shape = min(shape, MOST_SHAPE)
    shape = shape if shape > 1e-6 else 0.0  # formulas divide by the shape, so a tiny one counts as 0
    return Tail(shape, float(excess.mean()) * (1 - shape))


def severity(scores: ArrayLike, tail: ScoreTail) -> Floats:
    """How rare scores (...,) are among normal readings, from 0 to 1: each tenfold rarer score adds 1/9.

    severity = -log10(P(score)) / 9, clipped to 0..1, where P is the tail's probability.

    >>> import numpy as np
    >>> from cometad.alerting.severity import ScoreTail, severity
    >>> tail = ScoreTail(center=0.7, base=4.0, start=3.0, share=np.exp(-3.0), shape=0.0, scale=1.0)
    >>> severity(np.log([1e3, 1e6, 1e9, 1e12]), tail).round(3)
    array([0.333, 0.667, 1.   , 1.   ])
    """
    found: Floats = np.clip(tail.log_probability(scores) / RAREST, 0.0, 1.0)
    return found


def meaning(severity: float, period: float = math.nan) -> str:
    """How often normal operation reaches a severity, if its readings are `period` seconds apart (NaN: unknown).

    >>> from cometad.alerting.severity import meaning
    >>> meaning(0.5289, period=60.0), meaning(0.5289), meaning(1.0, period=60.0)
    ('once in 40 days', 'once in 57,600 readings', 'less than once in 1,000 years')
    """
    rarity = 10 ** (DIGITS * severity)
    often = "less than once in" if severity >= 1 else "once in"  # a severity ends at 1
    if math.isnan(period):
        return f"{often} {_counted(round(rarity), 'reading', 3)}"
    seconds = rarity * period
    name, size = next((unit for unit in _UNITS if seconds >= 2 * unit[1]), _UNITS[-1])
    if name == "year" and seconds > MOST_YEARS * size:
        return f"less than once in {MOST_YEARS:,} years"
    return f"{often} {_counted(seconds / size, name, 2)}"


def _counted(number: float, thing: str, digits: int) -> str:
    shown = f"{float(f'{number:.{digits}g}'):,.12g}"
    return f"{shown} {thing}{'' if shown == '1' else 's'}"


# -- generalized Pareto distributions ----------------------------------------------------------------------------------


class Tail(NamedTuple):
    """A generalized Pareto distribution of excesses: exponential at shape 0, heavier above it, bounded below it."""

    shape: float
    scale: float

    def above(self, share: float) -> float:
        """The excess that is exceeded by a share of all excesses. Siffer et al. 2017: Eq. 1, with t = 0."""
        exponent = -math.log(share)
        if self.shape == 0:
            return self.scale * exponent
        # expm1 is exact as the shape goes to 0; beyond 700 it would overflow.
        return self.scale * (math.expm1(min(self.shape * exponent, 700.0)) / self.shape)


def fit_tail(excesses: Floats, censored: NDArray[np.bool_]) -> Tail:
    """Fit a tail by maximum likelihood to excesses (excess,), some of them right-censored.

    With fewer than `LEAST` excesses, or if all are equal, it is the exponential distribution of the same mean; without
    any it has length 0. Below shape -1 the likelihood is unbounded, so the shape stops there: uniform up to the largest
    excess.
    """
    exact = excesses[~censored]
    if len(exact) == 0:
        return Tail(0.0, 0.0)
    unit = float(exact.mean())
    if len(exact) < LEAST or np.ptp(exact) <= ALIKE * unit:
        return Tail(0.0, float(excesses.sum()) / len(exact))
    # The search grid assumes excesses in units of their mean.
    shape, scale = _likeliest(exact / unit, excesses[censored] / unit)
    return Tail(shape, scale * unit)


def predicted_above(excesses: Floats, censored: NDArray[np.bool_], share: float) -> float:
    """The excess that the next one exceeds with probability `share`, given excesses (excess,), some right-censored.

    The probability is the mean over all tails, weighted by how well they explain the excesses: the posterior
    predictive, with a prior flat in the shape and the log of the scale. The likeliest tail alone gives a lower excess,
    which is exceeded too often, because a limit too low by chance costs more alarms than one too high saves. With fewer
    than `LEAST` excesses, or if all are equal, the tails are exponential; without any, the excess is 0.
    """
    exact = excesses[~censored]
    if len(exact) == 0:
        return 0.0
    unit = float(exact.mean())
    if len(exact) < LEAST or np.ptp(exact) <= ALIKE * unit:
        return float(excesses.sum()) * math.expm1(min(-math.log(share) / len(exact), 700.0))
    return unit * _Posterior.of(exact / unit, excesses[censored] / unit).above(share)


class _Posterior(NamedTuple):
    """Generalized Pareto tails by their ratio of shape to scale, with the shape integrated out.

    At a given ratio r, log(1 + r excess) has an exponential distribution whose mean is the shape, up to the sign. With
    a flat prior of the shape, both its integral and the mean survival have a closed form.
    """

    ratios: Floats  # (ratio,)
    weights: Floats  # (ratio,)  sum to 1
    totals: Floats  # (ratio,)  sum of log(1 + ratio * excess)
    power: int  # number of exact excesses - 1

    @classmethod
    def of(cls, exact: Floats, censored: Floats) -> "_Posterior":
        """The posterior given excesses in units of their mean."""
        largest = max(exact.max(), censored.max(initial=0.0))
        coarse = np.concatenate([-_BELOW / largest, _ABOVE])
        costs = np.array([_cost(ratio, exact, censored) for ratio in coarse.tolist()])
        near = np.flatnonzero(costs <= costs.min() + NEGLIGIBLE)
        first, last = max(near[0] - 1, 0), min(near[-1] + 1, len(coarse) - 1)
        ratios = np.linspace(coarse[first], coarse[last], RATIOS)
        ratios[np.abs(ratios) < 1e-9] = 1e-9  # the limit of everything below exists there, its terms do not
        logs = np.log1p(ratios[:, None] * exact).sum(axis=1)
        totals = logs + np.log1p(ratios[:, None] * censored).sum(axis=1)
        power = len(exact) - 1
        log_weights = power * (np.log(np.abs(ratios)) - np.log(np.abs(totals))) - logs
        log_weights[totals < -len(exact)] = -math.inf  # shapes below -1, where the likelihood is unbounded
        weights = np.exp(log_weights - log_weights.max())
        return cls(ratios, weights / weights.sum(), totals, power)

    def above(self, share: float) -> float:
        """The excess whose mean survival is `share`."""
        low, high = 0.0, 1.0
        while self.survival(high) > share and high < HIGHEST:
            low, high = high, 2 * high
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.survival(middle) > share else (low, middle)
        return high

    def survival(self, excess: float) -> float:
        """The mean share of excesses above this one."""
        grown = 1 + np.log1p(np.maximum(self.ratios * excess, ALMOST)) / self.totals
        survivals = np.where(self.ratios * excess > ALMOST, grown**-self.power, 0.0)
        return float(self.weights @ survivals)


def _likeliest(exact: Floats, censored: Floats) -> Tail:
    """Grimshaw's search (1993): for a given ratio of shape to scale the best shape is a mean, so search the ratio.

    Finds the maximum that `scipy.stats.genpareto.fit` finds, 10 times as fast, or 50 times with censored excesses.
    """
    from scipy.optimize import minimize_scalar  # takes half a second, and scoring does not need it

    largest = max(exact.max(), censored.max(initial=0.0))
    ratios = np.concatenate([-_BELOW / largest, _ABOVE])  # ascending; every excess stays possible
    values = [_cost(ratio, exact, censored) for ratio in ratios.tolist()]
    best = int(np.argmin(values))
    if best == 0 or values[best - 1] == math.inf:  # the likelihood keeps rising down to shape -1
        return Tail(-1.0, float(largest))
    bounds = (ratios[best - 1], ratios[min(best + 1, len(ratios) - 1)])
    found = minimize_scalar(_cost, bounds=bounds, args=(exact, censored), method="bounded", options={"xatol": 1e-9})
    shape = _shape(found.x, exact, censored)
    return Tail(shape, shape / float(found.x))


# Ratios of shape to scale except 0: negative ones in units of 1 / largest excess, positive ones of 1 / mean excess.
_BELOW = 1 - np.geomspace(1e-6, 0.999, 24)
_ABOVE = np.geomspace(1e-3, 1e3, 24)


def _shape(ratio: float, exact: Floats, censored: Floats) -> float:
    """The best shape for a ratio of shape to scale."""
    return float(np.log1p(ratio * exact).sum() + np.log1p(ratio * censored).sum()) / len(exact)


def _cost(ratio: float, exact: Floats, censored: Floats) -> float:
    """The negative log-likelihood of a ratio at its best shape, up to a constant."""
    shape = _shape(ratio, exact, censored)
    if shape < -1:
        return math.inf
    return len(exact) * math.log(shape / ratio) + float(np.log1p(ratio * exact).sum())

"""How rare a score is, as a severity from 0 to 1 with a meaning: normal operation reaches it once in 40 days."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cometad.alerting.tail import Tail, fit_tail
from cometad.arrays import Array, Floats
from cometad.compiled import jit
from cometad.errors import InputError
from cometad.saving import require_state

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
def _log_probabilities(scores: Floats, tail: Floats) -> Floats:
    found = np.empty(len(scores))
    for i in range(len(scores)):
        found[i] = log_probability(scores[i], tail)
    return found


def _cautious(excess: Floats) -> Tail:
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

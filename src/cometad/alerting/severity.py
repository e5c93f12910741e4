"""How rare a score is, as a severity from 0 to 1 that a person can read."""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cometad.alerting.tail import Tail, fit_tail
from cometad.arrays import Array, Floats
from cometad.errors import InputError
from cometad.restored import require_state, taken

TAIL_SHARE = 0.02  # share of the training scores, the highest ones, that form the tail
FEWEST = 50  # minimum number of scores in the tail, or half of all scores if that is fewer
LEAST_UNIT = 1e-6  # about the rounding of a float32 score: a narrower tail would turn rounding into severity
RAREST = 1e-9  # tail probability with severity 1
LEAST_RANGE = 1e-3  # severity 1 is at least this factor rarer than the threshold
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
    base: float  # the threshold in training: severity 0
    start: float  # where the tail starts, never above the base
    share: float  # the probability of a score above the start
    shape: float  # 0 for an exponential tail, above 0 for a heavier one
    scale: float

    @classmethod
    def fit(cls, scores: ArrayLike, threshold: float | None = None) -> "ScoreTail":
        """Fit the tail of training scores (time,); the base is their threshold or, without one, the tail's start.

        The tail is the highest 2 % of the scores (at least 50 of them, or half), or all above the threshold if those
        are more. Its shape is the lower 95 % confidence bound of the maximum-likelihood shape, and at least 0: the tail
        counts as heavier than exponential only if the scores show it, and no score is ever impossible.
        """
        known = np.asarray(scores, np.float64)
        if known.ndim != 1 or not len(known) or not np.isfinite(known).all():
            raise InputError("Expected training scores of shape (time,), at least one and all of them finite.")
        if threshold is not None and not math.isfinite(threshold):
            raise InputError(f"The threshold in training must be a finite number. Got {threshold!r} instead.")
        count = len(known)
        tail_count = max(TAIL_SHARE * count, min(FEWEST, count / 2))
        center, start = (float(value) for value in np.quantile(known, [0.5, 1 - tail_count / count]))
        base = start if threshold is None else float(threshold)
        start = min(start, base)
        excess = known[known > start] - start
        share = (len(excess) + 1) / (count + 1)  # never 0
        shape, scale = _cautious(excess) if len(excess) else (0.0, start - center or 1.0)
        finest = LEAST_UNIT * max(abs(center), abs(start), abs(base))
        return cls(center, base, start, share, shape, max(scale, finest))

    @classmethod
    def restored(cls, state: Mapping[str, Array]) -> "ScoreTail":
        """The tail in a saved state."""
        tail = cls(*taken(state, "tail", (len(cls._fields),)).tolist())
        fits = 0 < tail.share <= 1 and 0 <= tail.shape <= 1 and tail.scale > 1e-300
        require_state(fits, "its array 'tail' is not a tail")
        return tail

    def probability(self, scores: ArrayLike) -> Floats:
        """The probability (...,) that a normal reading scores this high or higher; at most `share`."""
        return np.exp(self.log_probability(scores))

    def log_probability(self, scores: ArrayLike) -> Floats:
        """The natural logarithm of `probability`, which does not underflow."""
        excess = np.asarray(scores, np.float64) - self.start
        return np.asarray(np.log(self.share) + Tail(self.shape, self.scale).log_survival(excess))


def _cautious(excess: Floats) -> Tail:
    """The tail of excesses (excess,), with its shape at its lower confidence bound and the mean of the excesses."""
    shape = fit_tail(excess, np.zeros(len(excess), bool)).shape
    shape -= CONFIDENCE * (1 + shape) / math.sqrt(len(excess))  # the standard error of the estimate
    shape = min(shape, MOST_SHAPE)
    shape = shape if shape > 1e-6 else 0.0  # formulas divide by the shape, so a tiny one counts as 0
    return Tail(shape, float(excess.mean()) * (1 - shape))


def severity(scores: ArrayLike, tail: ScoreTail) -> Floats:
    """How rare scores (...,) are: 0 up to the training threshold, 1 from one in a billion on.

    In between it is linear in the logarithm of the tail probability P: every factor of ten adds the same amount.
    severity = log(P(base) / P(score)) / log(P(base) / 1e-9), clipped to 0..1.

    >>> import numpy as np
    >>> from cometad.alerting.severity import ScoreTail, severity
    >>> tail = ScoreTail(center=0.7, base=np.log(1e3), start=3.0, share=np.exp(-3.0), shape=0.0, scale=1.0)
    >>> severity(np.log([1e2, 1e3, 1e6, 1e9, 1e12]), tail).round(6)
    array([0. , 0. , 0.5, 1. , 1. ])
    """
    base, rarest = _ends(tail)
    share = (base - tail.log_probability(scores)) / (base - rarest)
    cut: Floats = np.minimum(np.maximum(share, 0.0), 1.0)
    return cut


@lru_cache(maxsize=16)  # of the tails in use: each event of a stream asks
def _ends(tail: ScoreTail) -> tuple[Floats, Floats]:
    """The log probabilities with severity 0 and 1."""
    base = tail.log_probability(tail.base)
    return base, np.minimum(np.log(RAREST), base + np.log(LEAST_RANGE))

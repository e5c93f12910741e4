"""How rare a score is: the tail of the training scores, and severity as a number that a person can read."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cometad.arrays import Floats
from cometad.errors import InputError

TAIL_SHARE = 0.02  # of the training scores, the highest so many are the tail,
FEWEST = 50  # but at least so many, or half of them all
LEAST_UNIT = 1e-6  # about the rounding of a float32 score: a tail is never narrower, or rounding would look severe
RAREST = 1e-9  # what has at most this probability is of the highest severity
LEAST_RANGE = 1e-3  # and what is so much less likely than the threshold, where that itself is beyond the rarest


class ScoreTail(NamedTuple):
    """How rare high scores are among normal readings: the training scores above `start`, as a generalized Pareto tail.

    Six numbers: `np.array(tail)` is its state, `ScoreTail(*state)` the tail again.

    >>> import numpy as np
    >>> from cometad.alerting.severity import ScoreTail
    >>> tail = ScoreTail.fit(np.random.default_rng(0).exponential(size=100_000))
    >>> print(f"{tail.probability(10.0):.0e}")  # exp(-10) is 5e-05
    5e-05
    """

    center: float  # the median of the training scores
    base: float  # the threshold in training: severity 0
    start: float  # where the tail starts: never above the base
    share: float  # the probability of a score above the start
    shape: float  # 0: the tail is exponential; above 0: heavier
    scale: float

    @classmethod
    def fit(cls, scores: ArrayLike, threshold: float | None = None) -> "ScoreTail":
        """The tail of training scores (time,), and the threshold found on them: where the tail starts if there is none.

        The tail is the highest 2 % of the scores (at least 50 of them, or half), or all above the threshold where those
        are more. Its shape is fitted by probability-weighted moments and taken one standard error lower, at least 0: an
        exponential tail is given up only as far as the scores show a heavier one, and no score is ever impossible.
        """
        known = np.asarray(scores, np.float64)
        if known.ndim != 1 or not len(known) or not np.isfinite(known).all():
            raise InputError("A tail needs training scores of the shape (time,), at least one and all of them finite.")
        if threshold is not None and not math.isfinite(threshold):
            raise InputError(f"The threshold in training must be a finite number. Got {threshold!r} instead.")
        count = len(known)
        tail_count = max(TAIL_SHARE * count, min(FEWEST, count / 2))
        center, start = (float(value) for value in np.quantile(known, [0.5, 1 - tail_count / count]))
        base = start if threshold is None else float(threshold)
        start = min(start, base)
        excess = np.sort(known[known > start]) - start
        share = (len(excess) + 1) / (count + 1)  # never 0
        shape, scale = _pareto(excess) if len(excess) else (0.0, start - center or 1.0)
        finest = LEAST_UNIT * max(abs(center), abs(start), abs(base))
        return cls(center, base, start, share, shape, max(scale, finest))

    def probability(self, scores: ArrayLike) -> Floats:
        """How likely a normal reading scores as high (...,): at most `share`, which is given below the start too."""
        return np.exp(self.log_probability(scores))

    def log_probability(self, scores: ArrayLike) -> Floats:
        """Its natural logarithm (...,), which does not underflow."""
        with np.errstate(over="ignore"):  # beyond all bounds is as rare as can be
            excess = np.maximum((np.asarray(scores, np.float64) - self.start) / self.scale, 0.0)
            hazard = np.log1p(self.shape * excess) / self.shape if self.shape else excess
        logs: Floats = np.log(self.share) - hazard
        return logs


def _pareto(excess: Floats) -> tuple[float, float]:
    """Shape and scale of a generalized Pareto distribution for sorted excesses (time,), all above 0.

    Hosking and Wallis, Parameter and quantile estimation for the generalized Pareto distribution, 1987.
    """
    count = len(excess)
    mean = float(excess.mean())
    above = 1 - (np.arange(1, count + 1) - 0.35) / count  # (time,)  share of excesses above each
    weighted = float(np.mean(above * (excess / mean)))
    shape = 2 - 1 / (1 - 2 * weighted)
    shape -= math.sqrt(4 / 3 / count)  # the standard error where the tail is exponential
    shape = shape if shape > 1e-6 else 0.0  # nearly 0 is 0: the formula would divide by it
    return shape, mean * (1 - shape)


def severity(scores: ArrayLike, tail: ScoreTail) -> Floats:
    """How rare scores (...,) are, from 0 to 1: 0 up to the training threshold, 1 from one in a billion on.

    In between it is linear in the logarithm of the tail probability P: every tenfold rarer score adds the same.
    severity = log(P(base) / P(score)) / log(P(base) / 1e-9), cut to 0..1.

    >>> import numpy as np
    >>> from cometad.alerting.severity import ScoreTail, severity
    >>> tail = ScoreTail(center=0.7, base=np.log(1e3), start=3.0, share=np.exp(-3.0), shape=0.0, scale=1.0)
    >>> severity(np.log([1e2, 1e3, 1e6, 1e9, 1e12]), tail).round(6)
    array([0. , 0. , 0.5, 1. , 1. ])
    """
    base = tail.log_probability(tail.base)
    rarest = np.minimum(np.log(RAREST), base + np.log(LEAST_RANGE))
    cut: Floats = np.clip((base - tail.log_probability(scores)) / (base - rarest), 0.0, 1.0)
    return cut

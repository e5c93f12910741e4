"""The tail of a distribution: a generalized Pareto distribution fitted to what lies above a base."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import CensoredData, FitError, genpareto

Floats = NDArray[np.float64]

LEAST = 20  # excesses below which a second parameter is not worth its variance: its deviation is 1 / sqrt(20) = 0.22
ALIKE = 1e-9  # excesses that differ by less than this share of their mean are taken as equal: it is rounding


class Tail(NamedTuple):
    """A generalized Pareto distribution from 0 up: exponential where the shape is 0, with an end where it is below.

    >>> from cometad.decision.tail import Tail
    >>> Tail(shape=-1.0, scale=8.0).above(0.25)  # uniform from 0 to 8
    6.0
    """

    shape: float
    scale: float

    def above(self, share: float) -> float:
        """The excess that a share of all excesses lies above. Siffer et al. 2017: Eq. 1, with t = 0."""
        exponent = -math.log(share)
        if self.shape == 0:
            return self.scale * exponent
        # expm1 takes the exponential limit by itself; beyond 700 it would overflow.
        return self.scale * (math.expm1(min(self.shape * exponent, 700.0)) / self.shape)


def fit_tail(excesses: Floats, censored: NDArray[np.bool_]) -> Tail:
    """The likeliest tail of excesses (excess,); of the censored ones it is known only that they are at least so large.

    With fewer than `LEAST` excesses, or where all are equal, the exponential distribution of the same mean; without
    any, a tail of length 0. The likelihood is unbounded at shapes below -1: there the best tail of shape -1 is taken,
    which is uniform up to the largest excess.

    >>> import numpy as np
    >>> from cometad.decision.tail import fit_tail
    >>> fit_tail(np.array([1.0, 2.0, 6.0]), np.zeros(3, bool))
    Tail(shape=0.0, scale=3.0)
    """
    exact = excesses[~censored]
    if len(exact) == 0:
        return Tail(0.0, 0.0)
    unit = float(exact.mean())
    if len(exact) < LEAST or np.ptp(exact) <= ALIKE * unit:
        return Tail(0.0, float(excesses.sum()) / len(exact))
    # In units of the mean: scipy's search stops at an absolute step, which is too coarse for small scores.
    shape, scale = _likeliest(exact / unit, excesses[censored] / unit)
    return Tail(shape, scale * unit)


def _likeliest(exact: Floats, censored: Floats) -> Tail:
    data = CensoredData(uncensored=exact, right=censored) if len(censored) else exact
    try:
        shape, _, scale = genpareto.fit(data, 0.1, floc=0, scale=1.0)  # a start from which every excess is possible
    except FitError:  # the search ended where no excess is possible
        shape, scale = -math.inf, 0.0
    if shape > -1:
        return Tail(float(shape), float(scale))
    return Tail(-1.0, float(max(exact.max(), censored.max(initial=0.0))))

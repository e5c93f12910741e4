"""Tail calibration: errors of any view and variable on one scale, so that they can be averaged and compared."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from cometad.arrays import Array, Floats
from cometad.compiled import jit
from cometad.saving import require_state, taken

HIGH = 0.98  # the quantile above which an error counts as part of the tail
LEVEL = -math.log(1 - HIGH)  # the calibrated score there: an exponential tail would give minus the log of its share
FLOOR = 0.1  # of the mean over variables: a variable that hardly ever errs must not drown the others
LEAST = 1e-3  # in standard deviations, if no variable ever errs


class Tails(NamedTuple):
    """Fitted tails of training errors; each field is (variable,)."""

    middle: Floats  # the median
    high: Floats  # the 98 % quantile
    excess: Floats  # how far errors above it lie above it, on average

    @classmethod
    def fit(cls, errors: Floats) -> "Tails":
        """Fit on errors (time, variable); NaN is ignored, and a variable with nothing but NaN has floors only."""
        middle, high, excess = np.array([_fit_column(column) for column in errors.T.copy()]).T
        return cls(middle, middle + _floored(high - middle), _floored(excess))

    def __call__(self, errors: Floats) -> Floats:
        """Calibrate errors (time, variable): 0 up to the median, rising to `LEVEL` at the high quantile, then by log.

        The logarithm keeps one wild variable from drowning the others. NaN stays NaN.
        """
        return _calibrate(errors, *self)


def checked_tails(state: Mapping[str, Array], name: str, views: int, variables: int) -> Floats:
    """Saved tails (view, 3, variable)."""
    tails = taken(state, name, (views, len(Tails._fields), variables))
    fits = bool(((tails[:, 1] > tails[:, 0]) & (tails[:, 2] > 0)).all())
    require_state(fits, f"its array {name!r} is not one of medians, higher quantiles and positive excesses")
    return tails


def _fit_column(errors: Floats) -> tuple[float, float, float]:
    """The median, the high quantile and the mean excess over it of the known ones of errors (time,)."""
    known = errors[~np.isnan(errors)]
    if not len(known):
        return 0.0, 0.0, 0.0
    middle, high = np.quantile(known, (0.5, HIGH), overwrite_input=True)
    beyond = known[known > high]
    return float(middle), float(high), float((beyond - high).mean()) if len(beyond) else 0.0


def _floored(widths: Floats) -> Floats:
    return np.maximum(widths, max(FLOOR * float(widths.mean()), LEAST))


@jit
def _calibrate(errors: Floats, middle: Floats, high: Floats, excess: Floats) -> Floats:
    scores = np.empty(errors.shape)
    for t in range(errors.shape[0]):
        for i in range(errors.shape[1]):
            scores[t, i] = calibrated(errors[t, i], middle[i], high[i], excess[i])
    return scores


@jit
def calibrated(error: float, middle: float, high: float, excess: float) -> float:
    """One calibrated error."""
    if error > high:
        return LEVEL + log_beyond(error, high, excess)
    return min(max(LEVEL * (error - middle) / (high - middle), 0.0), LEVEL)


@jit
def log_beyond(error: float, high: float, excess: float) -> float:
    """What an error above the high quantile adds to `LEVEL`."""
    return math.log(1.0 + (error - high) / excess)

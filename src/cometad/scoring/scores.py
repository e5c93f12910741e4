"""From the errors of several views to scores: calibrate each error by its tail, fuse, smooth.

Here a tail is that of the *errors* of one view and variable. The tail of the *scores*, which tells how rare a score is,
is `cometad.alerting.severity.ScoreTail`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from cometad.arrays import Flags, Floats, Floats32, Integers
from cometad.compute import jit
from cometad.saving import Saved, require_state

HIGH = 0.98  # the quantile above which an error counts as part of the tail
LEVEL = -math.log(1 - HIGH)  # the calibrated score there: an exponential tail would give minus the log of its share
FLOOR = 0.1  # of the mean over variables: a variable that hardly ever errs must not drown the others
LEAST = 1e-3  # in standard deviations, if no variable ever errs

# The mean score of normal readings, if views err independently: 0.92 for exponential errors, 1.06 for normal residuals.
USUAL = 1.0

POOLING = 8  # exponent of the power mean over few variables


class Errors(NamedTuple):
    """Errors of consecutive time steps, and the readings that they are about."""

    rows: Floats  # (time, variable)  scaled readings
    values: Floats  # (time, view, variable)  NaN where unknown


class Scores(NamedTuple):
    """Scores of consecutive time steps. Ranking scores may be of earlier steps than alert scores."""

    alerts: Floats  # (time,)  alert scores
    variables: Floats  # (time, variable)  each variable's calibrated score
    left_out: Flags | None = None  # (time, variable)  counts as normal because its readings were imputed; None: nothing
    ranking: Floats | None = None  # (later time,)  ranking scores; None if they are the alert scores

    @property
    def imputed(self) -> Flags:
        """The time steps (time,) that depend on imputed readings only."""
        return np.zeros(len(self.alerts), bool) if self.left_out is None else np.asarray(self.left_out.all(axis=1))


class StepScores(NamedTuple):
    """The scores of a series, higher is more anomalous; each field is (time,)."""

    scores: Floats  # ranking scores
    alerts: Floats  # alert scores; for many detectors the same
    imputed: Flags | None  # not judged, because its readings were imputed; None if none were


class ScoringRun(Saved, ABC):
    """Scores the readings of a stream as they come, and can be saved and resumed."""

    @property
    @abstractmethod
    def adaptation_steps(self) -> tuple[int, int]:
        """Number of adaptation steps taken, and how many of them were rolled back."""

    @abstractmethod
    def push(self, rows: Floats32, imputed: Flags | None = None) -> Iterable[Scores]:
        """Add rows (time, variable), with a mask of `imputed` cells; returns the scores that become final."""

    @abstractmethod
    def finish(self) -> Iterable[Scores]:
        """End the series; returns the remaining scores."""


def joined(parts: Sequence[Scores]) -> Scores:
    left_out = None
    if any(part.left_out is not None for part in parts):
        left_out = np.concatenate(
            [np.zeros(part.variables.shape, bool) if part.left_out is None else part.left_out for part in parts]
        )
    ranking = None
    if any(part.ranking is not None for part in parts):
        ranking = np.concatenate([part.alerts if part.ranking is None else part.ranking for part in parts])
    alerts = np.concatenate([part.alerts for part in parts])
    return Scores(alerts, np.concatenate([part.variables for part in parts]), left_out, ranking)


# -- tails of errors ------------------------------------------------------------------------------------------------


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


def check_tails(tails: Floats, name: str) -> None:
    fits = bool(((tails[:, 1] > tails[:, 0]) & (tails[:, 2] > 0)).all())
    require_state(fits, f"its array {name!r} is not one of medians, higher quantiles and positive excesses")


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
    if error > high:
        return LEVEL + _log_beyond(error, high, excess)
    return min(max(LEVEL * (error - middle) / (high - middle), 0.0), LEVEL)


@jit
def _log_beyond(error: float, high: float, excess: float) -> float:
    """What an error above the high quantile adds to `LEVEL`."""
    return math.log(1.0 + (error - high) / excess)


# -- fuse -----------------------------------------------------------------------------------------------------------


def fuse(errors: Floats, tails: Floats, weights: Floats, pooling: int) -> Scores:
    """Calibrate errors (time, view, variable), take root mean squares over views and pool them over variables.

    `tails` is (view, 3, variable): the fields of `Tails` for each view. `weights` (view,) are those of the mean, and
    add up to 1. An error of NaN is unknown: the mean is over the other views, and its excess over `USUAL` shrinks by
    the square root of the weight that is known. A mean of fewer views is noisier by about that factor, and would raise
    false alarms after every gap. A variable without any known view is left out, with the score 0. `pooling` is the
    exponent of the power mean: 1 is the mean over variables, and the higher it is, the closer it comes to the maximum.
    """
    steps, _, width = errors.shape
    alerts, variables, left_out = np.empty(steps), np.empty((steps, width)), np.empty((steps, width), np.bool_)
    _fuse_into(errors, tails, weights, pooling, alerts, variables, left_out)
    return Scores(alerts, variables, left_out)


@jit
def _fuse_into(
    errors: Floats, tails: Floats, weights: Floats, pooling: int, alerts: Floats, variables: Floats, left_out: Flags
) -> None:
    steps, views, width = errors.shape
    own, squares, powers = np.empty(width), np.empty(width), np.empty(width)
    slopes = np.empty((views, width))
    for v in range(views):
        for i in range(width):
            slopes[v, i] = LEVEL / (tails[v, 1, i] - tails[v, 0, i])
    for t in range(steps):
        squares[:] = 0.0
        for v in range(views):
            beyond = False
            for i in range(width):  # only selections, no branches, so that it becomes vector instructions
                score = (errors[t, v, i] - tails[v, 0, i]) * slopes[v, i]
                score = 0.0 if score < 0.0 else score
                own[i] = LEVEL if score > LEVEL else score  # NaN stays NaN
                beyond |= errors[t, v, i] > tails[v, 1, i]
            for i in range(width if beyond else 0):
                if errors[t, v, i] > tails[v, 1, i]:
                    own[i] += _log_beyond(errors[t, v, i], tails[v, 1, i], tails[v, 2, i])
            for i in range(width):
                squares[i] += weights[v] * (own[i] * own[i])
        unknown = False
        for i in range(width):
            unknown |= squares[i] != squares[i]  # some views have no error
            variables[t, i] = math.sqrt(squares[i])
            left_out[t, i] = False
        for i in range(width if unknown else 0):
            if squares[i] != squares[i]:
                known, total = 0.0, 0.0
                for v in range(views):
                    if errors[t, v, i] == errors[t, v, i]:
                        known += weights[v]
                        score = calibrated(errors[t, v, i], tails[v, 0, i], tails[v, 1, i], tails[v, 2, i])
                        total += weights[v] * (score * score)
                score = math.sqrt(total / known) if known > 0.0 else 0.0
                if score > USUAL:
                    score = USUAL + (score - USUAL) * math.sqrt(known)
                variables[t, i], left_out[t, i] = score, known == 0.0
        alerts[t] = pooled(variables[t], powers, pooling)


@jit
def pooled(values: Floats, powers: Floats, pooling: int) -> float:
    """The power mean of values (variable,); `powers` is working memory of the same shape."""
    width = len(values)
    for i in range(width):  # not powers[:] = values: for its error message numba would compile for two more seconds
        powers[i] = values[i]
    for _ in range(1, pooling):
        for i in range(width):
            powers[i] *= values[i]
    total = 0.0
    for i in range(width):
        total += powers[i]
    return _root(total / width, pooling)


def usual_pooling(width: int) -> int:
    """The exponent of the power mean over `width` variables: 8 up to 90, 16 up to 181, 32 for more.

    In a mean of more variables, each counts less; it counts the same if the exponent grows with their number.
    """
    return POOLING << min(max(round(math.log2(width / 64)), 0), 2)


@jit
def _root(value: float, exponent: int) -> float:
    """The root of a value; square roots are much faster than powers."""
    while exponent % 2 == 0:
        value, exponent = math.sqrt(value), exponent // 2
    return value if exponent == 1 else value ** (1.0 / exponent)


# -- smooth: an anomaly is longer than a reading, and noise is not --------------------------------------------------


def look_ahead(spans: Sequence[int]) -> int:
    """The number of later scores that a smoothed score needs: it is final that much later."""
    return max(((span - 1) // 2 for span in spans), default=0)


def look_back(spans: Sequence[int]) -> int:
    """The number of earlier scores that a smoothed score needs."""
    return max((span // 2 for span in spans), default=0)


def smooth(scores: Floats, spans: Sequence[int]) -> Floats:
    """The mean of centered means over each of `spans` time steps; at the ends, over the steps that exist.

    An even span has one step more before its center than after it. No spans leave the scores as they are.
    """
    smoothed = np.empty(len(scores))
    smooth_into(scores, np.asarray(spans or (1,), np.int64), 0, smoothed)
    return smoothed


@jit
def rank_into(
    errors: Floats,
    tails: Floats,
    weights: Floats,
    pooling: int,
    window: Floats,
    spans: Integers,
    start: int,
    ranking: Floats,
) -> None:
    """Fuse errors (time, view, variable) into the end of `window`, and smooth it from `start` on into `ranking`."""
    steps, _, width = errors.shape
    variables, left_out = np.empty((steps, width)), np.empty((steps, width), np.bool_)
    _fuse_into(errors, tails, weights, pooling, window[len(window) - steps :], variables, left_out)
    smooth_into(window, spans, start, ranking)


@jit
def smooth_into(scores: Floats, spans: Integers, start: int, smoothed: Floats) -> None:
    """Set `smoothed` (time,) to the smoothed scores from step `start` on."""
    rows, summed = len(scores), np.empty(len(smoothed))
    smoothed[:] = 0.0
    for span in spans:
        back, ahead = span // 2, (span - 1) // 2
        summed[:] = 0.0
        # Not a running sum: its rounding would depend on where it began.
        for away in range(-back, ahead + 1):
            for k in range(max(-start - away, 0), min(rows - start - away, len(smoothed))):
                summed[k] += scores[start + k + away]
        for k in range(len(smoothed)):
            t = start + k
            smoothed[k] += summed[k] / (min(t + ahead, rows - 1) + 1 - max(t - back, 0))
    for k in range(len(smoothed)):
        smoothed[k] /= len(spans)

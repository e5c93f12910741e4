"""From the errors of several views to one score per variable and one per time step."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cometad.arrays import Flags, Floats
from cometad.compiled import jit
from cometad.scoring.tails import LEVEL, calibrated, log_beyond

# The mean calibrated error of normal readings: 0.61 if errors are exponential, 0.71 if residuals are normal.
USUAL = 0.65


class Fused(NamedTuple):
    """Scores of consecutive time steps."""

    scores: Floats  # (time,)  the power mean over variables
    variables: Floats  # (time, variable)  the mean over views; 0 if no view has an error
    left_out: Flags  # (time, variable)  no view has an error


def fuse(errors: Floats, tails: Floats, pooling: int) -> Fused:
    """Calibrate errors (time, view, variable), average them over views and pool them over variables.

    `tails` is (view, 3, variable): the fields of `Tails` for each view. An error of NaN is unknown: the mean is over
    the other views, and its excess over `USUAL` shrinks by the square root of the share of views that are known. A mean
    of fewer views is noisier by that factor, and would raise false alarms after every gap.
    `pooling` is the exponent of the power mean: 1 is the mean over variables, and the higher it is, the closer it comes
    to the maximum.
    """
    steps, _, width = errors.shape
    fused = Fused(np.empty(steps), np.empty((steps, width)), np.empty((steps, width), np.bool_))
    fuse_into(errors, tails, pooling, *fused)
    return fused


@jit
def fuse_into(
    errors: Floats, tails: Floats, pooling: int, scores: Floats, variables: Floats, left_out: NDArray[np.bool_]
) -> None:
    """`fuse`, into given arrays."""
    steps, views, width = errors.shape
    summed, powers = np.empty(width), np.empty(width)
    slopes = LEVEL / (tails[:, 1] - tails[:, 0])
    for t in range(steps):
        summed[:] = 0.0
        for v in range(views):
            beyond = False
            for i in range(width):  # only selections, no branches, so that it becomes vector instructions
                score = (errors[t, v, i] - tails[v, 0, i]) * slopes[v, i]
                score = 0.0 if score < 0.0 else score
                summed[i] += LEVEL if score > LEVEL else score  # NaN stays NaN
                beyond |= errors[t, v, i] > tails[v, 1, i]
            for i in range(width if beyond else 0):
                if errors[t, v, i] > tails[v, 1, i]:
                    summed[i] += log_beyond(errors[t, v, i], tails[v, 1, i], tails[v, 2, i])
        unknown = False
        for i in range(width):
            unknown |= summed[i] != summed[i]  # some views have no error
            powers[i] = summed[i] / views
            left_out[t, i] = False
        for i in range(width if unknown else 0):
            if summed[i] != summed[i]:
                known, total = _known_sum(errors[t, :, i], tails[:, :, i])
                score = total / known if known else 0.0
                if 0 < known < views and score > USUAL:
                    score = USUAL + (score - USUAL) * math.sqrt(known / views)
                powers[i], left_out[t, i] = score, known == 0
        for i in range(width):
            variables[t, i] = powers[i]
        scores[t] = pooled(variables[t], powers, pooling)


@jit
def pooled(values: Floats, powers: Floats, pooling: int) -> float:
    """The power mean of values (variable,); `powers` is working memory of the same shape."""
    width = len(values)
    powers[:] = values
    for _ in range(1, pooling):
        for i in range(width):
            powers[i] *= values[i]
    total = 0.0
    for i in range(width):
        total += powers[i]
    return _root(total / width, pooling)


@jit
def _root(value: float, exponent: int) -> float:
    """The root of a value; square roots are much faster than powers."""
    while exponent % 2 == 0:
        value, exponent = math.sqrt(value), exponent // 2
    return value if exponent == 1 else value ** (1.0 / exponent)


@jit
def _known_sum(errors: Floats, tails: Floats) -> tuple[int, float]:
    """How many of the errors (view,) of one variable are known, and the sum of their calibrated scores."""
    known, summed = 0, 0.0
    for v in range(len(errors)):
        if errors[v] == errors[v]:
            known += 1
            summed += calibrated(errors[v], tails[v, 0], tails[v, 1], tails[v, 2])
    return known, summed

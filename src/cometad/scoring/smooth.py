"""Centered means of scores: an anomaly is longer than a reading, and noise is not.

The price is a delay: a score is final when the longest mean has all its time steps.
"""

from collections.abc import Sequence

import numpy as np

from cometad.arrays import Floats, Integers
from cometad.compiled import jit


def look_ahead(spans: Sequence[int]) -> int:
    """The number of later scores that a smoothed score needs."""
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

"""Thin a curve for drawing without losing its extremes."""

from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

BUCKETS = 500  # two points each: enough for a plot a thousand pixels wide


def thin(values: ArrayLike, buckets: int = BUCKETS) -> NDArray[np.int64]:
    """Indices of the values (time,) to draw, in order: the minimum and maximum of each bucket, and both ends.

    A short curve keeps all its values. Buckets are equally long, give or take one value; a bucket with missing values
    also keeps one of them.
    """
    line = np.asarray(values, dtype=np.float64)
    if len(line) <= 2 * buckets:
        return np.arange(len(line))
    missing = np.isnan(line)
    low, high = np.where(missing, np.inf, line), np.where(missing, -np.inf, line)
    edges = [0, *((np.arange(1, buckets + 1) * ((len(line) - 1) / buckets)).astype(np.int64) + 1).tolist()]
    chosen = [0, len(line) - 1]
    for start, stop in pairwise(edges):
        chosen += [start + int(low[start:stop].argmin()), start + int(high[start:stop].argmax())]
        if missing[start:stop].any():
            chosen.append(start + int(missing[start:stop].argmax()))
    return np.unique(chosen)

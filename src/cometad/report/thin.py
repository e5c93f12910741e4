"""Thin a curve for drawing without losing its extremes."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tsdownsample import MinMaxDownsampler, NaNMinMaxDownsampler

BUCKETS = 500  # two points each: enough for a plot a thousand pixels wide


def thin(values: ArrayLike, buckets: int = BUCKETS) -> NDArray[np.int64]:
    """Indices of the values (time,) to draw, in order: the minimum and maximum of each bucket, and both ends.

    A short curve keeps all its values. Buckets are equally long, give or take one value; a bucket with missing values
    also keeps one of them.
    """
    line = np.ascontiguousarray(values, dtype=np.float64)
    if len(line) <= 2 * buckets:
        return np.arange(len(line))
    # The first sampler ignores missing values, the second picks them.
    samplers = (MinMaxDownsampler, NaNMinMaxDownsampler) if np.isnan(line).any() else (MinMaxDownsampler,)
    chosen = [sampler().downsample(line, n_out=2 * buckets).astype(np.int64) for sampler in samplers]
    return np.unique(np.concatenate([[0], *chosen, [len(line) - 1]]))

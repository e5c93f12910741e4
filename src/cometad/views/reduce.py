"""Fewer directions for many variables, so that the cost of a view grows no faster than their number."""

import numpy as np

from cometad.arrays import Floats

DIRECTIONS = 64  # at most


def directions(centered: Floats) -> Floats | None:
    """The leading principal directions (variable, direction) of rows (time, variable); None for few variables."""
    if centered.shape[1] <= DIRECTIONS:
        return None
    _, vectors = np.linalg.eigh(centered.T @ centered)
    count = min(DIRECTIONS, len(centered))
    return np.ascontiguousarray(vectors[:, ::-1][:, :count])

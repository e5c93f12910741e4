"""Fewer directions for many variables, so that the cost of a view grows no faster than their number."""

import numpy as np

from cometad.arrays import Floats

DIRECTIONS = 64  # at most


def directions(centered: Floats) -> Floats | None:
    """The leading principal directions (variable, direction) of rows (time, variable) around 0; None for few variables.

    >>> import numpy as np
    >>> from cometad.views.reduce import directions
    >>> rng = np.random.default_rng(0)
    >>> directions(rng.normal(size=(300, 80))).shape, directions(rng.normal(size=(300, 8)))
    ((80, 64), None)
    """
    if centered.shape[1] <= DIRECTIONS:
        return None
    _, vectors = np.linalg.eigh(centered.T @ centered)
    count = min(DIRECTIONS, len(centered))
    return np.ascontiguousarray(vectors[:, ::-1][:, :count])

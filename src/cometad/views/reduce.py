"""Fewer directions for many variables, so that the cost of a view grows no faster than their number."""

import numpy as np

from cometad.arrays import Floats

DIRECTIONS = 64  # at most


def directions(centered: Floats, rng: np.random.Generator) -> Floats | None:
    """The leading principal directions (variable, direction) of rows (time, variable) around 0; None for few variables.

    >>> import numpy as np
    >>> from cometad.views.reduce import directions
    >>> rng = np.random.default_rng(0)
    >>> directions(rng.normal(size=(300, 80)), rng).shape, directions(rng.normal(size=(300, 8)), rng)
    ((80, 64), None)
    """
    if centered.shape[1] <= DIRECTIONS:
        return None
    from sklearn.utils.extmath import randomized_svd  # takes a second to import, and few variables do not need it

    count = min(DIRECTIONS, len(centered))
    state = np.random.RandomState(int(rng.integers(2**31)))
    # Transposed: it then draws random numbers per row, so that the order of the variables does not matter.
    *_, right = randomized_svd(centered, count, n_iter=4, transpose=True, random_state=state)
    return np.ascontiguousarray(right.T)

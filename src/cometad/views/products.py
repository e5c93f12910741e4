"""Products of sliding windows with a matrix, in one fixed order of additions.

A stream asks for one time step at a time and a batch for thousands. Both add the same numbers in the same order with
fused multiply-adds, so that they get the same bits.
"""

import numpy as np

from cometad.arrays import Floats
from cometad.compiled import fused


def window_products(rows: Floats, begin: int, count: int, length: int, weights: Floats, start: Floats) -> Floats:
    """`start` (column,) plus the product of each window, read row by row, with weights (length * width, column).

    The windows of `length` rows begin at the rows begin, begin + 1, ...: the result is (count, column).

    >>> import numpy as np
    >>> from cometad.views.products import window_products
    >>> rows = np.array([[1.0], [2.0], [3.0]])
    >>> window_products(rows, 0, 2, 2, np.array([[1.0], [10.0]]), np.array([0.5])).ravel()
    array([21.5, 32.5])
    """
    out = np.empty((count, weights.shape[1]))
    _products(rows.reshape(-1), begin * rows.shape[1], rows.shape[1], weights, start, out)
    return out


@fused
def _products(flat: Floats, begin: int, step: int, weights: Floats, start: Floats, out: Floats) -> None:
    for t in range(len(out)):
        out[t] = start
    for first in range(0, len(out), 8):  # a block of windows reads each row of the matrix once
        last = min(first + 8, len(out))
        for k in range(weights.shape[0]):
            for t in range(first, last):
                value = flat[begin + t * step + k]
                for j in range(weights.shape[1]):
                    out[t, j] += value * weights[k, j]

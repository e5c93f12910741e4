"""Products of sliding windows with a matrix, in one fixed order of additions.

A stream asks for one time step at a time and a batch for thousands. Both add the same numbers in the same order with
fused multiply-adds, so that they get the same bits.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from cometad.arrays import Array, Floats
from cometad.compute import COMPILES, fused
from cometad.views.tiles import COLUMNS, ROWS, add_products, load_line, load_tile, store_tile

DIRECTIONS = 64  # at most


def directions(centered: Floats) -> Floats | None:
    """The leading principal directions (variable, direction) of rows (time, variable); None for few variables."""
    if centered.shape[1] <= DIRECTIONS:
        return None
    _, vectors = np.linalg.eigh(centered.T @ centered)
    count = min(DIRECTIONS, len(centered))
    return np.ascontiguousarray(vectors[:, ::-1][:, :count])


class Matrix:
    """A matrix (row, column) to multiply windows with, and what to add: padded to whole tiles."""

    def __init__(self, weights: Floats, start: Floats) -> None:
        self.columns = weights.shape[1]
        padding = -self.columns % COLUMNS
        self.weights = _aligned(np.pad(weights, ((0, 0), (0, padding))))
        self.start = np.pad(start, (0, padding))

    def times_windows(self, rows: Floats, begin: int, count: int) -> Floats:
        """Multiply the windows that begin at the rows begin, begin + 1, ... of (time, variable): (count, column).

        A window is read row by row; its length follows from the size of the matrix.
        """
        out = np.empty((count, self.weights.shape[1]))
        window_products(rows.ravel(), begin * rows.shape[1], rows.shape[1], self.weights, self.start, out)
        return out[:, : self.columns]


def _aligned(array: Floats) -> Floats:
    """A copy of an array whose tiles do not straddle cache lines, which would take up to half as long again."""
    memory = np.empty(array.size + COLUMNS)
    first = -(memory.ctypes.data // memory.itemsize) % COLUMNS
    copy = memory[first : first + array.size].reshape(array.shape)
    copy[:] = array
    return copy


@fused
def _in_tiles(flat: Floats, begin: int | np.int64, step: int, weights: Floats, start: Floats, out: Floats) -> None:
    size, columns = weights.shape
    table, target = weights.ravel(), out.ravel()
    whole = len(out) // ROWS * ROWS
    for j in range(0, columns, COLUMNS):
        for t in range(0, whole, ROWS):
            tile, place = load_tile(start, j), begin + t * step
            for k in range(size):
                tile = add_products(tile, flat, place + k, step, table, k * columns + j)
            store_tile(tile, target, t * columns + j, columns)
        for t in range(whole, len(out)):
            line, place = load_line(start, j), begin + t * step
            for k in range(size):
                line = add_products(line, flat, place + k, step, table, k * columns + j)
            store_tile(line, target, t * columns + j, columns)


def _plainly(flat: Floats, begin: int | np.int64, step: int, weights: Floats, start: Floats, out: Floats) -> None:
    """The same without compiled code: equal up to rounding."""
    windows: Array = sliding_window_view(flat[begin:], len(weights))[::step][: len(out)]
    out[:] = start + windows @ weights


window_products = _in_tiles if COMPILES else _plainly

"""Sums over the rows of windows, and products of windows with a matrix, in one fixed order of additions.

A stream asks for one time step at a time and a batch for thousands. Both add the same numbers in the same order with
fused multiply-adds, 8 variables or columns at once, so that they get the same bits.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from cometad.arrays import Array, Floats
from cometad.compute import COMPILES, fused
from cometad.views.tiles import (
    COLUMNS,
    ROWS,
    add_products,
    add_squared_gaps,
    load_line,
    load_tile,
    store_tile,
    zero_line,
)

_ONE = np.ones(1)

# -- sums of rows, each in the order of time ---------------------------------------------------------------------------


@fused
def _sum_rows(flat: Floats, begin: int, length: int, stride: int, sums: Floats) -> None:
    """Set `sums` (variable,) to the sum of `length` rows that begin at `begin` and are `stride` numbers apart."""
    width = len(sums)
    if width < COLUMNS:
        sums[:] = 0.0
        for k in range(begin, begin + length * stride, stride):
            for i in range(width):
                sums[i] += flat[k + i]
        return
    for first in range(0, width, COLUMNS):
        i = min(first, width - COLUMNS)  # the last 8 may overlap those before, and get the same sums again
        line = zero_line()
        for k in range(begin + i, begin + i + length * stride, stride):
            line = add_products(line, _ONE, 0, 0, flat, k)
        store_tile(line, sums, i, 0)


@fused
def _sum_squared_gaps(
    flat: Floats, begin: int, length: int, other: Floats, start: int | np.int64, stride: int | np.int64, sums: Floats
) -> None:
    """Set `sums` (variable,) to the sums of the squared differences of `length` rows from those of another array.

    Those begin at `start` and are `stride` numbers apart: 0 for a single row.
    """
    width = len(sums)
    if width < COLUMNS:
        sums[:] = 0.0
        for k in range(length):
            for i in range(width):
                gap = flat[begin + k * width + i] - other[start + k * stride + i]
                sums[i] += gap * gap
        return
    for first in range(0, width, COLUMNS):
        i = min(first, width - COLUMNS)
        line = zero_line()
        for k in range(length):
            line = add_squared_gaps(line, flat, begin + k * width + i, other, start + k * stride + i)
        store_tile(line, sums, i, 0)


def _sum_rows_plainly(flat: Floats, begin: int, length: int, stride: int, sums: Floats) -> None:
    """The same without compiled code: equal up to rounding."""
    sums[:] = sum((flat[begin + k * stride :][: len(sums)] for k in range(length)), np.zeros(len(sums)))


def _sum_squared_gaps_plainly(
    flat: Floats, begin: int, length: int, other: Floats, start: int | np.int64, stride: int | np.int64, sums: Floats
) -> None:
    """The same without compiled code: equal up to rounding."""
    width = len(sums)
    rows = flat[begin : begin + length * width].reshape(length, width)
    others = np.stack([other[start + k * stride : start + k * stride + width] for k in range(length)])
    sums[:] = ((rows - others) ** 2).sum(axis=0)


sum_rows = _sum_rows if COMPILES else _sum_rows_plainly
sum_squared_gaps = _sum_squared_gaps if COMPILES else _sum_squared_gaps_plainly


# -- products of sliding windows ---------------------------------------------------------------------------------------


def padded(weights: Floats, start: Floats) -> tuple[Floats, Floats]:
    """A matrix (row, column) to multiply windows with, and what to add (column,): padded to whole tiles."""
    padding = -weights.shape[1] % COLUMNS
    return _aligned(np.pad(weights, ((0, 0), (0, padding)))), np.pad(start, (0, padding))


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


def _products_plainly(
    flat: Floats, begin: int | np.int64, step: int, weights: Floats, start: Floats, out: Floats
) -> None:
    """The same without compiled code: equal up to rounding."""
    windows: Array = sliding_window_view(flat[begin:], len(weights))[::step][: len(out)]
    out[:] = start + windows @ weights


window_products = _in_tiles if COMPILES else _products_plainly

"""Sums over the rows of a window, 8 variables at once, each in the order of time."""

import numpy as np

from cometad.arrays import Floats
from cometad.compute import COMPILES, fused
from cometad.views.tiles import COLUMNS, add_products, add_squared_gaps, store_tile, zero_line

_ONE = np.ones(1)


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

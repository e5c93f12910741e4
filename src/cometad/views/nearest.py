"""The nearest code of sliding windows, in single precision: between codes that are equally near, either will do."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from cometad.arrays import Floats, Floats32
from cometad.compiled import COMPILES, fused
from cometad.views.tiles import (
    LANES,
    ROWS,
    add_products,
    initial_best,
    load_line,
    splat_tile,
    store_codes,
    store_tile,
    update_best,
)


def search_tables(codes: Floats) -> tuple[Floats32, Floats32]:
    """What `search` reads of codes (..., code, dim): their negatives (..., dim, code), and half their squared lengths.

    Both are padded to whole tiles, with codes that are infinitely far away.
    """
    outer, padding = [(0, 0)] * (codes.ndim - 2), (0, -codes.shape[-2] % LANES)
    weights = np.pad(-np.swapaxes(codes, -1, -2), [*outer, (0, 0), padding])
    halves = np.pad(0.5 * (codes**2).sum(axis=-1), [*outer, padding], constant_values=np.inf)
    return np.ascontiguousarray(weights, np.float32), halves.astype(np.float32)


@fused
def _search(
    series: Floats32,
    width: int | np.int64,
    patches: int,
    weights: Floats32,
    halves: Floats32,
    count: int,
    nearest: NDArray[np.int32],
) -> None:
    """Set `nearest` to the code with the least |code|^2 / 2 - code'window, for windows from the steps 0, 1, ... on.

    `series` has the readings of `width` variables one after the other, `nearest` and each of them with room for 16
    more. Only the first `count` codes are real.
    """
    if patches == 1:
        _search_one(series, width, weights, halves, nearest)
        return
    size, codes = weights.shape
    table, stride = weights.ravel(), len(series) // width
    for t in range(0, patches, LANES):
        best = initial_best()
        for c in range(0, count, ROWS):
            tile, place = splat_tile(halves, c), c
            for k in range(size // width):
                for i in range(width):
                    tile = add_products(tile, table, place, 1, series, i * stride + t + k)
                    place += codes
            best = update_best(best, tile, c)
        store_codes(best, nearest, t)


@fused
def _search_one(
    series: Floats32, width: int | np.int64, weights: Floats32, halves: Floats32, nearest: NDArray[np.int32]
) -> None:
    """`_search` for one window: 16 codes at once instead of 16 windows, with the same additions in the same order."""
    size, codes = weights.shape
    table, stride, distances = weights.ravel(), len(series) // width, np.empty(codes, np.float32)
    for c in range(0, codes, LANES):
        line, place = load_line(halves, c), c
        for k in range(size // width):
            for i in range(width):
                line = add_products(line, series, i * stride + k, 1, table, place)
                place += codes
        store_tile(line, distances, c, codes)
    best = 0
    for c in range(1, codes):
        if distances[c] < distances[best]:
            best = c
    nearest[0] = best


def _search_plainly(
    series: Floats32,
    width: int | np.int64,
    patches: int,
    weights: Floats32,
    halves: Floats32,
    count: int,
    nearest: NDArray[np.int32],
) -> None:
    """The same without compiled code: equal up to rounding."""
    if patches:
        windows = sliding_window_view(series.reshape(width, -1), int(len(weights) // width), axis=1)[:, :patches]
        nearest[:patches] = (halves + windows.transpose(1, 2, 0).reshape(patches, -1) @ weights).argmin(axis=1)


search = _search if COMPILES else _search_plainly

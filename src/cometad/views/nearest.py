"""The nearest code of sliding windows, in single precision: between codes that are equally near, either will do."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from cometad.arrays import Floats, Floats32
from cometad.compute import COMPILES, fused
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
def _search_one(
    series: Floats32,
    width: int | np.int64,
    stride: int | np.int64,
    table: Floats32,
    place: int | np.int64,
    halves: Floats32,
    first: int | np.int64,
    codes: int | np.int64,
    distances: Floats32,
    size: int | np.int64,
) -> int:
    """The nearest code of one window: 16 codes at once instead of 16 windows, with the same order of additions.

    `table` and `halves` have the search tables from `place` and `first` on; `distances` is working memory.
    """
    for c in range(0, codes, 2 * LANES):
        near, far, second = load_line(halves, first + c), load_line(halves, first + c), c + LANES < codes
        if second:  # neither has to wait for the additions of the other
            far = load_line(halves, first + c + LANES)
        at = place + c
        for k in range(size // width):
            for i in range(width):
                near = add_products(near, series, i * stride + k, 1, table, at)
                if second:
                    far = add_products(far, series, i * stride + k, 1, table, at + LANES)
                at += codes
        store_tile(near, distances, c, codes)
        if second:
            store_tile(far, distances, c + LANES, codes)
    best = 0
    for c in range(1, codes):
        if distances[c] < distances[best]:
            best = c
    return best


def _search_one_plainly(
    series: Floats32,
    width: int | np.int64,
    stride: int | np.int64,
    table: Floats32,
    place: int | np.int64,
    halves: Floats32,
    first: int | np.int64,
    codes: int | np.int64,
    distances: Floats32,
    size: int | np.int64,
) -> int:
    """The same without compiled code: equal up to rounding."""
    window = series.reshape(width, stride)[:, : size // width].T.ravel()
    weights = table[place : place + size * codes].reshape(size, codes)
    return int((halves[first : first + codes] + window @ weights).argmin())


search_one = _search_one if COMPILES else _search_one_plainly


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
    size, codes = weights.shape
    table, stride = weights.ravel(), len(series) // width
    if patches == 1:
        none, distances = np.int64(0), np.empty(codes, np.float32)  # numba would compile the search anew for a plain 0
        nearest[0] = search_one(series, width, stride, table, none, halves, none, codes, distances, size)
        return
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

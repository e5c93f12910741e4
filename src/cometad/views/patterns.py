"""Patterns: each variable's recent readings against its own codebook of normal patches."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from cometad.arrays import Array, Flags, Floats, Floats32
from cometad.compiled import COMPILES, fused
from cometad.registry import register
from cometad.threads import in_parts
from cometad.validation import check_integer
from cometad.views.kmeans import ROUNDS, kmeans, squared_distance
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
from cometad.views.view import WindowView, cut_windows, windows_of

PATCHES = 3_000  # at most, for k-means


@register("Patterns")
@dataclass(frozen=True)
class Patterns:
    """The root mean square distance of a variable's last `length` readings to the nearest of its own codes.

    >>> import numpy as np
    >>> from cometad.views import Patterns
    >>> wave = np.sin(np.arange(500) / 5)[:, None]
    >>> view = Patterns(length=16).fit(wave, np.ones(500, bool), np.random.default_rng(0))
    >>> bool(view.errors(np.zeros((20, 1)), first=15).min() > 3 * np.nanmax(view.errors(wave, first=0)))
    True
    """

    length: int = 32
    codes: int = 32
    reason: ClassVar[str] = "alone unusual"

    def __post_init__(self) -> None:
        check_integer("length", self.length, 1)
        check_integer("codes", self.codes, 1)

    @property
    def min_rows(self) -> int:
        """Readings it needs."""
        return self.length

    def fit(self, rows: Floats, usable: Flags, rng: np.random.Generator) -> "FittedPatterns":
        """Learn from the `usable` (time,) ones of scaled readings (time, variable)."""
        patches = cut_windows(rows, windows_of(usable, self.length, PATCHES, rng), self.length)
        uniforms, width = rng.random(self.codes), rows.shape[1]
        codes = np.empty((width, self.codes, self.length))

        def part(variables: slice) -> None:
            for i in range(variables.start, variables.stop):
                found = kmeans(np.ascontiguousarray(patches[:, :, i]), uniforms, ROUNDS)
                codes[i] = found[np.minimum(np.arange(self.codes), len(found) - 1)]  # repeat the last one

        in_parts(part, width)
        return FittedPatterns(codes)

    def restore(self, state: Mapping[str, Array]) -> "FittedPatterns":
        """The fitted view with a state."""
        return FittedPatterns(state["codes"])


class FittedPatterns(WindowView):
    """Codes (variable, code, length), and the errors against them."""

    def __init__(self, codes: Floats) -> None:
        self.codes, self.span = codes, codes.shape[2]
        self.context = self.span - 1
        padding = (0, -codes.shape[1] % ROWS)
        turned = np.pad(-codes.transpose(0, 2, 1), ((0, 0), (0, 0), padding))
        self._weights = np.ascontiguousarray(turned, np.float32)  # (variable, length, code)
        halves = 0.5 * (codes**2).sum(axis=2)
        self._halves = np.pad(halves, ((0, 0), padding), constant_values=np.inf).astype(np.float32)

    def write(self, rows: Floats, begin: int, count: int, expected: bool, out: Floats, v: int) -> None:
        """The root mean square distance of each patch to its nearest code, or the last reading of that code."""
        own = np.empty((count, out.shape[2]))
        _compare(rows, len(rows) - count, self._weights, self._halves, self.codes, expected, own)
        out[-count:, v] = own

    def state(self) -> Mapping[str, Array]:
        """Everything that was learned, by name."""
        return {"codes": self.codes}


@fused
def _compare(
    rows: Floats, first: int, weights: Floats32, halves: Floats32, codes: Floats, expected: bool, out: Floats
) -> None:
    """Set `out` (time - first, variable) to the last reading of the nearest code, if `expected`, or to the errors."""
    width, count, length = codes.shape
    table = codes.reshape(-1)
    begin = max(first - length + 1, 0)
    patches = max(len(rows) - length + 1 - begin, 0)
    series = np.empty(len(rows) - begin)
    padded, nearest = np.zeros(len(series) + LANES, np.float32), np.empty(patches + LANES, np.int32)
    for i in range(width):
        for t in range(len(series)):
            series[t] = padded[t] = rows[begin + t, i]
        search(padded, patches, weights[i], halves[i], nearest)
        for t in range(patches):
            code, step = (i * count + nearest[t]) * length, begin + t + length - 1 - first
            if expected:
                out[step, i] = table[code + length - 1]
            else:
                out[step, i] = np.sqrt(squared_distance(series, t, table, code, length) / length)


@fused
def _search_in_tiles(
    series: Floats32, patches: int, weights: Floats32, halves: Floats32, nearest: NDArray[np.int32]
) -> None:
    """The nearest code of each patch of a series: the least |code|^2 / 2 - code'patch.

    Only the search is in single precision: between codes that are equally near at that precision, either will do.
    """
    length, codes = weights.shape
    table = weights.reshape(-1)
    for t in range(0, patches, LANES):
        best = initial_best()
        for c in range(0, codes, ROWS):
            tile = splat_tile(halves, c)
            for k in range(length):
                tile = add_products(tile, table, k * codes + c, 1, series, t + k)
            best = update_best(best, tile, c)
        store_codes(best, nearest, t)


@fused
def _search_in_lines(series: Floats32, weights: Floats32, halves: Floats32, nearest: NDArray[np.int32]) -> None:
    """The same for one patch: 16 codes at once instead of 16 patches, with the same additions in the same order."""
    length, codes = weights.shape
    table, distances = weights.reshape(-1), np.empty(codes, np.float32)
    for c in range(0, codes, LANES):
        line = load_line(halves, c)
        for k in range(length):
            line = add_products(line, series, k, 1, table, k * codes + c)
        store_tile(line, distances, c, codes)
    best = 0
    for c in range(1, codes):
        if distances[c] < distances[best]:
            best = c
    nearest[0] = best


@fused
def _search(series: Floats32, patches: int, weights: Floats32, halves: Floats32, nearest: NDArray[np.int32]) -> None:
    if patches == 1 and len(halves) % LANES == 0:
        _search_in_lines(series, weights, halves, nearest)
    else:
        _search_in_tiles(series, patches, weights, halves, nearest)


def _search_plainly(
    series: Floats32, patches: int, weights: Floats32, halves: Floats32, nearest: NDArray[np.int32]
) -> None:
    """The same without compiled code: equal up to rounding."""
    if patches:
        windows = sliding_window_view(series, len(weights))[:patches]
        nearest[:patches] = (halves + windows @ weights).argmin(axis=1)


search = _search if COMPILES else _search_plainly

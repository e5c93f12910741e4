"""Patterns: each variable's recent readings against its own codebook of normal patches."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from cometad.arrays import Flags, Floats, Floats32
from cometad.compute import fused, in_parts
from cometad.parameters import check_integer
from cometad.registry import register
from cometad.saving import Table, array
from cometad.views.kmeans import ROUNDS, kmeans, squared_distance
from cometad.views.nearest import search, search_one, search_tables
from cometad.views.tiles import LANES
from cometad.views.view import SavedView, WindowView, cut_windows

PATCHES = 3_000  # at most, for k-means


class FittedPatterns(WindowView):
    """Codes (variable, code, length), and the errors against them."""

    mixes_variables = False
    saved: ClassVar[Table] = {"codes": array("codes", "variable", "codes", "length")}

    def __init__(self, view: "Patterns", codes: Floats) -> None:
        self.codes, self.span = codes, codes.shape[2]
        self.context, self.width = self.span - 1, len(codes)
        tables = (*search_tables(codes), codes)
        self._write, self._write_one = partial(_compare, *tables), partial(_compare_one, *tables)

    def write(self, rows: Floats, begin: int, count: int, expected: bool, out: Floats, v: int) -> None:
        # Chosen here and not in a kernel, so that a fit does not compile what only a stream needs.
        if count == 1:
            self._write_one(rows, begin, expected, out, v)
        else:
            self._write(rows, begin, count, expected, out, v)


@register("Patterns")
@dataclass(frozen=True)
class Patterns(SavedView):
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
    fitted: ClassVar = FittedPatterns
    reason: ClassVar[str] = "alone unusual"

    def __post_init__(self) -> None:
        check_integer("length", self.length, 1)
        check_integer("codes", self.codes, 1)

    @property
    def min_rows(self) -> int:
        return self.length

    def fit(self, rows: Floats, usable: Flags, rng: np.random.Generator) -> FittedPatterns:
        patches = cut_windows(rows, usable, self.length, PATCHES, rng)
        uniforms, width = rng.random(self.codes), rows.shape[1]
        codes = np.empty((width, self.codes, self.length))

        def part(variables: slice) -> None:
            for i in range(variables.start, variables.stop):
                found = kmeans(np.ascontiguousarray(patches[:, :, i]), uniforms, ROUNDS)
                codes[i] = found[np.minimum(np.arange(self.codes), len(found) - 1)]  # repeat the last one

        in_parts(part, width)
        return FittedPatterns(self, codes)


@fused
def _compare(
    weights: Floats32,
    halves: Floats32,
    codes: Floats,
    rows: Floats,
    begin: int,
    patches: int,
    expected: bool,
    out: Floats,
    v: int,
) -> None:
    """The root mean square distance of each patch to its nearest code, or the last reading of that code."""
    width, count, length = codes.shape
    table = codes.ravel()
    series = np.empty(len(rows) - begin)
    padded, nearest = np.zeros(len(series) + LANES, np.float32), np.empty(patches + LANES, np.int32)
    found, one = np.empty((width, patches + LANES)), np.int64(1)  # numba would compile the search anew for a plain 1
    for i in range(width):
        for t in range(len(series)):
            series[t] = padded[t] = rows[begin + t, i]
        search(padded, one, patches, weights[i], halves[i], count, nearest)
        for t in range(patches):
            code = (i * count + nearest[t]) * length
            found[i, t] = table[code + length - 1] if expected else squared_distance(series, t, table, code, length)
        for t in range(0 if expected else patches):
            found[i, t] = np.sqrt(found[i, t] / length)
    for t in range(patches):
        for i in range(width):
            out[len(out) - patches + t, v, i] = found[i, t]


@fused
def _compare_one(
    weights: Floats32, halves: Floats32, codes: Floats, rows: Floats, begin: int, expected: bool, out: Floats, v: int
) -> None:
    """`_compare` for one patch, without an array for each variable."""
    width, count, length = codes.shape
    table, flat, half, padded = codes.ravel(), weights.ravel(), halves.ravel(), halves.shape[1]
    series, single, distances = np.empty(length), np.empty(length, np.float32), np.empty(padded, np.float32)
    none, one = np.int64(0), np.int64(1)
    for i in range(width):
        for t in range(length):
            series[t] = single[t] = rows[begin + t, i]
        place = i * length * padded
        nearest = search_one(single, one, length, flat, place, half, i * padded, padded, distances, length)
        code = (i * count + nearest) * length
        if expected:
            out[-1, v, i] = table[code + length - 1]
        else:
            out[-1, v, i] = np.sqrt(squared_distance(series, none, table, code, length) / length)

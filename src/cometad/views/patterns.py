"""Patterns: each variable's recent readings against its own codebook of normal patches."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cometad.arrays import Array, Flags, Floats
from cometad.compiled import fused
from cometad.registry import register
from cometad.threads import in_parts
from cometad.validation import check_integer
from cometad.views.kmeans import ROUNDS, kmeans, squared_distance
from cometad.views.products import Matrix, window_products
from cometad.views.view import cut_windows, windows_of, with_unknown

PATCHES = 3_000  # at most, for k-means
AT_ONCE = 32  # patches whose products with the codes fit into the L1 cache


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


class FittedPatterns:
    """Codes (variable, code, length), and the errors against them."""

    def __init__(self, codes: Floats) -> None:
        self.codes, self.span = codes, codes.shape[2]
        self.context = self.span - 1
        halves = 0.5 * (codes**2).sum(axis=2)
        matrices = [Matrix(-own.T, half) for own, half in zip(codes, halves, strict=True)]
        self._weights = np.stack([matrix.weights for matrix in matrices])  # (variable, length, code)
        self._start = np.stack([matrix.start for matrix in matrices])

    def errors(self, rows: Floats, first: int) -> Floats:
        """The root mean square distance of the patches that end at each step (time - first, variable)."""
        errors = np.empty((len(rows) - first, rows.shape[1]))
        _compare(rows, first, self._weights, self._start, self.codes, False, errors)
        return with_unknown(errors, rows, first, self.context)

    def expected(self, rows: Floats, first: int) -> Floats:
        """The last reading of the nearest code (time - first, variable)."""
        expected = np.empty((len(rows) - first, rows.shape[1]))
        _compare(rows, first, self._weights, self._start, self.codes, True, expected)
        return with_unknown(expected, rows, first, self.context)

    def state(self) -> Mapping[str, Array]:
        """Everything that was learned, by name."""
        return {"codes": self.codes}


@fused
def _compare(
    rows: Floats, first: int, weights: Floats, start: Floats, codes: Floats, expected: bool, out: Floats
) -> None:
    """Set `out` (time - first, variable) to the last reading of the nearest code, if `expected`, or to the errors."""
    width, count, length = codes.shape
    begin = max(first - length + 1, 0)
    patches = max(len(rows) - length + 1 - begin, 0)
    series, closeness = np.empty(len(rows)), np.empty((min(AT_ONCE, patches), weights.shape[2]))
    for i in range(width):
        for t in range(begin, len(rows)):
            series[t] = rows[t, i]
        for done in range(0, patches, AT_ONCE):
            some = min(AT_ONCE, patches - done)
            window_products(series, begin + done, 1, weights[i], start[i], closeness[:some])
            for t in range(some):
                nearest, least = 0, closeness[t, 0]
                for c in range(1, count):
                    if closeness[t, c] < least:
                        nearest, least = c, closeness[t, c]
                patch = begin + done + t
                step = patch + length - 1 - first
                if expected:
                    out[step, i] = codes[i, nearest, length - 1]
                else:
                    out[step, i] = np.sqrt(squared_distance(series[patch : patch + length], codes[i, nearest]) / length)

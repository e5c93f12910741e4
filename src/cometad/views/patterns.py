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
from cometad.views.kmeans import ROUNDS, kmeans
from cometad.views.view import cut_windows, windows_of, with_unknown

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


class FittedPatterns:
    """Codes (variable, code, length), and the errors against them."""

    def __init__(self, codes: Floats) -> None:
        self.codes, self.span = codes, codes.shape[2]
        self.context = self.span - 1
        self._turned = np.ascontiguousarray(codes.transpose(0, 2, 1))
        self._halves = 0.5 * (codes**2).sum(axis=2)

    def errors(self, rows: Floats, first: int) -> Floats:
        """The root mean square distance of the patches that end at each step (time - first, variable)."""
        errors = np.empty((len(rows) - first, rows.shape[1]))
        _errors(rows, first, self._turned, self._halves, errors)
        return with_unknown(errors, rows, first, self.context)

    def expected(self, rows: Floats, first: int) -> Floats:
        """The last reading of the nearest code (time - first, variable)."""
        expected = np.empty((len(rows) - first, rows.shape[1]))
        _expected(rows, first, self._turned, self._halves, expected)
        return with_unknown(expected, rows, first, self.context)

    def state(self) -> Mapping[str, Array]:
        """Everything that was learned, by name."""
        return {"codes": self.codes}


@fused
def _nearest(rows: Floats, begin: int, i: int, turned: Floats, halves: Floats, products: Floats) -> int:
    """The code nearest to variable i's patch that begins at a row: the least |code|^2 / 2 - code'patch."""
    products[:] = halves[i]
    for k in range(turned.shape[1]):
        value = rows[begin + k, i]
        for c in range(turned.shape[2]):
            products[c] -= value * turned[i, k, c]
    return int(np.argmin(products))


@fused
def _errors(rows: Floats, first: int, turned: Floats, halves: Floats, errors: Floats) -> None:
    width, length, codes = turned.shape
    products = np.empty(codes)
    for i in range(width):
        for t in range(max(first, length - 1), len(rows)):
            begin = t - length + 1
            code, total = _nearest(rows, begin, i, turned, halves, products), 0.0
            for k in range(length):
                gap = rows[begin + k, i] - turned[i, k, code]
                total += gap * gap
            errors[t - first, i] = np.sqrt(total / length)


@fused
def _expected(rows: Floats, first: int, turned: Floats, halves: Floats, expected: Floats) -> None:
    width, length, codes = turned.shape
    products = np.empty(codes)
    for i in range(width):
        for t in range(max(first, length - 1), len(rows)):
            code = _nearest(rows, t - length + 1, i, turned, halves, products)
            expected[t - first, i] = turned[i, length - 1, code]

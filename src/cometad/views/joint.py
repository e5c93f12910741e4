"""Joint: recent readings of all variables together against one codebook of normal windows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cometad.arrays import Array, Flags, Floats
from cometad.compiled import fused
from cometad.registry import register
from cometad.validation import check_integer
from cometad.views.kmeans import codes_of
from cometad.views.products import Matrix
from cometad.views.view import cut_windows, windows_of, with_unknown

WINDOWS = 5_000  # at most, for k-means
CELLS = 20_000_000  # of all these windows together, which bounds memory and time for many variables
LEAST_WINDOWS = 500


@register("Joint")
@dataclass(frozen=True)
class Joint:
    """Each variable's part of the distance between a window of all variables and the nearest code.

    The squares of the parts add up to the squared distance: the split is exact.

    >>> import numpy as np
    >>> from cometad.views import Joint
    >>> rng = np.random.default_rng(0)
    >>> rows = np.repeat(rng.choice([-1.0, 1.0], 500), 2).reshape(500, 2)  # both variables are always equal
    >>> view = Joint(length=1, codes=2).fit(rows, np.ones(500, bool), rng)
    >>> view.errors(np.array([[1.0, 1.0], [-1.0, 1.0]]), first=0).max(axis=1)
    array([0., 2.])
    """

    length: int = 20
    codes: int = 20
    reason: ClassVar[str] = "unusual given the others"

    def __post_init__(self) -> None:
        check_integer("length", self.length, 1)
        check_integer("codes", self.codes, 1)

    @property
    def min_rows(self) -> int:
        """Readings it needs."""
        return self.length

    def fit(self, rows: Floats, usable: Flags, rng: np.random.Generator) -> "FittedJoint":
        """Learn from the `usable` (time,) ones of scaled readings (time, variable)."""
        size = self.length * rows.shape[1]
        limit = min(WINDOWS, max(LEAST_WINDOWS, CELLS // size))
        windows = cut_windows(rows, windows_of(usable, self.length, limit, rng), self.length)
        return FittedJoint(codes_of(windows.reshape(-1, size), self.codes, rng), self.length)

    def restore(self, state: Mapping[str, Array]) -> "FittedJoint":
        """The fitted view with a state."""
        return FittedJoint(state["codes"], self.length)


class FittedJoint:
    """Codes (code, length * variable), and the errors against them."""

    def __init__(self, codes: Floats, length: int) -> None:
        self.codes, self.span, self.context = codes, length, length - 1
        self._closeness = Matrix(-codes.T, 0.5 * (codes**2).sum(axis=1))  # half the squared distance, less |window|^2

    def errors(self, rows: Floats, first: int) -> Floats:
        """The root mean square distance of each variable's part of the window that ends at each step."""
        errors = np.empty((len(rows) - first, rows.shape[1]))
        begin, nearest = self._nearest(rows, first)
        _split(rows, begin, nearest, self.codes, self.span, errors[len(errors) - len(nearest) :])
        return with_unknown(errors, rows, first, self.context)

    def expected(self, rows: Floats, first: int) -> Floats:
        """The last readings of the nearest code (time - first, variable)."""
        expected = np.empty((len(rows) - first, rows.shape[1]))
        _, nearest = self._nearest(rows, first)
        expected[len(expected) - len(nearest) :] = self.codes[nearest, -rows.shape[1] :]
        return with_unknown(expected, rows, first, self.context)

    def _nearest(self, rows: Floats, first: int) -> tuple[int, Array]:
        """The first row of the first window, and the nearest code of each window."""
        begin = max(first - self.context, 0)
        count = max(len(rows) - self.context - begin, 0)
        return begin, self._closeness.times_windows(rows, begin, count).argmin(axis=1)

    def state(self) -> Mapping[str, Array]:
        """Everything that was learned, by name."""
        return {"codes": self.codes}


@fused
def _split(rows: Floats, begin: int, nearest: Array, codes: Floats, length: int, errors: Floats) -> None:
    width = rows.shape[1]
    squares = np.empty(width)
    for t in range(len(nearest)):
        code = codes[nearest[t]]
        squares[:] = 0.0
        for k in range(length):
            for i in range(width):
                gap = rows[begin + t + k, i] - code[k * width + i]
                squares[i] += gap * gap
        for i in range(width):
            errors[t, i] = np.sqrt(squares[i] / length)

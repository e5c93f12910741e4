"""Joint: recent readings of all variables together against one codebook of normal windows."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from cometad.arrays import Flags, Floats, Floats32
from cometad.compute import fused
from cometad.parameters import check_integer
from cometad.registry import register
from cometad.saving import Table, array, require_state
from cometad.views.kmeans import codes_of
from cometad.views.nearest import search, search_tables
from cometad.views.sums import sum_squared_gaps
from cometad.views.tiles import LANES
from cometad.views.view import SavedView, WindowView, cut_windows

WINDOWS = 5_000  # at most, for k-means
CELLS = 20_000_000  # of all these windows together, which bounds memory and time for many variables
LEAST_WINDOWS = 500


class FittedJoint(WindowView):
    """Codes (code, length * variable), and the errors against them."""

    saved: ClassVar[Table] = {"codes": array("codes", "code", "length * variable")}

    def __init__(self, view: "Joint", codes: Floats) -> None:
        self.codes, self.span, self.context = codes, view.length, view.length - 1
        self.width, rest = divmod(codes.shape[1], view.length)
        require_state(rest == 0, "its array 'codes' has no windows of this length")
        self.write = partial(_compare, *search_tables(codes), codes)


@register("Joint")
@dataclass(frozen=True)
class Joint(SavedView):
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
    fitted: ClassVar = FittedJoint
    reason: ClassVar[str] = "unusual given the others"
    relation: ClassVar[str] = "no longer follows {}"

    def __post_init__(self) -> None:
        check_integer("length", self.length, 1)
        check_integer("codes", self.codes, 1)

    @property
    def min_rows(self) -> int:
        return self.length

    def fit(self, rows: Floats, usable: Flags, rng: np.random.Generator) -> FittedJoint:
        size = self.length * rows.shape[1]
        limit = min(WINDOWS, max(LEAST_WINDOWS, CELLS // size))
        windows = cut_windows(rows, usable, self.length, limit, rng)
        return FittedJoint(self, codes_of(windows.reshape(-1, size), self.codes, rng))


@fused
def _compare(
    weights: Floats32,
    halves: Floats32,
    codes: Floats,
    rows: Floats,
    begin: int,
    count: int,
    expected: bool,
    out: Floats,
    v: int,
) -> None:
    """The root mean square distance of each variable's part of the window, or the last readings of the code."""
    width = rows.shape[1]
    length = codes.shape[1] // width
    flat, table, squares = rows.ravel(), codes.ravel(), np.empty(width)
    series, nearest = np.zeros((width, count + length - 1 + LANES), np.float32), np.empty(count + LANES, np.int32)
    for t in range(count + length - 1):
        for i in range(width):
            series[i, t] = rows[begin + t, i]
    search(series.ravel(), width, count, weights, halves, len(codes), nearest)
    last = (length - 1) * width
    for t in range(count):
        step, code = len(out) - count + t, nearest[t] * codes.shape[1]
        if not expected:
            sum_squared_gaps(flat, (begin + t) * width, length, table, code, width, squares)
        for i in range(width):
            out[step, v, i] = table[code + last + i] if expected else np.sqrt(squares[i] / length)

"""Balance: short windows of all variables against the few directions in which normal windows vary."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from cometad.arrays import Flags, Floats
from cometad.compute import fused
from cometad.parameters import check_integer, check_number
from cometad.registry import register
from cometad.saving import Table, array
from cometad.views.blocks import BlockView
from cometad.views.sums import padded, sum_squared_gaps, window_products
from cometad.views.view import WindowView, cut_windows

WINDOWS = 10_000  # at most, for the principal components
COMPONENTS = 64  # at most


class FittedBalance(WindowView):
    """The center (length, variable) and components (component, length * variable) of normal windows."""

    judges_relations = True
    saved: ClassVar[Table] = {
        "center": array("center", "length", "variable"),
        "components": array("components", "component", lambda of: of["length"] * of["variable"]),
    }

    def __init__(self, view: "Balance", center: Floats, components: Floats) -> None:
        self.center, self.components = center, components
        self.span, self.context, self.width = len(center), len(center) - 1, center.shape[1]
        factors, windows = padded(components.T, -components @ center.ravel()), padded(components, center.ravel())
        self.write = partial(_describe, *factors, *windows)


@register("Balance")
@dataclass(frozen=True)
class Balance(BlockView):
    """Each variable's part of what the principal components of windows of `length` rows leave unexplained.

    >>> import numpy as np
    >>> from cometad.views import Balance
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=500)
    >>> rows = np.stack([x, x, x], axis=1) + 0.01 * rng.normal(size=(500, 3))  # always nearly equal
    >>> view = Balance(length=1).fit(rows, np.ones(500, bool), rng)
    >>> errors = view.errors(np.array([[2.0, 2.0, 2.0], [0.5, 0.5, -0.5]]), first=0)
    >>> bool(errors[0].max() < 0.1), int(errors[1].argmax())
    (True, 2)
    """

    length: int = 8
    explained: float = 0.9  # share of the variance that the components keep
    fitted: ClassVar = FittedBalance
    reason: ClassVar[str] = "unusual given the others"
    relation: ClassVar[str] = "no longer follows {}"

    def __post_init__(self) -> None:
        check_integer("length", self.length, 1)
        check_number("explained", self.explained, 0, 1)

    @property
    def min_rows(self) -> int:
        return self.length + 1

    def fit_block(self, rows: Floats, usable: Flags, rng: np.random.Generator) -> FittedBalance:
        windows = cut_windows(rows, usable, self.length, WINDOWS, rng)
        center = windows.mean(axis=0)
        return FittedBalance(self, center, self._components((windows - center).reshape(len(windows), -1)))

    def _components(self, centered: Floats) -> Floats:
        """The leading principal components (component, dim) of centered windows (window, dim)."""
        variances, vectors = np.linalg.eigh(centered.T @ centered)
        variances = np.maximum(variances[::-1], 0.0)
        shares = np.cumsum(variances) / max(float(variances.sum()), np.finfo(float).tiny)
        count = min(int(np.searchsorted(shares, self.explained)) + 1, COMPONENTS, len(shares))
        return np.ascontiguousarray(vectors.T[::-1][:count])


@fused
def _describe(
    weights: Floats,
    start: Floats,
    components: Floats,
    center: Floats,
    rows: Floats,
    begin: int,
    count: int,
    expected: bool,
    out: Floats,
    v: int,
) -> None:
    """The root mean square of each variable's part of the window's residual, or its last readings as described."""
    width = rows.shape[1]
    factors, described = np.empty((count, weights.shape[1])), np.empty((count, components.shape[1]))
    window_products(rows.ravel(), begin * width, width, weights, start, factors)
    window_products(factors.ravel(), np.int64(0), factors.shape[1], components, center, described)
    length = len(weights) // width
    last, squares = (length - 1) * width, np.empty(width)
    flat, table = rows.ravel(), described.ravel()
    for t in range(count):
        step = len(out) - count + t
        sum_squared_gaps(flat, (begin + t) * width, length, table, t * described.shape[1], width, squares)
        for i in range(width):
            out[step, v, i] = described[t, last + i] if expected else np.sqrt(squares[i] / length)

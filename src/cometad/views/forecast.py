"""Forecast: each reading against a linear prediction from the last readings of all variables."""

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
from cometad.views.sums import padded, window_products
from cometad.views.view import WindowView, cut_windows

EXAMPLES = 10_000  # at most, for the regression


class FittedForecast(WindowView):
    """Weights (lags * variable, variable) and level (variable,) of the regression."""

    span, basis = 1, None
    saved: ClassVar[Table] = {
        "level": array("level", "variable"),
        "basis": array("basis", "variable", "direction", optional=True),  # of a wide table in files of before
        "weights": array("weights", lambda of: of["lags"] * of.get("direction", of["variable"]), "variable"),
    }

    def __init__(self, view: "Forecast", weights: Floats, level: Floats, basis: Floats | None = None) -> None:
        if basis is not None:
            weights = (basis @ weights.reshape(view.lags, -1, len(level))).reshape(-1, len(level))
        self.weights, self.level, self.context, self.width = weights, level, view.lags, len(level)
        self.write = partial(_predict, *padded(weights, level))


@register("Forecast")
@dataclass(frozen=True)
class Forecast(BlockView):
    """The absolute residual of a ridge regression of each reading on the last `lags` readings of all variables.

    >>> import numpy as np
    >>> from cometad.views import Forecast
    >>> wave = np.sin(np.arange(500) / 5)[:, None]
    >>> view = Forecast(lags=4).fit(wave, np.ones(500, bool), np.random.default_rng(0))
    >>> broken = wave.copy()
    >>> broken[300] += 1
    >>> int(np.nanargmax(view.errors(broken, first=0)))
    300
    """

    lags: int = 8
    penalty: float = 10.0
    fitted: ClassVar = FittedForecast
    reason: ClassVar[str] = "not what its last readings lead to"

    def __post_init__(self) -> None:
        check_integer("lags", self.lags, 1)
        check_number("penalty", self.penalty, 0, np.inf)

    @property
    def min_rows(self) -> int:
        return self.lags + 1

    def fit_block(self, rows: Floats, usable: Flags, rng: np.random.Generator) -> FittedForecast:
        examples = cut_windows(rows, usable, self.lags + 1, EXAMPLES, rng)
        inputs, targets = examples[:, :-1].reshape(len(examples), -1), examples[:, -1]
        center, level = inputs.mean(axis=0), targets.mean(axis=0)
        inputs = inputs - center
        gram = inputs.T @ inputs + (self.penalty + 1e-9) * np.eye(inputs.shape[1])
        weights = np.linalg.solve(gram, inputs.T @ (targets - level))
        return FittedForecast(self, weights, level - center @ weights)


@fused
def _predict(
    weights: Floats, start: Floats, rows: Floats, begin: int, count: int, expected: bool, out: Floats, v: int
) -> None:
    """The absolute residual of each reading, or its prediction."""
    width = rows.shape[1]
    predicted = np.empty((count, weights.shape[1]))
    window_products(rows.ravel(), begin * width, width, weights, start, predicted)
    for t in range(-count, 0):
        for i in range(width):
            value = predicted[count + t, i]
            out[len(out) + t, v, i] = value if expected else abs(rows[len(rows) + t, i] - value)

"""How far a reading is from a linear forecast."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cometad.arrays import Floats, Floats32
from cometad.baselines.baseline import Moments, VariableBaseline
from cometad.saving import Table, arrays

PENALTIES = np.logspace(4, -6, 21)  # in mean variances of the inputs, strongest first


@dataclass(kw_only=True, eq=False, repr=False)
class ForecastError(VariableBaseline):
    """The mean squared error of a forecast of each variable from the last `lags` readings of all variables.

    The forecast is a vector autoregression, fitted by ridge regression. Each variable has the penalty with the lowest
    generalized cross-validation error on the training series (Golub, Heath and Wahba 1979), so few readings or
    collinear variables do no harm. Eight lags, half a window of `WindowKnn`, show level, slope and short oscillations;
    no other number was tried.

    >>> import numpy as np
    >>> from cometad.baselines.forecast_error import ForecastError
    >>> wave = np.sin(np.arange(400) / 5)[:, None]
    >>> jump = wave.copy()
    >>> jump[200:] += 1
    >>> int(ForecastError().fit(wave).decision_function(jump).argmax())
    200
    """

    saved: ClassVar[Table] = arrays(
        weights_=(lambda known: known["lags"] * known["variable"], "variable"),
        level_=("variable",),
        penalties_=("variable",),
    )

    lags: int = 8

    def _span(self) -> int:
        return self.lags + 1

    def _learn_readings(self, readings: Floats32) -> None:
        moments, inputs = Moments.of(readings), self.lags * self.n_features_in_
        self.weights_, self.penalties_ = ridge(moments, inputs)
        self.level_ = moments.mean[inputs:] - moments.mean[:inputs] @ self.weights_

    def _errors(self, readings: Floats) -> Floats:
        inputs = len(self.weights_)
        return np.asarray(np.abs(readings[:, inputs:] - readings[:, :inputs] @ self.weights_ - self.level_))


def ridge(moments: Moments, inputs: int) -> tuple[Floats, Floats]:
    """Weights (input, target) of ridge regressions and penalties (target,) chosen by generalized cross-validation.

    The first `inputs` columns of the moments are inputs, the others targets.
    """
    variances, directions = np.linalg.eigh(moments.covariance[:inputs, :inputs])
    variances = np.maximum(variances, 0.0)
    unit = variances.mean() or 1.0  # constant inputs have none
    common = directions.T @ moments.covariance[:inputs, inputs:]  # (direction, target)
    total = np.diag(moments.covariance)[inputs:]
    errors = np.array([_validation_errors(variances, common**2, total, unit * p, moments.rows) for p in PENALTIES])
    penalties = unit * PENALTIES[errors.argmin(axis=0)]  # of equal ones, the strongest
    return directions @ (common / (variances[:, None] + penalties)), penalties


def _validation_errors(variances: Floats, common: Floats, total: Floats, penalty: float, count: int) -> Floats:
    """The generalized cross-validation error of each target (target,), from squared covariances (direction, target)."""
    penalized = variances + penalty
    missed = np.maximum(total - (penalized + penalty) / penalized**2 @ common, 0.0)
    freedom = 1 + (variances / penalized).sum()
    return np.asarray(missed / max(1 - freedom / count, 1e-9) ** 2)

"""Detectors that only the benchmark has: fair arms, and a no-skill reference that flags every reading.

A fair arm is a simple baseline with the calibration, pooling and smoothing of Comet. A comparison in which only one
side calibrates and smooths says little about what each knows of the data.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from cometad.arrays import Floats, Floats32
from cometad.baselines import BASELINES
from cometad.baselines.baseline import RULES as SHARED_RULES
from cometad.baselines.baseline import Baseline, ReadingBaseline, VariableBaseline
from cometad.checkpoint import Checkpoint
from cometad.errors import ParameterError
from cometad.parameters import Rule, check, check_integer, choice, integer, require
from cometad.scoring.scores import Tails, fuse, smooth
from cometad.series import Series


def _spans(name: str, value: Any) -> None:
    require(isinstance(value, tuple), name, "a tuple of spans", value)
    for span in value:
        check_integer(name, span, 1)


RULES: dict[str, Rule] = SHARED_RULES | {"baseline": choice(BASELINES), "pooling": integer(1), "smoothing": _spans}


@dataclass(kw_only=True, eq=False, repr=False)
class FairBaseline(Baseline):
    """A baseline whose errors per variable are calibrated, pooled by a power mean and smoothed, as in Comet.

    A baseline without errors per variable has its score calibrated and smoothed. Calibration is on the training series.
    """

    baseline: str = "squared-norm"
    pooling: int = 4
    smoothing: tuple[int, ...] = (4, 16, 64)

    def check_parameters(self) -> None:
        check(self.get_params(deep=False), RULES)

    def _unfitted(self) -> Baseline:
        return BASELINES[self.baseline](seed=self.seed, device=self.device)

    def _least_rows(self) -> int:
        return self._unfitted().min_readings

    def _learn(self, scaled: Floats32, series: Series) -> None:
        # On the readings themselves: the baseline has its own scaler.
        self.inner_ = self._unfitted().fit(series.values)
        self.tails_ = Tails.fit(self._errors(series.values))

    def _score(self, scaled: Floats32, series: Series) -> Floats:
        fused = fuse(self._errors(series.values)[:, None], np.array([self.tails_]), np.ones(1), self.pooling)
        return smooth(fused.alerts, self.smoothing)

    def _errors(self, values: Floats) -> Floats:
        """The errors (time, variable) of the baseline, or its scores as those of one variable."""
        if isinstance(self.inner_, VariableBaseline):
            return self.inner_.errors(values)
        return self.inner_.decision_function(values)[:, None]

    def _checkpoint(self) -> Checkpoint:
        raise ParameterError(f"A fair arm serves benchmarks only and cannot be saved. Save a {self.baseline} instead.")


@dataclass(kw_only=True, eq=False, repr=False)
class AllPositive(ReadingBaseline):
    """Gives every reading the same score, above the training scores. Its results are the floor of a metric."""

    def fit(self, X: object, y: object = None) -> Self:
        super().fit(X)
        self.decision_scores_ = self.alert_scores_ = np.zeros_like(self.decision_scores_)
        self._fit_threshold()
        return self

    def _learn_readings(self, readings: Floats32) -> None:
        """Nothing to learn."""

    def _score_readings(self, readings: Floats) -> Floats:
        return np.ones(len(readings))

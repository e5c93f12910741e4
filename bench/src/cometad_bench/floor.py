"""No-skill reference: flags every reading."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from cometad.arrays import Floats, Floats32
from cometad.baselines.baseline import ReadingBaseline


@dataclass(kw_only=True, eq=False, repr=False)
class AllPositive(ReadingBaseline):
    """Gives every reading the same score, above the training scores. Its results are the floor of a metric."""

    def fit(self, X: object, y: object = None) -> Self:
        """Fit the threshold; nothing is learned."""
        super().fit(X)
        self.decision_scores_ = self.alert_scores_ = np.zeros_like(self.decision_scores_)
        self._fit_threshold()
        return self

    def _learn_readings(self, readings: Floats32) -> None:
        """Nothing to learn."""

    def _score_readings(self, readings: Floats) -> Floats:
        return np.ones(len(readings))

"""Detectors with next to nothing to learn: what any method must beat."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cometad.arrays import Floats, Floats32
from cometad.baselines.baseline import Baseline, VariableBaseline
from cometad.saving import Table, arrays
from cometad.series import Series


@dataclass(kw_only=True, eq=False, repr=False)
class RandomScore(Baseline):
    """A uniform random score for each time step, drawn with the seed.

    >>> import numpy as np
    >>> from cometad.baselines.simple import RandomScore
    >>> RandomScore(seed=0).fit(np.zeros((9, 1))).decision_function(np.zeros((2, 1))).round(2)
    array([0.64, 0.27])
    """

    def _learn(self, scaled: Floats32, series: Series) -> None:
        """Nothing to learn."""

    def _score(self, scaled: Floats32, series: Series) -> Floats:
        return np.random.default_rng(self.seed).random(len(scaled))


@dataclass(kw_only=True, eq=False, repr=False)
class SensorRange(VariableBaseline):
    """The largest distance of any variable to its training range, in units of that range; 0 inside.

    Training readings score 0, so `predict` flags every reading outside the range.

    >>> import numpy as np
    >>> from cometad.baselines.simple import SensorRange
    >>> detector = SensorRange().fit(np.array([[0.0, 5.0], [2.0, 5.0]]))
    >>> detector.decision_function(np.array([[1.0, 5.0], [3.0, 5.0], [1.0, 4.0]]))
    array([0. , 0.5, 1. ])
    """

    saved: ClassVar[Table] = arrays(low_=("variable",), high_=("variable",), dtype=np.float32)

    scaler: str = "min-max"

    def _learn_readings(self, readings: Floats32) -> None:
        self.low_, self.high_ = readings.min(axis=0), readings.max(axis=0)  # equal for a constant variable

    def _errors(self, readings: Floats) -> Floats:
        return np.asarray(np.maximum(np.maximum(self.low_ - readings, readings - self.high_), 0.0))

    def _pool(self, errors: Floats) -> Floats:
        return np.asarray(errors.max(axis=1))


@dataclass(kw_only=True, eq=False, repr=False)
class SquaredNorm(VariableBaseline):
    """The mean square of a scaled reading over its variables.

    >>> import numpy as np
    >>> from cometad.baselines.simple import SquaredNorm
    >>> SquaredNorm().fit(np.array([[-1.0], [1.0]])).decision_function(np.array([[0.5], [3.0]]))
    array([0.25, 9.  ])
    """

    def _learn_readings(self, readings: Floats32) -> None:
        """Nothing to learn beyond the scaling."""

    def _errors(self, readings: Floats) -> Floats:
        return np.abs(readings)

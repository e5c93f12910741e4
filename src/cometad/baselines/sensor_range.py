"""How far a reading is outside the training range of its variables."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cometad.arrays import Floats, Floats32
from cometad.baselines.baseline import VariableBaseline
from cometad.saving import Table, arrays


@dataclass(kw_only=True, eq=False, repr=False)
class SensorRange(VariableBaseline):
    """The largest distance of any variable to its training range, in units of that range; 0 inside.

    Training readings score 0, so `predict` flags every reading outside the range.

    >>> import numpy as np
    >>> from cometad.baselines.sensor_range import SensorRange
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

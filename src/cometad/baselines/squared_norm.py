"""How far a reading is from the training mean."""

from dataclasses import dataclass

import numpy as np

from cometad.arrays import Floats, Floats32
from cometad.baselines.baseline import VariableBaseline


@dataclass(kw_only=True, eq=False, repr=False)
class SquaredNorm(VariableBaseline):
    """The mean square of a scaled reading over its variables.

    >>> import numpy as np
    >>> from cometad.baselines.squared_norm import SquaredNorm
    >>> SquaredNorm().fit(np.array([[-1.0], [1.0]])).decision_function(np.array([[0.5], [3.0]]))
    array([0.25, 9.  ])
    """

    def _learn_readings(self, readings: Floats32) -> None:
        """Nothing to learn beyond the scaling."""

    def _errors(self, readings: Floats) -> Floats:
        return np.abs(readings)

    def _pool(self, errors: Floats) -> Floats:
        return np.asarray((errors**2).mean(axis=1))

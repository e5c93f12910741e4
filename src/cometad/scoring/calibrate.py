"""Put the scores of each variable on a common footing, before variables are aggregated."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cometad.arrays import Floats
from cometad.parameters import check_number
from cometad.registry import register

LEAST_UNIT = 1e-6  # about the rounding of a float32 score


class Calibration(Protocol):
    """The interface of a calibration."""

    def fit(self, scores: Floats) -> Floats:
        """The center and unit (2, variable) of training scores (time, variable)."""


@register("NoCalibration")
@dataclass(frozen=True)
class NoCalibration:
    """Compare the raw scores of variables.

    >>> from cometad.scoring import NoCalibration
    >>> NoCalibration().fit([[1.0]]).shape
    (2, 1)
    """

    def fit(self, scores: Floats) -> Floats:
        """Center 0 and unit 1 for each variable of training scores (time, variable)."""
        width = np.shape(scores)[1]
        return np.stack([np.zeros(width), np.ones(width)])


@register("TrainingCalibration")
@dataclass(frozen=True)
class TrainingCalibration:
    """Rescale each variable by its own training scores: their median becomes 0, a high quantile 1.

    The unit is at least `least` times the mean unit, so that a variable that never moved in training is not infinitely
    sensitive.

    >>> import numpy as np
    >>> from cometad.scoring import TrainingCalibration
    >>> TrainingCalibration(0.9).fit(np.arange(11.0)[:, None])
    array([[5.], [4.]])
    """

    quantile: float = 0.99
    least: float = 0.1

    def __post_init__(self) -> None:
        check_number("quantile", self.quantile, 0, 1)
        check_number("least", self.least, 0, math.inf)

    def fit(self, scores: Floats) -> Floats:
        """The center and unit (2, variable) of training scores (time, variable)."""
        center = np.median(scores, axis=0)
        unit = np.quantile(scores, self.quantile, axis=0) - center
        usual = unit.mean()
        # If nothing varied in training, there is no unit to rescale by.
        return np.stack([center, np.maximum(unit, self.least * usual if usual > LEAST_UNIT else 1.0)])

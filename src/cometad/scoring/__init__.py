"""From raw scores per variable to one score per time step: calibrate, select, normalize, mix."""

from cometad.scoring.calibrate import NoCalibration, TrainingCalibration
from cometad.scoring.normalize import EmaMinMax, NoNormalization, TrainingNormalization
from cometad.scoring.select import AllVariables, BudgetSelection, HighestVariables, PercentileSelection

__all__ = [
    "AllVariables",
    "BudgetSelection",
    "EmaMinMax",
    "HighestVariables",
    "NoCalibration",
    "NoNormalization",
    "PercentileSelection",
    "TrainingCalibration",
    "TrainingNormalization",
]

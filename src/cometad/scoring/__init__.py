"""From errors to scores: tail, fuse, smooth for views; calibrate, select, normalize, mix for the network.

In: errors (time, view, variable) or the network's raw scores. Out: one score per time step and variable, and one per
time step. Equal to the bit: batch and stream; a score does not depend on the chunk it came in.
"""

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

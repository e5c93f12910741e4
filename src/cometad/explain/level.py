"""Level: how far a reading is from its mean. It helps to attribute a score and is no part of it.

People who look for the cause of an anomaly look for curves that leave their range first.
"""

from typing import NamedTuple

import numpy as np

from cometad.arrays import Flags, Floats, Floats32
from cometad.scoring.scores import HIGH

NAME = "level"
REASON = "far from its usual level"
SAMPLE = 100_000  # readings, at most: more change nothing


class Level(NamedTuple):
    """The usual level of each variable, in scaled units; each field is (variable,)."""

    center: Floats  # the mean
    deviation: Floats  # standard deviation; 1 for a constant variable
    band: Floats  # 98 % of normal readings are this close to the mean

    @classmethod
    def fit(cls, scaled: Floats | Floats32, usable: Flags) -> "Level":
        """Fit on the `usable` (time,) ones of scaled readings (time, variable)."""
        steps = np.flatnonzero(usable)
        known = scaled[steps[:: -(-len(steps) // SAMPLE)]].astype(np.float64)
        center, deviation = known.mean(axis=0), known.std(axis=0)
        deviation[deviation == 0] = 1.0
        return cls(center, deviation, np.quantile(np.abs(known - center), HIGH, axis=0))

    def __call__(self, scaled: Floats | Floats32) -> Floats:
        """ln(1 + |z|) of scaled readings (time, variable), where z is the distance from the mean in deviations.

        Its scale is the same for all variables. A tail for each would hide one that often leaves its range, and on
        SMD's labels hits fewer causes.
        """
        away: Floats = np.log1p(np.abs(scaled - self.center) / self.deviation)
        return away

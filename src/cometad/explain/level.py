"""Level: how far a reading is from its mean. It helps to attribute a score and is no part of it.

People who look for the cause of an anomaly look for curves that leave their range first.
"""

from typing import NamedTuple

import numpy as np

from cometad.arrays import Flags, Floats
from cometad.scoring.tail import Tails

NAME = "level"
REASON = "far from its usual level"


class Level(NamedTuple):
    """The usual level of each variable, in scaled units; each field is (variable,).

    >>> import numpy as np
    >>> from cometad.explain.level import Level
    >>> rows = np.random.default_rng(0).normal(size=(1000, 2))
    >>> scores = Level.fit(rows, np.ones(1000, bool))(np.array([[0.0, 9.0]]))
    >>> bool(scores[0, 0] < 0.5), bool(scores[0, 1] > 5)
    (True, True)
    """

    center: Floats  # the mean
    deviation: Floats  # standard deviation; 1 for a constant variable
    middle: Floats  # the tail of the distances from the mean, in standard deviations: see `Tails`
    high: Floats
    excess: Floats

    @classmethod
    def fit(cls, rows: Floats, usable: Flags) -> "Level":
        """Fit on the `usable` (time,) ones of scaled rows (time, variable)."""
        known = rows[usable]
        center, deviation = known.mean(axis=0), known.std(axis=0)
        deviation[deviation == 0] = 1.0
        return cls(center, deviation, *Tails.fit(np.abs(known - center) / deviation))

    def __call__(self, rows: Floats) -> Floats:
        """The calibrated distance from the mean (time, variable)."""
        tails = Tails(self.middle, self.high, self.excess)
        return tails(np.abs(rows - self.center) / self.deviation)

    @property
    def band(self) -> Floats:
        """How far normal readings are from the mean (variable,), in scaled units."""
        band: Floats = self.high * self.deviation
        return band

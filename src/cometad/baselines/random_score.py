"""Random scores: the no-skill reference for every table."""

from dataclasses import dataclass

import numpy as np

from cometad.arrays import Floats, Floats32
from cometad.baselines.baseline import Baseline
from cometad.series import Series


@dataclass(kw_only=True, eq=False, repr=False)
class RandomScore(Baseline):
    """A uniform random score for each time step, drawn with the seed.

    >>> import numpy as np
    >>> from cometad.baselines.random_score import RandomScore
    >>> RandomScore(seed=0).fit(np.zeros((9, 1))).decision_function(np.zeros((2, 1))).round(2)
    array([0.64, 0.27])
    """

    def _learn(self, scaled: Floats32, series: Series) -> None:
        """Nothing to learn."""

    def _score(self, scaled: Floats32, series: Series) -> Floats:
        return np.random.default_rng(self.seed).random(len(scaled))

"""How far a reading is from its nearest training readings."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from sklearn.neighbors import NearestNeighbors

from cometad.arrays import Floats, Floats32
from cometad.baselines.baseline import ReadingBaseline, subsample


@dataclass(kw_only=True, eq=False, repr=False)
class KnnDistance(ReadingBaseline):
    """The distance to the k-th nearest training reading, out of at most `sample`, which bounds the memory.

    >>> import numpy as np
    >>> from cometad.baselines.knn_distance import KnnDistance
    >>> detector = KnnDistance(neighbors=1).fit(np.array([[-1.0], [1.0]]))
    >>> detector.decision_function(np.array([[1.0], [3.0]]))
    array([0., 2.])
    """

    learned = ("sample_",)
    shapes: ClassVar = {"sample_": ("reading", "variable")}

    neighbors: int = 5
    sample: int = 5000

    def _learn_readings(self, readings: Floats32) -> None:
        self.sample_ = readings[subsample(len(readings), self.sample, self.seed)].astype(np.float64)

    def _score_readings(self, readings: Floats) -> Floats:
        near = NearestNeighbors(n_neighbors=min(self.neighbors, len(self.sample_)), algorithm="brute")
        distances, _ = near.fit(self.sample_).kneighbors(readings)
        return np.asarray(distances[:, -1])

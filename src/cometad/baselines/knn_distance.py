"""How far a reading is from its nearest training readings, or a window from its nearest training windows."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from sklearn.neighbors import NearestNeighbors

from cometad.arrays import Floats, Floats32
from cometad.baselines.baseline import ReadingBaseline, subsample
from cometad.saving import Table, arrays


@dataclass(kw_only=True, eq=False, repr=False)
class KnnDistance(ReadingBaseline):
    """The distance to the k-th nearest training reading, out of at most `sample`, which bounds the memory.

    >>> import numpy as np
    >>> from cometad.baselines.knn_distance import KnnDistance
    >>> detector = KnnDistance(neighbors=1).fit(np.array([[-1.0], [1.0]]))
    >>> detector.decision_function(np.array([[1.0], [3.0]]))
    array([0., 2.])
    """

    saved: ClassVar[Table] = arrays(sample_=("reading", "window * variable"))

    neighbors: int = 5
    sample: int = 5000

    def _learn_readings(self, readings: Floats32) -> None:
        self.sample_ = readings[subsample(len(readings), self.sample, self.seed)].astype(np.float64)

    def _score_readings(self, readings: Floats) -> Floats:
        near = NearestNeighbors(n_neighbors=min(self.neighbors, len(self.sample_)), algorithm="brute")
        distances, _ = near.fit(self.sample_).kneighbors(readings)
        return np.asarray(distances[:, -1])


@dataclass(kw_only=True, eq=False, repr=False)
class WindowKnn(KnnDistance):
    """The distance of the `window` readings up to a time step to the k-th nearest training window.

    Like `KnnDistance`, with the same defaults, but it sees the order of readings. A window of 16 is a round number,
    fixed before anything was scored: long enough for a shape, short enough that training has windows like it. At most
    `sample` windows bound memory and time.

    >>> import numpy as np
    >>> from cometad.baselines.knn_distance import WindowKnn
    >>> wave = np.sin(np.arange(400) / 5)[:, None]
    >>> flat = wave.copy()
    >>> flat[200:220] = 0
    >>> 195 < int(WindowKnn().fit(wave).decision_function(flat).argmax()) < 225
    True
    """

    about_windows = True

    window: int = 16

    def _span(self) -> int:
        return self.window

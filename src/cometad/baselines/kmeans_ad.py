"""How far a window is from the nearest of a few typical windows."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from cometad.arrays import Floats, Floats32
from cometad.baselines.baseline import Baseline, mean_of_covering, subsample
from cometad.data.network_windows import cut, learnable
from cometad.saving import Table, arrays
from cometad.series import Series

WINDOWS_AT_ONCE = 2048


@dataclass(kw_only=True, eq=False, repr=False)
class KMeansAD(Baseline):
    """The distance of a window to the nearest k-means center, averaged over the windows that cover a time step.

    Centers are learned from at most `sample` windows, which bounds the memory.

    >>> import numpy as np
    >>> from cometad.baselines.kmeans_ad import KMeansAD
    >>> wave = np.sin(np.arange(400) / 5)[:, None]
    >>> flat = wave.copy()
    >>> flat[200:220] = 0
    >>> 195 < int(KMeansAD().fit(wave).decision_function(flat).argmax()) < 225
    True
    """

    saved: ClassVar[Table] = arrays(centers_=("center", lambda known: known["window"] * known["variable"]))

    window: int = 20
    clusters: int = 20
    sample: int = 5000

    def _least_rows(self) -> int:
        return self.window

    def _learn(self, scaled: Floats32, series: Series) -> None:
        starts = learnable(np.arange(len(scaled) - self.window + 1), self.window, series)
        starts = starts[subsample(len(starts), self.sample, self.seed)]
        windows = cut(scaled, starts, self.window).reshape(len(starts), -1).astype(np.float64)
        distinct = len(np.unique(windows, axis=0))  # the number of centers cannot exceed this
        means = KMeans(min(self.clusters, distinct), n_init=1, random_state=self.seed)
        with threadpool_limits(1):  # threads sum in arbitrary order, but equal seeds must give equal bytes
            self.centers_ = means.fit(windows).cluster_centers_

    def _score(self, scaled: Floats32, series: Series) -> Floats:
        distances = np.concatenate(list(self._distances(scaled)))  # of the window starting at each time step
        return mean_of_covering(distances, self.window)

    def _distances(self, scaled: Floats32) -> Iterator[Floats]:
        starts = np.arange(len(scaled) - self.window + 1)
        own = (self.centers_**2).sum(axis=1)
        for begin in range(0, len(starts), WINDOWS_AT_ONCE):
            chunk = starts[begin : begin + WINDOWS_AT_ONCE]
            windows = cut(scaled, chunk, self.window).reshape(len(chunk), -1).astype(np.float64)
            squared = (windows**2).sum(axis=1, keepdims=True) - 2 * windows @ self.centers_.T + own
            yield np.sqrt(np.maximum(squared.min(axis=1), 0.0))

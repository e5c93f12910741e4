"""How far a window is from its nearest training windows."""

from dataclasses import dataclass
from typing import ClassVar

from cometad.baselines.knn_distance import KnnDistance


@dataclass(kw_only=True, eq=False, repr=False)
class WindowKnn(KnnDistance):
    """The distance of the `window` readings up to a time step to the k-th nearest training window.

    Like `KnnDistance`, with the same defaults, but it sees the order of readings. A window of 16 is a round number,
    fixed before anything was scored: long enough for a shape, short enough that training has windows like it. At most
    `sample` windows bound memory and time.

    >>> import numpy as np
    >>> from cometad.baselines.window_knn import WindowKnn
    >>> wave = np.sin(np.arange(400) / 5)[:, None]
    >>> flat = wave.copy()
    >>> flat[200:220] = 0
    >>> 195 < int(WindowKnn().fit(wave).decision_function(flat).argmax()) < 225
    True
    """

    about_windows = True
    shapes: ClassVar = {"sample_": ("window", "window * variable")}

    window: int = 16

    def _span(self) -> int:
        return self.window

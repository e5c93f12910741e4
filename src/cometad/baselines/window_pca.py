"""What the principal components of short training windows leave unexplained."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cometad.arrays import Floats, Floats32
from cometad.baselines.baseline import Moments, VariableBaseline
from cometad.parameters import check_number
from cometad.saving import Table, arrays

LEAST_VARIANCE = 1e-10  # of a direction, relative to the largest; less is rounding


@dataclass(kw_only=True, eq=False, repr=False)
class WindowPca(VariableBaseline):
    """The mean squared error of the last `window` readings, reconstructed from the principal components of windows.

    Also known as dynamic PCA. The error of a variable is the root mean square of its errors in the window. Uses the
    fewest components that explain `variance_share` of the variance, as `PcaError` does, and always leaves out at least
    one. The window is that of `WindowKnn`; no other was tried.

    >>> import numpy as np
    >>> from cometad.baselines.window_pca import WindowPca
    >>> wave = np.sin(np.arange(400) / 5)[:, None]
    >>> jump = wave.copy()
    >>> jump[200:] = -wave[200:]
    >>> scores = WindowPca().fit(wave).step_scores(jump).alerts
    >>> bool(scores[200:215].min() > 100 * scores[:200].max())
    True
    """

    about_windows = True
    saved: ClassVar[Table] = arrays(center_=("window * variable",), directions_=("direction?", "window * variable"))

    window: int = 16
    variance_share: float = 0.9

    def check_parameters(self) -> None:
        super().check_parameters()
        check_number("variance_share", self.variance_share, 0, 1)

    def _span(self) -> int:
        return self.window

    def _learn_readings(self, readings: Floats32) -> None:
        moments = Moments.of(readings)
        variances, directions = (found[..., ::-1] for found in np.linalg.eigh(moments.covariance))  # the largest first
        known = int((variances > LEAST_VARIANCE * variances[0]).sum())  # none if all readings are the same
        explained = np.cumsum(variances[:known])
        count = int(np.searchsorted(explained, self.variance_share * explained[-1])) + 1 if known else 0
        self.center_ = moments.mean
        self.directions_ = np.ascontiguousarray(directions[:, : min(count, known, len(variances) - 1)].T)

    def _errors(self, readings: Floats) -> Floats:
        centered = readings - self.center_
        missed = centered - centered @ self.directions_.T @ self.directions_
        squares = (missed**2).reshape(len(readings), self.window, -1)  # (window, reading, variable)
        return np.asarray(np.sqrt(squares.mean(axis=1)))

"""What the main directions of the training readings leave unexplained."""

from dataclasses import dataclass

import numpy as np
from sklearn.decomposition import PCA

from cometad.arrays import Floats, Floats32
from cometad.baselines.baseline import ReadingBaseline


@dataclass(kw_only=True, eq=False, repr=False)
class PcaError(ReadingBaseline):
    """The mean squared error of a reading rebuilt from the fewest main directions that explain a share of the variance.

    One direction at least is left out, else nothing could be an error.

    >>> import numpy as np
    >>> from cometad.baselines.pca_error import PcaError
    >>> line = np.linspace(-1, 1, 50)[:, None] * [1.0, 2.0]
    >>> detector = PcaError().fit(line)
    >>> detector.decision_function(np.array([[3.0, 6.0], [1.0, -2.0]])).round(1)
    array([0. , 2.9])
    """

    learned = ("center_", "directions_")

    variance_share: float = 0.9

    def _learn_readings(self, readings: Floats32) -> None:
        with np.errstate(invalid="ignore"):  # 0 / 0 where nothing ever varies: a share that is not used
            found = PCA(svd_solver="covariance_eigh").fit(readings.astype(np.float64))
        explained = np.cumsum(found.explained_variance_)
        wanted = int(np.searchsorted(explained, self.variance_share * explained[-1])) + 1
        self.center_ = found.mean_
        self.directions_ = found.components_[: min(wanted, readings.shape[1] - 1)]  # (direction, variable)

    def _score_readings(self, readings: Floats) -> Floats:
        moved = readings - self.center_
        rest = moved - moved @ self.directions_.T @ self.directions_
        return np.asarray((rest**2).mean(axis=1))

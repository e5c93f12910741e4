"""What the principal components of the training readings leave unexplained."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from sklearn.decomposition import PCA

from cometad.arrays import Floats, Floats32
from cometad.baselines.baseline import VariableBaseline
from cometad.parameters import check_number
from cometad.saving import Table, arrays


@dataclass(kw_only=True, eq=False, repr=False)
class PcaError(VariableBaseline):
    """The mean squared error of a reading reconstructed from its principal components.

    Uses the fewest components that explain `variance_share` of the variance, and always leaves out at least one:
    otherwise there would be no error.

    >>> import numpy as np
    >>> from cometad.baselines.pca_error import PcaError
    >>> line = np.linspace(-1, 1, 50)[:, None] * [1.0, 2.0]
    >>> detector = PcaError().fit(line)
    >>> detector.decision_function(np.array([[3.0, 6.0], [1.0, -2.0]])).round(1)
    array([0. , 2.9])
    """

    saved: ClassVar[Table] = arrays(center_=("variable",), directions_=("direction?", "variable"))

    _training_need = "two readings"

    variance_share: float = 0.9

    def check_parameters(self) -> None:
        super().check_parameters()
        check_number("variance_share", self.variance_share, 0, 1)

    def _least_training_rows(self) -> int:
        return 2

    def _learn_readings(self, readings: Floats32) -> None:
        with np.errstate(invalid="ignore"):  # 0 / 0 for a constant series, in a ratio we do not use
            components = PCA(svd_solver="covariance_eigh").fit(readings.astype(np.float64))
        explained = np.cumsum(components.explained_variance_)
        count = int(np.searchsorted(explained, self.variance_share * explained[-1])) + 1
        self.center_ = components.mean_
        self.directions_ = components.components_[: min(count, readings.shape[1] - 1)]  # (direction, variable)

    def _errors(self, readings: Floats) -> Floats:
        centered = readings - self.center_
        return np.asarray(np.abs(centered - centered @ self.directions_.T @ self.directions_))

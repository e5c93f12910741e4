"""How rare the values of a reading are, one variable at a time."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cometad.arrays import Floats, Floats32
from cometad.baselines.baseline import VariableBaseline
from cometad.saving import Table, arrays, require_state


@dataclass(kw_only=True, eq=False, repr=False)
class Hbos(VariableBaseline):
    """The histogram-based outlier score: the negative log height of a value's bin, summed over variables.

    The fullest bin of a variable has height 1. `floor` bounds the score of values in empty bins or outside all bins.

    >>> import numpy as np
    >>> from cometad.baselines.hbos import Hbos
    >>> normal = np.random.default_rng(0).normal(size=(500, 2))
    >>> rare, common = Hbos().fit(normal).decision_function(np.array([[9.0, 0.0], [0.0, 0.0]]))
    >>> bool(rare > common)
    True
    """

    saved: ClassVar[Table] = arrays(edges_=("variable", lambda known: known["bins"] + 1), heights_=("variable", "bins"))

    bins: int = 10
    floor: float = 0.1

    def _learn_readings(self, readings: Floats32) -> None:
        counted = [np.histogram(column.astype(np.float64), bins=self.bins) for column in readings.T]
        self.edges_ = np.stack([edges for _, edges in counted])  # (variable, bin + 1)
        self.heights_ = np.stack([counts / counts.max() for counts, _ in counted])  # (variable, bin)

    def _check_state(self) -> None:
        require_state(bool((self.heights_ >= 0).all()), f"its histograms do not have {self.bins} bins")

    def _errors(self, readings: Floats) -> Floats:
        errors = np.empty(readings.shape)
        for i, (values, edges, heights) in enumerate(zip(readings.T, self.edges_, self.heights_, strict=True)):
            chosen = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, self.bins - 1)
            inside = (values >= edges[0]) & (values <= edges[-1])
            errors[:, i] = -np.log(np.where(inside, heights[chosen], 0.0) + self.floor)
        return errors

    def _pool(self, errors: Floats) -> Floats:
        score = np.zeros(len(errors))
        for column in errors.T:  # not sum(axis=1), which adds in another order
            score += column
        return score

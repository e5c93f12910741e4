"""Mean and covariance of many rows, in chunks."""

from typing import NamedTuple

import numpy as np

from cometad.arrays import Floats, Floats32

ROWS_AT_ONCE = 1024


class Moments(NamedTuple):
    """The mean and the covariance of rows (row, column); the covariance divides by their number."""

    rows: int
    mean: Floats  # (column,)
    covariance: Floats  # (column, column)

    @classmethod
    def of(cls, rows: Floats32) -> "Moments":
        """The moments of rows, which may be a view of windows that overlap."""
        mean: Floats = np.asarray(np.mean(rows, axis=0, dtype=np.float64))
        covariance = np.zeros((len(mean), len(mean)))
        for begin in range(0, len(rows), ROWS_AT_ONCE):
            apart = rows[begin : begin + ROWS_AT_ONCE] - mean
            covariance += apart.T @ apart
        return cls(len(rows), mean, covariance / len(rows))

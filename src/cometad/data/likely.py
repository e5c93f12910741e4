"""Likely readings: what a missing variable probably shows, given the others.

A placeholder that does not fit the other variables would make views that mix them blame the others.
"""

from typing import NamedTuple

import numpy as np

from cometad.arrays import Flags, Floats, Floats32
from cometad.compiled import jit
from cometad.saving import require_state
from cometad.threads import serial_products

SAMPLE = 100_000  # readings, at most: more change nothing
RIDGE = 1e-3  # of the mean variance: keeps variables apart that are copies of each other


class Likely(NamedTuple):
    """The mean of scaled readings, and the inverse of their covariance."""

    center: Floats  # (variable,)
    precision: Floats  # (variable, variable)

    @classmethod
    def fit(cls, scaled: Floats32, usable: Flags) -> "Likely":
        """Fit on the `usable` (time,) ones of scaled readings (time, variable)."""
        steps = np.flatnonzero(usable)
        known = scaled[steps[:: -(-len(steps) // SAMPLE)]].astype(np.float64)
        center = known.mean(axis=0)
        known -= center
        with serial_products():  # so that the result does not depend on the number of threads
            covariance = known.T @ known / len(known)
            ridge = RIDGE * covariance.trace() / len(center) or 1.0
            precision = np.linalg.inv(covariance + ridge * np.eye(len(center)))
        return cls(center, (precision + precision.T) / 2)

    def check_state(self) -> None:
        """Refuse a saved matrix that is no inverse covariance."""
        symmetric = np.array_equal(self.precision, self.precision.T)
        require_state(symmetric and _is_positive(self.precision), "its 'likely.precision' is no inverse covariance")

    def __call__(self, scaled: Floats32, doubtful: Flags | None) -> Floats32:
        """Replace `doubtful` cells of scaled readings (time, variable) by their conditional mean, given the others."""
        if doubtful is None or not doubtful.any():
            return scaled
        filled = scaled.copy()
        _fill(filled, doubtful, self.center, self.precision)
        return filled


def _is_positive(matrix: Floats) -> bool:
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


@jit
def _fill(scaled: Floats32, doubtful: Flags, center: Floats, precision: Floats) -> None:
    """`Likely`, in place: missing readings m solve P_mm (m - center_m) = -P_mo (o - center_o), given the others o."""
    width = len(center)
    missing = np.empty(width, np.int64)
    factor, right = np.empty((width, width)), np.empty(width)
    for t in range(len(scaled)):
        count = 0
        for i in range(width):
            if doubtful[t, i]:
                missing[count] = i
                count += 1
        if count == 0:
            continue
        for a in range(count):
            row = precision[missing[a]]
            right[a] = 0.0
            for i in range(width):
                if not doubtful[t, i]:
                    right[a] -= row[i] * (scaled[t, i] - center[i])
            for b in range(a + 1):  # Cholesky: P_mm = L L'
                total = row[missing[b]]
                for k in range(b):
                    total -= factor[a, k] * factor[b, k]
                factor[a, b] = np.sqrt(total) if a == b else total / factor[b, b]
        for a in range(count):
            for k in range(a):
                right[a] -= factor[a, k] * right[k]
            right[a] /= factor[a, a]
        for a in range(count - 1, -1, -1):
            for k in range(a + 1, count):
                right[a] -= factor[k, a] * right[k]
            right[a] /= factor[a, a]
        for a in range(count):
            scaled[t, missing[a]] = center[missing[a]] + right[a]

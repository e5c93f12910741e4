"""Scalers: fitted on the training part, applied to every reading."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cometad.arrays import Floats
from cometad.compiled import jit
from cometad.errors import InputError, unknown
from cometad.saving import require_state

# A broken sensor may send 1e30. Readings are clipped at this many units, which keeps float32 finite.
LIMIT = 1e6
LARGEST = 1e150  # its square still fits a float64


class Scaling(NamedTuple):
    """A fitted scaler; each field has the shape (variable,)."""

    center: Floats
    unit: Floats

    def __call__(self, values: Floats) -> NDArray[np.float32]:
        """Scale readings (time, variable) to float32."""
        scaled = np.empty(values.shape, np.float32)
        _scale(values, self.center, self.unit, scaled)
        return scaled

    def check_state(self) -> None:
        """Refuse a saved scaler that cannot divide."""
        require_state(bool((self.unit > 0).all()), "its array 'scaling.unit' is not positive")

    def back(self, scaled: Floats) -> Floats:
        """Convert scaled readings (..., variable) back to the sensors' units."""
        return scaled * self.unit + self.center


@jit
def _scale(values: Floats, center: Floats, unit: Floats, scaled: NDArray[np.float32]) -> None:
    for t in range(len(values)):
        for i in range(len(center)):  # only selections, no branches, so that it becomes vector instructions
            value = (values[t, i] - center[i]) / unit[i]
            value = LIMIT if value > LIMIT else value
            scaled[t, i] = -LIMIT if value < -LIMIT else value


def fit_scaling(kind: str, values: Floats) -> Scaling:
    """Fit a scaler on a training part (time, variable), ignoring NaN; constant variables get the unit 1."""
    if kind not in SCALERS:
        raise unknown("scaler", kind, SCALERS)
    if max(np.nanmax(values), -np.nanmin(values)) > LARGEST:
        raise InputError(f"The series has readings beyond {LARGEST:g}, too large to be scaled. Use other units.")
    return SCALERS[kind](values)


def _standard(values: Floats) -> Scaling:
    """Mean and standard deviation, to the last bit as scikit-learn's StandardScaler computes them."""
    if values.flags.c_contiguous and values.shape[1] > 1:  # numpy adds these row by row; so do we, without copies
        count, summed, squared = np.empty((3, values.shape[1]))
        _add(values, np.zeros(values.shape[1]), count, summed, squared)
        mean = summed / count
        _add(values, mean, count, summed, squared)
    else:
        missing = np.isnan(values)
        total = np.nansum if missing.any() else np.sum
        count = len(values) - missing.sum(axis=0)
        mean = total(values, axis=0) / count
        apart = values - mean
        summed, squared = total(apart, axis=0), total(apart**2, axis=0)
    variance = (squared - summed**2 / count) / count  # the second term corrects for the rounding of the mean
    rounding = np.finfo(np.float64).eps
    constant = variance <= count * rounding * variance + (count * mean * rounding) ** 2
    return Scaling(mean, np.where(constant, 1.0, np.sqrt(variance)))


@jit
def _add(values: Floats, center: Floats, count: Floats, summed: Floats, squared: Floats) -> None:
    """Count the known ones of readings (time, variable), and add up their distances from a center and the squares."""
    count[:] = summed[:] = squared[:] = 0.0
    for t in range(len(values)):
        for i in range(len(center)):
            known = values[t, i] == values[t, i]
            apart = values[t, i] - center[i] if known else 0.0
            count[i] += 1.0 if known else 0.0
            summed[i] += apart
            squared[i] += apart * apart


def _min_max(values: Floats) -> Scaling:
    """Minimum and range, to the last bit as scikit-learn's MinMaxScaler computes them."""
    low = np.nanmin(values, axis=0)
    extent = np.nanmax(values, axis=0) - low
    extent = np.where(extent < 10 * np.finfo(np.float64).eps, 1.0, extent)
    return Scaling(low, 1 / (1 / extent))


SCALERS = {"standard": _standard, "min-max": _min_max}

"""Input checks of the metrics, done once for labels and scores in any container.

Labels must be 0 or 1 and scores finite; both must be one-dimensional and equally long, with at least one anomalous and
one normal point. Bad input is refused here, so that no metric returns a meaningless number.
"""

from typing import Any

import narwhals as nw
import numpy as np

from cometad.arrays import Flags, Floats
from cometad.errors import InputError, ParameterError


def checked(labels: object, scores: object) -> tuple[Flags, Floats]:
    """The labels as booleans and the scores as doubles; bad input raises an error that says how to fix it.

    As in numpy, integers beyond 2**53 are rounded to the nearest double.
    """
    truth, values = checked_labels(labels), _column(scores, "scores")
    if len(truth) != len(values):
        raise InputError(f"There are {len(truth)} labels and {len(values)} scores. Pass one score for each label.")
    finite = np.isfinite(values)
    if not finite.all():
        step = int(np.argmin(finite))
        raise InputError(f"The score at time step {step} is {values[step]}. Replace it with a finite number first.")
    return truth, values


def checked_labels(labels: object) -> Flags:
    """The labels as booleans, with at least one anomaly and one normal point."""
    values = _column(labels, "labels")
    truth: Flags = values == 1
    wrong = ~(truth | (values == 0))
    if wrong.any():
        step = int(np.argmax(wrong))
        raise InputError(f"The label at time step {step} is {values[step]:g}. Use 1 for anomalous and 0 for normal.")
    if not truth.any():
        raise InputError(
            "The labels contain no anomaly, so there is nothing to detect. Pass labels with at least one 1."
        )
    if truth.all():
        raise InputError(
            "The labels contain only anomalies, so no alarm can be false. Pass labels with at least one 0."
        )
    return truth


def checked_threshold(threshold: float) -> float:
    """The threshold as a float; infinity is allowed, nan is not."""
    if np.isnan(threshold):
        raise ParameterError("The threshold is nan. Pass the lowest score that counts as detected.")
    return float(threshold)


def _column(values: object, what: str) -> Floats:
    column = nw.from_native(values, pass_through=True, allow_series=True)
    array = _from_series(column, what) if isinstance(column, nw.Series) else _from_array(values, what)
    if array.ndim != 1:
        raise InputError(f"The {what} must be one-dimensional, but their shape is {array.shape}. Pass a single column.")
    if len(array) == 0:
        raise InputError(f"The {what} are empty. Pass at least one anomalous and one normal time step.")
    return array


def _from_series(column: nw.Series[Any], what: str) -> Floats:
    if not (column.dtype.is_numeric() or column.dtype == nw.Boolean):
        raise _not_numbers(column.dtype, what)
    if column.null_count():
        raise InputError(
            f"The {what} have {column.null_count()} missing values. Impute or drop those time steps first."
        )
    return np.ascontiguousarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)


def _from_array(values: object, what: str) -> Floats:
    try:
        array = np.asarray(values)
    except ValueError as error:  # lists of different lengths
        raise _not_numbers(type(values).__name__, what) from error
    if array.dtype.kind not in "biuf" and array.size:
        raise _not_numbers(array.dtype, what)
    return np.ascontiguousarray(array, dtype=np.float64)


def _not_numbers(got: object, what: str) -> InputError:
    return InputError(f"The {what} are not numbers (they are {got}). Pass a list, an array or a column of numbers.")

"""Points, checked and ranked by score: the starting point of every metric.

The thresholds are the distinct scores, and a point is detected if its score reaches the threshold. Sorting is the only
step that costs more than one pass over the data, so `Ranked` sorts at most once for all metrics.

Labels must be 0 or 1 and scores finite; both must be one-dimensional and equally long, with at least one anomalous and
one normal point. Bad input is refused here, so that no metric returns a meaningless number.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np

from cometad.arrays import Flags, Floats, Integers
from cometad.errors import InputError, ParameterError


class AtThreshold(NamedTuple):
    """F1 with its precision, recall and threshold; if nothing is detected, precision is nan and F1 is 0.

    >>> from cometad.metrics import AtThreshold
    >>> AtThreshold(f1=0.5, precision=0.5, recall=0.5, threshold=2.0).f1
    0.5
    """

    f1: float
    precision: float
    recall: float
    threshold: float


class Segments(NamedTuple):
    """The runs of anomalous points as half-open intervals [start, stop), in time order."""

    starts: Integers  # (segment,)
    stops: Integers  # (segment,)

    @property
    def median_length(self) -> int:
        """The median length, rounded down: the window most papers use."""
        return int(np.median(self.stops - self.starts))


@dataclass(frozen=True)
class Ranked:
    """Checked labels and scores, with the orderings that metrics need, each computed on first use."""

    labels: Flags  # (time,)
    scores: Floats  # (time,)

    @classmethod
    def of(cls, labels: object, scores: object) -> "Ranked":
        return cls(*checked(labels, scores))

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def segments(self) -> Segments:
        return segments_of(self.labels)

    @cached_property
    def anomalies(self) -> int:
        return int(np.count_nonzero(self.labels))

    @cached_property
    def order(self) -> Integers:
        """The points from the highest score to the lowest, ties in no particular order."""
        return np.argsort(self.scores)[::-1]

    @cached_property
    def ascending(self) -> Floats:
        """The scores alone, from low to high: several times cheaper than `order` if positions do not matter."""
        return self.scores[self.order[::-1]] if "order" in self.__dict__ else np.sort(self.scores)

    @cached_property
    def thresholds(self) -> Floats:
        """The distinct scores, highest first."""
        return self.ascending[::-1][self.detected - 1]

    @cached_property
    def detected(self) -> Integers:
        """The number of points detected at each threshold."""
        descending = self.ascending[::-1]
        return np.append(np.flatnonzero(descending[1:] != descending[:-1]) + 1, len(self))

    @cached_property
    def hits(self) -> Integers:
        """The number of anomalous points detected at each threshold."""
        return np.cumsum(self.labels[self.order], dtype=np.int64)[self.detected - 1]

    @cached_property
    def walk(self) -> tuple[Integers, Integers]:
        """For each anomalous point, in order of falling score, the indices of its threshold and of its segment."""
        places = np.flatnonzero(self.labels[self.order])
        threshold = np.searchsorted(self.detected, places, side="right")
        return threshold, np.searchsorted(self.segments.starts, self.order[places], side="right") - 1


def segments_of(flags: Flags) -> Segments:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]])))
    # Copies, because numba would compile its callers again for strided arrays.
    return Segments(edges[::2].copy(), edges[1::2].copy())


def binary(labels: object, scores: object, threshold: float) -> Ranked:
    """The same labels, with scores of 1 at or above the threshold and 0 below it."""
    truth, values = checked(labels, scores)
    return Ranked(truth, (values >= threshold).astype(np.float64))


def nothing_detected(threshold: float) -> AtThreshold:
    """The result of every metric at a threshold above all scores."""
    return AtThreshold(0.0, float("nan"), 0.0, threshold)


# -- checks ------------------------------------------------------------------------------------------------------------


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

"""Points ranked by score: the starting point of every metric over all thresholds.

The thresholds are the distinct scores, and a point is detected if its score reaches the threshold. Sorting is the only
step that costs more than one pass over the data, so `Ranked` sorts at most once for all metrics.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from cometad.arrays import Flags, Floats, Integers
from cometad.metrics.inputs import checked


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
        """Check labels and scores and wrap them."""
        return cls(*checked(labels, scores))

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def segments(self) -> Segments:
        """The runs of anomalous points."""
        return segments_of(self.labels)

    @cached_property
    def anomalies(self) -> int:
        """The number of anomalous points."""
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
    """The runs of true values."""
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

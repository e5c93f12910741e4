"""Find stretches of the training series that do not fit the rest: what users call normal contains faults."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cometad.arrays import Flags, Floats

MOST = 0.1  # of the readings: beyond that it is not a fault in normal data, but another kind of normal


class Stretch(NamedTuple):
    """Training readings that were left out."""

    start: int  # time step
    stop: int  # the time step after the last one
    variables: tuple[str, ...]  # that fit worst
    reason: str  # what is unusual about them, or that the user asked for it


def outliers(scores: Floats, usable: Flags, margin: int, factor: float) -> Flags:
    """The time steps (time,) to leave out: those whose score is beyond the tail of the others, with a margin.

    `scores` (time,) are ranking scores by views that were not fitted on them.
    """
    known = scores[usable]
    middle, high = np.quantile(known, (0.5, 0.9))
    limit = max(middle + factor * (high - middle), float(np.quantile(known, 1 - MOST)))
    found = np.flatnonzero((scores > limit) & usable)
    marked = np.zeros(len(scores), bool)
    for step in found:
        marked[max(step - margin, 0) : step + margin + 1] = True
    return marked & usable


def stretches(marked: Flags) -> list[tuple[int, int]]:
    """The consecutive marked time steps as pairs (start, stop).

    >>> import numpy as np
    >>> from cometad.views.trim import stretches
    >>> stretches(np.array([0, 1, 1, 0, 1], bool))
    [(1, 3), (4, 5)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[0], marked.astype(np.int8), [0]])))
    return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]


def unusable(stretches: Sequence[Stretch], rows: int) -> Flags:
    """The time steps (time,) of stretches."""
    marked = np.zeros(rows, bool)
    for stretch in stretches:
        marked[stretch.start : stretch.stop] = True
    return marked

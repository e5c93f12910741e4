"""Aggregate the scores of variables into one score per time step, over all variables or a selection.

A selection maps scores (window, time, variable) to (window, time). `release` is the unit it must see in full before it
can emit scores: a row or a window.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from cometad.arrays import Floats
from cometad.compute import jit
from cometad.parameters import check_integer, check_number
from cometad.registry import register

EPSILON = 1e-8


class Selection(Protocol):
    """The interface of a selection."""

    release: ClassVar[str]

    def __call__(self, scores: Floats) -> Floats:
        """Scores (window, time, variable) as (window, time)."""


@register("AllVariables")
@dataclass(frozen=True)
class AllVariables:
    """The mean over all variables.

    >>> import numpy as np
    >>> from cometad.scoring import AllVariables
    >>> AllVariables()(np.array([[[1.0, 3.0]]]))
    array([[2.]])
    """

    release: ClassVar[str] = "row"

    def __call__(self, scores: Floats) -> Floats:
        means: Floats = scores.mean(axis=2)
        return means


@register("HighestVariables")
@dataclass(frozen=True)
class HighestVariables:
    """The mean of the variables with the highest scores.

    >>> import numpy as np
    >>> from cometad.scoring import HighestVariables
    >>> HighestVariables(2)(np.array([[[1.0, 5.0, 3.0]]]))
    array([[4.]])
    """

    count: int = 3
    release: ClassVar[str] = "row"

    def __post_init__(self) -> None:
        check_integer("count", self.count, 1)

    def __call__(self, scores: Floats) -> Floats:
        return _mean_of_highest(np.ascontiguousarray(scores), min(self.count, scores.shape[2]))


@register("PercentileSelection")
@dataclass(frozen=True)
class PercentileSelection:
    """The mean over the variables that deviate least from their own mean in the window, plus the first variable.

    >>> import numpy as np
    >>> from cometad.scoring import PercentileSelection
    >>> PercentileSelection(50)(np.ones((1, 10, 4))).shape
    (1, 10)

    Paper: appendix B, Eq. 26 to 29 and 31.
    """

    percentile: float = 50.0
    release: ClassVar[str] = "window"

    def __post_init__(self) -> None:
        check_number("percentile", self.percentile, 0, 100)

    def __call__(self, scores: Floats) -> Floats:
        highest = math.floor((scores.shape[2] - 1) * self.percentile / 100)  # the highest rank that is still selected
        return _mean_of_steady(np.ascontiguousarray(scores), deviations(scores), highest)


@register("BudgetSelection")
@dataclass(frozen=True)
class BudgetSelection:
    """The mean over a fixed number of variables: the first, and those that deviate least.

    >>> import numpy as np
    >>> from cometad.scoring import BudgetSelection
    >>> BudgetSelection(2)(np.ones((1, 10, 4))).shape
    (1, 10)

    Paper: appendix B, Eq. 30.
    """

    budget: int = 10
    release: ClassVar[str] = "window"

    def __post_init__(self) -> None:
        check_integer("budget", self.budget, 1)

    def __call__(self, scores: Floats) -> Floats:
        deviation = deviations(scores)
        deviation[..., 0] = -1.0  # rank the first variable before all others
        rank = np.argsort(np.argsort(deviation, axis=2, kind="stable"), axis=2)
        return _mean_over(scores, rank < self.budget)


@jit
def _mean_of_steady(scores: Floats, deviation: Floats, highest: int) -> Floats:
    """The mean over the first variable and those whose deviation ranks at most `highest` at a step."""
    windows, steps, variables = scores.shape
    means, order = np.empty((windows, steps)), np.empty(variables)
    for w in range(windows):
        for t in range(steps):
            order[:] = deviation[w, t]
            limit = _of_rank(order, highest)
            total, count = 0.0, 0
            for i in range(variables):
                if i == 0 or deviation[w, t, i] <= limit:
                    total += scores[w, t, i]
                    count += 1
            means[w, t] = total / count
    return means


@jit
def _of_rank(values: Floats, rank: int) -> float:
    """The value of a rank, counted from 0; reorders the values. Quickselect (Hoare) is cheaper than a sort."""
    low, high = 0, len(values) - 1
    while low < high:
        pivot, i, j = values[(low + high) // 2], low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while pivot < values[j]:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if rank <= j:
            high = j
        elif rank >= i:
            low = i
        else:
            break
    return float(values[rank])


@jit
def _mean_of_highest(scores: Floats, count: int) -> Floats:
    windows, steps, variables = scores.shape
    means, highest = np.empty((windows, steps)), np.empty(count)
    for w in range(windows):
        for t in range(steps):
            for i in range(variables):
                score, k = scores[w, t, i], min(i, count)
                if i >= count:
                    if score <= highest[count - 1]:
                        continue
                    k = count - 1
                while k > 0 and highest[k - 1] < score:  # keep descending order
                    highest[k] = highest[k - 1]
                    k -= 1
                highest[k] = score
            means[w, t] = highest.sum() / count
    return means


@jit
def deviations(scores: Floats) -> Floats:
    """The absolute standardized deviation of each score from its variable's mean in the window. Paper: Eq. 26, 27."""
    windows, steps, variables = scores.shape
    deviation = np.empty(scores.shape)
    for w in range(windows):
        mean, spread = np.zeros(variables), np.zeros(variables)
        for t in range(steps):
            for i in range(variables):
                mean[i] += scores[w, t, i] / steps
        for t in range(steps):
            for i in range(variables):
                spread[i] += (scores[w, t, i] - mean[i]) ** 2 / steps
        spread = np.sqrt(spread) + EPSILON
        for t in range(steps):
            for i in range(variables):
                deviation[w, t, i] = abs((scores[w, t, i] - mean[i]) / spread[i])
    return deviation


def _mean_over(scores: Floats, chosen: NDArray[np.bool_]) -> Floats:
    chosen[..., 0] = True
    means: Floats = np.where(chosen, scores, 0.0).sum(axis=2) / chosen.sum(axis=2)
    return means

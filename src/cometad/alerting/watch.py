"""The protocol of threshold rules, and the watches that apply them to a stream of scores.

A rule is a value. `fit` turns training scores into an array, its state, which can be saved. `watch` starts a watch from
that state: it decides which scores to flag, and may learn from them.
"""

import math
from abc import ABC, abstractmethod
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from cometad.arrays import Flags, Floats
from cometad.errors import InputError
from cometad.saving import require_state


class Watch(ABC):
    """Applies a threshold to a stream of scores that arrive in chunks of any size, in bounded memory."""

    @property
    @abstractmethod
    def threshold(self) -> float:
        """The next score is flagged if it is above this."""

    @abstractmethod
    def follow(self, scores: ArrayLike) -> Floats:
        """The threshold (time,) that applies to each score; scores come in time order, one or several (time,)."""

    @abstractmethod
    def state(self) -> Floats:
        """The complete state; `rule.watch(state)` resumes from it, bit for bit."""

    def push(self, scores: ArrayLike) -> Flags:
        """Flags (time,): True for each score above its threshold."""
        return np.atleast_1d(np.asarray(scores, np.float64)) > self.follow(scores)


class Threshold(Protocol):
    """The interface of a threshold rule, built in or your own."""

    @property
    def rate(self) -> float | None:
        """The share of normal readings that the rule may flag; None if it does not limit readings."""

    def fit(self, scores: ArrayLike) -> Floats:
        """The initial state, from training scores (time,)."""

    def watch(self, state: Floats) -> Watch:
        """A watch that starts from a state and does not modify it."""


class FixedWatch(Watch):
    """A threshold that never changes.

    >>> import numpy as np
    >>> from cometad.alerting.watch import FixedWatch
    >>> FixedWatch(np.array([2.0])).push([1.0, 2.0, 3.0])
    array([False, False,  True])
    """

    def __init__(self, state: Floats) -> None:
        require_state(state.shape == (1,), "the state of its threshold is not one number")
        self._threshold = float(state[0])

    @property
    def threshold(self) -> float:
        """A score is flagged if it is above this."""
        return self._threshold

    def follow(self, scores: ArrayLike) -> Floats:
        """The same threshold for each score."""
        return np.full(len(as_scores(scores)), self._threshold)

    def state(self) -> Floats:
        """The threshold."""
        return np.array([self._threshold])


def as_scores(scores: ArrayLike) -> Floats:
    """One or several scores as an array (time,); refuses values that are not finite."""
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1:
        values = np.atleast_1d(values)
        if values.ndim != 1:
            raise InputError(f"Expected scores of shape (time,), got {values.shape}.")
    if len(values) == 1 and math.isfinite(values[0]):  # of a stream; the general way takes three times as long
        return values
    finite = np.isfinite(values)
    if np.count_nonzero(finite) < len(values):
        first = int(np.argmin(finite))
        raise InputError(f"The score at position {first} is {values[first]}; a threshold needs finite scores.")
    return values


def training_scores(scores: ArrayLike, least: int = 1) -> Floats:
    """Training scores (time,); refuses fewer than `least`."""
    values = as_scores(scores)
    if len(values) < least:
        raise InputError(
            f"This threshold needs at least {least:,} training scores; there are {len(values):,}. "
            "Fit on a longer series."
        )
    return values

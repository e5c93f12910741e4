"""What a threshold rule is, what watches a stream for it, and the checks that all rules share.

A rule is a value that learns a few numbers from training scores (`fit`); what it learned is an array, which can be
saved. `watch` opens that array for a stream of scores: it says which are alarms, and may learn from those that are not.
"""

from abc import ABC, abstractmethod
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from cometad.arrays import Flags, Floats
from cometad.errors import InputError


class Watch(ABC):
    """What every watch can do, in bounded memory and with the same answers however the scores are cut into chunks."""

    @property
    @abstractmethod
    def threshold(self) -> float:
        """What the next score must be above to be an alarm."""

    @abstractmethod
    def follow(self, scores: ArrayLike) -> Floats:
        """The threshold (time,) that each score is held against; one score or some (time,), in the order of time."""

    @abstractmethod
    def state(self) -> Floats:
        """All that the watch knows; `rule.watch(state)` goes on from it to the bit."""

    def push(self, scores: ArrayLike) -> Flags:
        """True (time,) for each score that is an alarm: above the threshold it is held against."""
        return np.atleast_1d(np.asarray(scores, np.float64)) > self.follow(scores)


class Threshold(Protocol):
    """What every threshold rule can do."""

    @property
    def rate(self) -> float:
        """The share of normal readings that may be flagged."""

    def fit(self, scores: ArrayLike) -> Floats:
        """The state to start from, given training scores (time,)."""

    def watch(self, state: Floats) -> Watch:
        """A watch that goes on from a state, which is left as it is."""


class FixedWatch(Watch):
    """A threshold that never changes.

    >>> import numpy as np
    >>> from cometad.alerting.watch import FixedWatch
    >>> FixedWatch(np.array([2.0])).push([1.0, 2.0, 3.0])
    array([False, False,  True])
    """

    def __init__(self, state: Floats) -> None:
        self._threshold = float(state[0])

    @property
    def threshold(self) -> float:
        """What a score must be above to be an alarm."""
        return self._threshold

    def follow(self, scores: ArrayLike) -> Floats:
        """The same threshold for each score."""
        return np.full(len(as_scores(scores)), self._threshold)

    def state(self) -> Floats:
        """The threshold."""
        return np.array([self._threshold])


def as_scores(scores: ArrayLike) -> Floats:
    """One score or some as an array (time,); what is not a finite number is refused.

    >>> from cometad.alerting.watch import as_scores
    >>> as_scores([1.0, float("nan")])
    Traceback (most recent call last):
    ...
    cometad.errors.InputError: The score at position 1 is nan; a threshold needs finite scores.
    """
    values = np.atleast_1d(np.asarray(scores, dtype=np.float64))
    if values.ndim != 1:
        raise InputError(f"Scores need the shape (time,); these have the shape {values.shape}.")
    finite = np.isfinite(values)
    if not finite.all():
        first = int(np.argmin(finite))
        raise InputError(f"The score at position {first} is {values[first]}; a threshold needs finite scores.")
    return values


def training_scores(scores: ArrayLike, least: int = 1) -> Floats:
    """Training scores (time,), of which a rule needs some at least.

    >>> from cometad.alerting.watch import training_scores
    >>> training_scores([], least=3)
    Traceback (most recent call last):
    ...
    cometad.errors.InputError: This threshold needs at least 3 training scores; there are 0.
    """
    values = as_scores(scores)
    if len(values) < least:
        raise InputError(f"This threshold needs at least {least:,} training scores; there are {len(values):,}.")
    return values

"""How long to train, and how fast at each step."""

import math
from dataclasses import dataclass
from typing import Protocol

from cometad.registry import register
from cometad.validation import check_between, check_integer


class Schedule(Protocol):
    """How long to train, and how fast at each step."""

    def steps(self, batches: int) -> int:
        """The number of steps, given the batches in one pass over the data."""

    def rate(self, done: float) -> float:
        """The learning rate when a share `done` of all steps is behind."""


@register("Epochs")
@dataclass(frozen=True)
class Epochs:
    """A number of passes over the data at one learning rate: the paper's schedule.

    >>> from cometad.network.schedules import Epochs
    >>> Epochs(20, learning_rate=1e-4).steps(batches=9)
    180
    """

    epochs: int = 20
    learning_rate: float = 1e-4

    def __post_init__(self) -> None:
        check_integer("epochs", self.epochs, 1)
        check_between("learning_rate", self.learning_rate, 0, math.inf)

    def steps(self, batches: int) -> int:
        """The number of steps, given the batches in one pass over the data."""
        return self.epochs * batches

    def rate(self, done: float) -> float:
        """The same at every step."""
        return self.learning_rate


@register("Halving")
@dataclass(frozen=True)
class Halving:
    """Passes over the data: two at the full learning rate, then half of it in each further one.

    >>> from cometad.network.schedules import Halving
    >>> schedule = Halving(4, learning_rate=1e-4)
    >>> [schedule.rate(epoch / 4) for epoch in range(4)]
    [0.0001, 0.0001, 5e-05, 2.5e-05]
    """

    epochs: int = 30
    learning_rate: float = 1e-4

    def __post_init__(self) -> None:
        check_integer("epochs", self.epochs, 1)
        check_between("learning_rate", self.learning_rate, 0, math.inf)

    def steps(self, batches: int) -> int:
        """The number of steps, given the batches in one pass over the data."""
        return self.epochs * batches

    def rate(self, done: float) -> float:
        """Half of the rate of the epoch before, from the third epoch on."""
        behind = math.floor(done * self.epochs + 1e-6)  # a share is not exact: 3 epochs may be 2.9999999
        return self.learning_rate * 0.5 ** max(0, behind - 1)


@register("OneCycle")
@dataclass(frozen=True)
class OneCycle:
    """A number of steps whatever the length of the series, with a learning rate that rises, then falls to nothing.

    >>> from cometad.network.schedules import OneCycle
    >>> schedule = OneCycle(1200, learning_rate=3e-3)
    >>> schedule.steps(batches=9), schedule.rate(0.3)
    (1200, 0.003)
    """

    total: int = 1200
    learning_rate: float = 3e-3

    def __post_init__(self) -> None:
        check_integer("total", self.total, 1)
        check_between("learning_rate", self.learning_rate, 0, math.inf)

    def steps(self, batches: int) -> int:
        """The same number whatever the length of the series."""
        return self.total

    def rate(self, done: float) -> float:
        """Half a cosine up over the first 30 % of the steps, half a cosine down over the rest."""
        low, rise = self.learning_rate / 25, 0.3
        if done < rise:
            return low + (self.learning_rate - low) * (1 - math.cos(math.pi * done / rise)) / 2
        return self.learning_rate * (1 + math.cos(math.pi * (done - rise) / (1 - rise))) / 2

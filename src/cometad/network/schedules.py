"""Training schedules: the number of steps, and the learning rate at each of them."""

import math
from dataclasses import dataclass
from typing import Protocol

from cometad.parameters import check_between, check_integer
from cometad.registry import register


class Schedule(Protocol):
    """The number of training steps, and the learning rate at each of them."""

    def steps(self, batches: int) -> int:
        """The number of steps, given the number of batches per epoch."""

    def rate(self, done: float) -> float:
        """The learning rate after a fraction `done` of all steps."""


@register("Epochs")
@dataclass(frozen=True)
class Epochs:
    """A number of epochs at a constant learning rate: the paper's schedule.

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
        return self.epochs * batches

    def rate(self, done: float) -> float:
        return self.learning_rate


@register("Halving")
@dataclass(frozen=True)
class Halving(Epochs):
    """A number of epochs: two at the full learning rate, which is then halved after every epoch.

    >>> from cometad.network.schedules import Halving
    >>> schedule = Halving(4, learning_rate=1e-4)
    >>> [schedule.rate(epoch / 4) for epoch in range(4)]
    [0.0001, 0.0001, 5e-05, 2.5e-05]
    """

    epochs: int = 30

    def rate(self, done: float) -> float:
        """Half of the previous epoch's rate from the third epoch on."""
        finished = math.floor(done * self.epochs + 1e-6)  # rounding: 3 epochs may come out as 2.9999999
        return self.learning_rate * 0.5 ** max(0, finished - 1)


@register("Converging")
@dataclass(frozen=True)
class Converging:
    """A constant learning rate until the validation loss no longer improves: at least `least` steps, at most `most`.

    Without validation windows it stops after `least` steps.

    >>> from cometad.network.schedules import Converging
    >>> Converging(least=400, most=4000, learning_rate=1e-4).steps(batches=9)
    4000
    """

    least: int = 400
    most: int = 4000
    learning_rate: float = 1e-4

    def __post_init__(self) -> None:
        check_integer("least", self.least, 1)
        check_integer("most", self.most, self.least)
        check_between("learning_rate", self.learning_rate, 0, math.inf)

    def steps(self, batches: int) -> int:
        """The largest number of steps."""
        return self.most

    def rate(self, done: float) -> float:
        return self.learning_rate


@register("OneCycle")
@dataclass(frozen=True)
class OneCycle:
    """A fixed number of steps for series of any length; the learning rate rises, then falls to zero.

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
        return self.total

    def rate(self, done: float) -> float:
        """A half cosine up over the first 30 % of the steps, and a half cosine down over the rest."""
        low, rise = self.learning_rate / 25, 0.3
        if done < rise:
            return low + (self.learning_rate - low) * (1 - math.cos(math.pi * done / rise)) / 2
        return self.learning_rate * (1 + math.cos(math.pi * (done - rise) / (1 - rise))) / 2

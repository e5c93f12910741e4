"""Views of a user's own, as the documentation asks for them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np


class FittedLevel:
    """The usual level (variable,) of each variable."""

    span, context = 1, 0

    def __init__(self, level):
        self.level = level
        self.asked = 0  # how often errors were asked for

    def errors(self, rows, first):
        self.asked += 1
        return np.abs(rows[first:] - self.level)

    def expected(self, rows, first):
        return np.repeat(self.level[None], len(rows) - first, axis=0)

    def state(self) -> Mapping:
        return {"level": self.level}


@dataclass(frozen=True)
class Level:
    """The distance from the median of training."""

    reason: ClassVar[str] = "far from its usual level"
    min_rows: ClassVar[int] = 1

    def fit(self, rows, usable, rng):
        return FittedLevel(np.median(rows[usable], axis=0))

    def restore(self, state):
        return FittedLevel(state["level"])


@dataclass(frozen=True)
class NamelessLevel(Level):
    """The same, without a registered name."""

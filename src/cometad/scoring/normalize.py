"""Put the memory score and the quantization score on a common footing, before they are mixed.

Each rule is a value. `fit` turns training scores into a small array, its state, which a fitted detector saves.
`release` is the unit a rule must see in full before it can emit scores: a row, a window or a batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from cometad.arrays import Floats
from cometad.parameters import check_integer, check_number
from cometad.registry import register
from cometad.scoring.calibrate import LEAST_UNIT

EPSILON = 1e-8


class Normalization(Protocol):
    """The interface of a normalization. Its state (..., 2) holds the scores that map to 0 and to 1."""

    release: ClassVar[str]

    def fit(self, scores: Floats) -> Floats:
        """The initial state, from training scores (time,)."""

    def __call__(self, scores: Floats, state: Floats) -> tuple[Floats, Floats]:
        """Normalized scores (..., time) and the state after them."""

    def gain(self, state: Floats) -> Floats:
        """How much a normalized score (...,) rises when the score rises by 1."""


@register("NoNormalization")
@dataclass(frozen=True)
class NoNormalization:
    """Mix the scores as they are.

    >>> from cometad.scoring import NoNormalization
    >>> NoNormalization().fit([])
    array([0., 1.])
    """

    release: ClassVar[str] = "row"

    def fit(self, scores: Floats) -> Floats:
        return np.array([0.0, 1.0])

    def __call__(self, scores: Floats, state: Floats) -> tuple[Floats, Floats]:
        return scores, state

    def gain(self, state: Floats) -> Floats:
        return np.ones(state.shape[:-1])


@register("TrainingNormalization")
@dataclass(frozen=True)
class TrainingNormalization:
    """Rescale by the training scores: their median becomes 0, a high quantile 1. Causal.

    >>> import numpy as np
    >>> from cometad.scoring import TrainingNormalization
    >>> rule = TrainingNormalization(0.9)
    >>> rule(np.array([9.0]), rule.fit(np.arange(11.0)))[0]
    array([1.])
    """

    quantile: float = 0.99
    release: ClassVar[str] = "row"

    def __post_init__(self) -> None:
        check_number("quantile", self.quantile, 0, 1)

    def fit(self, scores: Floats) -> Floats:
        """The median and the high quantile of training scores (time,)."""
        low, high = np.quantile(scores, [0.5, self.quantile])
        return np.array([low, high if high - low > LEAST_UNIT else low + 1.0])

    def __call__(self, scores: Floats, state: Floats) -> tuple[Floats, Floats]:
        """The rescaled scores (..., time); the state does not change."""
        return _between(scores, state), state

    def gain(self, state: Floats) -> Floats:
        """1 over the distance from the median to the high quantile (...,)."""
        return _gain(state)


@register("EmaMinMax", windows=None)
@dataclass(frozen=True)
class EmaMinMax:
    """Min-max normalization with a moving minimum and maximum, updated by some windows before these are normalized.

    `windows` is the number of windows per update; None takes all windows of a test batch. No update spans two batches.
    Not causal: a score depends on later readings of its windows. Use it to reproduce the paper, not to watch a plant.

    >>> import numpy as np
    >>> from cometad.scoring import EmaMinMax
    >>> rule = EmaMinMax(momentum=0.5)
    >>> first, state = rule(np.array([0.0, 4.0]), rule.fit(np.array([])))
    >>> rule(np.array([2.0, 8.0]), state)[1]  # (0 + 2) / 2 and (4 + 8) / 2
    array([1., 6.])

    Paper: Eq. 18, 19 and the line after.
    """

    momentum: float = 0.75
    windows: int | None = None
    release: ClassVar[str] = "batch"

    def __post_init__(self) -> None:
        check_number("momentum", self.momentum, 0, 1)
        if self.windows is not None:
            check_integer("windows", self.windows, 1)

    def fit(self, scores: Floats) -> Floats:
        """An empty state: the first update initializes it."""
        return np.array([np.nan, np.nan])

    def __call__(self, scores: Floats, state: Floats) -> tuple[Floats, Floats]:
        """The normalized scores (..., time) of one update, and the moving minimum and maximum after it."""
        now = np.stack([scores.min(axis=-1), scores.max(axis=-1)], axis=-1)
        state = now if np.isnan(state).any() else self.momentum * state + (1 - self.momentum) * now
        return _between(scores, state), state

    def gain(self, state: Floats) -> Floats:
        """1 over the distance from the moving minimum to the moving maximum (...,)."""
        return _gain(state)


def updates(rule: Normalization, steps: int, window: int) -> Iterator[slice]:
    """The time steps of each call of a rule on `steps` scores of whole windows: all at once, or by window."""
    windows: int | None = getattr(rule, "windows", None)
    size = steps if windows is None else windows * window
    return (slice(begin, min(begin + size, steps)) for begin in range(0, steps, max(size, 1)))


def _between(scores: Floats, state: Floats) -> Floats:
    low, high = state[..., :1], state[..., 1:]
    normalized: Floats = (scores - low) / (high - low + EPSILON)
    return normalized


def _gain(state: Floats) -> Floats:
    gains: Floats = 1 / (state[..., 1] - state[..., 0] + EPSILON)
    return gains

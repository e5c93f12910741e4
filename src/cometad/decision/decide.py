"""From both raw score maps to one score per time step: average scales, calibrate, select, normalize, mix."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cometad.decision.normalize import Normalization
from cometad.decision.select import Selection

Floats = NDArray[np.float64]

RELEASES = ("row", "window", "batch")  # from the finest to the coarsest


class Block(NamedTuple):
    """Raw scores of windows, each (scale, window, time, variable); of the first `skip` steps nothing is wanted."""

    memory: Floats
    quantization: Floats
    skip: int


class Decided(NamedTuple):
    """The outcome for some time steps."""

    scores: Floats  # (time,)
    variables: Floats  # (time, variable)  each variable's calibrated score


@dataclass(frozen=True)
class Decision:
    """The fitted decision layer; what changes while scores pass through it is handed in and out as `state`."""

    selection: Selection
    normalization: Normalization
    score_weight: float
    calibration: Floats  # (score, 2, variable)  center and unit, first of the memory, then of the quantization score

    @property
    def release(self) -> str:
        """What must be complete before its scores can be given: a row, a window or a batch."""
        return max(self.selection.release, self.normalization.release, key=RELEASES.index)

    def calibrated(self, block: Block) -> tuple[Floats, Floats]:
        """Both scores (window, time, variable), averaged over scales and calibrated. Paper: Eq. 16, 17."""
        means = (sum(block.memory) / len(block.memory), sum(block.quantization) / len(block.quantization))
        memory, quantization = ((m - c[0]) / c[1] for m, c in zip(means, self.calibration, strict=True))
        return memory, quantization

    def select(self, block: Block) -> tuple[Floats, Floats]:
        """Both scores (time,), aggregated over the selected variables. Paper: Eq. 31."""
        memory, quantization = (self.selection(scores)[:, block.skip :].ravel() for scores in self.calibrated(block))
        return memory, quantization

    def __call__(self, blocks: Sequence[Block], state: Floats) -> tuple[Decided, Floats]:
        """The outcome for the blocks of one release, and the normalizers' state (score, 2) after it. Paper: Eq. 20."""
        selected = [self.select(block) for block in blocks]
        memory, quantization = (np.concatenate(parts) for parts in zip(*selected, strict=True))
        memory, memory_state = self.normalization(memory, state[0])
        quantization, quantization_state = self.normalization(quantization, state[1])
        variables = np.concatenate([self._mix(*self.calibrated(block))[:, block.skip :] for block in blocks], axis=None)
        width = self.calibration.shape[2]
        decided = Decided(self._mix(memory, quantization), variables.reshape(-1, width))
        return decided, np.stack([memory_state, quantization_state])

    def _mix(self, memory: Floats, quantization: Floats) -> Floats:
        return (1 - self.score_weight) * memory + self.score_weight * quantization

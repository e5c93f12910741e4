"""From both raw score maps to one score per time step: calibrate, select, normalize, mix."""

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
    """Raw scores of windows; of the first `skip` steps of each nothing is wanted."""

    raw: Floats  # (score, window, time, variable)  first the memory, then the quantization score
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

    def calibrated(self, raw: Floats) -> Floats:
        """Raw scores (score, window, time, variable) in the units of each variable."""
        center, unit = self.calibration[:, 0], self.calibration[:, 1]
        calibrated: Floats = (raw - center[:, None, None]) / unit[:, None, None]
        return calibrated

    def select(self, calibrated: Floats, skip: int) -> Floats:
        """Both scores (score, time), aggregated over the selected variables. Paper: Eq. 31."""
        scores, windows, *rest = calibrated.shape
        selected = self.selection(calibrated.reshape(scores * windows, *rest)).reshape(scores, windows, -1)
        return selected[:, :, skip:].reshape(scores, -1)

    def __call__(self, blocks: Sequence[Block], state: Floats) -> tuple[Decided, Floats]:
        """The outcome for the blocks of one release, and the normalizers' state (score, 2) after it. Paper: Eq. 20."""
        calibrated = [self.calibrated(block.raw) for block in blocks]
        skips = [block.skip for block in blocks]
        selected = [self.select(scores, skip) for scores, skip in zip(calibrated, skips, strict=True)]
        normalized, state = self.normalization(_joined(selected, axis=1), state)
        width = self.calibration.shape[2]
        variables = [
            self.mix(scores)[:, skip:].reshape(-1, width) for scores, skip in zip(calibrated, skips, strict=True)
        ]
        return Decided(self.mix(normalized), _joined(variables, axis=0)), state

    def mix(self, scores: Floats) -> Floats:
        """Both scores (score, ...) as one (...), by their weights."""
        mixed: Floats = (1 - self.score_weight) * scores[0] + self.score_weight * scores[1]
        return mixed


def _joined(parts: list[Floats], axis: int) -> Floats:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=axis)

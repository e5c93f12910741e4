"""From both raw score maps to one score per time step: calibrate, select, normalize, mix."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cometad.arrays import Flags, Floats
from cometad.scoring.normalize import Normalization
from cometad.scoring.select import Selection

RELEASES = ("row", "window", "batch")  # from the finest to the coarsest


class Block(NamedTuple):
    """Raw scores of windows; of the first `skip` steps of each nothing is wanted."""

    raw: Floats  # (score, window, time, variable)  first the memory, then the quantization score
    skip: int
    left_out: Flags | None = None  # (window, time, variable)  rests on filled in readings; None where nothing does


class Decided(NamedTuple):
    """The outcome for some time steps."""

    scores: Floats  # (time,)
    variables: Floats  # (time, variable)  each variable's calibrated score
    left_out: Flags | None = None  # (time, variable)  counted as normal, since its readings were filled in

    @property
    def imputed(self) -> Flags:
        """Which time steps (time,) rest on nothing but filled in readings."""
        return np.zeros(len(self.scores), bool) if self.left_out is None else np.asarray(self.left_out.all(axis=1))


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
        """The outcome for the blocks of one release, and the normalizers' state (score, 2) after it. Paper: Eq. 20.

        What is left out counts as exactly normal. A time step of which everything is left out has the score 0, and the
        normalizers do not learn from it.
        """
        calibrated = [_without(self.calibrated(block.raw), block.left_out) for block in blocks]
        skips = [block.skip for block in blocks]
        selected = [self.select(scores, skip) for scores, skip in zip(calibrated, skips, strict=True)]
        width = self.calibration.shape[2]
        left_out = _left_out(blocks, width)
        normalized, state = self._normalized(_joined(selected, axis=1), left_out, state)
        variables = [
            self.mix(scores)[:, skip:].reshape(-1, width) for scores, skip in zip(calibrated, skips, strict=True)
        ]
        return Decided(self.mix(normalized), _joined(variables, axis=0), left_out), state

    def _normalized(self, selected: Floats, left_out: Flags | None, state: Floats) -> tuple[Floats, Floats]:
        measured = None if left_out is None else ~left_out.all(axis=1)
        if measured is None or measured.all():
            return self.normalization(selected, state)
        normalized = np.zeros_like(selected)
        if measured.any():
            normalized[:, measured], state = self.normalization(selected[:, measured], state)
        return normalized, state

    def mix(self, scores: Floats) -> Floats:
        """Both scores (score, ...) as one (...), by their weights."""
        mixed: Floats = (1 - self.score_weight) * scores[0] + self.score_weight * scores[1]
        return mixed


def joined(parts: Sequence[Decided]) -> Decided:
    """What was decided in several parts, one at least, as one.

    >>> import numpy as np
    >>> from cometad.scoring.pipeline import Decided, joined
    >>> measured = Decided(np.zeros(1), np.zeros((1, 2)))
    >>> joined([measured, Decided(np.ones(1), np.ones((1, 2)), np.array([[True, True]]))]).imputed
    array([False,  True])
    """
    if len(parts) == 1:
        return parts[0]
    left_out = None
    if any(part.left_out is not None for part in parts):
        left_out = np.concatenate(
            [np.zeros(part.variables.shape, bool) if part.left_out is None else part.left_out for part in parts]
        )
    scores = np.concatenate([part.scores for part in parts])
    return Decided(scores, np.concatenate([part.variables for part in parts]), left_out)


def _without(calibrated: Floats, left_out: Flags | None) -> Floats:
    """Calibrated scores (score, window, time, variable) with 0, the center of each, where something is left out."""
    return calibrated if left_out is None else np.where(left_out, 0.0, calibrated)


def _left_out(blocks: Sequence[Block], width: int) -> Flags | None:
    """What is left out of the time steps of all blocks, (time, variable)."""
    if all(block.left_out is None for block in blocks):
        return None
    parts = [np.zeros(block.raw.shape[1:], bool) if block.left_out is None else block.left_out for block in blocks]
    return np.concatenate([part[:, block.skip :].reshape(-1, width) for part, block in zip(parts, blocks, strict=True)])


def _joined(parts: list[Floats], axis: int) -> Floats:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=axis)

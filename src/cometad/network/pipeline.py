"""From two raw scores per variable to one score per time step: calibrate, select, normalize, mix."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from cometad.arrays import Flags, Floats
from cometad.scoring.calibrate import Calibration
from cometad.scoring.normalize import Normalization, updates
from cometad.scoring.scores import Scores
from cometad.scoring.select import Selection

RELEASES = ("row", "window", "batch")  # from the finest to the coarsest


class Block(NamedTuple):
    """Raw scores of windows; the first `skip` steps of each window are ignored."""

    raw: Floats  # (score, window, time, variable)  first the memory, then the quantization score
    skip: int
    left_out: Flags | None = None  # (window, time, variable)  depends on imputed readings; None if nothing does

    def apart(self) -> Floats:
        """The scores (score, scale, time, variable) of a run that keeps the scales apart; NaN where left out."""
        scores, scales, *_, variables = self.raw.shape
        raw = self.raw if self.left_out is None else np.where(self.left_out, np.nan, self.raw)
        return raw[:, :, :, self.skip :].reshape(scores, scales, -1, variables)


@dataclass(frozen=True)
class Pipeline:
    """Calibrate, select, normalize, mix: the same object scores a batch, a stream and an explanation.

    Scores come in pairs: first the memory score, then the quantization score. The pipeline itself never changes; the
    normalizers' state goes in and comes out.
    """

    selection: Selection
    normalization: Normalization
    score_weight: float  # of the quantization score; the memory score has the rest
    calibration: Floats  # (score, 2, variable)  center and unit
    start: Floats  # (score, 2)  the normalizers' state after training

    @classmethod
    def fit(
        cls,
        raw: Floats,
        calibration: Calibration,
        selection: Selection,
        normalization: Normalization,
        score_weight: float,
    ) -> "Pipeline":
        """Fit a pipeline on raw training scores (score, window, time, variable)."""
        width = raw.shape[-1]
        units = np.stack([calibration.fit(scores.reshape(-1, width)) for scores in raw])
        pipeline = cls(selection, normalization, score_weight, units, np.empty((len(raw), 2)))
        selected = pipeline.select(raw).reshape(len(raw), -1)
        return replace(pipeline, start=np.stack([normalization.fit(scores) for scores in selected]))

    @property
    def release(self) -> str:
        """What must be complete before its scores are final: a row, a window or a batch."""
        return max(self.selection.release, self.normalization.release, key=RELEASES.index)

    def select(self, raw: Floats, left_out: Flags | None = None) -> Floats:
        """Calibrate raw scores (score, window, time, variable) and aggregate them over variables. Paper: Eq. 31."""
        return self._selected(self._calibrated(raw, left_out))

    def normalize(
        self, selected: Floats, state: Floats, window: int, measured: Flags | None = None
    ) -> tuple[Floats, Floats]:
        """Normalize the scores (score, time) of windows, 0 unless `measured`; also returns the state after them."""
        normalized = np.zeros_like(selected)
        for part in updates(self.normalization, selected.shape[1], window):
            inside, chosen = normalized[:, part], slice(None) if measured is None else measured[part]
            if measured is None or measured[part].any():
                inside[:, chosen], state = self.normalization(selected[:, part][:, chosen], state)
        return normalized, state

    def mix(self, scores: Floats) -> Floats:
        """The weighted sum (...) of both scores (score, ...)."""
        mixed: Floats = (1 - self.score_weight) * scores[0] + self.score_weight * scores[1]
        return mixed

    def excess(self, raw: Floats, levels: Floats) -> Floats:
        """How far raw scores (score, ..., variable) lie above `levels`, in each variable's unit, mixed into one."""
        unit = self.calibration[:, 1].reshape(2, *([1] * (raw.ndim - 2)), -1)
        return self.mix((raw - levels) / unit)

    def linear(self, raw: Floats, state: Floats) -> Floats:
        """The score (window, time) of raw scores, up to a constant, with the normalizers frozen at a state.

        Only differences are meaningful: they are differences of scores, which is all an explanation needs.
        """
        return self.mix(self.select(raw) * self.normalization.gain(state)[:, None, None])

    def __call__(self, blocks: Sequence[Block], state: Floats) -> tuple[Scores, Floats]:
        """Score the blocks of one release; also returns the normalizers' state (score, 2) after them. Paper: Eq. 20.

        A variable that is left out counts as exactly normal. A time step with every variable left out scores 0, and the
        normalizers do not learn from it.
        """
        calibrated = [self._calibrated(block.raw, block.left_out) for block in blocks]
        skips = [block.skip for block in blocks]
        selected = [
            self._selected(scores)[:, :, skip:].reshape(len(scores), -1)
            for scores, skip in zip(calibrated, skips, strict=True)
        ]
        width = self.calibration.shape[2]
        left_out = _left_out(blocks, width)
        measured = None if left_out is None else np.asarray(~left_out.all(axis=1))
        normalized, state = self.normalize(_joined(selected, axis=1), state, blocks[0].raw.shape[2], measured)
        variables = [
            self.mix(scores)[:, skip:].reshape(-1, width) for scores, skip in zip(calibrated, skips, strict=True)
        ]
        return Scores(self.mix(normalized), _joined(variables, axis=0), left_out), state

    def _calibrated(self, raw: Floats, left_out: Flags | None) -> Floats:
        """Raw scores (score, window, time, variable) in the units of each variable; 0, the center, where left out."""
        center, unit = self.calibration[:, 0], self.calibration[:, 1]
        calibrated: Floats = (raw - center[:, None, None]) / unit[:, None, None]
        return calibrated if left_out is None else np.where(left_out, 0.0, calibrated)

    def _selected(self, calibrated: Floats) -> Floats:
        scores, windows, *rest = calibrated.shape
        return self.selection(calibrated.reshape(scores * windows, *rest)).reshape(scores, windows, -1)


def _left_out(blocks: Sequence[Block], width: int) -> Flags | None:
    """The cells (time, variable) of all blocks that are left out; None if there are none."""
    if all(block.left_out is None for block in blocks):
        return None
    parts = [np.zeros(block.raw.shape[1:], bool) if block.left_out is None else block.left_out for block in blocks]
    return np.concatenate([part[:, block.skip :].reshape(-1, width) for part, block in zip(parts, blocks, strict=True)])


def _joined(parts: list[Floats], axis: int) -> Floats:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=axis)

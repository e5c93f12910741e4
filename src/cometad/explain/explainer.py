"""Rescore the windows of an event to attribute it to variables, and decode what normal readings would be."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cometad.alerting.alerts import Event
from cometad.arrays import Array, Floats, Floats32
from cometad.data.prepare import Scaling
from cometad.explain.reasons import Explanation, Reason, measured, rises, shares, stretch_of, worst_patches
from cometad.network.patches import back_to_readings, coverage, patch_weights, ready_steps
from cometad.network.run import FittedNetwork
from cometad.network.score import PatchScores
from cometad.parameters import check_integer
from cometad.series import Series

VIEW, WHY = "network", "unlike its normal patterns"
WINDOWS = 8  # shares come from the highest-scoring windows of an event only, which bounds their cost


class Piece(NamedTuple):
    """A window and the time steps it scores."""

    begin: int  # time step of its first reading
    start: int
    stop: int

    def inside(self, start: int, stop: int) -> slice:
        """Its steps in start..stop, counted from the start of the window."""
        first, last = max(self.start, start), min(self.stop, stop)
        return slice(first - self.begin, max(first, last) - self.begin)


def pieces(rows: int, window: int, ready: int, start: int, stop: int) -> list[Piece]:
    """The windows that score the time steps start..stop of a series of `rows` readings.

    Windows lie side by side from the first reading on. Of the remaining steps at the end, an incomplete window scores
    the first `ready`, and one that ends with the series scores the others.
    """
    whole = rows // window * window
    begins = range(start // window * window, min(stop, whole), window)
    full = [Piece(begin, begin, begin + window) for begin in begins]
    rest = [Piece(whole, whole, whole + ready), Piece(rows - window, whole + ready, rows)]
    clipped = [Piece(begin, max(first, start), min(last, stop)) for begin, first, last in (*full, *rest)]
    return [piece for piece in clipped if piece.start < piece.stop]


class Passage(NamedTuple):
    """The windows that cover given time steps, with the scores of their patches."""

    pieces: list[Piece]
    windows: Floats32  # (window, time, variable)  scaled
    patches: list[PatchScores]  # of each scale

    def taken(self, values: Array) -> Array:
        """Pick from values (window, time, ...) the steps that each window scores, as (time, ...)."""
        parts = [own[piece.inside(piece.start, piece.stop)] for own, piece in zip(values, self.pieces, strict=True)]
        return np.concatenate(parts)


class Covering(NamedTuple):
    """The patches of one scale that cover given time steps; each field is (patch,)."""

    windows: NDArray[np.int64]  # index of its window
    numbers: NDArray[np.int64]  # index within that window
    begins: NDArray[np.int64]  # first time step
    weights: Floats  # total weight in the time steps; a time step is the mean over the patches that cover it


@dataclass(frozen=True)
class Explainer:
    """Explains scores of a series with the fitted state of a detector; see `NetworkComet.explain`."""

    fitted: FittedNetwork
    scaling: Scaling
    counts: Sequence[NDArray[np.int64]]  # per scale (code,): number of training patches
    levels: Floats  # (score, scale, variable)  median raw score of the training patches
    typical: Floats32  # (variable,)  median of the scaled training readings
    series: Series

    def __call__(self, event: object, context: int = 32) -> Explanation:
        check_integer("context", context, 0)
        rows, names = len(self.series), self.series.names
        start, stop = stretch_of(event, rows)
        begin, end = max(0, start - context), min(rows, stop + context)
        scores, state = self._scores(start, stop)
        peak = start + int(scores.argmax())
        score = float(scores[peak - start])
        if isinstance(event, Event):  # keep the score it was raised with, adaptation included
            peak, score = event.peak, event.peak_score
        passage = self._passage(begin, end)
        share = shares(self._rises(passage, scores, state, start, stop))
        codes = self._normal_codes(passage)
        reasons = [
            self._reason(names[i], i, float(share[i]), *where)
            for i, where in enumerate(self._worst(passage, codes, start, stop))
        ]
        ranked = tuple(sorted(reasons, key=lambda reason: -reason.share))
        network = list(self.fitted.network)
        tables, strides = [scale.decoded() for scale in network], [scale.stride for scale in network]
        normal = self.scaling.back(passage.taken(back_to_readings(codes, tables, strides, self.fitted.window)))
        observed = measured(self.series, begin, end)
        return Explanation(start, stop, peak, score, ranked, begin, observed, normal, names)

    def _passage(self, start: int, stop: int) -> Passage:
        (rows, variables), length = self.series.values.shape, self.fitted.window
        sizes = [(scale.size, scale.stride) for scale in self.fitted.scorer.scales]
        ready = ready_steps(rows % length, length, sizes) if self.fitted.pipeline.release == "row" else 0
        cut = pieces(rows, length, ready, start, stop)
        windows = np.zeros((len(cut), length, variables), np.float32)
        for window, piece in zip(windows, cut, strict=True):
            readings = self.series.values[piece.begin : piece.begin + length]
            window[: len(readings)] = self.scaling(readings)
        return Passage(cut, windows, [self.fitted.scorer.whole(windows, k) for k in range(len(sizes))])

    def _scores(self, start: int, stop: int) -> tuple[Floats, Floats]:
        """The final scores (time,) of the steps start..stop, and the normalizers' state after them.

        A normalization that needs whole batches starts with the first batch that holds one of these steps.
        """
        batch = self.fitted.window * self.fitted.test_batch
        whole = self.fitted.pipeline.release == "batch"
        first, last = start, stop
        if whole:
            first, last = start // batch * batch, min(-(-stop // batch) * batch, len(self.series))
        state, parts = self.fitted.pipeline.start, []
        for begin in range(first, last, batch):
            passage = self._passage(begin, min(begin + batch, last))
            selected = self.fitted.pipeline.select(
                self.fitted.scorer.steps(passage.patches, self.fitted.window, 0, self.fitted.window)
            )
            steps = np.stack([passage.taken(scores) for scores in selected])
            normalized, state = self.fitted.pipeline.normalize(steps, state, self.fitted.window)
            parts.append(self.fitted.pipeline.mix(normalized))
        return np.concatenate(parts)[start - first : stop - first], state

    def _rises(self, passage: Passage, scores: Floats, state: Floats, start: int, stop: int) -> Floats:
        """How much each variable raises the scores of the steps start..stop (time, variable); 0 where imputed."""

        def of_windows(windows: Floats32) -> Floats:
            return self.fitted.pipeline.linear(self.fitted.scorer.windows(windows), state)

        inside = [piece.inside(start, stop) for piece in passage.pieces]
        peaks = {
            i: scores[steps.start + piece.begin - start : steps.stop + piece.begin - start].max()
            for i, (piece, steps) in enumerate(zip(passage.pieces, inside, strict=True))
            if steps.start < steps.stop
        }
        chosen = sorted(sorted(peaks, key=lambda i: -peaks[i])[:WINDOWS])
        raised = rises(passage.windows[chosen], self.typical, of_windows)
        imputed = self.series.imputed
        if imputed is not None:
            for own, i in zip(raised, chosen, strict=True):
                begin = passage.pieces[i].begin
                cells = imputed[begin : begin + self.fitted.window]
                own[: len(cells)][cells] = 0.0
        return np.concatenate([own[inside[i]] for own, i in zip(raised, chosen, strict=True)])

    def _normal_codes(self, passage: Passage) -> list[NDArray[np.int32]]:
        """The nearest active code of each patch (window, patch, variable), per scale."""
        return [
            scale.normal_codes(passage.windows, scored.codes, counts > 0)
            for scale, scored, counts in zip(self.fitted.network, passage.patches, self.counts, strict=True)
        ]

    def _worst(
        self, passage: Passage, codes: list[NDArray[np.int32]], start: int, stop: int
    ) -> Iterator[tuple[int, int, int]]:
        """For each variable, the scale, first time step and code of its worst patch on the steps start..stop."""
        covering = [self._covering(passage, k, start, stop) for k in range(len(codes))]
        excess = [self._excess(passage, k, patches) for k, patches in enumerate(covering)]
        worst = worst_patches(excess, [patches.weights for patches in covering])
        for i, (k, patch) in enumerate(zip(worst.scale.tolist(), worst.patch.tolist(), strict=True)):
            patches = covering[k]
            yield k, int(patches.begins[patch]), int(codes[k][patches.windows[patch], patches.numbers[patch], i])

    def _covering(self, passage: Passage, k: int, start: int, stop: int) -> Covering:
        """The patches of one scale that cover the steps start..stop."""
        size, stride = self.fitted.scorer.scales[k].size, self.fitted.scorer.scales[k].stride
        cover = coverage(self.fitted.window, size, stride)
        parts = []
        for i, piece in enumerate(passage.pieces):
            steps = piece.inside(start, stop)
            if steps.start < steps.stop:
                weights = patch_weights(cover.first[steps], cover.last[steps])
                numbers = cover.first[steps.start] + np.arange(len(weights))
                parts.append((np.full(len(weights), i), numbers, piece.begin + numbers * stride, weights))
        return Covering(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _excess(self, passage: Passage, k: int, patches: Covering) -> Floats:
        """How far the mixed score of each patch (patch, variable) lies above its training level."""
        scored = passage.patches[k]
        codes = scored.codes[patches.windows, patches.numbers]
        errors = scored.errors[patches.windows, patches.numbers]
        raw = np.stack([self.fitted.scorer.memory[k][codes], errors])
        return self.fitted.pipeline.excess(raw, self.levels[:, k, None])

    def _reason(self, name: str, i: int, share: float, k: int, begin: int, code: int) -> Reason:
        end = begin + self.fitted.scorer.scales[k].size
        observed = self.series.values[begin:end, i].copy()
        expected = list(self.fitted.network)[k].decoded()[code] * self.scaling.unit[i] + self.scaling.center[i]
        widest = int(np.argmax(np.abs(observed / 2 - expected / 2)))  # halves: the difference may overflow
        frequency = float(self.counts[k][code] / self.counts[k].sum())
        where = begin + widest, begin, end
        return Reason(
            name, share, VIEW, WHY, *where, observed, expected, scale=end - begin, code=code, frequency=frequency
        )

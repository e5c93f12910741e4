"""One pass over a series: readings in, raw and final scores out, with all the state that adaptation may change.

Scoring a whole series starts a run, feeds it everything and discards it; a stream keeps its run open. So a batch is a
stream run to its end, and the fitted detector never changes.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cometad.arrays import Flags, Floats, Floats32
from cometad.errors import InputError
from cometad.network.adaptation import Adaptation, NormalCriteria
from cometad.network.network import Network
from cometad.network.patches import reached, ready_steps
from cometad.network.pipeline import Block, Pipeline
from cometad.network.score import PatchScores, Scorer
from cometad.network.training import Objective
from cometad.saving import Saved, Table, array, integers, part, require_state
from cometad.scoring.scores import Scores, ScoringRun

Release = list[Block]  # scores that become final together


@dataclass(frozen=True)
class FittedNetwork:
    """A trained network with all that scoring needs. Nothing changes it: a run that adapts has its own network."""

    network: Network
    scorer: Scorer
    pipeline: Pipeline
    limits: Sequence[Floats]  # per scale (variable,): the largest error that adaptation considers normal
    window: int
    test_batch: int  # windows between two adaptation steps, and in one batch of the paper's normalization
    objective: Objective
    seed: int


class RawRun(Saved):
    """Raw scores of a series that arrives in chunks of any size.

    The pipeline's `release` is the unit in which scores are emitted: "row" emits each row as soon as all patches that
    cover it are complete, "window" whole windows, "batch" whole batches of windows. The last readings, which do not
    fill a window, are scored with one window that ends with the series; only its steps that were not emitted before
    are used. Scores are means over scales; with `apart` they keep an axis for the scales. A block marks the scores that
    depend on imputed readings.
    """

    saved: ClassVar[Table] = {
        "counts": integers("_filled", "_emitted"),
        "batch": array("_rows", "filled", "variable", dtype=np.float32),
        "before": array("_previous", "before?", "variable", dtype=np.float32),
        "imputed": array("_imputed_rows", "filled", "variable", dtype=np.bool_, optional=True),
        "imputed_before": array("_imputed_previous", "before?", "variable", dtype=np.bool_, optional=True),
        "adapter": part("adapter"),
    }

    def __init__(self, fitted: FittedNetwork, adaptation: Adaptation, apart: bool = False) -> None:
        self._fitted, self._release, self._apart = fitted, fitted.pipeline.release, apart
        self._scorer = scorer = fitted.scorer
        self._network = copy.deepcopy(fitted.network)
        criteria = NormalCriteria(scorer.active, fitted.limits)
        self.adapter = adaptation.start(self._network, criteria, fitted.objective, fitted.seed)  # None: nothing adapts
        self._sizes = sizes = [(scale.size, scale.stride) for scale in scorer.scales]
        length = fitted.window
        self._variables = scorer.scales[0].series_codes.shape[0]
        # By the number of known rows of a window: how many of its steps are final,
        self._final = [ready_steps(rows, length, sizes) for rows in range(length + 1)]
        # and how many of its patches are complete, for each scale.
        self._complete = [[max(0, (rows - size) // stride + 1) for rows in range(length + 1)] for size, stride in sizes]
        # The batch being filled, and the last window of the previous one: both (time, variable).
        self._batch = np.zeros((fitted.test_batch * length, self._variables), np.float32)
        self._previous = np.zeros((0, self._variables), np.float32)
        # Which of these cells are imputed; None if none are.
        self._imputed: Flags | None = None
        self._imputed_previous: Flags | None = None
        self._filled = 0  # rows in the batch
        self._emitted = 0  # rows in the batch whose scores were emitted
        self._scored = scorer.zeros(fitted.test_batch, length)  # the scores of the batch's patches

    def push(self, rows: Floats32, imputed: Flags | None = None) -> Iterator[Release]:
        """Add rows (time, variable), with a mask of `imputed` cells; yields the releases that become final."""
        while len(rows):
            room = len(self._batch) - self._filled
            taken, rows = rows[:room], rows[room:]
            self._batch[self._filled : self._filled + len(taken)] = taken
            if imputed is not None:
                if imputed[:room].any():
                    self._mark_rows(self._filled, imputed[:room])
                imputed = imputed[room:]
            yield from self._advance(self._filled + len(taken))
            if self._filled == len(self._batch):
                self._next_batch()

    def finish(self) -> Iterator[Release]:
        length = self._fitted.window
        release: Release = []
        whole = self._filled // length * length
        if self._emitted < whole:  # complete windows of an incomplete batch
            release.append(self._windows(self._emitted, whole))
            self._emitted = whole
        left = self._filled - self._emitted
        if left:
            tail = np.concatenate([self._previous, self._batch[: self._filled]])[-length:]
            self._check_tail(len(tail))
            left_out = self._left_out_of_tail(len(tail))
            release.append(Block(self._scorer.windows(tail[None], self._apart), len(tail) - left, left_out))
            self._emitted = self._filled
        if release:
            yield release

    def _check_tail(self, rows: int) -> None:
        longest = max(scale.size for scale in self._scorer.scales)
        if rows < longest:
            raise InputError(
                f"The stream ended after {rows} readings; scoring needs at least the longest patch ({longest}). "
                "Feed more readings before finishing."
            )

    def _advance(self, filled: int) -> Iterator[Release]:
        """Score everything that is complete once the batch has `filled` rows."""
        length = self._fitted.window
        if self._release == "row":
            yield from self._advance_rows(filled)
        else:
            unit = length if self._release == "window" else len(self._batch)
            complete = filled // unit * unit
            if complete > self._emitted:
                yield [self._windows(self._emitted, complete)]
                self._emitted = complete
        self._filled = filled

    def _advance_rows(self, filled: int) -> Iterator[Release]:
        length = self._fitted.window
        while self._filled < filled:
            inside = self._filled % length
            if inside == 0 and filled - self._filled >= length:  # whole windows in one go
                stop = filled // length * length
                yield [self._windows(self._filled, stop)]
                self._emitted = stop
            else:
                stop = min(filled, self._filled - inside + length)
                yield from self._part_of_window(self._filled - inside, inside, inside + stop - self._filled)
            self._filled = stop

    def _part_of_window(self, begin: int, start: int, stop: int) -> Iterator[Release]:
        """Score the patches completed by rows start..stop of the window that begins at row `begin` of the batch."""
        length = self._fitted.window
        window, scored = self._batch[None, begin : begin + length], self._of_windows(begin, begin + length)
        for k, complete in enumerate(self._complete):
            first, last = complete[start], complete[stop]
            if last > first:
                codes, errors = scored[k]
                self._scorer.patches(window, k, first, PatchScores(codes[:, first:last], errors[:, first:last]))
        emitted, final = self._emitted - begin, self._final[stop]
        if final > emitted:
            left_out = self._left_out(begin, begin + length)
            if left_out is not None:
                left_out = left_out[:, emitted:final]
            yield [Block(self._scorer.steps(scored, length, emitted, final, self._apart), 0, left_out)]
            self._emitted = begin + final

    def _windows(self, start: int, stop: int) -> Block:
        self._score_windows(start, stop)
        length, left_out = self._fitted.window, self._left_out(start, stop)
        return Block(self._scorer.steps(self._of_windows(start, stop), length, 0, length, self._apart), 0, left_out)

    def _score_windows(self, start: int, stop: int) -> None:
        windows = self._batch[start:stop].reshape(-1, self._fitted.window, self._variables)
        for k, scored in enumerate(self._of_windows(start, stop)):
            self._scorer.patches(windows, k, 0, scored)

    def _of_windows(self, start: int, stop: int) -> list[PatchScores]:
        """The patch scores of the windows in rows start..stop of the batch, as views."""
        windows = slice(start // self._fitted.window, stop // self._fitted.window)
        return [PatchScores(scored.codes[windows], scored.errors[windows]) for scored in self._scored]

    def _next_batch(self) -> None:
        """Learn from the full batch and start the next one.

        The memory keeps the same code indices, so it follows the codes as they move. Paper: Eq. 25.
        """
        if self.adapter is not None:
            # After scoring, never before: no reading may influence its own score.
            windows = self._batch.reshape(-1, self._fitted.window, self._variables)
            imputed = None if self._imputed is None else self._imputed.reshape(windows.shape)
            self.adapter.learn(windows, self._scored, imputed)
            self._scorer = self._scorer.after(self._network)
        self._previous = self._batch[-self._fitted.window :].copy()
        self._imputed_previous = None if self._imputed is None else self._imputed[-self._fitted.window :].copy()
        self._imputed = None
        self._filled = self._emitted = 0

    def _mark_rows(self, start: int, imputed: Flags) -> None:
        if self._imputed is None:
            self._imputed = np.zeros(self._batch.shape, bool)
        self._imputed[start : start + len(imputed)] = imputed

    def _left_out(self, start: int, stop: int) -> Flags | None:
        """Which scores (window, time, variable) of the windows in rows start..stop depend on imputed cells."""
        if self._imputed is None or not self._imputed[start:stop].any():
            return None
        return reached(self._imputed[start:stop].reshape(-1, self._fitted.window, self._variables), self._sizes)

    def _left_out_of_tail(self, rows: int) -> Flags | None:
        if self._imputed is None and self._imputed_previous is None:
            return None
        before = np.zeros(self._previous.shape, bool) if self._imputed_previous is None else self._imputed_previous
        now = np.zeros(self._batch.shape, bool) if self._imputed is None else self._imputed
        return reached(np.concatenate([before, now[: self._filled]])[None, -rows:], self._sizes)

    @property
    def _rows(self) -> Floats32:  # of the batch so far
        return self._batch[: self._filled]

    @_rows.setter
    def _rows(self, rows: Floats32) -> None:
        self._batch[: self._filled] = rows

    @property
    def _imputed_rows(self) -> Flags | None:
        return None if self._imputed is None else self._imputed[: self._filled]

    @_imputed_rows.setter
    def _imputed_rows(self, imputed: Flags) -> None:
        self._mark_rows(0, imputed)

    def sizes(self) -> dict[str, int]:
        whole, rest = self._filled - self._filled % self._fitted.window, self._filled % self._fitted.window
        final = {"row": whole + self._final[rest], "window": whole}.get(self._release, 0)
        fits = 0 <= self._filled < len(self._batch) and self._emitted in (final, self._filled)  # all, once it finished
        require_state(fits, "its array 'counts' is not that of a stream")
        return {"filled": self._filled, "variable": self._variables}

    def check_state(self) -> None:
        require_state(len(self._previous) in (0, self._fitted.window), "its array 'before' is not a window")
        if self.adapter is not None:
            self._scorer = self._scorer.after(self._network)
        self._score_windows(0, -(-self._filled // self._fitted.window) * self._fitted.window)  # bit-identical to before


class Run(ScoringRun):
    """Final scores of a series that arrives in chunks of any size."""

    saved: ClassVar[Table] = {"": part("_raw"), "normalization": array("_state", 2, 2, unknown=True)}

    def __init__(self, fitted: FittedNetwork, adaptation: Adaptation) -> None:
        self._raw, self._pipeline, self._state = RawRun(fitted, adaptation), fitted.pipeline, fitted.pipeline.start

    @property
    def adaptation_steps(self) -> tuple[int, int]:
        adapter = self._raw.adapter
        return (0, 0) if adapter is None else (adapter.steps, adapter.rolled_back)

    def push(self, rows: Floats32, imputed: Flags | None = None) -> Iterator[Scores]:
        return self._decide(self._raw.push, rows, imputed)

    def finish(self) -> Iterator[Scores]:
        return self._decide(self._raw.finish)

    def _decide(self, releases: Callable[..., Iterator[Release]], *rows: Floats32 | Flags | None) -> Iterator[Scores]:
        for release in releases(*rows):
            decided, self._state = self._pipeline(release, self._state)
            yield decided

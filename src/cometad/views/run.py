"""Alert and ranking scores of a series that arrives in chunks of any size, in constant memory."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cometad.arrays import Array, Flags, Floats, Floats32
from cometad.saving import require_state, taken
from cometad.scoring.pipeline import Decided
from cometad.scoring.signatures import Gathering, Signature, Signatures
from cometad.scoring.smooth import look_ahead, look_back, smooth_into
from cometad.threads import in_parts
from cometad.views.adaptation import KeepFitted, LevelAdaptation
from cometad.views.panel import Panel, lately
from cometad.views.tape import Tape

CLIP = 50.0  # standard deviations: a broken sensor must not fill the window of every view for long
BLOCK = 64_000  # errors computed at once, of all views and variables: they fit into the L2 cache
MOST_READINGS = 2**53  # of a stream
SHARED = 4_096  # time steps; a longer series is shared among threads


def clipped(scaled: Floats32) -> Floats:
    """Scaled readings as the views see them."""
    # Not np.clip: for one reading it takes three times as long.
    rows: Floats = np.minimum(np.maximum(scaled, -CLIP), CLIP).astype(np.float64)
    return rows


class ViewsRun:
    """Scores readings with a panel of views."""

    def __init__(self, panel: Panel, adaptation: LevelAdaptation = KeepFitted()) -> None:
        self._panel, self._follower = panel, adaptation.follow(panel)
        width, spans = panel.width, panel.smoothing or (1,)
        self._block = max(BLOCK // (width * len(panel.views)), 64)
        self._spans = np.array(spans, np.int64)
        self._ahead = look_ahead(spans)
        self._rows = Tape(panel.context, (width,))
        self._imputed = Tape(panel.context, (width,), np.bool_)
        self._doubtful = 0  # further readings whose errors may depend on an imputed one
        self._errors = Tape(panel.span - 1, (len(panel.views), width))
        self._ranks = Tape(look_back(spans) + self._ahead, ())
        self._seen = self._covered = self._ranked = 0
        self._finished = False
        # The rows (time, variable) and errors (time, view, variable) behind the last scores; the next push reuses them.
        self.latest = np.empty((0, width)), np.empty((0, len(panel.views), width))

    def follow_signatures(self, signatures: Signatures) -> None:
        """Use other signatures for the alert scores from the next reading on."""
        self._panel = replace(self._panel, signatures=signatures)

    @property
    def adaptation_steps(self) -> tuple[int, int]:
        """Number of adaptation steps taken, and how many of them were rolled back."""
        return (0, 0) if self._follower is None else (self._follower.steps, self._follower.rolled_back)

    def push(self, rows: Floats32, imputed: Flags | None = None) -> Iterator[Decided]:
        """Add rows (time, variable), with a mask of `imputed` cells; yields scores as they become final."""
        begin = 0
        while begin < len(rows):
            part = slice(begin, begin + self._until_step())
            yield self._push(rows[part], None if imputed is None else imputed[part])
            begin = part.stop

    def _until_step(self) -> int:
        """Readings to score at once: a step comes after a fixed number of readings, however they are cut."""
        if self._follower is None:
            return self._block
        return min(self._block, self._follower.every - self._seen % self._follower.every)

    def _push(self, rows: Floats32, imputed: Flags | None) -> Decided:
        count, follower = len(rows), self._follower
        fresh = clipped(rows)
        known = self._rows.append(fresh if follower is None else fresh - follower.offset)
        mask = self._mask(len(known), rows, imputed)
        first = len(known) - count
        errors = self._panel.errors(known, first, mask)
        self.latest = known[first:], errors
        fused = self._panel.alerts(errors)
        scores = self._panel.excused(fused, known[first:], errors)
        self._seen += count
        if follower is not None:
            follower.see(fresh, imputed, fused.variables)
            if self._seen % follower.every == 0:
                self._rows.kept[:] -= follower.learn()
        # Too few readings before a step leave it without errors too, but that is no gap.
        left_out = None if mask is None else fused.left_out & lately(mask, first, self._panel.span)
        return Decided(scores, fused.variables, left_out, self._rank(errors, self._seen - self._panel.span + 1))

    def _mask(self, known: int, rows: Floats32, imputed: Flags | None) -> Flags | None:
        """Which of the known readings are imputed (time, variable); None if none of them is."""
        if imputed is not None and imputed.any():
            if not self._doubtful:
                self._imputed.restore(np.zeros((known - len(rows), rows.shape[1]), bool))
            self._doubtful = self._panel.context + len(rows) + 1
        if not self._doubtful:
            return None
        self._doubtful = max(self._doubtful - len(rows), 0)
        return self._imputed.append(np.zeros(rows.shape, bool) if imputed is None else imputed)

    def _rank(self, errors: Floats, final: int, last: bool = False) -> Floats:
        """The ranking scores that become final when all errors of the steps up to `final` are known."""
        known = self._errors.append(errors)
        before = self._seen - len(known)  # the time step of known[0]
        stop = max(final, self._covered)
        ranks = self._panel.ranks(self._panel.covering(known, self._covered - before, stop - before)).scores
        self._covered = stop
        window = self._ranks.append(ranks)
        before, stop = self._covered - len(window), max(self._covered - (0 if last else self._ahead), self._ranked)
        scores = np.empty(stop - self._ranked)
        smooth_into(window, self._spans, self._ranked - before, scores)
        self._ranked = stop
        return scores

    def finish(self) -> Iterator[Decided]:
        """End the series; yields the remaining ranking scores."""
        if self._finished:
            return
        self._finished = True
        none = np.empty((0, len(self._panel.views), self._panel.width))
        ranking = self._rank(none, self._seen, last=True)
        yield Decided(np.empty(0), np.empty((0, self._panel.width)), None, ranking)

    def state(self) -> dict[str, Array]:
        """Everything `restore` needs, by name."""
        counts = [self._seen, self._covered, self._ranked, self._doubtful, self._finished]
        level = {} if self._follower is None else self._follower.state()
        return {
            **{f"level.{name}": array for name, array in level.items()},
            "counts": np.array(counts, np.int64),
            "rows": self._rows.kept.copy(),
            "imputed": self._imputed.kept[: None if self._doubtful else 0].copy(),
            "errors": self._errors.kept.copy(),
            "ranks": self._ranks.kept.copy(),
        }

    def restore(self, state: dict[str, Array]) -> None:
        """Restore the state that `state` returned."""
        panel, width = self._panel, self._panel.width
        seen, covered, ranked, doubtful, finished = taken(state, "counts", (5,), np.int64).tolist()
        final = (seen, seen) if finished else (max(seen - panel.span + 1, 0), max(covered - self._ahead, 0))
        fits = 0 <= seen <= MOST_READINGS and (covered, ranked) == final and 0 <= doubtful <= MOST_READINGS
        require_state(fits and finished in (0, 1), "its array 'counts' is not that of a stream")
        known = min(seen, panel.context)
        self._rows.restore(taken(state, "rows", (known, width)))
        self._imputed.restore(taken(state, "imputed", (known if doubtful else 0, width), np.bool_))
        errors = (min(seen, panel.span - 1), len(panel.views), width)
        self._errors.restore(taken(state, "errors", errors, unknown=True))
        self._ranks.restore(taken(state, "ranks", (min(covered, self._ranks.keep),)))
        self._seen, self._covered, self._ranked, self._doubtful = seen, covered, ranked, doubtful
        self._finished = bool(finished)
        if self._follower is not None:
            prefix = "level."
            self._follower.restore({n.removeprefix(prefix): a for n, a in state.items() if n.startswith(prefix)})


class SeriesScores(NamedTuple):
    """The scores of a whole series; each field is (time,)."""

    ranking: Floats
    alerts: Floats
    imputed: Flags


def score_series(panel: Panel, adaptation: LevelAdaptation, rows: Floats32, imputed: Flags | None) -> SeriesScores:
    """Score a series (time, variable) as one run would, to the bit.

    Without adaptation a score depends on readings near it only, so a long series is shared among threads: each scores
    a part, with the readings before and after that the part's scores depend on.
    """
    length = len(rows)
    found = SeriesScores(np.empty(length), np.empty(length), np.zeros(length, bool))
    before = panel.context + look_back(panel.smoothing)

    def part(own: slice) -> None:
        begin, end = max(own.start - before, 0), min(own.stop + panel.delay, length)
        run = ViewsRun(panel, adaptation)
        decided = [*run.push(rows[begin:end], None if imputed is None else imputed[begin:end]), *run.finish()]
        kept = slice(own.start - begin, own.stop - begin)
        found.ranking[own] = np.concatenate([one.ranking for one in decided if one.ranking is not None])[kept]
        found.alerts[own] = np.concatenate([one.scores for one in decided])[kept]
        if imputed is not None:
            found.imputed[own] = np.concatenate([one.imputed for one in decided])[kept]

    if adaptation.follow(panel) is None and length >= SHARED:
        in_parts(part, length)
    else:
        part(slice(0, length))
    return found


def gather_signature(
    panel: Panel, adaptation: LevelAdaptation, rows: Floats32, imputed: Flags | None, start: int, stop: int
) -> Signature:
    """The signature that the steps start..stop of a series (time, variable) set."""
    # Adaptation depends on all earlier readings, errors only on a few.
    begin = max(start - panel.context, 0) if adaptation.follow(panel) is None else 0
    run, gathering = ViewsRun(panel, adaptation), Gathering(start, len(panel.views), panel.width)
    at = begin
    for part in run.push(rows[begin:stop], None if imputed is None else imputed[begin:stop]):
        own = slice(max(start - at, 0), None)
        gathering.add(*(array[own] for array in (*run.latest, part.variables)))
        at += len(part.scores)
    return gathering.signature()

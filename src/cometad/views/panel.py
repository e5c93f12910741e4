"""Several fitted views: their errors, and the scores of a series that arrives in chunks of any size."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cometad.arrays import Flags, Floats, Floats32, Integers
from cometad.compute import in_parts, jit
from cometad.saving import Table, integers, kept, part, require_state
from cometad.scoring.scores import Errors, Scores, ScoringRun, StepScores, fuse, look_ahead, look_back, rank_into
from cometad.scoring.signatures import Gathering, Signature, Signatures
from cometad.views.sums import sum_rows
from cometad.views.view import FittedView, WindowView, Writer, write_known

if TYPE_CHECKING:
    from cometad.views.adaptation import LevelAdaptation

CLIP = 50.0  # standard deviations: a broken sensor must not fill the window of every view for long
BLOCK = 64_000  # errors computed at once, of all views and variables: they fit into the L2 cache
MOST_READINGS = 2**53  # of a stream
SHARED = 4_096  # time steps; a longer series is shared among threads
MIN_SHARED = 256  # time steps; for fewer, starting threads takes longer than the work
FEW = 8  # time steps
LOST = 0.1  # share of variables: if more are imputed, views that mix variables cannot judge the others either
SPARE = 64  # rows: how many can be appended to a tape, at least, before the kept ones move


@dataclass(frozen=True)
class Panel:
    """Fitted views with the tails of their errors. It never changes: a batch, a stream and an explanation share it."""

    views: tuple[FittedView, ...]
    alert: Floats  # (view, 3, variable)  tails of the errors
    ranking: Floats  # (view, 3, variable)  tails of the errors averaged over the windows that cover a time step
    pooling: int  # exponent of the power mean over variables
    smoothing: tuple[int, ...]  # time steps of each centered mean
    signatures: Signatures | None = None  # what a person called normal or a fault

    @cached_property
    def width(self) -> int:
        return int(self.alert.shape[2])

    @cached_property
    def context(self) -> int:
        """Readings before a time step that its errors depend on."""
        return max(view.context for view in self.views)

    @cached_property
    def span(self) -> int:
        """Time steps that an error is about, at most."""
        return max(view.span for view in self.views)

    @cached_property
    def delay(self) -> int:
        """Readings after a time step that its ranking score needs."""
        return self.span - 1 + look_ahead(self.smoothing)

    @cached_property
    def weights(self) -> Floats:
        """What each view counts (view,): those that judge relations as much, together, as all the others."""
        related = np.array([getattr(view, "judges_relations", False) for view in self.views])
        weights: Floats = 1 / (np.where(related, related.sum(), (~related).sum()) * len(np.unique(related)))
        return weights

    @cached_property
    def _spans(self) -> Integers:
        return np.array([view.span for view in self.views])

    @cached_property
    def _writers(self) -> tuple[tuple[Writer, int], ...]:
        """What writes the errors of each view, and how many readings before the first step it needs."""
        return tuple(
            (view.write if isinstance(view, WindowView) else partial(_copy, view), view.context) for view in self.views
        )

    def errors(self, rows: Floats, first: int, imputed: Flags | None = None, errors: Floats | None = None) -> Floats:
        """The errors (time - first, view, variable) of scaled rows (time, variable); NaN where unknown.

        The first `first` rows are context. An error is unknown if any reading of its variable in its span is `imputed`
        (time, variable), or if there are too few readings before it. If many variables are imputed, so are all errors
        of views that mix variables: they would blame the others for what is missing. `errors` is memory for them.
        """
        if errors is None:
            errors = np.empty((len(rows) - first, len(self.views), rows.shape[1]))
        if len(errors) < MIN_SHARED:
            self._write(rows, first, errors)
        else:
            in_parts(lambda own: self._write(rows[: first + own.stop], first + own.start, errors[own]), len(errors))
        if imputed is not None:
            lost = imputed.mean(axis=1, keepdims=True) > LOST
            for v, view in enumerate(self.views):
                errors[:, v][lately(imputed, first, view.span)] = np.nan
                if getattr(view, "mixes_variables", True):
                    errors[:, v][lately(lost, first, view.span)[:, 0]] = np.nan
        return errors

    def _write(self, rows: Floats, first: int, errors: Floats) -> None:
        for v, (write, context) in enumerate(self._writers):
            if first >= context:
                write(rows, first - context, len(errors), False, errors, v)
            else:  # near the start some errors are unknown
                write_known(write, context, rows, first, False, errors, v)

    def covering(self, errors: Floats, start: int, stop: int) -> Floats:
        """The errors (time, view, variable) of the steps start..stop, each averaged over the spans that cover it.

        An error covers the `span` time steps up to its own. Unknown errors are left out of the mean; it is unknown if
        all of them are.
        """
        means = np.empty((stop - start, *errors.shape[1:]))
        _covering(errors, self._spans, start, means)
        return means

    def fused(self, errors: Floats) -> Scores:
        """Alert scores of errors (time, view, variable), before verdicts."""
        return fuse(errors, self.alert, self.weights, self.pooling)

    def scores(self, errors: Errors) -> Scores:
        """Alert scores in which nothing counts that a person called normal."""
        fused = fuse(errors.values, self.alert, self.weights, self.pooling)
        if self.signatures is None:
            return fused
        return self.signatures.excuse(fused, errors, self.alert[:, 1], self.pooling)


def _copy(view: FittedView, rows: Floats, begin: int, count: int, expected: bool, out: Floats, v: int) -> None:
    """A `Writer` for the errors of a view that has none."""
    out[-count:, v] = view.errors(rows[begin:], view.context)


def lately(imputed: Flags, first: int, span: int) -> Flags:
    """Whether any of the last `span` readings of a variable is `imputed` (time, variable): (time - first, variable)."""
    before = np.cumsum(np.concatenate([np.zeros((1, imputed.shape[1]), int), imputed]), axis=0)
    stops = np.arange(first, len(imputed)) + 1
    marked: Flags = before[stops] > before[np.maximum(stops - span, 0)]
    return marked


@jit
def _covering(errors: Floats, spans: Integers, start: int, means: Floats) -> None:
    rows, views, width = errors.shape
    total, known = np.empty(width), np.empty(width)
    # Neighboring steps share sums of four errors. For a few steps it takes longer to keep them than to add them again.
    shared = len(means) > FEW
    longest = 1
    for span in spans:
        longest = max(longest, span)
    stop = min(start + len(means) + longest - 1, rows)
    fours = np.empty((max(stop - start - 3, 0) if shared else 1, width))
    flat = fours.ravel()
    for v in range(views):
        if shared:
            for s in range(len(fours)):
                _sum_of_four(errors, start + s, v, fours[s])
        for k in range(len(means)):
            t = start + k
            stop = min(t + spans[v], rows)
            whole = (stop - t) // 4
            if shared:
                sum_rows(flat, k * width, whole, 4 * width, total)
            else:
                total[:] = 0.0
                for s in range(whole):
                    _sum_of_four(errors, t + 4 * s, v, fours[0])
                    for i in range(width):
                        total[i] += fours[0, i]
            for s in range(t + 4 * whole, stop):
                for i in range(width):
                    total[i] += errors[s, v, i]
            unknown = False
            for i in range(width):
                unknown |= total[i] != total[i]
                means[k, v, i] = total[i] / (stop - t)
            if unknown:  # rare: count what is known
                total[:] = 0.0
                known[:] = 0.0
                for s in range(t, stop):
                    for i in range(width):
                        if errors[s, v, i] == errors[s, v, i]:
                            total[i] += errors[s, v, i]
                            known[i] += 1.0
                for i in range(width):
                    means[k, v, i] = total[i] / known[i] if known[i] > 0.0 else np.nan


@jit
def _sum_of_four(errors: Floats, s: int, v: int, total: Floats) -> None:
    """Set `total` (variable,) to the sum of the errors of four steps from `s` on."""
    for i in range(len(total)):
        total[i] = (errors[s, v, i] + errors[s + 1, v, i]) + (errors[s + 2, v, i] + errors[s + 3, v, i])


# -- runs -----------------------------------------------------------------------------------------------------------


class Tape:
    """Keeps the last `keep` rows of a stream in one piece of memory, which does not grow with the stream."""

    def __init__(self, keep: int, shape: tuple[int, ...], dtype: Any = np.float64) -> None:
        self.keep, self._stop = keep, 0
        self._size = 2 * keep + SPARE
        self._array = np.empty((self._size, *shape), dtype)

    @property
    def kept(self) -> NDArray[Any]:
        """The rows that are kept, at most `keep`."""
        return self._array[max(self._stop - self.keep, 0) : self._stop]

    def extend(self, count: int) -> NDArray[Any]:
        """The rows kept so far, followed by `count` new ones to be set, until the next call."""
        begin = self._stop
        end = begin + count
        if end > self._size:
            kept = self.kept.copy()
            if len(kept) + count > self._size:
                self._size = len(kept) + 2 * count
                self._array = np.empty((self._size, *kept.shape[1:]), kept.dtype)
            begin, end = len(kept), len(kept) + count
            self._array[:begin] = kept
        self._stop = end
        return self._array[begin - self.keep if begin > self.keep else 0 : end]

    def append(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Append rows; returns the rows kept so far, followed by the new ones, until the next call."""
        known = self.extend(len(rows))
        known[len(known) - len(rows) :] = rows
        return known

    def clear(self) -> None:
        self._stop = 0


def clipped(scaled: Floats32) -> Floats:
    """Scaled readings as the views see them."""
    rows = np.empty(scaled.shape)
    _clip_into(scaled, rows)
    return rows


@jit
def _clip_into(scaled: Floats32, rows: Floats) -> None:
    for t in range(len(rows)):
        for i in range(rows.shape[1]):
            value = scaled[t, i]
            value = CLIP if value > CLIP else value
            rows[t, i] = -CLIP if value < -CLIP else value


class ViewsRun(ScoringRun):
    """Alert and ranking scores of readings that arrive in chunks of any size, in constant memory."""

    saved: ClassVar[Table] = {
        "level": part("_follower"),
        "counts": integers("_seen", "_covered", "_ranked", "_doubtful", "_finished"),
        "rows": kept("_rows", "known", "variable"),
        "imputed": kept("_imputed", "imputed", "variable", dtype=np.bool_),
        "errors": kept("_errors", "recent", "view", "variable", unknown=True),
        "ranks": kept("_ranks", "rank"),
    }

    def __init__(self, panel: Panel, adaptation: "LevelAdaptation") -> None:
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
        self.latest = Errors(np.empty((0, width)), np.empty((0, len(panel.views), width)))  # the next push reuses them

    def follow_signatures(self, signatures: Signatures) -> None:
        """Use other signatures for the alert scores from the next reading on."""
        self._panel = replace(self._panel, signatures=signatures)

    @property
    def adaptation_steps(self) -> tuple[int, int]:
        return (0, 0) if self._follower is None else (self._follower.steps, self._follower.rolled_back)

    def push(self, rows: Floats32, imputed: Flags | None = None) -> Iterable[Scores]:
        """Add rows (time, variable), with a mask of `imputed` cells; returns scores as they become final."""
        return (self._push(rows, imputed),) if len(rows) == 1 else self._push_blocks(rows, imputed)

    def _push_blocks(self, rows: Floats32, imputed: Flags | None) -> Iterator[Scores]:
        begin = 0
        while begin < len(rows):
            # An adaptation step comes after a fixed number of readings, however they are cut.
            follower = self._follower
            most = self._block if follower is None else follower.every - self._seen % follower.every
            block = slice(begin, begin + min(most, self._block))
            yield self._push(rows[block], None if imputed is None else imputed[block])
            begin = block.stop

    def _push(self, rows: Floats32, imputed: Flags | None) -> Scores:
        panel, follower, count = self._panel, self._follower, len(rows)
        known = self._rows.extend(count)
        first = len(known) - count
        own = known[first:]
        _clip_into(rows, own)
        fresh = own if follower is None else own.copy()
        if follower is not None:
            own -= follower.offset
        mask = self._mask(len(known), rows, imputed) if imputed is not None or self._doubtful else None
        recent = self._errors.extend(count)
        errors = self.latest = Errors(own, panel.errors(known, first, mask, recent[len(recent) - count :]))
        alerts, variables, unknown, _ = panel.scores(errors)
        self._seen += count
        if follower is not None:
            follower.see(fresh, imputed, variables)
            if self._seen % follower.every == 0:
                self._rows.kept[:] -= follower.learn()
        # Too few readings before a step leave it without errors too, but that is no gap.
        left_out = None if mask is None or unknown is None else unknown & lately(mask, first, panel.span)
        return Scores(alerts, variables, left_out, self._rank(recent, self._seen - panel.span + 1, self._ahead))

    def _mask(self, known: int, rows: Floats32, imputed: Flags | None) -> Flags | None:
        """Which of the known readings are imputed (time, variable); None if none of them is."""
        if imputed is not None and imputed.any():
            if not self._doubtful:
                self._imputed.append(np.zeros((known - len(rows), rows.shape[1]), bool))
            self._doubtful = self._panel.context + len(rows) + 1
        if not self._doubtful:
            return None
        self._doubtful = max(self._doubtful - len(rows), 0)
        mask = self._imputed.append(np.zeros(rows.shape, bool) if imputed is None else imputed)
        if not self._doubtful:
            self._imputed.clear()
        return mask

    def _rank(self, recent: Floats, final: int, ahead: int) -> Floats:
        """The ranking scores that become final when all errors of the steps up to `final` are known.

        `recent` has the last errors. A score needs those `ahead` of it.
        """
        before, covered = self._seen - len(recent), self._covered  # `before` is the time step of recent[0]
        self._covered = stop = max(final, covered)
        covering = self._panel.covering(recent, covered - before, stop - before)
        window = self._ranks.extend(stop - covered)
        start, stop = self._ranked, max(stop - ahead, self._ranked)
        self._ranked, ranking = stop, np.empty(stop - start)
        first = start - (self._covered - len(window))
        panel = self._panel
        rank_into(covering, panel.ranking, panel.weights, panel.pooling, window, self._spans, first, ranking)
        return ranking

    def finish(self) -> Iterator[Scores]:
        if not self._finished:
            self._finished = True
            ranking = self._rank(self._errors.extend(0), self._seen, 0)
            yield Scores(np.empty(0), np.empty((0, self._panel.width)), None, ranking)

    def sizes(self) -> dict[str, int]:
        """The lengths that follow from the settings and the counts."""
        known, width = min(self._seen, self._panel.context), self._panel.width
        recent, ranks = min(self._seen, self._panel.span - 1), min(self._covered, self._ranks.keep)
        imputed = known if self._doubtful else 0
        return {"known": known, "imputed": imputed, "recent": recent, "rank": ranks, "variable": width}

    def check_state(self) -> None:
        """Refuse counts that are not those of a stream."""
        seen, covered, panel = self._seen, self._covered, self._panel
        final = (seen, seen) if self._finished else (max(seen - panel.span + 1, 0), max(covered - self._ahead, 0))
        fits = 0 <= seen <= MOST_READINGS and (covered, self._ranked) == final
        fits = fits and 0 <= self._doubtful <= MOST_READINGS and self._finished in (0, 1)
        require_state(fits, "its array 'counts' is not that of a stream")


def score_series(panel: Panel, adaptation: "LevelAdaptation", rows: Floats32, imputed: Flags | None) -> StepScores:
    """Score a series (time, variable) as one run would, to the bit.

    Without adaptation a score depends on readings near it only, so a long series is shared among threads: each scores
    a part, with the readings before and after that the part's scores depend on.
    """
    length = len(rows)
    ranking, alerts, unjudged = np.empty(length), np.empty(length), np.zeros(length, bool)
    before = panel.context + look_back(panel.smoothing)

    def score(own: slice) -> None:
        begin, end = max(own.start - before, 0), min(own.stop + panel.delay, length)
        run = ViewsRun(panel, adaptation)
        parts = [*run.push(rows[begin:end], None if imputed is None else imputed[begin:end]), *run.finish()]
        kept = slice(own.start - begin, own.stop - begin)
        ranking[own] = np.concatenate([one.ranking for one in parts if one.ranking is not None])[kept]
        alerts[own] = np.concatenate([one.alerts for one in parts])[kept]
        if imputed is not None:
            unjudged[own] = np.concatenate([one.imputed for one in parts])[kept]

    if adaptation.follow(panel) is None and length >= SHARED:
        in_parts(score, length)
    else:
        score(slice(0, length))
    return StepScores(ranking, alerts, None if imputed is None else unjudged)


def gather_signature(
    panel: Panel, adaptation: "LevelAdaptation", rows: Floats32, imputed: Flags | None, start: int, stop: int
) -> Signature:
    """The signature that the steps start..stop of a series (time, variable) set."""
    # Adaptation depends on all earlier readings, errors only on a few.
    begin = max(start - panel.context, 0) if adaptation.follow(panel) is None else 0
    run, gathering = ViewsRun(panel, adaptation), Gathering(start, len(panel.views), panel.width)
    at = begin
    for scores in run.push(rows[begin:stop], None if imputed is None else imputed[begin:stop]):
        own = slice(max(start - at, 0), None)
        gathering.add(*(array[own] for array in (*run.latest, scores.variables)))
        at += len(scores.alerts)
    return gathering.signature()

"""Several fitted views, and how their errors become one score."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from cometad.arrays import Flags, Floats, Integers
from cometad.compiled import jit
from cometad.scoring.fuse import Fused, fuse
from cometad.scoring.signatures import Signatures
from cometad.scoring.smooth import look_ahead
from cometad.scoring.tails import Tails
from cometad.threads import in_parts, in_tasks
from cometad.views.sums import sum_rows
from cometad.views.view import FittedView, WindowView

MIN_SHARED = 256  # time steps; for fewer, starting threads takes longer than the work
FEW = 8  # time steps
LOST = 0.1  # share of variables: if more are imputed, views that mix variables cannot judge the others either


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
        """The number of variables."""
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
    def _spans(self) -> Integers:
        return np.array([view.span for view in self.views])

    @cached_property
    def delay(self) -> int:
        """Readings after a time step that its ranking score needs."""
        return self.span - 1 + look_ahead(self.smoothing)

    def errors(self, rows: Floats, first: int, imputed: Flags | None = None) -> Floats:
        """The errors (time - first, view, variable) of scaled rows (time, variable); NaN where unknown.

        The first `first` rows are context. An error is unknown if any reading of its variable in its span is `imputed`
        (time, variable), or if there are too few readings before it. If many variables are imputed, so are all errors
        of views that mix variables: they would blame the others for what is missing.
        """
        errors = np.empty((len(rows) - first, len(self.views), rows.shape[1]))

        if len(errors) < MIN_SHARED:
            self._write(rows, first, errors)
        else:
            in_parts(lambda part: self._write(rows[: first + part.stop], first + part.start, errors[part]), len(errors))
        if imputed is not None:
            lost = imputed.mean(axis=1, keepdims=True) > LOST
            for v, view in enumerate(self.views):
                errors[:, v][lately(imputed, first, view.span)] = np.nan
                if getattr(view, "mixes_variables", True):
                    errors[:, v][lately(lost, first, view.span)[:, 0]] = np.nan
        return errors

    def _write(self, rows: Floats, first: int, errors: Floats) -> None:
        for v, write in enumerate(self._writers):
            write(rows, first, False, errors, v)

    @cached_property
    def _writers(self) -> tuple[Callable[[Floats, int, bool, Floats, int], None], ...]:
        return tuple(view.write_known if isinstance(view, WindowView) else partial(_copy, view) for view in self.views)

    def covering(self, errors: Floats, start: int, stop: int) -> Floats:
        """The errors (time, view, variable) of the steps start..stop, each averaged over the spans that cover it.

        An error covers the `span` time steps up to its own. Unknown errors are left out of the mean; it is unknown if
        all of them are.
        """
        means = np.empty((stop - start, *errors.shape[1:]))
        _covering(errors, self._spans, start, means)
        return means

    def alerts(self, errors: Floats) -> Fused:
        """Alert scores of errors (time, view, variable), before verdicts."""
        return fuse(errors, self.alert, self.pooling)

    def excused(self, fused: Fused, rows: Floats, errors: Floats) -> Floats:
        """Alert scores in which nothing counts that a person called normal, of scaled rows (time, variable)."""
        if self.signatures is None:
            return fused.scores
        return self.signatures.scores(fused, rows, errors, self.alert[:, 1], self.pooling)

    def ranks(self, covering: Floats) -> Fused:
        """Ranking scores, before smoothing, of errors (time, view, variable) that `covering` averaged."""
        return fuse(covering, self.ranking, self.pooling)


def fit_tails(errors: Floats) -> Floats:
    """The tails (view, 3, variable) of errors (time, view, variable)."""
    tails = np.empty((errors.shape[1], 3, errors.shape[2]))

    def of_view(v: int) -> None:
        tails[v] = Tails.fit(errors[:, v])

    in_tasks(of_view, len(tails))
    return tails


def lately(imputed: Flags, first: int, span: int) -> Flags:
    """Whether any of the last `span` readings of a variable is `imputed` (time, variable): (time - first, variable)."""
    before = np.cumsum(np.concatenate([np.zeros((1, imputed.shape[1]), int), imputed]), axis=0)
    stops = np.arange(first, len(imputed)) + 1
    marked: Flags = before[stops] > before[np.maximum(stops - span, 0)]
    return marked


def _copy(view: FittedView, rows: Floats, first: int, expected: bool, out: Floats, v: int) -> None:
    """`WindowView.write_known` for a view that has no such method."""
    begin = max(first - view.context, 0)
    out[:, v] = (view.expected if expected else view.errors)(rows[begin:], first - begin)


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

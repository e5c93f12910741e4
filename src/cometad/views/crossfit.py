"""Errors and scores of training readings as new readings would have had them.

A view fits the readings it was fitted on too well. So the training series is cut into four blocks, and each is scored
by views that were fitted on the other three.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from cometad.arrays import Array, Flags, Floats
from cometad.views.adaptation import KeepFitted
from cometad.views.panel import Panel, fit_tails
from cometad.views.run import score_series
from cometad.views.view import FittedView, View

FOLDS = 4
CALIBRATION_ROWS = 40_000  # at most, in stretches spread over the series: more change no quantile
STRETCH = 1_024  # readings
SAMPLE = 10_000  # averaged errors kept, at most


class Fold(NamedTuple):
    """A block of time steps, and the views that were fitted without it."""

    start: int
    stop: int
    views: tuple[FittedView, ...]


class CrossFitted(NamedTuple):
    """The outcome of cross-fitting."""

    folds: list[Fold]
    alert: Floats  # (view, 3, variable)  tails of the errors
    ranking: Floats  # (view, 3, variable)  tails of the averaged errors
    sample: Floats  # (time, view, variable)  some of the averaged errors


def fit_views(views: Sequence[View], rows: Floats, usable: Flags, seed: int) -> tuple[FittedView, ...]:
    """Fit each view on the usable rows; all of them draw the same random numbers, in any order."""
    return tuple(view.fit(rows, usable, np.random.default_rng(seed)) for view in views)


def cross_fit(
    views: Sequence[View],
    rows: Floats,
    usable: Flags,
    imputed: Flags | None,
    seed: int,
    report: Callable[[int], object] = lambda fold: None,
) -> CrossFitted:
    """Fit views without each block in turn, and the tails of the errors in that block.

    `rows` are scaled readings (time, variable); `usable` (time,) marks those to learn from.
    """
    bounds = np.linspace(0, len(rows), FOLDS + 1).astype(int)
    folds, alert, ranking = [], [], []
    for k in range(FOLDS):  # not in threads: numpy's products would compete with each other, and change in the last bit
        fold = _without(views, rows, usable, int(bounds[k]), int(bounds[k + 1]), seed)
        folds.append(fold)
        report(k + 1)
        for start, stop in _stretches(fold, len(rows)):
            errors, covering = stretch_errors(fold.views, rows, usable, imputed, start, stop)
            alert.append(errors)
            ranking.append(covering)
    averaged = np.concatenate(ranking)
    known = averaged[~np.isnan(averaged).all(axis=(1, 2))]
    sample = known[:: -(-len(known) // SAMPLE) or 1]
    return CrossFitted(folds, fit_tails(np.concatenate(alert)), fit_tails(averaged), sample)


def _without(views: Sequence[View], rows: Floats, usable: Flags, start: int, stop: int, seed: int) -> Fold:
    others = usable.copy()
    others[start:stop] = False
    return Fold(start, stop, fit_views(views, rows, others, seed))


def _stretches(fold: Fold, rows: int) -> list[tuple[int, int]]:
    """The stretches of a fold that tails are fitted on."""
    if rows <= CALIBRATION_ROWS:
        return [(fold.start, fold.stop)]
    count = CALIBRATION_ROWS // FOLDS // STRETCH
    starts = np.linspace(fold.start, fold.stop - STRETCH, count).astype(int)
    return [(int(start), int(start) + STRETCH) for start in starts]


def stretch_errors(
    views: tuple[FittedView, ...], rows: Floats, usable: Flags, imputed: Flags | None, start: int, stop: int
) -> tuple[Floats, Floats]:
    """The errors of the steps start..stop, and averaged over the spans that cover each; unknown if not all usable."""
    none = np.zeros((len(views), 3, rows.shape[1]))
    panel = Panel(views, none, none, 1, ())
    begin, end = max(start - panel.context, 0), min(stop + panel.span - 1, len(rows))
    mask = None if imputed is None else imputed[begin:end]
    errors = panel.errors(rows[begin:end], start - begin, mask)
    for v, view in enumerate(views):
        errors[~all_usable(usable, view.context)[start:end], v] = np.nan
    return errors[: stop - start], panel.covering(errors, 0, stop - start)


def all_usable(usable: Flags, context: int) -> Flags:
    """The time steps (time,) that are usable together with the `context` ones before them.

    >>> import numpy as np
    >>> from cometad.views.crossfit import all_usable
    >>> all_usable(np.array([1, 0, 1, 1], bool), 1)
    array([ True, False, False,  True])
    """
    before = np.concatenate([[0], np.cumsum(~usable)])
    steps = np.arange(len(usable))
    clean: Flags = before[steps + 1] == before[np.maximum(steps - context, 0)]
    return clean


def score_folds(found: CrossFitted, rows: Array, imputed: Flags | None, pooling: int) -> Floats:
    """The alert score (time,) of each row, by views that were fitted without its block."""
    scores = np.empty(len(rows))
    for fold in found.folds:
        panel, own = Panel(fold.views, found.alert, found.ranking, pooling, ()), slice(fold.start, fold.stop)
        scores[own] = score_series(panel, KeepFitted(), rows, imputed, own).alerts
    return scores

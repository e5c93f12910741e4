"""Errors and scores of training readings as new readings would have had them.

A view fits the readings it was fitted on too well. So the training series is cut into four blocks, and each is scored
by views that were fitted on the other three.
"""

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from cometad.arrays import Flags, Floats
from cometad.compute import in_tasks, serial_products
from cometad.scoring.scores import Tails
from cometad.views.panel import Panel, lately
from cometad.views.view import FittedView, View

FOLDS = 4
CALIBRATION_ROWS = 40_000  # at most, in stretches spread over the series: more change no quantile
STRETCH = 1_024  # readings
SAMPLE = 10_000  # averaged errors kept, at most


class Fold(NamedTuple):
    """A block of time steps, and the views and tails that were fitted without it."""

    start: int
    stop: int
    views: tuple[FittedView, ...]
    alert: Floats  # (view, 3, variable)  tails of the errors in the other blocks


class CrossFitted(NamedTuple):
    """The outcome of cross-fitting, and what was fitted on."""

    rows: Floats  # (time, variable)
    usable: Flags  # (time,)
    imputed: Flags | None  # (time, variable)
    folds: list[Fold]
    alert: Floats  # (view, 3, variable)  tails of the errors
    ranking: Floats  # (view, 3, variable)  tails of the averaged errors
    sample: Floats  # (time, view, variable)  some of the averaged errors


def fit_views(views: Sequence[View], rows: Floats, usable: Flags, seed: int) -> tuple[FittedView, ...]:
    """Fit each view on the usable rows; all of them draw the same random numbers, in any order."""
    with serial_products():  # their last bit would depend on the number of threads
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
    bounds = np.linspace(0, len(rows), FOLDS + 1).astype(int).tolist()
    stretches = [_stretches(bounds[k], bounds[k + 1], len(rows)) for k in range(FOLDS)]
    counts = [sum(stop - start for start, stop in own) for own in stretches]
    alert, averaged = np.empty((2, sum(counts), len(views), rows.shape[1]))
    fitted: dict[int, tuple[FittedView, ...]] = {}
    lock = threading.Lock()

    def fit_fold(k: int) -> None:
        outside = usable.copy()
        outside[bounds[k] : bounds[k + 1]] = False
        own_views = fit_views(views, rows, outside, seed)
        at = sum(counts[:k])
        for start, stop in stretches[k]:
            own = slice(at, at + stop - start)
            alert[own], averaged[own] = stretch_errors(own_views, rows, usable, imputed, start, stop)
            at = own.stop
        with lock:
            fitted[k] = own_views
            report(len(fitted))

    if all(getattr(view, "thread_safe", False) for view in views):
        in_tasks(fit_fold, FOLDS)
    else:
        for k in range(FOLDS):
            fit_fold(k)
    known = np.flatnonzero(~np.isnan(averaged).all(axis=(1, 2)))
    sample = averaged[known[:: -(-len(known) // SAMPLE) or 1]]
    block, folds = np.repeat(np.arange(FOLDS), counts), []
    for k in range(FOLDS):
        others = np.flatnonzero(block != k)
        tails = fit_tails(alert[others[:: -(-len(others) // SAMPLE)]])
        folds.append(Fold(bounds[k], bounds[k + 1], fitted[k], tails))
    return CrossFitted(rows, usable, imputed, folds, fit_tails(alert), fit_tails(averaged), sample)


def fit_tails(errors: Floats) -> Floats:
    """The tails (view, 3, variable) of errors (time, view, variable)."""
    tails = np.empty((errors.shape[1], 3, errors.shape[2]))

    def of_view(v: int) -> None:
        tails[v] = Tails.fit(errors[:, v])

    in_tasks(of_view, len(tails))
    return tails


def _stretches(begin: int, end: int, rows: int) -> list[tuple[int, int]]:
    """The stretches of the block begin..end that tails are fitted on."""
    if rows <= CALIBRATION_ROWS:
        return [(begin, end)]
    count = CALIBRATION_ROWS // FOLDS // STRETCH
    starts = np.linspace(begin, end - STRETCH, count).astype(int)
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
        errors[~all_usable(usable[begin:end], view.context)[start - begin :], v] = np.nan
    return errors[: stop - start], panel.covering(errors, 0, stop - start)


def all_usable(usable: Flags, context: int) -> Flags:
    """The time steps (time,) that are usable together with the `context` ones before them."""
    return ~lately(~usable[:, None], 0, context + 1)[:, 0]


def by_folds(folds: Sequence[Fold], score: Callable[[Fold, int, int], Floats]) -> Floats:
    """The scores (time,) of all steps; `score` returns those of start..stop by a fold. Threads share the folds."""
    parts = [
        (fold, slice(at, min(at + STRETCH, fold.stop)))
        for fold in folds
        for at in range(fold.start, fold.stop, STRETCH)
    ]
    scores = np.empty(folds[-1].stop)

    def score_part(k: int) -> None:
        fold, own = parts[k]
        scores[own] = score(fold, own.start, own.stop)

    in_tasks(score_part, len(parts))
    return scores


def score_folds(found: CrossFitted, pooling: int) -> Floats:
    """The alert score (time,) of each row, by views and tails that were fitted without its block."""

    def score(fold: Fold, start: int, stop: int) -> Floats:
        panel = Panel(fold.views, fold.alert, found.ranking, pooling, ())
        begin = max(start - panel.context, 0)
        mask = None if found.imputed is None else found.imputed[begin:stop]
        return panel.fused(panel.errors(found.rows[begin:stop], start - begin, mask)).alerts

    return by_folds(found.folds, score)

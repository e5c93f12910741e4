"""Bands: how far a normal reading may be from what a view expects."""

import numpy as np

from cometad.arrays import Floats
from cometad.scoring.scores import HIGH
from cometad.views.crossfit import CrossFitted, Fold, all_usable

ROWS = 4_000  # at most, over all blocks: more would cost time and hardly move the quantile
STRETCH = 250  # readings


def fit_bands(found: CrossFitted) -> Floats:
    """The 98 % quantile of the distance between reading and expectation (view, variable), in scaled units.

    Usable readings of each block are compared with what the views that were fitted without it expect. NaN for a view
    that expects no particular reading.
    """
    gaps = []
    for fold in found.folds:
        for start, stop in _stretches(fold, len(found.folds)):
            gaps.append(np.abs(found.rows[start:stop, None] - _expected(fold, found, start, stop)))
    return _quantiles(np.concatenate(gaps))


def _stretches(fold: Fold, folds: int) -> list[tuple[int, int]]:
    length = min(STRETCH, fold.stop - fold.start)
    count = min(max(ROWS // folds // STRETCH, 1), -(-(fold.stop - fold.start) // length))
    starts = np.linspace(fold.start, fold.stop - length, count).astype(int)
    return [(int(start), int(start) + length) for start in starts]


def _expected(fold: Fold, found: CrossFitted, start: int, stop: int) -> Floats:
    """What each view expects (time, view, variable) at the steps start..stop; NaN if its context is not all usable."""
    parts = []
    for view in fold.views:
        own, first = slice(max(start - view.context, 0), stop), min(start, view.context)
        clean = all_usable(found.usable[own], view.context)[first:]
        parts.append(np.where(clean[:, None], view.expected(found.rows[own], first), np.nan))
    return np.stack(parts, axis=1)


def _quantiles(gaps: Floats) -> Floats:
    """The quantile of the known ones of distances (time, view, variable)."""
    bands = np.full(gaps.shape[1:], np.nan)
    for v in range(gaps.shape[1]):
        known = gaps[:, v][~np.isnan(gaps[:, v]).any(axis=1)]
        if len(known):
            bands[v] = np.quantile(known, HIGH, axis=0)
    return bands

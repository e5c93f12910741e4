"""Score drift: quantiles over time, and distributions in training and in a series."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cometad.arrays import Floats

LEVELS = (0.5, 0.9, 0.99)
BINS = 100  # of time
BARS = 40  # of the histogram
SHOWN = 0.995  # the histogram ends at this quantile; its last bar includes all higher scores


@dataclass(frozen=True)
class ScoreDrift:
    """Scores over time, compared with the training scores."""

    quantiles: Floats  # (level, bin)  of the scores in bins of equal length
    training: Floats  # (level,)  of the training scores
    edges: Floats  # (bar + 1,)  of the histogram
    before: Floats  # (bar,)  share of the training scores
    after: Floats  # (bar,)  share of the scores
    above: float  # share of the scores above the highest training quantile


def drift(scores: ArrayLike, training: ArrayLike, bins: int = BINS) -> ScoreDrift:
    """Compare scores (time,) with training scores (time,)."""
    now, then = np.asarray(scores, np.float64), np.asarray(training, np.float64)
    parts = np.array_split(now, min(bins, len(now)))
    quantiles = np.stack([np.quantile(part, LEVELS) for part in parts], axis=1)
    usual = np.quantile(then, LEVELS)
    edges = _edges(now, then)
    before, after = (np.histogram(np.clip(part, edges[0], edges[-1]), edges)[0] / len(part) for part in (then, now))
    return ScoreDrift(quantiles, usual, edges, before, after, above=float(np.mean(now > usual[-1])))


def _edges(now: Floats, then: Floats) -> Floats:
    low = min(now.min(), then.min())
    high = max(np.quantile(now, SHOWN), np.quantile(then, SHOWN))
    # Wide enough that all edges differ as floats, even if all scores are equal.
    width = max(high - low, 1e-6 * max(abs(low), abs(high)), np.finfo(np.float64).tiny * 2**60)
    return np.linspace(low, low + width, BARS + 1)

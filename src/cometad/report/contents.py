"""The contents of a report: text and thinned numbers, bounded in size however long the series is."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cometad.alerting.alerts import Level
from cometad.arrays import Floats
from cometad.report.axes import Tick

BUCKETS = 500  # of a thinned curve, two points each: enough for a plot a thousand pixels wide
LEVELS = (0.5, 0.9, 0.99)  # quantiles of the scores
BINS = 100  # of time
BARS = 40  # of the histogram
SHOWN = 0.995  # the histogram ends at this quantile; its last bar includes all higher scores


class Line(NamedTuple):
    places: Floats  # (point,)  0 at the first time step, 1 at the last
    values: Floats  # (point,)

    @classmethod
    def of(cls, values: Floats) -> "Line":
        chosen = thin(values)
        return cls(chosen / max(len(values) - 1, 1), np.asarray(values[chosen], np.float64))


class Mark(NamedTuple):
    """Where an event lies on a time axis, and how strongly it is drawn."""

    number: int
    start: float  # places, as in a `Line`
    stop: float
    peak: float
    strength: float = 1.0


@dataclass(frozen=True)
class Strip:
    alerts: Line  # alert scores
    thresholds: Line
    ticks: tuple[Tick, ...]
    marks: tuple[Mark, ...]
    ranking: Line | None = None  # ranking scores; None if they are the alert scores


@dataclass(frozen=True)
class Trace:
    variable: str
    share: float  # of the rises of all variables
    observed: Line
    normal: Line  # what was expected, in the variable's units
    sentence: str  # why it is unusual, and where the two differ most


@dataclass(frozen=True)
class EventPanel:
    number: int
    start: str
    end: str  # of its last time step; like the peak, without the date if that is the same as at the start
    peak: str
    duration: str
    severity: float
    meaning: str  # how often normal operation reaches that severity
    level: Level
    new_level: bool  # it ended because its state is no longer news
    score: float  # the alert score at its peak
    top: tuple[tuple[str, float], ...]  # variables with the largest shares; empty if the detector cannot explain
    strip: Strip  # the scores around the event
    traces: tuple[Trace, ...]


@dataclass(frozen=True)
class Usage:
    """The usage of one scale's codes, most used in training first."""

    patch_size: int  # readings in a patch of this scale
    training: Floats  # (code,)  share of the training patches
    here: Floats  # (code,)  share of the series' patches
    unseen: float  # share of the series' patches on codes that training never used


@dataclass(frozen=True)
class ScoreDrift:
    quantiles: Floats  # (level, bin)  of the scores in bins of equal length
    training: Floats  # (level,)  of the training scores
    edges: Floats  # (bar + 1,)  of the histogram
    before: Floats  # (bar,)  share of the training scores
    after: Floats  # (bar,)  share of the scores
    above: float  # share of the scores above the highest training quantile


@dataclass(frozen=True)
class Report:
    headline: str
    period: str  # first and last time of the series
    summary: tuple[tuple[str, str], ...]  # key figures: label and value
    center: float  # median of the alert scores in training
    threshold: float  # in training
    axis: str  # what time axes show: "time" or "time step"
    strip: Strip
    counts: Mapping[Level, int]  # of events
    panels: tuple[EventPanel, ...]  # of the worst events, worst first; so alerts come before notices
    explained: bool  # whether the detector can name the variables behind an event
    usages: tuple[Usage, ...]  # one per scale; empty if the detector has no codebook
    drift: ScoreDrift
    findings: tuple[tuple[str, str], ...]  # trends, left out, data quality: kind, sentence
    settings: Mapping[str, Any]  # as JSON values


def thin(values: ArrayLike, buckets: int = BUCKETS) -> NDArray[np.int64]:
    """Indices of the values (time,) to draw, in order: the minimum and maximum of each bucket, and both ends.

    A short curve keeps all its values. Buckets are equally long, give or take one value; a bucket with missing values
    also keeps one of them.
    """
    line = np.asarray(values, dtype=np.float64)
    if len(line) <= 2 * buckets:
        return np.arange(len(line))
    missing = np.isnan(line)
    low, high = np.where(missing, np.inf, line), np.where(missing, -np.inf, line)
    edges = [0, *((np.arange(1, buckets + 1) * ((len(line) - 1) / buckets)).astype(np.int64) + 1).tolist()]
    chosen = [0, len(line) - 1]
    for start, stop in pairwise(edges):
        chosen += [start + int(low[start:stop].argmin()), start + int(high[start:stop].argmax())]
        if missing[start:stop].any():
            chosen.append(start + int(missing[start:stop].argmax()))
    return np.unique(chosen)


def usage(patch_size: int, training: ArrayLike, here: ArrayLike) -> Usage:
    """The usage of one scale's codes, given the patches per code (code,) in training and in a series."""
    counts = [np.asarray(counts, np.float64) for counts in (training, here)]
    before, now = (numbers / max(numbers.sum(), 1.0) for numbers in counts)
    order = np.lexsort((-now, -before))
    return Usage(int(patch_size), before[order], now[order], float(now[before == 0].sum()))


def drift(scores: ArrayLike, training: ArrayLike, bins: int = BINS) -> ScoreDrift:
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

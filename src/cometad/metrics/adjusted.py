"""Metrics of segments: point adjustment, and whole events.

By point adjustment and PA%K, once K percent of a segment is detected, all of it counts as detected. With K = 0 one
detected point is enough (point adjustment); with K = 100 nothing is adjusted (plain pointwise F1). A single lucky hit
earns the full length of a segment, so at K = 0 random scores look excellent on long anomalies.

Metrics of whole events are for operators. An alarm is a run of detected points. It is real if it overlaps an anomaly;
an anomaly is detected if at least one of its points is. Long anomalies count as much as short ones.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cometad.arrays import Floats, Integers
from cometad.compute import jit
from cometad.errors import ParameterError, unknown
from cometad.metrics.ranking import AtThreshold, Ranked, binary, checked_threshold, nothing_detected, segments_of

KS = tuple(range(101))

# The number of points that make up K percent of a segment: at least one, even for K = 0.
SHARES: dict[str, Callable[[Integers, float], Floats]] = {
    "at_least": lambda lengths, k: np.maximum(np.ceil(lengths * k / 100), 1),
    "more_than": lambda lengths, k: np.floor(lengths * k / 100) + 1,  # tadpak
}


def best_adjusted_f1(labels: object, scores: object, k: float = 0, share: str = "at_least") -> AtThreshold:
    """The highest adjusted F1 over all thresholds. This is an oracle: the labels choose the threshold.

    `share` sets whether exactly K percent is enough ("at_least") or not ("more_than", as in tadpak).

    >>> from cometad.metrics import best_adjusted_f1
    >>> labels, scores = [0, 1, 1, 1, 0, 0], [0.2, 0.9, 0.1, 0.1, 0.3, 0.0]
    >>> best_adjusted_f1(labels, scores, k=0).f1, round(best_adjusted_f1(labels, scores, k=50).f1, 4)
    (1.0, 0.75)
    """
    return best_adjusted(Ranked.of(labels, scores), k, share)


def adjusted_f1_at(
    labels: object, scores: object, threshold: float, k: float = 0, share: str = "at_least"
) -> AtThreshold:
    """The adjusted F1 at a threshold chosen without these labels.

    >>> from cometad.metrics import adjusted_f1_at
    >>> adjusted_f1_at([0, 1, 1, 1, 0], [0.6, 0.9, 0.1, 0.1, 0.3], threshold=0.5).precision
    0.75
    """
    chosen = checked_threshold(threshold)
    flags = binary(labels, scores, chosen)
    if not flags.scores.any():
        return nothing_detected(chosen)
    hits = np.add.reduceat(flags.scores, flags.segments.starts)
    hits -= np.add.reduceat(np.where(flags.labels, 0.0, flags.scores), flags.segments.starts)
    lengths = flags.segments.stops - flags.segments.starts
    counted = float(np.sum(np.where(hits >= _needed(lengths, k, share), lengths, hits)))
    alarms = float(np.count_nonzero(flags.scores) - hits.sum())
    return _as_result(counted, alarms, flags.anomalies, chosen)


def adjusted_f1_curve(labels: object, scores: object, share: str = "at_least") -> Floats:
    """The best adjusted F1 for K = 0, 1, ..., 100, each at its own best threshold.

    >>> from cometad.metrics import adjusted_f1_curve
    >>> adjusted_f1_curve([0, 1, 1, 0], [0.2, 0.9, 0.1, 0.3])[[0, 50, 51, 100]].round(4)
    array([1.    , 1.    , 0.6667, 0.6667])
    """
    ranked = Ranked.of(labels, scores)
    return np.array([best_adjusted(ranked, k, share).f1 for k in KS])


def adjusted_f1_area(labels: object, scores: object, share: str = "at_least") -> float:
    """The area under `adjusted_f1_curve` by the trapezoid rule, with K scaled to [0, 1].

    >>> from cometad.metrics import adjusted_f1_area
    >>> round(adjusted_f1_area([0, 1, 1, 0], [0.2, 0.9, 0.1, 0.3]), 4)
    0.835
    """
    return float(np.trapezoid(adjusted_f1_curve(labels, scores, share), dx=0.01))


def best_adjusted(ranked: Ranked, k: float, share: str = "at_least") -> AtThreshold:
    """`best_adjusted_f1` for points that are already ranked."""
    lengths = ranked.segments.stops - ranked.segments.starts
    threshold, segment = ranked.walk
    alarms = (ranked.detected - ranked.hits)[threshold]  # normal points detected at that threshold
    top, counted = _best(threshold, segment, alarms, lengths, _needed(lengths, k, share).astype(np.int64))
    return _as_result(counted, float(alarms[top]), ranked.anomalies, float(ranked.thresholds[threshold[top]]))


def _needed(lengths: Integers, k: float, share: str) -> Floats:
    if not 0 <= k <= 100:
        raise ParameterError(f"The 'k' parameter must be a percentage from 0 to 100. Got {k!r} instead.")
    if share not in SHARES:
        raise unknown("share", share, SHARES)
    return SHARES[share](lengths, k)


def _as_result(counted: float, alarms: float, anomalies: int, threshold: float) -> AtThreshold:
    detected = counted + alarms
    return AtThreshold(2 * counted / (detected + anomalies), counted / detected, counted / anomalies, threshold)


@jit
def _best(
    threshold: Integers, segment: Integers, alarms: Integers, lengths: Integers, needed: Integers
) -> tuple[int, float]:
    """The index of the best F1 along the walk, and the number of points that count as detected there.

    The best threshold always adds an anomalous point: any other threshold adds only false alarms.
    """
    seen = np.zeros(len(lengths), np.int64)
    anomalies = len(threshold)
    counted, top, top_counted, top_f1 = 0, 0, 0, -1.0
    for i in range(anomalies):
        here = segment[i]
        seen[here] += 1
        if seen[here] < needed[here]:
            counted += 1
        elif seen[here] == needed[here]:
            counted += lengths[here] - needed[here] + 1
        if i + 1 < anomalies and threshold[i + 1] == threshold[i]:
            continue  # equal scores are detected together
        f1 = 2 * counted / (counted + alarms[i] + anomalies)
        if f1 > top_f1:
            top, top_counted, top_f1 = i, counted, f1
    return top, float(top_counted)


# -- whole events ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Events:
    """Alarms compared with anomalies at one threshold.

    >>> from cometad.metrics import events_at
    >>> events_at([0, 1, 1, 0], [0, 0, 1, 1], threshold=1).alarms
    1
    """

    alarms: int
    anomalies: int
    precision: float  # share of alarms that are real; nan without alarms
    recall: float  # share of anomalies detected
    f1: float
    delays: Floats  # (anomaly,) time steps from its start to its first detected point; nan if missed

    @property
    def mean_delay(self) -> float:
        """The mean delay over the detected anomalies; nan if all were missed."""
        delays = self.delays[~np.isnan(self.delays)]
        return float(delays.mean()) if len(delays) else float("nan")


def events_at(labels: object, scores: object, threshold: float) -> Events:
    """Event-level precision, recall and detection delays at a threshold.

    >>> from cometad.metrics import events_at
    >>> events = events_at([0, 1, 1, 1, 0, 0, 1], [0, 0, 0, 9, 9, 0, 0], threshold=5)
    >>> events.precision, events.recall, events.mean_delay
    (1.0, 0.5, 2.0)
    """
    flags = binary(labels, scores, checked_threshold(threshold))
    detected = flags.scores > 0
    starts, stops = flags.segments
    alarms = segments_of(detected)
    places = np.append(np.flatnonzero(detected), len(flags))
    first = places[np.searchsorted(places, starts)]  # first detected point at or after the start of each anomaly
    delays = np.where(first < stops, first - starts, np.nan)
    anomalous_before = np.append(0, np.cumsum(flags.labels))
    real = int(np.count_nonzero(anomalous_before[alarms.stops] > anomalous_before[alarms.starts]))
    precision = real / len(alarms.starts) if len(alarms.starts) else float("nan")
    recall = float(np.mean(first < stops))
    f1 = 2 * precision * recall / (precision + recall) if real else 0.0
    return Events(len(alarms.starts), len(starts), precision, recall, f1, delays)

"""Affiliation: how close detections are to anomalies, compared with a random guess in the same zone.

Each anomaly owns a zone that extends to the midpoints between it and its neighbors. Time step i is the cell
[i, i + 1); a cell cut by a midpoint belongs half to each zone. Within a zone, precision is the probability that a
random position is at least as far from the anomaly as a detected cell is, averaged over the detected cells; recall is
the probability that a random position is at least as far away as the nearest detection, averaged over the anomaly. A
zone without detections is left out of precision and contributes 0 to recall.

Detecting everything reaches an F1 of about 2/3, and so do random scores: the floor is 2/3, not 0.

Huet, Navarro and Rossi, "Local Evaluation of Time Series Anomaly Detection Algorithms", KDD 2022.
"""

from typing import NamedTuple

import numpy as np

from cometad.arrays import Flags, Floats, Integers
from cometad.compute import jit
from cometad.metrics.ranking import AtThreshold, Ranked, binary, checked_threshold, nothing_detected, segments_of


class AffiliationCurve(NamedTuple):
    """Affiliation precision and recall at each distinct score, highest first.

    >>> from cometad.metrics import affiliation_curve
    >>> affiliation_curve([0, 1, 0, 0], [0.1, 0.9, 0.2, 0.1]).recall
    array([1., 1., 1.])
    """

    thresholds: Floats
    precision: Floats
    recall: Floats


def affiliation_curve(labels: object, scores: object) -> AffiliationCurve:
    """Affiliation precision and recall at every threshold.

    >>> from cometad.metrics import affiliation_curve
    >>> affiliation_curve([0, 1, 0, 0], [0.1, 0.9, 0.2, 0.1]).precision.round(4)
    array([1.    , 0.75  , 0.5312])
    """
    return ranked_curve(Ranked.of(labels, scores))


def best_affiliation(labels: object, scores: object) -> AtThreshold:
    """The highest affiliation F1 over all thresholds. This is an oracle with a floor of about 2/3.

    >>> from cometad.metrics import best_affiliation
    >>> best_affiliation([0, 1, 0, 0], [0.1, 0.9, 0.2, 0.1])
    AtThreshold(f1=1.0, precision=1.0, recall=1.0, threshold=0.9)
    """
    return ranked_best(Ranked.of(labels, scores))


def affiliation_at(labels: object, scores: object, threshold: float) -> AtThreshold:
    """Affiliation precision, recall and F1 at a threshold chosen without these labels.

    >>> from cometad.metrics import affiliation_at
    >>> affiliation_at([0, 1, 0, 0], [0.1, 0.9, 0.2, 0.1], threshold=0.2).precision
    0.75
    """
    chosen = checked_threshold(threshold)
    flags = binary(labels, scores, chosen)
    if not flags.scores.any():
        return nothing_detected(chosen)
    points = ranked_curve(flags)
    return _best_of(points.precision[:1], points.recall[:1], np.array([chosen]))


def ranked_best(ranked: Ranked) -> AtThreshold:
    points = ranked_curve(ranked)
    return _best_of(points.precision, points.recall, points.thresholds)


def ranked_curve(ranked: Ranked) -> AffiliationCurve:
    starts, stops = ranked.segments
    bounds = zone_bounds(ranked.labels)
    gains = _recall_gains(ranked.scores, starts, stops, bounds)
    recall = np.cumsum(gains[ranked.order])[ranked.detected - 1] / len(starts)
    precision = _precisions(ranked.order, ranked.detected, starts, stops, bounds)
    return AffiliationCurve(ranked.thresholds, precision, np.clip(recall, 0, 1))


def _best_of(precision: Floats, recall: Floats, thresholds: Floats) -> AtThreshold:
    product, total = precision * recall, precision + recall
    f1 = np.divide(2 * product, total, out=np.zeros_like(total), where=total > 0)
    top = int(np.argmax(f1))
    return AtThreshold(float(f1[top]), float(precision[top]), float(recall[top]), float(thresholds[top]))


def zone_bounds(labels: Flags) -> Floats:
    """The zone boundaries in time order: one more than there are anomalies."""
    starts, stops = segments_of(labels)
    return np.concatenate([[0.0], (stops[:-1] + starts[1:]) / 2, [float(len(labels))]])


@jit
def _recall_gains(scores: Floats, starts: Integers, stops: Integers, bounds: Floats) -> Floats:
    """How much each cell adds to the summed recall of the zones when cells are detected in order of falling score.

    Only the nearest earlier detection on each side matters: the previous cell with a score at least as high, and the
    next cell with a higher score. A stack of falling scores knows both at the moment a cell is popped.
    """
    gains = np.zeros(len(scores))
    stack = np.empty(len(scores) + 1, np.int64)
    for zone in range(len(starts)):
        left, right = bounds[zone], bounds[zone + 1]
        scale = (right - left) * (stops[zone] - starts[zone])
        first, last = int(np.floor(left)), int(np.ceil(right))
        height = 0
        for cell in range(first, last + 1):  # one step past the end empties the stack
            while height > 0 and (cell == last or scores[stack[height - 1]] < scores[cell]):
                height -= 1
                taken = stack[height]
                before = stack[height - 1] + 1.0 if height > 0 else np.nan
                after = float(cell) if cell < last else np.nan
                gain = _recall_gain(
                    max(taken, left), min(taken + 1, right), before, after, starts[zone], stops[zone], left, right
                )
                gains[taken] += gain / scale
            if cell < last:
                stack[height] = cell
                height += 1
    return gains


@jit
def _recall_gain(
    begin: float, end: float, before: float, after: float, start: int, stop: int, left: float, right: float
) -> float:
    """How much detecting [begin, end) adds to the recall integral.

    The nearest earlier detections end at `before` and start at `after`; nan if there is none on that side.
    """
    if before >= stop or after <= start:  # comparisons with nan are false
        return 0.0
    gain = max(min(end, stop) - max(begin, start), 0.0) * (right - left)
    gain += _gap(before, begin, start, stop, left, right) + _gap(end, after, start, stop, left, right)
    return gain - _gap(before, after, start, stop, left, right)


@jit
def _gap(before: float, after: float, start: int, stop: int, left: float, right: float) -> float:
    """The recall integral over the part of the anomaly that lies between two detections."""
    if np.isnan(before) and np.isnan(after):
        return 0.0
    if np.isnan(before):
        middle = left
    elif np.isnan(after):
        middle = right
    else:
        middle = (before + after) / 2
    total = 0.0
    if not np.isnan(after):
        total += _toward(after, max(start, middle), min(stop, after), left, right)
    if not np.isnan(before):  # the same with time reversed
        total += _toward(-before, -min(stop, middle), -max(start, before), -right, -left)
    return total


@jit
def _toward(detection: float, begin: float, end: float, left: float, right: float) -> float:
    """The integral over y in [begin, end) of the part of [left, right) at least as far from y as a later detection."""
    if end <= begin:
        return 0.0
    beyond = (right - detection) * (end - begin)
    # The side before y contributes only where y is closer to the detection than to the edge of the zone.
    nearer = max(begin, (detection + left) / 2)
    return beyond + max(end - nearer, 0.0) * (end + nearer - detection - left)


@jit
def _precisions(order: Integers, detected: Integers, starts: Integers, stops: Integers, bounds: Floats) -> Floats:
    """The mean precision over the zones with detections, at each threshold."""
    zones = len(starts)
    value, length, precision = np.zeros(zones), np.zeros(zones), np.zeros(zones)
    means = np.empty(len(detected))
    total, used, done = 0.0, 0, 0
    for threshold in range(len(detected)):
        for place in range(done, detected[threshold]):
            cell = order[place]
            zone = np.searchsorted(bounds, cell, side="right") - 1
            while zone < zones and bounds[zone] < cell + 1:  # runs twice for a cell cut by a midpoint
                begin, end = max(float(cell), bounds[zone]), min(cell + 1.0, bounds[zone + 1])
                used += length[zone] == 0
                length[zone] += end - begin
                value[zone] += _cell_value(begin, end, starts[zone], stops[zone], bounds[zone], bounds[zone + 1])
                updated = value[zone] / (length[zone] * (bounds[zone + 1] - bounds[zone]))
                total += updated - precision[zone]
                precision[zone] = updated
                zone += 1
        done = detected[threshold]
        means[threshold] = total / used
    return means


@jit
def _cell_value(begin: float, end: float, start: int, stop: int, left: float, right: float) -> float:
    """The integral over [begin, end) of the part of the zone at least as far from the anomaly."""
    if start <= begin and end <= stop:
        return (end - begin) * (right - left)
    near, far = (start - end, start - begin) if end <= start else (begin - stop, end - stop)
    return _farther(near, far, start - left) + _farther(near, far, right - stop)


@jit
def _farther(near: float, far: float, margin: float) -> float:
    """The integral over the distances from `near` to `far` of the part of the margin beyond each."""
    reach = min(far, margin)
    return max(reach - near, 0.0) * (margin - (near + reach) / 2)

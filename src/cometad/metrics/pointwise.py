"""Metrics that treat each point on its own: the order of the points in time does not matter."""

import numpy as np

from cometad.metrics.ranking import AtThreshold, Ranked, binary, checked_threshold, nothing_detected


def auc_roc(labels: object, scores: object) -> float:
    """The probability that an anomalous point scores higher than a normal one; ties count half.

    >>> from cometad.metrics import auc_roc
    >>> auc_roc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    0.75
    """
    return roc_area(Ranked.of(labels, scores))


def auc_pr(labels: object, scores: object) -> float:
    """Average precision: the precision at each threshold, weighted by the recall gained there.

    >>> from cometad.metrics import auc_pr
    >>> round(auc_pr([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]), 4)
    0.8333
    """
    return average_precision(Ranked.of(labels, scores))


def best_f1(labels: object, scores: object) -> AtThreshold:
    """The highest pointwise F1 over all thresholds. This is an oracle: the labels choose the threshold.

    If several thresholds tie, the highest is returned.

    >>> from cometad.metrics import best_f1
    >>> best_f1([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    AtThreshold(f1=0.8, precision=0.666..., recall=1.0, threshold=0.35)
    """
    ranked = Ranked.of(labels, scores)
    # Computed from counts: via precision and recall, tied F1 values would differ in the last digit, and rounding would
    # decide which threshold is returned.
    f1 = 2 * ranked.hits / (ranked.detected + ranked.anomalies)
    top = int(np.argmax(f1))
    hits, detected = int(ranked.hits[top]), int(ranked.detected[top])
    return AtThreshold(float(f1[top]), hits / detected, hits / ranked.anomalies, float(ranked.thresholds[top]))


def f1_at(labels: object, scores: object, threshold: float) -> AtThreshold:
    """The pointwise F1 at a threshold chosen without these labels.

    >>> from cometad.metrics import f1_at
    >>> f1_at([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8], threshold=0.5)
    AtThreshold(f1=0.666..., precision=1.0, recall=0.5, threshold=0.5)
    """
    chosen = checked_threshold(threshold)
    ranked = binary(labels, scores, chosen)
    flags = ranked.scores > 0
    hits, detected = int(np.count_nonzero(flags & ranked.labels)), int(np.count_nonzero(flags))
    if detected == 0:
        return nothing_detected(chosen)
    return AtThreshold(2 * hits / (detected + ranked.anomalies), hits / detected, hits / ranked.anomalies, chosen)


def roc_area(ranked: Ranked) -> float:
    normal = len(ranked) - ranked.anomalies
    hits = np.append(0, ranked.hits)
    alarms = np.append(0, ranked.detected) - hits
    # Twice the area, in integers: nothing is rounded before the division.
    doubled = np.sum(np.diff(alarms) * (hits[1:] + hits[:-1]))
    return float(doubled / (2 * normal * ranked.anomalies))


def average_precision(ranked: Ranked) -> float:
    gained = np.diff(ranked.hits, prepend=0)
    return float(np.sum(gained * (ranked.hits / ranked.detected)) / ranked.anomalies)

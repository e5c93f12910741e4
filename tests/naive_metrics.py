"""The metrics as plain loops, written from their definitions. Slow: for short series only."""

import math
from itertools import pairwise


def segments(labels):
    """[start, stop) of each run of anomalous points."""
    found, start = [], None
    for i, label in enumerate([*labels, 0]):
        if label and start is None:
            start = i
        if not label and start is not None:
            found.append((start, i))
            start = None
    return found


def thresholds(scores):
    return sorted(set(scores), reverse=True)


def f1(precision, recall):
    return 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0


def auc_roc(labels, scores):
    won = pairs = 0
    for anomalous, high in zip(labels, scores, strict=True):
        for other, low in zip(labels, scores, strict=True):
            if anomalous and not other:
                pairs += 1
                won += 1 if high > low else 0.5 if high == low else 0
    return won / pairs


def auc_pr(labels, scores):
    area = recall = 0.0
    for threshold in thresholds(scores):
        precision, new_recall = precision_recall(labels, [score >= threshold for score in scores])
        area += (new_recall - recall) * precision
        recall = new_recall
    return area


def precision_recall(labels, flags):
    hits = sum(1 for label, flag in zip(labels, flags, strict=True) if label and flag)
    return (hits / sum(flags) if sum(flags) else math.nan), hits / sum(labels)


def adjusted_flags(labels, flags, k, enough):
    """The flags, with every segment filled in once K percent of it is flagged."""
    flags = list(flags)
    for start, stop in segments(labels):
        hits = sum(flags[start:stop])
        if hits > 0 and enough(100 * hits, k * (stop - start)):
            flags[start:stop] = [True] * (stop - start)
    return flags


def adjusted_f1_at(labels, scores, threshold, k, enough):
    flags = adjusted_flags(labels, [score >= threshold for score in scores], k, enough)
    return f1(*precision_recall(labels, flags)) if any(flags) else 0.0


def best_adjusted_f1(labels, scores, k, enough):
    return max(adjusted_f1_at(labels, scores, threshold, k, enough) for threshold in thresholds(scores))


def affiliation(labels, scores, threshold):
    """Affiliation precision and recall.

    All integrands are piecewise linear with breaks at multiples of 1/4, so the midpoint rule is exact.
    """
    spans = segments(labels)
    bounds = [0.0, *((a[1] + b[0]) / 2 for a, b in pairwise(spans)), float(len(labels))]
    precisions, recalls = [], []
    for (start, stop), left, right in zip(spans, bounds[:-1], bounds[1:], strict=True):
        places = [left + (i + 0.5) / 4 for i in range(round(4 * (right - left)))]
        detected = [x for x in places if scores[int(x)] >= threshold]
        if not detected:
            recalls.append(0.0)
            continue
        pieces = [(max(i, left), min(i + 1, right)) for i in sorted({int(x) for x in detected})]
        chances = [share_at_least_as_far(start, stop, distance(x, [(start, stop)]), left, right) for x in detected]
        precisions.append(sum(chances) / len(chances))
        inside = [y for y in places if start <= y < stop]
        chances = [share_at_least_as_far(y, y, distance(y, pieces), left, right) for y in inside]
        recalls.append(sum(chances) / len(chances))
    return (sum(precisions) / len(precisions) if precisions else math.nan), sum(recalls) / len(recalls)


def distance(x, pieces):
    return min(max(begin - x, x - end, 0.0) for begin, end in pieces)


def share_at_least_as_far(start, stop, away, left, right):
    """The share of [left, right] at least `away` from [start, stop]."""
    if away == 0:
        return 1.0
    return (max(start - away - left, 0.0) + max(right - stop - away, 0.0)) / (right - left)


def extended_labels(labels, window, right_shorter):
    """The labels with a ramp on both sides of every segment."""
    extended = [float(label) for label in labels]
    for start, stop in segments(labels):
        for away in range(1, window // 2 + 1):
            weight = math.sqrt(1 - away / window)
            if start - away >= 0:
                extended[start - away] += weight
            if away <= window // 2 - right_shorter and stop - 1 + away < len(labels):
                extended[stop - 1 + away] += weight
    return [min(value, 1.0) for value in extended]


def merged_segments(labels, window, flavor):
    """Segments including their ramps, merged according to the flavor."""
    if flavor in ("classic", "symmetric"):  # runs of positive extended labels
        extended = extended_labels(labels, window, right_shorter=1 if flavor == "classic" else 0)
        return segments([value > 0 for value in extended])
    merged = []
    for start, stop in segments(labels):  # merge if the ranges share at least one point
        first, last = start - window // 2, stop - 1 + window // 2
        if merged and first <= merged[-1][1]:
            merged[-1][1] = last
        else:
            merged.append([first, last])
    return [(max(first, 0), min(last + 1, len(labels))) for first, last in merged]


def range_auc(labels, scores, window, flavor, cuts=None):
    """The areas under the ROC and PR curves for one window."""
    extended = extended_labels(labels, window, right_shorter=1 if flavor == "classic" else 0)
    groups = merged_segments(labels, window, flavor)
    rocs, prs = [(0.0, 0.0)], [(0.0, 1.0)]
    for threshold in thresholds(scores) if cuts is None else cuts:
        flags = [score >= threshold for score in scores]
        found = sum(value for value, flag in zip(extended, flags, strict=True) if flag)
        if flavor == "vus":
            ramp = sum(v for v, flag, label in zip(extended, flags, labels, strict=True) if flag and not label)
            positives = sum(labels) + ramp / 2
        else:
            positives = (sum(labels) + sum(extended)) / 2
        share = sum(any(flags[first:stop]) for first, stop in groups) / len(groups)
        recall = min(found / positives, 1.0) * share
        rocs.append(((sum(flags) - found) / (len(labels) - positives), recall))
        prs.append((recall, found / sum(flags)))
    rocs.append((1.0, 1.0))
    roc = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(rocs))
    if flavor == "vus":
        pr = sum((b[0] - a[0]) * b[1] for a, b in pairwise(prs))
    else:
        pr = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(prs))
    return roc, pr


def vus(labels, scores, max_window, flavor):
    areas = [range_auc(labels, scores, window, flavor) for window in range(max_window + 1)]
    return sum(roc for roc, _ in areas) / len(areas), sum(pr for _, pr in areas) / len(areas)


def events(labels, scores, threshold):
    """The share of real alarms, the share of detected anomalies, and the delay of each (None if missed)."""
    flags = [score >= threshold for score in scores]
    alarms = segments(flags)
    real = [alarm for alarm in alarms if any(labels[i] for i in range(*alarm))]
    delays = [next((i - start for i in range(start, stop) if flags[i]), None) for start, stop in segments(labels)]
    detected = sum(delay is not None for delay in delays)
    return (len(real) / len(alarms) if alarms else math.nan), detected / len(delays), delays


def sliding_window(readings):
    """The lag from 6 to 303 of the highest peak in the autocorrelation of the first 20,000 readings, else 125."""
    values = [float(value) for value in readings[:20_000]]
    mean = sum(values) / len(values)
    values = [value - mean for value in values]
    lags = min(400, len(values) - 1)
    sums = [sum(a * b for a, b in zip(values, values[lag:], strict=False)) for lag in range(lags + 1)]
    peaks = [lag for lag in range(4, lags) if sums[lag - 1] < sums[lag] > sums[lag + 1]]
    highest = max(peaks, key=lambda lag: sums[lag], default=0)
    return highest if 6 <= highest <= 303 else 125

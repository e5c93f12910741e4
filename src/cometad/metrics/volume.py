"""Range AUC and VUS: areas under ROC and PR curves that forgive a detection a little early or late.

Each anomaly gets a ramp on both sides: a point at distance d weighs sqrt(1 - d / window), up to window // 2 away. A
range AUC uses one window; VUS is the mean over the windows 0, 1, ..., `max_window`. Three flavors are in circulation,
they give different numbers, and papers rarely say which they used:

    classic     CATCH, TAB, DCdetector, aeon: the right ramp is one point shorter than the left one
    symmetric   the range AUC of vus 0.0.6: both ramps are equally long
    vus         the volume of vus 0.0.6, and TSB-AD: only detected ramp points add to the positives; PR by steps

At every threshold, TPR = min(TP / positives, 1) * (share of merged segments hit), FPR = (detected - TP) / (time -
positives), precision = TP / detected, and the ROC curve is closed with (1, 1).

How it is fast: a weight is at least sqrt(1/2), so a point under two ramps weighs exactly 1, and a ramp point is three
numbers (its distance, the half-window that reaches it, the half-window that reaches it twice). Thresholds at which no
anomalous point or ramp point is added only move along straight lines, and between two ramp points every sum over
thresholds is a difference of cumulative sums that are the same for all windows. So a window costs one pass over its
ramp points, not over the series.

Paparrizos et al., "Volume Under the Surface", PVLDB 15(11), 2022.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numba import njit

from cometad.errors import unknown
from cometad.metrics.inputs import Floats, Integers, checked_count
from cometad.metrics.ranking import Ranked

# A name for a window, and how many times the median anomaly length it is.
WINDOWS = {"median": 1, "twice_median": 2}

NEVER = np.iinfo(np.int64).max

# The curve's columns. Its rows are the thresholds at which an anomalous or a ramp point is added, from high to low,
# after a first row where nothing is detected. One table, so that a row is one stretch of memory.
DETECTED = 0  # points detected
BEFORE = 1  # points detected at the threshold just above
ANOMALOUS = 2  # anomalous points detected
ROC_SUM, PR_SUM, PR_SLOPE = 3, 4, 5  # see _cumulate

# The columns of the ramp points.
STEP = 0  # the row of the curve that adds the point
DISTANCE = 1  # from the segment whose ramp reaches it first
REACHED = 2  # the half-window from which a ramp covers it
DOUBLED = 3  # the half-window from which a second ramp covers it: its weight is then 1


@dataclass(frozen=True)
class Flavor:
    """What the circulating variants of the range AUC differ in.

    >>> from cometad.metrics import FLAVORS
    >>> FLAVORS["classic"].right_shorter
    1
    """

    right_shorter: int  # by how many points the right ramp is shorter than window // 2
    merge_slack: int  # segments merge when at most 2 * (window // 2) + merge_slack normal points lie between them
    detected_positives: bool  # only detected ramp points add to the positives, so these grow along the curve
    steps: bool  # PR area by steps to the right; else by trapezoids from (0, 1)


FLAVORS = {
    "classic": Flavor(right_shorter=1, merge_slack=-1, detected_positives=False, steps=False),
    "symmetric": Flavor(right_shorter=0, merge_slack=0, detected_positives=False, steps=False),
    "vus": Flavor(right_shorter=0, merge_slack=-1, detected_positives=True, steps=True),
}


class Areas(NamedTuple):
    """The area under the ROC curve and under the precision-recall curve."""

    roc: float
    pr: float


def range_auc(
    labels: object, scores: object, window: int | str = "median", flavor: str = "classic", ranks: int | None = None
) -> Areas:
    """The range AUC with one window, given as a number of points or as "median" (the median anomaly length).

    With `ranks` only that many equally spaced ranks serve as thresholds, as in the references (250); that is too coarse
    for rare anomalies and there to compare with published tables.

    >>> from cometad.metrics import range_auc
    >>> range_auc([0, 0, 1, 1, 0, 0], [0.1, 0.6, 0.9, 0.8, 0.2, 0.1], window=2)
    Areas(roc=0.9939..., pr=0.9926...)
    """
    ranked = Ranked.of(labels, scores)
    size = resolved_window(ranked, window)
    areas = window_areas(ranked, size, size, flavor, ranks)
    return Areas(float(areas.roc[0]), float(areas.pr[0]))


def vus(
    labels: object,
    scores: object,
    max_window: int | str = "twice_median",
    flavor: str = "classic",
    ranks: int | None = None,
) -> Areas:
    """The volume under the surface: the mean range AUC over the windows 0, 1, ..., `max_window`.

    >>> from cometad.metrics import vus
    >>> vus([0, 0, 1, 1, 0, 0], [0.1, 0.6, 0.9, 0.8, 0.2, 0.1], max_window=4)
    Areas(roc=0.9950..., pr=0.9950...)
    """
    ranked = Ranked.of(labels, scores)
    areas = window_areas(ranked, 0, resolved_window(ranked, max_window), flavor, ranks)
    return Areas(float(areas.roc.mean()), float(areas.pr.mean()))


def resolved_window(ranked: Ranked, window: int | str) -> int:
    """The window in points.

    >>> from cometad.metrics.ranking import Ranked
    >>> from cometad.metrics.volume import resolved_window
    >>> resolved_window(Ranked.of([1, 1, 1, 0], [0, 0, 0, 0]), "twice_median")
    6
    """
    if not isinstance(window, str):
        return checked_count(window, "window", least=0)
    if window not in WINDOWS:
        raise unknown("window", window, WINDOWS)
    return WINDOWS[window] * ranked.segments.median_length


class WindowAreas(NamedTuple):
    """The areas for each window of a range."""

    roc: Floats  # (window,)
    pr: Floats  # (window,)


def window_areas(ranked: Ranked, first: int, last: int, flavor: str, ranks: int | None) -> WindowAreas:
    """The areas of the windows `first` to `last`, both included.

    >>> from cometad.metrics.ranking import Ranked
    >>> from cometad.metrics.volume import window_areas
    >>> window_areas(Ranked.of([0, 1, 0], [1, 2, 0]), 0, 2, "classic", None).roc.round(4)
    array([1.    , 1.    , 0.9768])
    """
    if flavor not in FLAVORS:
        raise unknown("flavor", flavor, FLAVORS)
    rules = FLAVORS[flavor]
    places, ramp = _ramp_points(*ranked.segments, len(ranked), last // 2, rules.right_shorter)
    curve, step = _curve(ranked, places, ranks, rules.steps)
    ramp[:, STEP] = step[places]
    roc, pr = _areas(
        first,
        last,
        (rules.right_shorter, rules.merge_slack, rules.detected_positives, rules.steps),
        (len(ranked), ranked.anomalies),
        curve,
        step,
        ramp[np.argsort(ramp[:, STEP])],
        *ranked.segments,
    )
    return WindowAreas(roc, pr)


@njit(cache=True)
def _ramp_points(
    starts: Integers, stops: Integers, length: int, half: int, right_shorter: int
) -> tuple[Integers, Integers]:
    """The normal points that ramps of that half-window reach: their places, and a row for each, without its step."""
    size = len(starts) * 2 * half if len(starts) * 2 * half < length else length
    places, ramp = np.empty(size, np.int64), np.zeros((size, 4), np.int64)
    found = 0
    for gap in range(len(starts) + 1):  # the one before each segment, and the one after the last
        begin = stops[gap - 1] if gap > 0 else 0
        end = starts[gap] if gap < len(starts) else length
        left_end = min(begin + half, end)
        for side in range(2):  # no ramp reaches the middle of a long gap
            for place in range(begin if side == 0 else max(left_end, end - half), left_end if side == 0 else end):
                first, second, from_first = _first_two(starts, stops, gap, place, right_shorter)
                if first <= half:
                    places[found] = place
                    ramp[found, DISTANCE], ramp[found, REACHED], ramp[found, DOUBLED] = from_first, first, second
                    found += 1
    return places[:found], ramp[:found]


@njit(cache=True)
def _first_two(starts: Integers, stops: Integers, gap: int, place: int, right_shorter: int) -> tuple[int, int, int]:
    """The half-windows from which one ramp and two ramps cover a place in a gap, and the first's distance."""
    first, second, from_first = NEVER, NEVER, 0
    for other in range(max(gap - 2, 0), min(gap + 2, len(starts))):
        if other < gap:
            away = place - stops[other] + 1
            needed = away + right_shorter
        else:
            away = starts[other] - place
            needed = away
        if needed < first:
            first, second, from_first = needed, first, away
        elif needed < second:
            second = needed
    return first, second, from_first


def _curve(ranked: Ranked, ramp: Integers, ranks: int | None, steps: bool) -> tuple[Floats, Integers]:
    """The curve's table, and for each anomalous or ramp point the row that adds it."""
    places = np.concatenate([np.flatnonzero(ranked.labels), ramp])
    if ranks is None:
        thresholds, number = np.unique(ranked.scores[places], return_inverse=True)
        above = _count_above(ranked.ascending, thresholds, "right")
        row = len(thresholds) - number
    else:
        spaced = np.linspace(0, len(ranked) - 1, checked_count(ranks, "number of ranks", least=2)).astype(np.int64)
        thresholds = np.unique(ranked.ascending[::-1][spaced])
        row = len(thresholds) - np.searchsorted(thresholds, ranked.scores[places], side="right") + 1
    curve = np.zeros((len(thresholds) + 1, 6))
    curve[1:, DETECTED] = _count_above(ranked.ascending, thresholds, "left")
    curve[1:, BEFORE] = above if ranks is None else curve[:-1, DETECTED]
    curve[:, ANOMALOUS] = np.cumsum(np.bincount(row[: ranked.anomalies], minlength=len(curve)))
    _cumulate(curve, steps)
    step = np.zeros(len(ranked), np.int64)
    step[places] = row
    return curve, step


def _count_above(ascending: Floats, thresholds: Floats, side: Literal["left", "right"]) -> Integers:
    """How many scores lie at or above each threshold ("left") or above it ("right"), from the highest threshold on."""
    return len(ascending) - np.searchsorted(ascending, thresholds, side=side)[::-1]


@njit(cache=True)
def _cumulate(curve: Floats, steps: bool) -> None:
    """Fill in sums along the curve from which the areas of a stretch with a constant ramp mass follow.

    With ramp mass m a stretch adds ROC_SUM + m * (alarms gained) to the ROC area and PR_SUM + m * PR_SLOPE to the PR
    area, up to factors that are constant along it. ROC_SUM counts in halves, so its differences are exact.
    """
    for i in range(1, len(curve)):
        detected, before, found, had = (
            curve[i, DETECTED],
            curve[i, BEFORE],
            curve[i, ANOMALOUS],
            curve[i - 1, ANOMALOUS],
        )
        gained = found - had
        level, rise = (before - curve[i - 1, DETECTED]) * had, (detected - before - gained) * (found + had) / 2
        height, tilt = found / detected, 1 / detected
        if not steps:
            height = (height + (had / before if before > 0 else 1.0)) / 2
            tilt = (tilt + (1 / before if before > 0 else 0.0)) / 2
        curve[i, ROC_SUM] = curve[i - 1, ROC_SUM] + level + rise
        curve[i, PR_SUM] = curve[i - 1, PR_SUM] + gained * height
        curve[i, PR_SLOPE] = curve[i - 1, PR_SLOPE] + gained * tilt


@njit(cache=True)
def _areas(
    first: int,
    last: int,
    rules: tuple[int, int, bool, bool],
    sizes: tuple[int, int],
    curve: Floats,
    step: Integers,
    ramp: Integers,
    starts: Integers,
    stops: Integers,
) -> tuple[Floats, Floats]:
    right_shorter, merge_slack, detected_positives, steps = rules
    length, anomalies = sizes
    roc, pr = np.empty(last - first + 1), np.empty(last - first + 1)
    # Once every normal point lies under two ramps, a wider window changes nothing.
    settled = ramp[:, DOUBLED].max() if 0 < len(ramp) == length - anomalies else NEVER
    earliest = _earliest_hits(step, starts, stops)
    for half in range(last // 2 + 1):
        _widen(earliest, step, starts, stops, half, right_shorter)
        if 2 * half + 1 < first:
            continue
        hits = _merged_hits(earliest, starts, stops, 2 * half + merge_slack)
        reached = _reached(ramp, half)
        for window in range(max(2 * half, first), min(2 * half + 1, last) + 1):
            i = window - first
            if half > settled and i > 0:
                roc[i], pr[i] = roc[i - 1], pr[i - 1]
                continue
            weights = np.sqrt(1 - np.arange(half + 1) / max(window, 1))
            roc[i], pr[i] = _window_area(curve, reached, weights, hits, length, anomalies, detected_positives, steps)
    return roc, pr


@njit(cache=True)
def _earliest_hits(step: Integers, starts: Integers, stops: Integers) -> Integers:
    """The first step at which each segment is hit."""
    earliest = np.empty(len(starts), np.int64)
    for segment in range(len(starts)):
        earliest[segment] = step[starts[segment] : stops[segment]].min()
    return earliest


@njit(cache=True)
def _widen(
    earliest: Integers, step: Integers, starts: Integers, stops: Integers, half: int, right_shorter: int
) -> None:
    """Let the ramps of each segment reach one point further, to `half`."""
    for segment in range(len(starts)):
        place = starts[segment] - half
        if half > 0 and place >= 0:
            earliest[segment] = min(earliest[segment], step[place])
        place = stops[segment] - 1 + half - right_shorter
        if half - right_shorter > 0 and place < len(step):
            earliest[segment] = min(earliest[segment], step[place])


@njit(cache=True)
def _merged_hits(earliest: Integers, starts: Integers, stops: Integers, widest_gap: int) -> Integers:
    """The first step at which each merged segment is hit, in ascending order."""
    hits = np.empty(len(starts), np.int64)
    hits[0] = earliest[0]
    count = 1
    for segment in range(1, len(starts)):
        if starts[segment] - stops[segment - 1] <= widest_gap:
            hits[count - 1] = min(hits[count - 1], earliest[segment])
        else:
            hits[count] = earliest[segment]
            count += 1
    return np.sort(hits[:count])


@njit(cache=True)
def _reached(ramp: Integers, half: int) -> Integers:
    """For each ramp point that a half-window reaches: its step, and its distance, or 0 (weight 1) under two ramps."""
    reached = np.empty((len(ramp), 2), np.int64)
    count = 0
    for i in range(len(ramp)):
        if ramp[i, REACHED] <= half:
            reached[count, 0] = ramp[i, STEP]
            reached[count, 1] = 0 if ramp[i, DOUBLED] <= half else ramp[i, DISTANCE]
            count += 1
    return reached[:count]


@njit(cache=True)
def _window_area(
    curve: Floats,
    reached: Integers,
    weights: Floats,
    hits: Integers,
    length: int,
    anomalies: int,
    detected_positives: bool,
    steps: bool,
) -> tuple[float, float]:
    """Both areas of one window, by a walk along the steps at which a ramp point is added or a segment is first hit."""
    all_mass = 0.0
    for i in range(len(reached)):
        all_mass += weights[reached[i, 1]]
    final = len(curve) - 1
    positives = anomalies + (0.0 if detected_positives else all_mass / 2)
    negatives = length - positives
    mass, share, recall, false_rate, roc, pr = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    at, ramp, hit = 0, 0, 0
    while at < final:
        event = reached[ramp, 0] if ramp < len(reached) else final + 1
        event = min(event, hits[hit]) if hit < len(hits) else event
        if event - 1 > at:
            more_roc, more_pr, recall = _stretch(curve, at, event - 1, mass, share, positives, negatives, steps)
            at, roc, pr = event - 1, roc + more_roc, pr + more_pr
            false_rate = (curve[at, DETECTED] - curve[at, ANOMALOUS] - mass) / negatives
        if event > final:
            break
        # Normal points alone come first, at the same recall: the ROC curve moves to the right.
        just_before = (curve[event, BEFORE] - curve[at, ANOMALOUS] - mass) / negatives
        precision = _precision_before(curve, event, mass)
        roc += (just_before - false_rate) * recall
        while ramp < len(reached) and reached[ramp, 0] == event:
            mass += weights[reached[ramp, 1]]
            ramp += 1
        while hit < len(hits) and hits[hit] == event:
            hit += 1
            share = hit / len(hits)
        if detected_positives:
            positives = anomalies + mass / 2
            negatives = length - positives
        found = curve[event, ANOMALOUS] + mass
        new_recall = min(found / positives, 1.0) * share
        new_precision = found / curve[event, DETECTED]
        false_rate = (curve[event, DETECTED] - found) / negatives
        roc += (false_rate - just_before) * (recall + new_recall) / 2
        pr += (new_recall - recall) * (new_precision if steps else (precision + new_precision) / 2)
        at, recall = event, new_recall
    # What is left are normal points, at a recall of 1; then the curve is closed with (1, 1).
    return roc + 1 - false_rate, pr


@njit(cache=True)
def _precision_before(curve: Floats, row: int, mass: float) -> float:
    """The precision at the threshold just above a row's; 1 where nothing is detected there."""
    return (curve[row - 1, ANOMALOUS] + mass) / curve[row, BEFORE] if curve[row, BEFORE] > 0 else 1.0


@njit(cache=True)
def _stretch(
    curve: Floats,
    at: int,
    to: int,
    mass: float,
    share: float,
    positives: float,
    negatives: float,
    steps: bool,
) -> tuple[float, float, float]:
    """What the steps from `at` to `to`, without a ramp point or a first hit, add to both areas; and the last recall."""
    if share == 0:
        return 0.0, 0.0, 0.0
    roc, pr = 0.0, 0.0
    full = to + 1  # from this step on the recall is capped
    if curve[to, ANOMALOUS] + mass >= positives:
        full = at + int(np.searchsorted(curve[at : to + 1, ANOMALOUS], positives - mass))
    if full > at:
        end = full - 1
        roc += (curve[end, ROC_SUM] - curve[at, ROC_SUM] + mass * _alarms(curve, at, end)) / positives
        pr += curve[end, PR_SUM] - curve[at, PR_SUM] + mass * (curve[end, PR_SLOPE] - curve[at, PR_SLOPE])
        pr /= positives
        at = end
    if at < full <= to:
        gained = 1 - (curve[at, ANOMALOUS] + mass) / positives
        level = curve[full, BEFORE] - curve[at, DETECTED]
        roc += level * (1 - gained) + (_alarms(curve, at, full) - level) * (1 - gained / 2)
        precision = (curve[full, ANOMALOUS] + mass) / curve[full, DETECTED]
        pr += gained * (precision if steps else (_precision_before(curve, full, mass) + precision) / 2)
        at = full
    roc += _alarms(curve, at, to)
    return share * roc / negatives, share * pr, min((curve[to, ANOMALOUS] + mass) / positives, 1.0) * share


@njit(cache=True)
def _alarms(curve: Floats, at: int, to: int) -> float:
    """How many normal points are detected between two rows."""
    gained: float = curve[to, DETECTED] - curve[at, DETECTED] - (curve[to, ANOMALOUS] - curve[at, ANOMALOUS])
    return gained

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
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from cometad.errors import unknown
from cometad.metrics.inputs import Floats, Integers, checked_count
from cometad.metrics.ranking import Ranked

# A name for a window, and how many times the median anomaly length it is.
WINDOWS = {"median": 1, "twice_median": 2}

_NEVER = np.iinfo(np.int32).max
_Int32s = NDArray[np.int32]


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
    Areas(roc=1.0, pr=0.96...)
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
    Areas(roc=0.99..., pr=0.96...)
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
    >>> window_areas(Ranked.of([0, 1, 0], [1, 2, 0]), 0, 2, "classic", None).roc
    array([1., 1., 1.])
    """
    if flavor not in FLAVORS:
        raise unknown("flavor", flavor, FLAVORS)
    rules = FLAVORS[flavor]
    ramp = _ramp_points(*ranked.segments, len(ranked), last // 2, rules.right_shorter)
    curve = _curve(ranked, ramp.places, ranks)
    sums = _cumulative(curve.detected, curve.before, curve.anomalous, rules.steps)
    by_step = np.argsort(curve.step[ramp.places], kind="stable")
    roc, pr = _areas(
        first,
        last,
        (rules.right_shorter, rules.merge_slack, rules.detected_positives, rules.steps),
        (len(ranked), ranked.anomalies),
        curve,
        sums,
        curve.step[ramp.places[by_step]],
        ramp.distance[by_step],
        ramp.reached[by_step],
        ramp.doubled[by_step],
        *ranked.segments,
    )
    return WindowAreas(roc, pr)


class _Ramp(NamedTuple):
    """The normal points that the widest ramps reach."""

    places: Integers
    distance: _Int32s  # from the segment whose ramp reaches the point first
    reached: _Int32s  # the half-window from which a ramp covers it
    doubled: _Int32s  # the half-window from which a second ramp covers it: the weight is then 1


class _Curve(NamedTuple):
    """The thresholds at which anomalous or ramp points are added, after a start where nothing is detected."""

    detected: Integers  # (step,) points detected at the step's threshold
    before: Integers  # (step,) points detected at the threshold just above it
    anomalous: Integers  # (step,) anomalous points detected
    step: Integers  # (time,) the step that adds the point, where it is anomalous or a ramp point


def _ramp_points(starts: Integers, stops: Integers, length: int, half: int, right_shorter: int) -> _Ramp:
    return _Ramp(*_reach(starts, stops, length, half, right_shorter))


@njit(cache=True)
def _reach(
    starts: Integers, stops: Integers, length: int, half: int, right_shorter: int
) -> tuple[Integers, _Int32s, _Int32s, _Int32s]:
    size = len(starts) * 2 * half if len(starts) * 2 * half < length else length
    places = np.empty(size, np.int64)
    distance, reached, doubled = np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.int32)
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
                    distance[found] = from_first
                    reached[found] = first
                    doubled[found] = second
                    found += 1
    return places[:found], distance[:found], reached[:found], doubled[:found]


@njit(cache=True)
def _first_two(
    starts: Integers, stops: Integers, gap: int, place: int, right_shorter: int
) -> tuple[int, int, int]:
    """The half-windows from which one ramp and two ramps cover a place in a gap, and the first's distance."""
    first, second, from_first = _NEVER, _NEVER, 0
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


def _curve(ranked: Ranked, ramp: Integers, ranks: int | None) -> _Curve:
    places = np.concatenate([np.flatnonzero(ranked.labels), ramp])
    ascending, length = ranked.ascending, len(ranked)
    if ranks is None:
        thresholds, number = np.unique(ranked.scores[places], return_inverse=True)
        detected = length - np.searchsorted(ascending, thresholds, side="left")[::-1]
        before = length - np.searchsorted(ascending, thresholds, side="right")[::-1]
        number = len(thresholds) - number  # steps count from 1, from the highest threshold
    else:
        spaced = np.linspace(0, length - 1, checked_count(ranks, "number of ranks", least=2)).astype(np.int64)
        thresholds = np.unique(ascending[::-1][spaced])
        detected = length - np.searchsorted(ascending, thresholds, side="left")[::-1]
        before = np.append(0, detected[:-1])
        number = len(thresholds) - np.searchsorted(thresholds, ranked.scores[places], side="right") + 1
    step = np.zeros(length, np.int64)
    step[places] = number
    anomalous = np.cumsum(np.bincount(number[: ranked.anomalies], minlength=len(thresholds) + 1))
    return _Curve(np.append(0, detected), np.append(0, before), anomalous, step)


@njit(cache=True)
def _cumulative(detected: Integers, before: Integers, anomalous: Integers, steps: bool) -> tuple[Floats, Floats, Floats]:
    """Sums along the curve of the anomalous points alone, from which a stretch with a constant ramp mass follows.

    With ramp mass m the stretch adds (roc + m * (alarms gained)) / 2 to the ROC area and pr + m * slope to the PR area,
    up to factors that are constant along it. The ROC sums are whole numbers, so their differences are exact.
    """
    roc, pr, slope = np.zeros(len(detected)), np.zeros(len(detected)), np.zeros(len(detected))
    for i in range(1, len(detected)):
        gained = anomalous[i] - anomalous[i - 1]
        level = 2 * anomalous[i - 1] * (before[i] - detected[i - 1])
        rise = (detected[i] - before[i] - gained) * (anomalous[i] + anomalous[i - 1])
        roc[i] = roc[i - 1] + level + rise
        height, tilt = anomalous[i] / detected[i], 1 / detected[i]
        if not steps:
            height = (height + (anomalous[i - 1] / before[i] if before[i] > 0 else 1.0)) / 2
            tilt = (tilt + (1 / before[i] if before[i] > 0 else 0.0)) / 2
        pr[i] = pr[i - 1] + gained * height
        slope[i] = slope[i - 1] + gained * tilt
    return roc, pr, slope


@njit(cache=True)
def _areas(
    first: int,
    last: int,
    rules: tuple[int, int, bool, bool],
    sizes: tuple[int, int],
    curve: _Curve,
    sums: tuple[Floats, Floats, Floats],
    step: Integers,
    distance: _Int32s,
    reached: _Int32s,
    doubled: _Int32s,
    starts: Integers,
    stops: Integers,
) -> tuple[Floats, Floats]:
    right_shorter, merge_slack, detected_positives, steps = rules
    length, anomalies = sizes
    roc, pr = np.empty(last - first + 1), np.empty(last - first + 1)
    # Once every normal point lies under two ramps, a wider window changes nothing.
    settled = doubled.max() if 0 < len(step) == length - anomalies else _NEVER
    earliest = _earliest_hits(curve.step, starts, stops)
    for half in range(last // 2 + 1):
        _widen(earliest, curve.step, starts, stops, half, right_shorter)
        if 2 * half + 1 < first:
            continue
        hits = _merged_hits(earliest, starts, stops, 2 * half + merge_slack)
        for window in range(max(2 * half, first), min(2 * half + 1, last) + 1):
            if half > settled and window > first:
                roc[window - first], pr[window - first] = roc[window - first - 1], pr[window - first - 1]
                continue
            weights = np.sqrt(1 - np.arange(half + 1) / max(window, 1))
            roc[window - first], pr[window - first] = _window_area(
                half, weights, detected_positives, steps, length, anomalies, curve, sums, step, distance, reached,
                doubled, hits,
            )  # fmt: skip
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
def _weight(distance: int, doubled: int, half: int, weights: Floats) -> float:
    return 1.0 if doubled <= half else weights[distance]


@njit(cache=True)
def _window_area(
    half: int,
    weights: Floats,
    detected_positives: bool,
    steps: bool,
    length: int,
    anomalies: int,
    curve: _Curve,
    sums: tuple[Floats, Floats, Floats],
    step: Integers,
    distance: _Int32s,
    reached: _Int32s,
    doubled: _Int32s,
    hits: Integers,
) -> tuple[float, float]:
    """Both areas of one window, by a walk along the steps at which a ramp point is added or a segment is first hit."""
    fixed = 0.0
    if not detected_positives:
        for i in range(len(step)):
            if reached[i] <= half:
                fixed += _weight(distance[i], doubled[i], half, weights)
    final = len(curve.detected) - 1
    mass, share, at, ramp, hit = 0.0, 0.0, 0, 0, 0
    roc, pr = 0.0, 0.0
    while True:
        while ramp < len(step) and reached[ramp] > half:
            ramp += 1
        event = final + 1
        if ramp < len(step):
            event = step[ramp]
        if hit < len(hits):
            event = min(event, hits[hit])
        positives = anomalies + (mass if detected_positives else fixed) / 2
        if event - 1 > at:
            more_roc, more_pr = _stretch(at, event - 1, mass, share, positives, steps, length, curve, sums)
            roc += more_roc
            pr += more_pr
            at = event - 1
        if event > final:
            break
        new_mass, new_share = mass, share
        while ramp < len(step) and step[ramp] == event:
            if reached[ramp] <= half:
                new_mass += _weight(distance[ramp], doubled[ramp], half, weights)
            ramp += 1
        while hit < len(hits) and hits[hit] == event:
            hit += 1
        new_share = hit / len(hits)
        new_positives = anomalies + (new_mass if detected_positives else fixed) / 2
        more_roc, more_pr = _one_step(
            event, mass, share, positives, new_mass, new_share, new_positives, steps, length, curve
        )
        roc += more_roc
        pr += more_pr
        mass, share, at = new_mass, new_share, event
    # The points below the last step are all normal; then the curve is closed with (1, 1), from a recall of 1.
    alarms = curve.detected[at] - curve.anomalous[at] - mass
    return roc + 1 - alarms / (length - positives), pr


@njit(cache=True)
def _one_step(
    to: int,
    mass: float,
    share: float,
    positives: float,
    new_mass: float,
    new_share: float,
    new_positives: float,
    steps: bool,
    length: int,
    curve: _Curve,
) -> tuple[float, float]:
    """What the step from `to - 1` to `to` adds to both areas."""
    found, new_found = curve.anomalous[to - 1] + mass, curve.anomalous[to] + new_mass
    recall, new_recall = min(found / positives, 1.0) * share, min(new_found / new_positives, 1.0) * new_share
    false_rate = (curve.detected[to - 1] - found) / (length - positives)
    # Normal points alone are added first, at the same recall: the curve moves to the right.
    just_before = (curve.before[to] - found) / (length - positives)
    new_false_rate = (curve.detected[to] - new_found) / (length - new_positives)
    roc = (just_before - false_rate) * recall + (new_false_rate - just_before) * (recall + new_recall) / 2
    height = new_found / curve.detected[to]
    if not steps:
        height = (height + (found / curve.before[to] if curve.before[to] > 0 else 1.0)) / 2
    return roc, (new_recall - recall) * height


@njit(cache=True)
def _stretch(
    at: int,
    to: int,
    mass: float,
    share: float,
    positives: float,
    steps: bool,
    length: int,
    curve: _Curve,
    sums: tuple[Floats, Floats, Floats],
) -> tuple[float, float]:
    """What the steps from `at` to `to`, which add neither a ramp point nor a first hit, add to both areas."""
    if share == 0:
        return 0.0, 0.0
    roc, pr = 0.0, 0.0
    full = at + np.searchsorted(curve.anomalous[at : to + 1], positives - mass)  # from here on the recall is capped
    if full > at:
        end = min(full - 1, to)
        alarms = (curve.detected[end] - curve.anomalous[end]) - (curve.detected[at] - curve.anomalous[at])
        roc += share * ((sums[0][end] - sums[0][at]) / 2 + mass * alarms) / (positives * (length - positives))
        pr += share * (sums[1][end] - sums[1][at] + mass * (sums[2][end] - sums[2][at])) / positives
        at = end
    if full <= to and full > at:
        more_roc, more_pr = _one_step(full, mass, share, positives, mass, share, positives, steps, length, curve)
        roc += more_roc
        pr += more_pr
        at = full
    if at < to:
        alarms = (curve.detected[to] - curve.anomalous[to]) - (curve.detected[at] - curve.anomalous[at])
        roc += share * alarms / (length - positives)
    return roc, pr

"""Range AUC and VUS: areas under ROC and PR curves that tolerate detections slightly early or late.

Each anomaly gets a ramp on both sides: a point at distance d has weight sqrt(1 - d / window), up to a distance of
window // 2. Range AUC uses one window; VUS is the mean over the windows 0, 1, ..., `max_window`. Three flavors are in
use. They give different numbers, and papers rarely say which one they used:

    classic     CATCH, TAB, DCdetector, aeon: the right ramp is one point shorter than the left
    symmetric   the range AUC of vus 0.0.6: both ramps have the same length
    vus         the volume of vus 0.0.6, and TSB-AD: only detected ramp points add to the positives; PR by steps

At each threshold, TPR = min(TP / positives, 1) * (share of merged segments hit), FPR = (detected - TP) / (time -
positives) and precision = TP / detected. The ROC curve ends at (1, 1).

Why it is fast: a weight is at least sqrt(1/2), so a point under two ramps has weight exactly 1, and three numbers
describe a ramp point (its distance, the half-window that first reaches it, and the half-window at which a second ramp
reaches it). Thresholds that add neither an anomalous point nor a ramp point only move along straight lines, and between
two ramp points every sum over thresholds is a difference of cumulative sums shared by all windows. A window therefore
costs one pass over its ramp points rather than the series, and many windows share that pass.

Paparrizos et al., "Volume Under the Surface", PVLDB 15(11), 2022.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from cometad.arrays import Floats, Integers
from cometad.compute import jit
from cometad.errors import unknown
from cometad.metrics.ranking import Ranked
from cometad.parameters import check_integer

# Named windows, as multiples of the median anomaly length.
WINDOWS = {"median": 1, "twice_median": 2}

NEVER = np.iinfo(np.int64).max

# Columns of the curve. Its rows are the thresholds that add an anomalous point or a ramp point, highest first, after a
# row where nothing is detected. It is one table so that each row is contiguous in memory.
DETECTED = 0  # points detected
BEFORE = 1  # points detected at the threshold just above
ANOMALOUS = 2  # anomalous points detected
ROC_SUM, PR_SUM, PR_SLOPE = 3, 4, 5  # see _cumulate

# Windows are processed in blocks. The state of a block is one array with a slice for each quantity: because the offsets
# are compile-time constants, the compiler knows that the slices do not overlap and can vectorize.
BLOCK = 64
ROC, PR = 0 * BLOCK, 1 * BLOCK  # areas so far
RECALL, SHARE = 2 * BLOCK, 3 * BLOCK  # recall; share of merged segments hit
MASS, POSITIVES = 4 * BLOCK, 5 * BLOCK  # detected ramp weight; positives
PER_POSITIVE, PER_NEGATIVE = 6 * BLOCK, 7 * BLOCK  # reciprocals, because division is slow
HAD, HAD_PER_NEGATIVE = 8 * BLOCK, 9 * BLOCK  # MASS and PER_NEGATIVE before the current step

# Columns of the ramp points.
STEP = 0  # row of the curve that adds the point
DISTANCE = 1  # to the segment whose ramp reaches it first
REACHED = 2  # smallest half-window at which a ramp covers it
DOUBLED = 3  # smallest half-window at which a second ramp covers it, so that its weight becomes 1


@dataclass(frozen=True)
class Flavor:
    """How the variants of range AUC differ.

    >>> from cometad.metrics import FLAVORS
    >>> FLAVORS["classic"].right_shorter
    1
    """

    right_shorter: int  # how many points shorter the right ramp is than window // 2
    merge_slack: int  # segments merge if at most 2 * (window // 2) + merge_slack normal points separate them
    detected_positives: bool  # only detected ramp points add to the positives, which grow along the curve
    steps: bool  # PR area by right-hand steps rather than by trapezoids from (0, 1)


FLAVORS = {
    "classic": Flavor(right_shorter=1, merge_slack=-1, detected_positives=False, steps=False),
    "symmetric": Flavor(right_shorter=0, merge_slack=0, detected_positives=False, steps=False),
    "vus": Flavor(right_shorter=0, merge_slack=-1, detected_positives=True, steps=True),
}


class Areas(NamedTuple):
    """The area under the ROC curve and under the precision-recall curve.

    >>> from cometad.metrics import range_auc
    >>> range_auc([0, 1, 0], [1, 2, 0], window=0)
    Areas(roc=1.0, pr=1.0)
    """

    roc: float
    pr: float


def range_auc(
    labels: object, scores: object, window: int | str = "median", flavor: str = "classic", ranks: int | None = None
) -> Areas:
    """The range AUC for one window, given in points or as "median" (the median anomaly length).

    `ranks` limits the thresholds to that many equally spaced ranks, as public implementations do (250). That is too
    coarse for rare anomalies; use it only to compare with published tables.

    >>> from cometad.metrics import range_auc
    >>> range_auc([0, 0, 1, 1, 0, 0], [0.1, 0.6, 0.9, 0.8, 0.2, 0.1], window=2)
    Areas(roc=0.9939..., pr=0.9926...)
    """
    ranked = Ranked.of(labels, scores)
    size = resolved_window(ranked, window)
    return Areas(*window_areas(ranked, size, size, flavor, ranks)[:, 0].tolist())


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
    roc, pr = window_areas(ranked, 0, resolved_window(ranked, max_window), flavor, ranks)
    return Areas(float(roc.mean()), float(pr.mean()))


def resolved_window(ranked: Ranked, window: int | str) -> int:
    if not isinstance(window, str):
        check_integer("window", window, 0)
        return int(window)
    if window not in WINDOWS:
        raise unknown("window", window, WINDOWS)
    return WINDOWS[window] * ranked.segments.median_length


def window_areas(ranked: Ranked, first: int, last: int, flavor: str, ranks: int | None) -> Floats:
    """The areas (ROC or PR, window) for the windows `first` to `last`, inclusive."""
    if flavor not in FLAVORS:
        raise unknown("flavor", flavor, FLAVORS)
    rules = FLAVORS[flavor]
    starts, stops = ranked.segments
    places, ramp = _ramp_points(starts, stops, len(ranked), last // 2, rules.right_shorter)
    curve, step = _curve(ranked, places, ranks, rules.steps)
    ramp[:, STEP] = step[places]
    ramp = ramp[np.argsort(ramp[:, STEP])]
    # Once every normal point is under two ramps, a wider window changes nothing.
    settled = ramp[:, DOUBLED].max() if 0 < len(ramp) == len(ranked) - ranked.anomalies else NEVER
    # The first step at which each segment is hit; what is between segments is left out again.
    earliest = np.minimum.reduceat(np.append(step, 0), np.ravel([starts, stops], order="F"))[::2].copy()
    areas = np.empty((2, last + 1 - first))
    half = 0
    for begin in range(first, last + 1, BLOCK):
        done = begin - first
        if begin // 2 > settled and done > 0:
            areas[:, done:] = areas[:, done - 1, np.newaxis]
            break
        hits, half = _merged_hits(
            earliest, step, starts, stops, begin, last, half, rules.right_shorter, rules.merge_slack
        )
        hits.sort(axis=1)
        reached = ramp[ramp[:, REACHED] <= half]
        block = _block_areas(
            begin, curve, reached, hits, len(ranked), ranked.anomalies, rules.detected_positives, rules.steps
        )
        areas[:, done : done + BLOCK] = block[:, : last + 1 - begin]
    return areas


@jit
def _ramp_points(
    starts: Integers, stops: Integers, length: int, half: int, right_shorter: int
) -> tuple[Integers, Integers]:
    """The positions of the normal points within `half` of a segment, and their table rows, with STEP not yet set."""
    size = min(2 * half * len(starts), length)
    places, ramp = np.empty(size, np.int64), np.zeros((size, 4), np.int64)
    found = 0
    for gap in range(len(starts) + 1):  # one before each segment, and one after the last
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


@jit
def _first_two(starts: Integers, stops: Integers, gap: int, place: int, right_shorter: int) -> tuple[int, int, int]:
    """The half-windows at which one ramp and two ramps cover a position in a gap, and its distance to the first."""
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
    """The table of the curve, and for each anomalous point or ramp point the row that adds it."""
    places = np.concatenate([np.flatnonzero(ranked.labels), ramp])
    if ranks is None:
        thresholds, number = np.unique(ranked.scores[places], return_inverse=True)
        above = _count_above(ranked.ascending, thresholds, "right")
        row = len(thresholds) - number
    else:
        check_integer("ranks", ranks, 2)
        spaced = np.linspace(0, len(ranked) - 1, ranks).astype(np.int64)
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
    """The number of scores at or above ("left") or strictly above ("right") each threshold, highest threshold first."""
    return len(ascending) - np.searchsorted(ascending, thresholds, side=side)[::-1]


@jit
def _cumulate(curve: Floats, steps: bool) -> None:
    """Fill in the cumulative sums that give the areas of any stretch with a constant ramp mass.

    With ramp mass m, a stretch adds ROC_SUM + m * (alarms gained) to the ROC area and PR_SUM + m * PR_SLOPE to the PR
    area, up to factors that are constant along it. ROC_SUM counts in halves, so its differences are exact.
    """
    for i in range(1, len(curve)):
        detected, before, found = curve[i, DETECTED], curve[i, BEFORE], curve[i, ANOMALOUS]
        had = curve[i - 1, ANOMALOUS]
        gained = found - had
        level, rise = (before - curve[i - 1, DETECTED]) * had, (detected - before - gained) * (found + had) / 2
        height, tilt = found / detected, 1 / detected
        if not steps:
            height = (height + (had / before if before > 0 else 1.0)) / 2
            tilt = (tilt + (1 / before if before > 0 else 0.0)) / 2
        curve[i, ROC_SUM] = curve[i - 1, ROC_SUM] + level + rise
        curve[i, PR_SUM] = curve[i - 1, PR_SUM] + gained * height
        curve[i, PR_SLOPE] = curve[i - 1, PR_SLOPE] + gained * tilt


@jit
def _widen(
    earliest: Integers, step: Integers, starts: Integers, stops: Integers, half: int, right_shorter: int
) -> None:
    """Extend the ramps of each segment by one point, to `half`."""
    for segment in range(len(starts)):
        place = starts[segment] - half
        if half > 0 and place >= 0:
            earliest[segment] = min(earliest[segment], step[place])
        place = stops[segment] - 1 + half - right_shorter
        if half - right_shorter > 0 and place < len(step):
            earliest[segment] = min(earliest[segment], step[place])


@jit
def _merged_hits(
    earliest: Integers,
    step: Integers,
    starts: Integers,
    stops: Integers,
    begin: int,
    last: int,
    half: int,
    right_shorter: int,
    merge_slack: int,
) -> tuple[Integers, int]:
    """The first step at which each merged segment is hit, for each window of a block, and the widest half-window.

    `earliest` holds these steps for the segments with ramps up to `half`, and is updated in place.
    """
    hits = np.full((BLOCK, len(starts)), NEVER)
    for window in range(begin, min(begin + BLOCK, last + 1)):
        while half < min(window // 2, len(step)):  # beyond the ends of the series nothing changes
            half += 1
            _widen(earliest, step, starts, stops, half, right_shorter)
        group = 0
        for segment in range(len(starts)):
            if segment > 0 and starts[segment] - stops[segment - 1] > 2 * half + merge_slack:
                group += 1
            hits[window - begin, group] = min(hits[window - begin, group], earliest[segment])
    return hits, half


@jit
def _weights(begin: int, widest: int) -> Floats:
    """The weight at each distance, for each window of a block."""
    weights = np.zeros((widest + 1, BLOCK))
    for away in range(widest + 1):
        for i in range(BLOCK):
            weights[away, i] = np.sqrt(max(1 - away / max(begin + i, 1), 0.0))
    return weights


@jit
def _block_areas(
    begin: int,
    curve: Floats,
    ramp: Integers,
    hits: Integers,
    length: int,
    anomalies: int,
    detected_positives: bool,
    steps: bool,
) -> Floats:
    """Both areas for a block of windows, in one pass over the steps that add a ramp point or a first hit to any.

    The inner loops run over the windows and are free of branches, so that the compiler can vectorize them.
    """
    state = np.zeros(10 * BLOCK)
    halves, groups, upcoming = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64), np.zeros(BLOCK, np.int64)
    for i in range(BLOCK):
        halves[i] = (begin + i) // 2
        groups[i] = max((hits[i] < NEVER).sum(), 1)
    weights = _weights(begin, min(halves[BLOCK - 1], length))
    if not detected_positives:
        for row in range(len(ramp)):
            _add_mass(state, POSITIVES, weights[ramp[row, DISTANCE]], halves, ramp[row, REACHED], ramp[row, DOUBLED])
    _set_positives(state, POSITIVES, anomalies, length)  # in place: POSITIVES held the weight of the ramps until here
    final = len(curve) - 1
    at, row, next_hit = 0, 0, hits[:, 0].min()
    while at < final:
        event = min(ramp[row, STEP] if row < len(ramp) else final + 1, next_hit, final + 1)
        if event - 1 > at:
            _stretch(state, curve, at, event - 1, steps)
            at = event - 1
        if event > final:
            break
        _remember(state)
        while row < len(ramp) and ramp[row, STEP] == event:
            _add_mass(state, MASS, weights[ramp[row, DISTANCE]], halves, ramp[row, REACHED], ramp[row, DOUBLED])
            row += 1
        if detected_positives:
            _set_positives(state, MASS, anomalies, length)
        if event == next_hit:
            next_hit = _count_hits(state, hits, groups, upcoming, event)
        _one_step(state, curve, event, steps)
        at = event
    areas = np.empty((2, BLOCK))
    for i in range(BLOCK):
        # Only normal points remain, at a recall of 1, up to the end of the curve at (1, 1).
        alarms = curve[final, DETECTED] - curve[final, ANOMALOUS] - state[MASS + i]
        areas[0, i] = state[ROC + i] + 1 - alarms * state[PER_NEGATIVE + i]
        areas[1, i] = state[PR + i]
    return areas


@jit
def _count_hits(state: Floats, hits: Integers, groups: Integers, upcoming: Integers, event: int) -> int:
    """Count the first hits at a step and return the next step that has any."""
    following = NEVER
    for i in range(BLOCK):
        while upcoming[i] < groups[i] and hits[i, upcoming[i]] == event:
            upcoming[i] += 1
        state[SHARE + i] = upcoming[i] / groups[i]
        if upcoming[i] < groups[i]:
            following = min(following, hits[i, upcoming[i]])
    return following


@jit
def _add_mass(state: Floats, into: int, weights: Floats, halves: Integers, reached: int, doubled: int) -> None:
    for i in range(BLOCK):
        weight = 1.0 if halves[i] >= doubled else weights[i]
        state[into + i] += weight if halves[i] >= reached else 0.0


@jit
def _set_positives(state: Floats, mass: int, anomalies: int, length: int) -> None:
    for i in range(BLOCK):
        positives = anomalies + state[mass + i] / 2  # the mean of the count without ramps and with them
        state[POSITIVES + i] = positives
        state[PER_POSITIVE + i] = 1 / positives
        state[PER_NEGATIVE + i] = 1 / (length - positives)


@jit
def _remember(state: Floats) -> None:
    for i in range(BLOCK):
        state[HAD + i] = state[MASS + i]
        state[HAD_PER_NEGATIVE + i] = state[PER_NEGATIVE + i]


@jit
def _one_step(state: Floats, curve: Floats, to: int, steps: bool) -> None:
    """Add the step from row `to - 1` to row `to` to the areas, including the mass and hits it brings."""
    detected, before = curve[to, DETECTED], curve[to, BEFORE]
    had, found = curve[to - 1, ANOMALOUS], curve[to, ANOMALOUS]
    level = before - curve[to - 1, DETECTED]  # normal points come first, at unchanged recall
    per_detected, per_before = 1 / detected, (1 / before if before > 0 else 0.0)
    start = 0.0 if before > 0 else 1.0  # precision while nothing is detected
    for i in range(BLOCK):
        hits_before, hits = had + state[HAD + i], found + state[MASS + i]
        recall_before = state[RECALL + i]
        recall = min(hits * state[PER_POSITIVE + i], 1.0) * state[SHARE + i]
        rate_before = (before - hits_before) * state[HAD_PER_NEGATIVE + i]
        rate = (detected - hits) * state[PER_NEGATIVE + i]
        area = level * state[HAD_PER_NEGATIVE + i] * recall_before
        state[ROC + i] += area + (rate - rate_before) * (recall_before + recall) / 2
        height = hits * per_detected
        if not steps:
            height = (height + hits_before * per_before + start) / 2
        state[PR + i] += (recall - recall_before) * height
        state[RECALL + i] = recall


@jit
def _stretch(state: Floats, curve: Floats, at: int, to: int, steps: bool) -> None:
    """Add the steps from row `at` to row `to`, which bring no ramp points or first hits, to the areas."""
    found, new_found = curve[at, ANOMALOUS], curve[to, ANOMALOUS]
    crossing = 0  # windows whose recall reaches its cap within the stretch
    for i in range(BLOCK):
        room = state[POSITIVES + i] - state[MASS + i]
        crossing += (found < room) & (new_found > room)
    if crossing > 0:  # rare: happens once per window
        _remember(state)
        for row in range(at + 1, to + 1):
            _one_step(state, curve, row, steps)
        return
    alarms = curve[to, DETECTED] - curve[at, DETECTED] - (new_found - found)
    roc, pr = curve[to, ROC_SUM] - curve[at, ROC_SUM], curve[to, PR_SUM] - curve[at, PR_SUM]
    slope = curve[to, PR_SLOPE] - curve[at, PR_SLOPE]
    for i in range(BLOCK):
        mass, share = state[MASS + i], state[SHARE + i]
        capped = found + mass >= state[POSITIVES + i]
        level = alarms if capped else (roc + mass * alarms) * state[PER_POSITIVE + i]
        state[ROC + i] += share * level * state[PER_NEGATIVE + i]
        state[PR + i] += 0.0 if capped else share * (pr + mass * slope) * state[PER_POSITIVE + i]
        state[RECALL + i] = min((new_found + mass) * state[PER_POSITIVE + i], 1.0) * share

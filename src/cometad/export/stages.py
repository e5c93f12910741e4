"""The stages around the views as graphs: trends, seasons, scaling, calibrated errors, their means, and verdicts."""

from collections.abc import Mapping

import numpy as np

from cometad.arrays import Floats
from cometad.data.cells import LARGEST
from cometad.data.prepare import LASTING, Scaling, Trends
from cometad.data.season import DAILY, SAME, SATURDAY, SUNDAY, WORKING, Season
from cometad.export.graph import DOUBLE, FLOAT, INT64, Graph, Wire
from cometad.scoring.scores import LEVEL, USUAL
from cometad.scoring.signatures import HOT, Signatures
from cometad.views.panel import CLIP


def movements(
    graph: Graph, trends: Trends, reading: Wire, level: Wire, away: Wire, first: Wire
) -> tuple[Wire, Wire, Wire]:
    """The values (variable,) to score for a reading (variable,), and `level` and `away` after it.

    `first` (1,) is true for the first reading. As in `TrendRun`, without imputed readings.
    """
    gain, usual, far = trends.gain, trends.usual, trends.far
    anew, scored, counters = first | (away >= float(LASTING)), reading, gain == 1.0
    if len(trends.known):
        known = np.where(np.isnan(trends.known), -np.inf, trends.known)  # (value, variable)  infinitely far if unknown
        near, start = graph.constant(known[0]), np.where(gain > 0, known[0], -np.inf)
        anew = anew | ((reading <= start) & (reading < level))
        for value in known[1:]:
            near = graph.where(abs(reading - value) < abs(reading - near), value, near)
        states = graph.constant((gain == 0) & np.isfinite(known[0]))
        counters = counters | ((gain > 0) & ~np.isnan(trends.known[0]))
        scored = graph.where(states, near + (reading - near) * far, reading)
    apart = graph.clip(reading - level, -LARGEST, LARGEST)
    moved = graph.where(anew, usual, apart)
    beyond = apart - usual
    near_usual = anew | (abs(beyond) <= far)
    follows = near_usual | graph.constant(counters)
    held = level + (graph("Sign", beyond) * far + usual) * gain
    after = graph.where(follows, reading - graph.where(near_usual, moved, usual) * (1 - gain), held)
    return graph.where(graph.constant(gain > 0), moved, scored), after, graph.where(follows, 0.0, away + 1.0)


def without_season(
    graph: Graph, season: Season, values: Wire, before: Mapping[str, Wire]
) -> tuple[Wire, dict[str, Wire]]:
    """The values (variable,) less what is usual, and the parts of the state after them, as in `Season.push`.

    The means are in a ring (variable with a season, cycle, slot): the number of a slot, modulo its size, is its place.
    """
    saved, seasonal = season.state(), np.flatnonzero(season.kind)
    length, nodes, (_, slots, cycles) = int(saved["whole"][0]), saved["nodes"], saved["recent"].shape
    at, last = before["at"].cast(INT64), before["open"].cast(INT64)
    inside = graph("Mod", at, length)
    slot = inside * slots / length
    current = (at - inside) / length * slots + slot
    away = (inside * slots - slot * length).cast(DOUBLE) / float(length) - graph("Gather", nodes, slot)
    early, late = away < -SAME, away > SAME
    to_previous = away * -1.0 / graph("Gather", 1 - (np.roll(nodes, 1) - nodes), slot)
    to_next = away / graph("Gather", 1 + (np.roll(nodes, -1) - nodes), slot)
    share = graph.where(early, to_previous, graph.where(late, to_next, 0.0))
    numbers = graph("Concat", last, current, current + late.cast(INT64) - early.cast(INT64), axis=0)
    places = graph("Mod", numbers, slots)
    days = (numbers - places) / slots
    weekdays = graph("Mod", days + 3, 7)
    if free := season.free_days():
        weekdays = graph.where(graph.any(graph.reshape(days, (-1, 1)).same(free), 1), SUNDAY, weekdays)
    weekdays, places, new = weekdays.cast(DOUBLE), graph.rows(places, 1), ~last.same(current)

    ring = np.arange(cycles * slots).reshape(cycles, slots)
    here = graph("Mod", last, ring.size).same(ring) & new & (before["count"] > 0.0)
    mean = graph.reshape(before["sums"] / graph("Max", before["count"], 1.0), (-1, 1, 1))
    own = graph("Gather", values, seasonal)
    after = {
        "means": graph.where(here, mean, before["means"]),
        "weekdays": graph.where(here, graph.rows(weekdays, 0, 1), before["weekdays"]),
        "sums": graph.where(new, 0.0, before["sums"]) + graph.clip(own, -LARGEST, LARGEST),
        "count": graph.where(new, 0.0, before["count"]) + 1.0,
        "open": current.cast(DOUBLE),
        "at": before["at"] + 1.0,
    }
    found = graph("Gather", after["means"], places, axis=2)  # (variable, cycle, 2)
    then, today = graph("Gather", after["weekdays"], places, axis=1), graph.rows(weekdays, 1)
    kind, known = season.kind[seasonal, None, None], found < np.inf
    weekends = (then >= float(SATURDAY)).same(today >= float(SATURDAY)) & graph.constant(kind == WORKING)
    alike = (then.same(today) | weekends | graph.constant(kind == DAILY)) & known
    chosen = alike | (known & ~graph("Unsqueeze", graph.any(alike, 1), np.array([1])))
    count = graph.total(chosen.cast(INT64), 1, keep=True)
    ordered, _ = graph.several("TopK", 2, graph.where(chosen, found, np.inf), np.array([cycles]), axis=1, largest=0)
    lower, upper = (graph("GatherElements", ordered, place / 2, axis=1) for place in (count - 1, count))
    centers = graph.where(count > 0, (lower + upper) / 2.0, saved["usual"][:, None, None])
    usual = graph.total(centers * graph("Concat", graph("Sub", 1.0, share), share, axis=0), 2)
    return graph("ScatterElements", values, seasonal, own - graph.reshape(usual, (-1,))), after


def scaled(graph: Graph, scaling: Scaling, values: Wire) -> Wire:
    """Scaled values (variable,) as the views see them: rounded to single precision and clipped."""
    inside = graph.clip((values - scaling.center) / scaling.unit, -CLIP, CLIP)
    return inside.cast(FLOAT).cast(DOUBLE)


def variable_scores(graph: Graph, errors: Wire, known: Wire, tails: Floats, weights: Floats) -> Wire:
    """The scores (1, variable) of errors (view, variable), as `fuse` has them; only `known` views (view, 1) count."""
    middle, high, excess = (np.ascontiguousarray(tails[:, k]) for k in range(3))
    beyond = graph("Log", graph("Relu", errors - high) / excess + 1.0)
    calibrated = graph.clip((errors - middle) * (LEVEL / (high - middle)), 0.0, LEVEL) + beyond
    shares = known.cast(DOUBLE) * weights[:, None]
    share = graph.total(shares, 0, keep=True)
    squares = graph.total(graph.where(known, calibrated * calibrated, 0.0) * shares, 0, keep=True)
    means = graph("Sqrt", squares / graph("Max", share, float(weights.min())))
    return graph.where(means > USUAL, (means - USUAL) * graph("Sqrt", share) + USUAL, means)


def power_mean(graph: Graph, values: Wire, pooling: int) -> Wire:
    """The power mean (row, 1) of values (row, variable)."""
    if pooling == 1:
        return graph.mean(values, 1)
    return graph("Pow", graph.mean(graph("Pow", values, float(pooling)), 1), 1.0 / pooling)


def excused(
    graph: Graph, signatures: Signatures, highs: Floats, pooling: int, row: Wire, errors: Wire, known: Wire, own: Wire
) -> Wire:
    """The alert score (1, 1), excusing patterns judged normal: `Signatures.scores` as a graph.

    The inputs are a scaled row (1, variable), errors (view, variable) of the `known` views (view, 1) with the high
    quantiles `highs` (view, variable), and the variables' `own` scores (1, variable). Signatures of faults are omitted,
    because only streams have any.
    """
    low, high, limits = _boxes(signatures, len(highs))
    inside = (row >= low - signatures.margin) & (row <= high + signatures.margin)  # (signature, part, variable)
    above = known & (errors > highs) & (errors > limits)  # (signature, part, view, variable)
    matches = graph.any(inside & ~graph.any(above, 2), 1)  # (signature, variable)
    highest = graph.highest(own, 1)
    matched = matches & (own >= graph("Min", highest, HOT)) & (highest > USUAL)
    scores = power_mean(graph, graph.where(matched, USUAL, own), pooling)  # (signature, 1)
    usual = power_mean(graph, own, pooling)
    fits = graph("Unsqueeze", graph.any(matched, 1), np.array([1]))
    return graph("Min", usual, graph("ReduceMin", graph.where(fits, scores, usual), axes=[0], keepdims=1))


def _boxes(signatures: Signatures, views: int) -> tuple[Floats, Floats, Floats]:
    """Boxes (signature, part, variable), and the largest errors (signature, part, view, variable) in them."""
    count, parts, width = len(signatures.normal), len(signatures.normal[0].low), len(signatures.margin)
    low, high = np.full((count, parts, width), np.inf), np.full((count, parts, width), -np.inf)
    limits = np.full((count, parts, views, width), -np.inf)
    for p, signature in enumerate(signatures.normal):
        columns = signature.variables
        low[p][:, columns], high[p][:, columns] = signature.low, signature.high
        limits[p][:, :, columns] = signatures.factor * signature.errors
    return low, high, limits

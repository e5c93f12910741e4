"""The stages around the views as graphs: trends, scaling, calibrated errors, their means, and verdicts."""

import numpy as np

from cometad.arrays import Floats
from cometad.data.cells import LARGEST
from cometad.data.prepare import LASTING, Scaling, Trends
from cometad.export.graph import DOUBLE, FLOAT, Graph, Wire
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
        anew = anew | ((reading <= start) & ((reading < level) | graph.constant(start == np.inf)))
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

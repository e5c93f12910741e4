"""Each view as a graph: the errors (1, variable) of the last row of a window (time, variable)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cometad.arrays import Floats, Floats32
from cometad.export.graph import DOUBLE, FLOAT, INT64, Graph, Wire
from cometad.views.activity import LEAST, FittedActivity
from cometad.views.balance import FittedBalance
from cometad.views.blocks import FittedBlocks
from cometad.views.forecast import FittedForecast
from cometad.views.joint import FittedJoint
from cometad.views.nearest import search_tables
from cometad.views.patterns import FittedPatterns

UNIT = 2.0**-24  # unit roundoff of single precision
SLACK = 2.1  # 2 for two rounded distances, plus a margin for the graph's own rounding


def patterns(graph: Graph, view: FittedPatterns, window: Wire) -> Wire:
    """The root mean square distance of each variable's readings to the nearest of its own codes."""
    own = [without_repeats(codes) for codes in view.codes]
    before = np.cumsum([0, *(len(codes) for codes in own[:-1])])
    patches = graph("Transpose", graph.rows(window, -view.span), perm=[1, 0])  # (variable, length)
    codes = graph("Gather", np.concatenate(own), nearest(graph, patches, own) + before)
    return graph("Transpose", graph("Sqrt", _mean_square(graph, patches - codes, 1)), perm=[1, 0])


def joint(graph: Graph, view: FittedJoint, window: Wire) -> Wire:
    """Each variable's part of the distance between a window of all variables and the nearest code."""
    codes, last = without_repeats(view.codes), graph.rows(window, -view.span)
    code = graph("Gather", codes, nearest(graph, graph.reshape(last, (1, -1)), [codes]))
    gaps = last - graph.reshape(code, (view.span, view.width))
    return graph("Sqrt", _mean_square(graph, gaps, 0))


def forecast(graph: Graph, view: FittedForecast, window: Wire) -> Wire:
    """The absolute residual of a linear prediction from the readings before."""
    before = graph.rows(window, -view.context - 1, -1)
    return abs(graph.rows(window, -1) - (graph.reshape(before, (1, -1)) @ view.weights + view.level))


def balance(graph: Graph, view: FittedBalance, window: Wire) -> Wire:
    """Each variable's part of what the principal components of a window leave unexplained."""
    centered = graph.rows(window, -view.span) - view.center
    factors = graph.reshape(centered, (1, -1)) @ np.ascontiguousarray(view.components.T)
    described = graph.reshape(factors @ view.components, view.center.shape)
    return graph("Sqrt", _mean_square(graph, centered - described, 0))


def activity(graph: Graph, view: FittedActivity, window: Wire) -> Wire:
    """How far the log of each variable's standard deviation is from its usual value."""
    last = graph.rows(window, -view.span)
    variance = _mean_square(graph, last - graph.mean(last, 0), 0)
    return abs(graph("Log", variance + LEAST) * 0.5 - view.usual)


def blocks(graph: Graph, view: FittedBlocks, window: Wire) -> Wire:
    """The errors of each block's columns, in the order of the columns."""
    own = zip(view.views, view.columns, strict=True)
    errors = [VIEW_GRAPHS[type(part)](graph, part, graph("Gather", window, columns, axis=1)) for part, columns in own]
    return graph("Gather", graph("Concat", *errors, axis=1), np.argsort(np.concatenate(view.columns)), axis=1)


def _mean_square(graph: Graph, values: Wire, axis: int) -> Wire:
    return graph.mean(values * values, axis)


# The fitted view, and its graph.
VIEW_GRAPHS: dict[type, Callable[[Graph, Any, Wire], Wire]] = {
    FittedPatterns: patterns,
    FittedJoint: joint,
    FittedForecast: forecast,
    FittedBalance: balance,
    FittedActivity: activity,
    FittedBlocks: blocks,
}


# -- the nearest code: the same one that `cometad.views.nearest` finds, even in near-ties ------------------------------
#
# Our search adds products in single precision, one after the other. When two codes are almost equally near, rounding
# decides, and another code may blame other variables. So the graph computes distances in double precision, and if the
# two nearest are closer than rounding error, it repeats our additions one by one.


def nearest(graph: Graph, windows: Wire, codes: Sequence[Floats]) -> Wire:
    """The index (window,) of the nearest code for each of the windows (window, dim), each with its own codes."""
    dim = codes[0].shape[1]
    table, halves = _tables(codes)
    if halves.shape[1] == 1:
        return graph.constant(np.zeros(len(codes), np.int64))
    weights = graph.constant(table).cast(DOUBLE)  # (window, dim, code)
    factors = graph("Unsqueeze", windows, np.array([1]))
    distances = graph("Squeeze", factors @ weights, np.array([1])) + halves
    sizes = graph("Squeeze", abs(factors) @ abs(weights), np.array([1])) + np.where(halves < np.inf, halves, 0.0)
    bound = graph.highest(sizes, 1) * (SLACK * dim * UNIT / (1 - dim * UNIT))
    least, order = graph.several("TopK", 2, distances, np.array([2]), axis=1, largest=0, sorted=1)
    lower, upper = graph.several("Split", 2, least, np.array([1, 1]), axis=1)

    def first(inner: Graph) -> Wire:
        return inner("Gather", order.inside(inner), np.array(0), axis=1)

    def exactly(inner: Graph) -> Wire:
        return _in_our_order(inner, windows.inside(inner), weights.inside(inner), halves)

    return graph.branch(graph.any(upper - lower <= bound), exactly, first, INT64)


def _tables(codes: Sequence[Floats]) -> tuple[Floats32, Floats]:
    """The tables of our search: negative codes (window, dim, code) and half their squared lengths (window, code).

    Windows with fewer codes are padded with infinitely distant ones.
    """
    most = max(len(own) for own in codes)
    weights, halves = np.zeros((len(codes), codes[0].shape[1], most), np.float32), np.full((len(codes), most), np.inf)
    for i, own in enumerate(codes):
        weights[i, :, : len(own)], halves[i, : len(own)] = (table[..., : len(own)] for table in search_tables(own))
    return weights, halves


def _in_our_order(graph: Graph, windows: Wire, weights: Wire, halves: Floats) -> Wire:
    """The index (window,) of the nearest code, with our additions: in single precision and the same order."""
    columns = graph("Unsqueeze", graph("Transpose", windows, perm=[1, 0]), np.array([2]))  # (dim, window, 1)
    products = columns * graph("Transpose", weights, perm=[1, 0, 2])  # exact in double precision

    def add(inner: Graph, total: Wire, product: Wire) -> Wire:
        return (total + product).cast(FLOAT).cast(DOUBLE)  # a fused multiply-add rounds once

    distances = graph.accumulate(add, graph.constant(halves), products)
    return graph("ArgMin", distances, axis=1, keepdims=0)


def without_repeats(codes: Floats) -> Floats:
    """Codes (code, dim) without duplicates, in the original order."""
    _, first = np.unique(codes, axis=0, return_index=True)
    kept: Floats = codes[np.sort(first)]
    return kept

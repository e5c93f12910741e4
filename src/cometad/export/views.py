"""Each view as a graph: the errors (1, variable) of the last row of a window (time, variable)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from cometad.export.graph import Graph, Wire
from cometad.export.nearest_code import nearest, without_repeats
from cometad.views.activity import LEAST, FittedActivity
from cometad.views.balance import FittedBalance
from cometad.views.forecast import FittedForecast
from cometad.views.joint import FittedJoint
from cometad.views.patterns import FittedPatterns


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
    inputs = before if view.basis is None else before @ view.basis
    return abs(graph.rows(window, -1) - (graph.reshape(inputs, (1, -1)) @ view.weights + view.level))


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


def _mean_square(graph: Graph, values: Wire, axis: int) -> Wire:
    return graph.mean(values * values, axis)


# The fitted view, and its graph.
VIEW_GRAPHS: dict[type, Callable[[Graph, Any, Wire], Wire]] = {
    FittedPatterns: patterns,
    FittedJoint: joint,
    FittedForecast: forecast,
    FittedBalance: balance,
    FittedActivity: activity,
}

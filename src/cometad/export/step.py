"""One step of a stream as a graph: a reading and a state in, scores and the next state out."""

from typing import NamedTuple

import numpy as np

from cometad.comet import Comet
from cometad.export.graph import DOUBLE, Graph, Wire
from cometad.export.rules import RULE_GRAPHS
from cometad.export.stages import excused, movements, pooled, scaled, trend_slots, variable_scores
from cometad.export.state_layout import SEEN, Slot, StateLayout
from cometad.export.views import VIEW_GRAPHS

READING, STATE, NEXT_STATE = "reading", "state", "next_state"
ALERT_SCORE, VARIABLE_SCORES, THRESHOLD, FLAG = "alert_score", "variable_scores", "threshold", "flag"
LARGEST = np.finfo(np.float64).max


class Step(NamedTuple):
    """The graph of a step, and the layout of its state."""

    graph: Graph
    layout: StateLayout


def step_of(detector: Comet) -> Step:
    """The graph that scores one reading like a stream of the detector."""
    layout, graph = layout_of(detector), Graph()
    given, state = graph.wire(READING), graph.wire(STATE)  # (1, variable), (number,)
    valid = graph.all(abs(given) <= LARGEST)  # (1,)  false for NaN
    before = layout.unpacked(graph, state)
    reading, after = _scaled(detector, graph, graph.where(valid, given, 0.0), before)
    window = graph("Concat", before["rows"], reading, axis=0)
    alert, variables = _scores(detector, graph, window, before[SEEN])
    rule = RULE_GRAPHS[type(detector.threshold)]
    tracked = rule.track(graph, detector, alert, before)
    most = float(max(detector.panel_.context, 1))
    after |= {**tracked.after, "rows": graph.rows(window, 1), SEEN: graph("Min", before[SEEN] + 1.0, most)}
    for name, values in {
        ALERT_SCORE: graph.where(valid, alert, np.nan),
        VARIABLE_SCORES: graph.where(valid, variables, np.nan),
        THRESHOLD: tracked.threshold,
        FLAG: (valid & (alert > tracked.threshold)).cast(DOUBLE),
        NEXT_STATE: graph.where(valid, layout.packed(graph, after), state),
    }.items():
        graph.identity(values, name)
    return Step(graph, layout)


def layout_of(detector: Comet) -> StateLayout:
    """The state that the graph of a detector needs."""
    panel = detector.panel_
    rows = Slot("rows", np.zeros((max(panel.context, 1), panel.width)), "the last scaled readings, oldest first")
    rule = RULE_GRAPHS[type(detector.threshold)]
    return StateLayout([rows, *trend_slots(detector.trends_), *rule.slots(detector)])


def _scaled(detector: Comet, graph: Graph, reading: Wire, before: dict[str, Wire]) -> tuple[Wire, dict[str, Wire]]:
    """A scaled reading (1, variable), and the parts of the state after it."""
    if not detector.trends_.any:
        return scaled(graph, detector.scaling_, reading), {}
    values = graph.reshape(reading, (-1,))
    moved, level, away = movements(
        graph, detector.trends_, values, before["level"], before["away"], before[SEEN].same(0.0)
    )
    return graph.reshape(scaled(graph, detector.scaling_, moved), (1, -1)), {"level": level, "away": away}


def _scores(detector: Comet, graph: Graph, window: Wire, seen: Wire) -> tuple[Wire, Wire]:
    """The alert score (1,) and the scores of the variables (1, variable) of the last row of a window."""
    panel = detector.panel_
    errors = graph("Concat", *(VIEW_GRAPHS[type(view)](graph, view, window) for view in panel.views), axis=0)
    known = graph("GreaterOrEqual", seen, np.array([[float(view.context)] for view in panel.views]))
    variables = variable_scores(graph, errors, known, panel.alert)
    if panel.signatures is None:
        alert = pooled(graph, variables, panel.pooling)
    else:
        highs, row = np.ascontiguousarray(panel.alert[:, 1]), graph.rows(window, -1)
        alert = excused(graph, panel.signatures, highs, panel.pooling, row, errors, known, variables)
    return graph.reshape(alert, (1,)), variables

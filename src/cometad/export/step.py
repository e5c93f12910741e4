"""One step of a stream as a graph: a reading and a state in, scores and the next state out."""

from collections.abc import Mapping, Sequence

import numpy as np

from cometad.comet import Comet
from cometad.data.season import Season
from cometad.export.graph import DOUBLE, Graph, Wire
from cometad.export.rules import RULE_GRAPHS, Slot
from cometad.export.stages import excused, movements, power_mean, scaled, variable_scores, without_season
from cometad.export.views import VIEW_GRAPHS

READING, TIME, STATE, NEXT_STATE = "reading", "time", "state", "next_state"
ALERT_SCORE, VARIABLE_SCORES, THRESHOLD, FLAG = "alert_score", "variable_scores", "threshold", "flag"
OUTPUTS = (ALERT_SCORE, VARIABLE_SCORES, THRESHOLD, FLAG, NEXT_STATE)
SEEN = "seen"  # the first part of the state
LATEST = 9e9  # seconds since 1970; float64 has no microseconds of later ones
LARGEST = np.finfo(np.float64).max


class StateLayout:
    """The positions of the parts of the state. The first part counts readings; while it is 0, all have initial values.

    So a device starts with zeros, and only needs to know the size.
    """

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = [Slot(SEEN, np.zeros(1), "readings so far, capped at the longest look-back of the views"), *slots]
        self.size = sum(slot.size for slot in self._slots)

    def described(self) -> list[dict[str, object]]:
        """Name, offset, shape and meaning of each part, as JSON."""
        described, offset = [], 0
        for slot in self._slots:
            shape = list(slot.initial.shape)
            described.append({"name": slot.name, "offset": offset, "shape": shape, "meaning": slot.meaning})
            offset += slot.size
        return described

    def unpacked(self, graph: Graph, state: Wire) -> dict[str, Wire]:
        initial = np.concatenate([slot.initial.ravel() for slot in self._slots])
        current = graph.where(graph.rows(state, 0, 1).same(0.0), initial, state)
        sizes = np.array([slot.size for slot in self._slots])
        parts = graph.several("Split", len(sizes), current, sizes, axis=0)
        return {
            slot.name: part if slot.initial.ndim == 1 else graph.reshape(part, slot.initial.shape)
            for slot, part in zip(self._slots, parts, strict=True)
        }

    def packed(self, graph: Graph, parts: Mapping[str, Wire]) -> Wire:
        flat = [
            parts[slot.name] if slot.initial.ndim == 1 else graph.reshape(parts[slot.name], (-1,))
            for slot in self._slots
        ]
        return graph("Concat", *flat, axis=0)


def step_of(detector: Comet) -> tuple[Graph, StateLayout]:
    """The graph that scores one reading like a stream of the detector."""
    layout, graph = layout_of(detector), Graph()
    given, state = graph.wire(READING), graph.wire(STATE)  # (1, variable), (number,)
    valid = graph.all(abs(given) <= LARGEST)  # (1,)  false for NaN
    before = layout.unpacked(graph, state)
    if needs_time(detector):
        valid &= abs(graph.wire(TIME)) <= LATEST
        before["at"] = graph("Round", graph.wire(TIME) * 1e6)
    reading, after = _scaled(detector, graph, graph.where(valid, given, 0.0), before)
    window = graph("Concat", before["rows"], reading, axis=0)
    alert, variables = _alert_and_variables(detector, graph, window, before[SEEN])
    threshold, tracked = RULE_GRAPHS[type(detector.threshold)].track(graph, detector, alert, before)
    most = float(max(detector.panel_.context, 1))
    after |= {**tracked, "rows": graph.rows(window, 1), SEEN: graph("Min", before[SEEN] + 1.0, most)}
    for name, values in {
        ALERT_SCORE: graph.where(valid, alert, np.nan),
        VARIABLE_SCORES: graph.where(valid, variables, np.nan),
        THRESHOLD: threshold,
        FLAG: (valid & (alert > threshold)).cast(DOUBLE),
        NEXT_STATE: graph.where(valid, layout.packed(graph, after), state),
    }.items():
        graph.identity(values, name)
    return graph, layout


def layout_of(detector: Comet) -> StateLayout:
    panel, zeros = detector.panel_, np.zeros(detector.panel_.width)
    slots = [Slot("rows", np.zeros((max(panel.context, 1), panel.width)), "the last scaled readings, oldest first")]
    if detector.trends_.any:
        slots += [
            Slot("level", zeros, "level of each variable that grows or wanders"),
            Slot("away", zeros, "consecutive readings too far for the level to follow"),
        ]
    if detector.season_ is not None:
        slots += season_slots(detector.season_)
    return StateLayout([*slots, *RULE_GRAPHS[type(detector.threshold)].slots(detector)])


def needs_time(detector: Comet) -> bool:
    """Whether its graph has the input `time`."""
    return detector.season_ is not None and detector.season_.by_clock


def season_slots(season: Season) -> list[Slot]:
    saved, zero = season.state(), np.zeros(1)
    means, weekdays = (saved[name].transpose(0, 2, 1) for name in ("recent", "days"))
    means = np.where(np.isnan(means), np.inf, means)  # a variable without any has 0 as their weekdays
    slots = [
        Slot("means", means, "mean of each slot in past cycles, for variables with a season; infinite if unknown"),
        Slot("weekdays", weekdays.max(axis=0) * 1.0, "weekdays of the means: 0 for Mondays, 6 for holidays"),
        Slot("sums", np.zeros(len(means)), "sums of the readings of the open slot"),
        Slot("count", zero, "readings of the open slot"),
        Slot("open", zero, "number of the open slot since 1970, or since training began"),
    ]
    return slots if season.by_clock else [*slots, Slot("at", saved["whole"][1:] * 1.0, "readings since training began")]


def _scaled(detector: Comet, graph: Graph, reading: Wire, before: dict[str, Wire]) -> tuple[Wire, dict[str, Wire]]:
    """A scaled reading (1, variable), and the parts of the state after it."""
    values, after = graph.reshape(reading, (-1,)), {}
    if detector.trends_.any:
        values, after["level"], after["away"] = movements(
            graph, detector.trends_, values, before["level"], before["away"], before[SEEN].same(0.0)
        )
    if detector.season_ is not None:
        values, own = without_season(graph, detector.season_, values, before)
        after |= own
    return graph.reshape(scaled(graph, detector.scaling_, values), (1, -1)), after


def _alert_and_variables(detector: Comet, graph: Graph, window: Wire, seen: Wire) -> tuple[Wire, Wire]:
    """The alert score (1,) and the scores of the variables (1, variable) of the last row of a window."""
    panel = detector.panel_
    errors = graph("Concat", *(VIEW_GRAPHS[type(view)](graph, view, window) for view in panel.views), axis=0)
    known = graph("GreaterOrEqual", seen, np.array([[float(view.context)] for view in panel.views]))
    variables = variable_scores(graph, errors, known, panel.alert, panel.weights)
    if panel.signatures is None:
        alert = power_mean(graph, variables, panel.pooling)
    else:
        highs, row = np.ascontiguousarray(panel.alert[:, 1]), graph.rows(window, -1)
        alert = excused(graph, panel.signatures, highs, panel.pooling, row, errors, known, variables)
    return graph.reshape(alert, (1,)), variables

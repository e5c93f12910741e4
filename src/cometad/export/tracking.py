"""Threshold rules as graphs: the threshold of a score, and the state after it."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from cometad.alerting.budget import ALERT_STEP, EXTRA, FARTHEST, NEARBY, PAUSE, SAME, STEP, Budget
from cometad.alerting.thresholds import Conformal, Quantile
from cometad.arrays import Floats
from cometad.export.graph import Graph, Wire
from cometad.export.state import Slot


class Tracked(NamedTuple):
    """The threshold (1,) that applied to a score, and the parts of the state after it."""

    threshold: Wire
    after: dict[str, Wire]


class RuleGraph(NamedTuple):
    """How a threshold rule becomes a graph."""

    slots: Callable[[Floats], list[Slot]]  # of its fitted state
    track: Callable[[Graph, Any, Floats, Wire, Mapping[str, Wire]], Tracked]


def fixed(graph: Graph, rule: Any, state: Floats, score: Wire, before: Mapping[str, Wire]) -> Tracked:
    """A threshold that never changes."""
    return Tracked(graph.constant(state), {})


def budget_slots(state: Floats) -> list[Slot]:
    """The state of a budget."""
    meanings = {
        "position": "distance of the threshold from its start, on the scale of the budget",
        "allowance": "flags that may hold the threshold; for a budget of alerts, flags of the current alert",
        "quiet": "readings since the last flag, up to the number that ends an event",
        "last": "the previous score",
    }
    return [Slot(name, state[k : k + 1], meaning) for k, (name, meaning) in enumerate(meanings.items(), start=2)]


def budget(graph: Graph, rule: Budget, state: Floats, score: Wire, before: Mapping[str, Wire]) -> Tracked:
    """A threshold that tracks its own rate, as `Budget` describes."""
    follow = _readings if rule.alerts_per_day is None else _alerts
    return follow(graph, rule, state, score, before)


def _readings(graph: Graph, rule: Budget, state: Floats, score: Wire, before: Mapping[str, Wire]) -> Tracked:
    start, spread, rate = (float(state[k]) for k in (0, 1, 6))
    position, quiet = before["position"], before["quiet"]
    threshold = _score_at(graph, position, start, spread)
    flagged = score > threshold
    allowance = graph("Min", before["allowance"] + EXTRA * rate, float(rule.patience))
    raised = position + STEP * (1 - rate)
    far = score > _score_at(graph, raised, start, spread)
    held = flagged & (quiet < float(NEARBY)) & (allowance >= 1.0) & far
    lowered = _lowered(graph, position, STEP * rate, start, spread, score, before["last"])
    return Tracked(
        threshold,
        {
            "position": graph.where(flagged, graph.where(held, position, raised), lowered),
            "allowance": graph.where(held, allowance - 1.0, allowance),
            "quiet": graph.where(flagged, 0.0, graph("Min", quiet + 1.0, float(NEARBY))),
            "last": score,
        },
    )


def _alerts(graph: Graph, rule: Budget, state: Floats, score: Wire, before: Mapping[str, Wire]) -> Tracked:
    start, spread, share = (float(state[k]) for k in (0, 1, 6))
    position, length, quiet = before["position"], before["allowance"], before["quiet"]
    threshold = _score_at(graph, position, start, spread)
    flagged = score > threshold
    goes_on = (quiet <= float(rule.watch(state).pause)) & (length < float(rule.patience))
    lowered = _lowered(graph, position, ALERT_STEP * share, start, spread, score, before["last"])
    raised = graph.where(goes_on, position, position + ALERT_STEP * (1 - share))
    return Tracked(
        threshold,
        {
            "position": graph.where(flagged, raised, lowered),
            "allowance": graph.where(flagged, graph.where(goes_on, length + 1.0, 0.0), length),
            "quiet": graph.where(flagged, 0.0, graph("Min", quiet + 1.0, float(PAUSE + 1))),
            "last": score,
        },
    )


def _lowered(graph: Graph, position: Wire, step: float, start: float, spread: float, score: Wire, last: Wire) -> Wire:
    """The position after a reading without a flag: constant scores do not pull the threshold below themselves."""
    lowered = position - step
    falls = (abs(score - last) > SAME * spread) | (score <= _score_at(graph, lowered, start, spread))
    return graph.where(falls, lowered, position)


def _score_at(graph: Graph, position: Wire, start: float, spread: float) -> Wire:
    """The score at a position."""
    away = _expm1(graph, graph("Min", abs(position), FARTHEST))
    return graph("Sign", position) * away * spread + start


def _expm1(graph: Graph, values: Wire) -> Wire:
    """exp(values) - 1 accurate even near 0: Kahan's formula, because ONNX has no such operator."""
    powers = graph("Exp", values)
    return graph.where(powers.same(1.0), values, (powers - 1.0) * (values / graph("Log", powers)))


def _nothing(state: Floats) -> list[Slot]:
    return []


# The rule, and its graph.
RULE_GRAPHS: dict[type, RuleGraph] = {
    Budget: RuleGraph(budget_slots, budget),
    Quantile: RuleGraph(_nothing, fixed),
    Conformal: RuleGraph(_nothing, fixed),
}

"""Threshold rules as graphs: the threshold of a score, the parts of the state that it needs, and these after it."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

import numpy as np

from cometad.alerting.alerts import PAUSE, Alerts
from cometad.alerting.budget import EXTRA, NEARBY, NUMBERS, RATE_STEP, Budget
from cometad.alerting.severity import MIDDLE, RAREST, ScoreTail
from cometad.alerting.thresholds import Conformal, Quantile
from cometad.alerting.watch import (
    EXTRA_COST,
    FARTHEST,
    FORGET,
    ORDINARY,
    RARE,
    SAME,
    SETTLED_GAP,
    STEP,
    STRONGER,
    position_of,
)
from cometad.arrays import Floats
from cometad.detector import Detector
from cometad.export.graph import Graph, Wire

READINGS = {
    "position": "distance of the threshold from its start, on the scale of the budget",
    "allowance": "flags that may hold the threshold",
    "quiet": "readings since the last flag, up to the number that ends an event",
    "last": "the previous score",
}
ALERTS = {
    "position": READINGS["position"],
    "last": READINGS["last"],
    "length": "readings of the open event so far; 0 if none is open",
    "quiet": "readings in a row below the low mark of the event, up to the number that ends it",
    "peak": "highest score of the open event",
    "held": "threshold at the start of the event, which applies while it is open",
    "mark": "low mark at the start of the event",
    "lasting": "1 while a state lasts that is no longer news, else 0",
    "calm": "readings in a row below the low mark of that state, up to the number that ends it",
    "state": "highest score of that state, slowly forgotten",
    "state_mark": "low mark of that state",
}


class Slot(NamedTuple):
    name: str
    initial: Floats  # before the first reading
    meaning: str

    @property
    def size(self) -> int:
        return math.prod(self.initial.shape)


Tracked = tuple[Wire, dict[str, Wire]]  # the threshold (1,) that applied to a score, the parts of the state after it


class RuleGraph(NamedTuple):
    """How a fitted threshold rule becomes a graph."""

    slots: Callable[[Detector], list[Slot]]
    track: Callable[[Graph, Detector, Wire, Mapping[str, Wire]], Tracked]


def fixed(graph: Graph, detector: Detector, score: Wire, before: Mapping[str, Wire]) -> Tracked:
    return graph.constant(detector.threshold_state_), {}


def budget_slots(detector: Detector) -> list[Slot]:
    _, _, position, allowance, quiet, last, *_ = detector.threshold_state_.tolist()
    fitted = {"position": position, "last": last}  # no event is open before the first reading
    if detector.threshold.rate is None:
        meanings = ALERTS
    else:
        meanings, fitted = READINGS, fitted | {"allowance": allowance, "quiet": quiet}
    return [Slot(name, np.array([fitted.get(name, 0.0)]), meaning) for name, meaning in meanings.items()]


def budget(graph: Graph, detector: Detector, score: Wire, before: Mapping[str, Wire]) -> Tracked:
    """A threshold that tracks its own rate, as `Budget` describes."""
    follow = _alerts if detector.threshold.rate is None else _readings
    return follow(graph, detector, score, before)


def _readings(graph: Graph, detector: Detector, score: Wire, before: Mapping[str, Wire]) -> Tracked:
    rule = cast(Budget, detector.threshold)
    start, spread, _, _, _, _, rate = detector.threshold_state_.tolist()
    position, quiet = before["position"], before["quiet"]
    threshold = _score_at(graph, position, start, spread)
    flagged = score > threshold
    allowance = graph("Min", before["allowance"] + EXTRA * rate, float(rule.patience))
    raised = position + RATE_STEP * (1 - rate)
    far = score > _score_at(graph, raised, start, spread)
    held = flagged & (quiet < float(NEARBY)) & (allowance >= 1.0) & far
    lowered = _lowered(graph, position, position - RATE_STEP * rate, start, spread, score, before["last"])
    return threshold, {
        "position": graph.where(flagged, graph.where(held, position, raised), lowered),
        "allowance": graph.where(held, allowance - 1.0, allowance),
        "quiet": graph.where(flagged, 0.0, graph("Min", quiet + 1.0, float(NEARBY))),
        "last": score,
    }


def _alerts(graph: Graph, detector: Detector, score: Wire, before: Mapping[str, Wire]) -> Tracked:
    """With the default `Alerts`, whose events open with their first flag: no candidates, no hold-off."""
    watch, tail, alerts = detector.judge().state()["watch"], detector.tail_, Alerts()
    start, spread, _, floor, _, _, share = watch[:NUMBERS].tolist()
    pause, settled_pause = float(PAUSE), float(max(PAUSE, SETTLED_GAP))
    longest = float(alerts.lasting(detector.statistics_.period))
    position, length, peak, mark = (before[name] for name in ("position", "length", "peak", "mark"))
    state_mark, above = before["state_mark"], before["state"] - tail.center  # the median
    is_open = length > 0.0
    calm = graph.where(score >= state_mark, 0.0, graph("Min", before["calm"] + 1.0, settled_pause + 1.0))
    top = graph("Max", _score_at(graph, position, start, spread), floor)
    news = graph("Max", top, graph("Max", above, 0.0) * STRONGER + tail.center)
    threshold = graph.where(is_open, before["held"], graph.where(before["lasting"] > 0.0, news, top))
    lasts = (before["lasting"] > 0.0) & ~(calm > settled_pause)
    flagged = score > threshold
    opens = flagged & ~is_open

    low = graph.where(lasts, news, graph("Min", top, top * alerts.low + (1 - alerts.low) * tail.center))
    near = score >= graph.where(lasts, mark, graph("Min", low, mark))
    quiet = graph.where(opens | near, 0.0, graph("Min", before["quiet"] + 1.0, pause + 1.0))
    settles = is_open & near & (length + 1.0 >= longest)
    goes_on = is_open & ~settles & ~(quiet > pause)
    forgotten = graph("Max", score, above * FORGET + tail.center)
    highest = graph("Max", score, peak)

    paid = graph.where(opens, _cost(graph, score, tail), 0.0)
    moved = position + (paid - share) * STEP
    moved = graph.where(opens, moved, _lowered(graph, position, moved, start, spread, score, before["last"]))
    return threshold, {
        "position": graph("Max", moved, position_of(floor, start, spread)),
        "last": score,
        "length": graph.where(opens, 1.0, graph.where(goes_on, length + 1.0, 0.0)),
        "quiet": quiet,
        "peak": graph.where(opens, score, highest),
        "held": graph.where(opens, threshold, before["held"]),
        "mark": graph.where(opens, low, mark),
        "lasting": graph.where(settles | lasts, 1.0, 0.0),
        "calm": graph.where(settles, 0.0, calm),
        "state": graph.where(settles, highest, graph.where(is_open | opens, before["state"], forgotten)),
        "state_mark": graph.where(settles, graph.where(lasts, graph("Min", mark, state_mark), mark), state_mark),
    }


def _lowered(graph: Graph, position: Wire, to: Wire, start: float, spread: float, score: Wire, last: Wire) -> Wire:
    """The position after a score that does not raise it: constant scores do not pull the threshold below themselves."""
    falls = (abs(score - last) > SAME * spread) | (score <= _score_at(graph, to, start, spread))
    return graph.where(falls, to, position)


def _cost(graph: Graph, score: Wire, tail: ScoreTail) -> Wire:
    """What an event that opens with this score costs: `watch.cost`."""
    middle, at_start = -math.log(max(MIDDLE, tail.share)), -math.log(tail.share)
    units = (score - tail.start) / tail.scale
    beyond = graph("Log", graph("Relu", units) * tail.shape + 1.0) / tail.shape if tail.shape else units
    part = graph.clip((score - tail.center) / (tail.start - tail.center or 1.0), 0.0, 1.0)
    rarity = graph.where(units >= 0.0, beyond + at_start, part * (at_start - middle) + middle)
    rare = graph.clip((rarity / -RAREST - ORDINARY) / (RARE - ORDINARY), 0.0, 1.0)
    return rare * -EXTRA_COST + (1.0 + EXTRA_COST)


def _score_at(graph: Graph, position: Wire, start: float, spread: float) -> Wire:
    away = _expm1(graph, graph("Min", abs(position), FARTHEST))
    return graph("Sign", position) * away * spread + start


def _expm1(graph: Graph, values: Wire) -> Wire:
    """exp(values) - 1 accurate even near 0: Kahan's formula, because ONNX has no such operator."""
    powers = graph("Exp", values)
    return graph.where(powers.same(1.0), values, (powers - 1.0) * (values / graph("Log", powers)))


RULE_GRAPHS: dict[type, RuleGraph] = {
    Budget: RuleGraph(budget_slots, budget),
    **dict.fromkeys((Quantile, Conformal), RuleGraph(lambda detector: [], fixed)),
}

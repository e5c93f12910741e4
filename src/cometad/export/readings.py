"""The first stages as a graph: trends and scaling."""

import numpy as np

from cometad.data.scale import Scaling
from cometad.data.trends import LARGEST, LASTING, Trends
from cometad.export.graph import DOUBLE, FLOAT, Graph, Wire
from cometad.export.state_layout import Slot
from cometad.views.run import CLIP


def trend_slots(trends: Trends) -> list[Slot]:
    """The state that trends need."""
    if not trends.any:
        return []
    zeros = np.zeros(len(trends.gain))
    return [
        Slot("level", zeros, "level of each variable that grows or wanders"),
        Slot("away", zeros, "consecutive readings too far for the level to follow"),
    ]


def movements(
    graph: Graph, trends: Trends, reading: Wire, level: Wire, away: Wire, first: Wire
) -> tuple[Wire, Wire, Wire]:
    """The values (variable,) to score for a reading (variable,), and `level` and `away` after it.

    `first` (1,) is true for the first reading. As in `TrendRun`, without imputed readings.
    """
    gain, usual, far = trends.gain, trends.usual, trends.far
    anew = first | (away >= float(LASTING))
    apart = graph.clip(reading - level, -LARGEST, LARGEST)
    moved = graph.where(anew, usual, apart)
    beyond = apart - usual
    follows = anew | (abs(beyond) <= far) | graph.constant(gain == 1.0)
    held = level + (graph("Sign", beyond) * far + usual) * gain
    after = graph.where(follows, reading - moved * (1 - gain), held)
    scored = graph.where(graph.constant(gain > 0), moved, reading)
    return scored, after, graph.where(follows, 0.0, away + 1.0)


def scaled(graph: Graph, scaling: Scaling, values: Wire) -> Wire:
    """Scaled values (variable,) as the views see them: rounded to single precision and clipped."""
    inside = graph.clip((values - scaling.center) / scaling.unit, -CLIP, CLIP)
    return inside.cast(FLOAT).cast(DOUBLE)

"""The pieces of a drawing: shapes as SVG in a plane that stretches to any width, its labels as text that does not.

A shape's color, dash and thickness come from its class in style.css; its place is 0..1 across and 0..1 up.
"""

from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

from cometad.arrays import Floats
from cometad.report.axis import Axis
from cometad.report.contents import Line, Mark
from cometad.report.times import Tick

WIDTH, HEIGHT = 1000, 100  # of the plane
NEAREST = 0.08  # labels of marks nearer to each other would lie one over the other on a phone


def curve(line: Line, axis: Axis, kind: str) -> str:
    """A curve; it is interrupted where a value is missing.

    >>> import numpy as np
    >>> from cometad.report.axis import Linear
    >>> from cometad.report.contents import Line
    >>> from cometad.report.draw import curve
    >>> curve(Line.of(np.array([0.0, 2.0, 1.0])), Linear(0.0, 2.0), "score")
    '<path class="curve score" d="M0 100L500 0L1000 50"/>'
    """
    across, up = WIDTH * line.places, HEIGHT * (1 - axis.place(line.values))
    pen, steps = "M", []
    for x, y in zip(across.tolist(), up.tolist(), strict=True):
        if y != y:
            pen = "M"
            continue
        steps.append(f"{pen}{_number(x)} {_number(y)}")
        pen = "L"
    if len(steps) == 1:
        steps.append("h0")  # a point, which the round end of its line shows
    return f'<path class="curve {kind}" d="{"".join(steps)}"/>'


def level(place: float, kind: str) -> str:
    """A line from side to side.

    >>> from cometad.report.draw import level
    >>> level(0.25, "threshold")
    '<path class="curve threshold" d="M0 75H1000"/>'
    """
    return f'<path class="curve {kind}" d="M0 {_number(HEIGHT * (1 - place))}H{WIDTH}"/>'


def bands(marks: Sequence[Mark]) -> str:
    """Events: each one's stretch shaded, and an edge that is seen however short it is.

    >>> from cometad.report.contents import Mark
    >>> from cometad.report.draw import bands
    >>> bands([Mark(1, 0.5, 0.6, 0.5)])
    '<g class="event"><path class="stretch" d="M500 0H600V100H500Z"/><path class="edge" d="M500 0V100"/></g>'
    """
    ends = [(_number(WIDTH * mark.start), _number(WIDTH * mark.stop)) for mark in marks]
    stretches = "".join(f"M{start} 0H{stop}V{HEIGHT}H{start}Z" for start, stop in ends if start != stop)
    edges = "".join(f"M{start} 0V{HEIGHT}" for start, _ in ends)
    return f'<g class="event"><path class="stretch" d="{stretches}"/><path class="edge" d="{edges}"/></g>'


def bars(shares: Floats, axis: Axis, kind: str, foot: float = 0.0, edges: Floats | None = None) -> str:
    """Bars (bar,) side by side that stand on a value, or hang from it where they are lower; `edges` are places.

    >>> import numpy as np
    >>> from cometad.report.axis import Linear
    >>> from cometad.report.draw import bars
    >>> bars(np.array([0.5, 1.0]), Linear(0.0, 1.0), "before")
    '<path class="bars before" d="M0 100V50H500V0H1000V100Z"/>'
    """
    sides = np.linspace(0, 1, len(shares) + 1) if edges is None else edges
    ground = _number(float(HEIGHT * (1 - axis.place(foot))))
    tops = HEIGHT * (1 - axis.place(foot + np.asarray(shares)))
    steps = [f"V{_number(y)}H{_number(WIDTH * x)}" for y, x in zip(tops.tolist(), sides[1:].tolist(), strict=True)]
    return f'<path class="bars {kind}" d="M{_number(WIDTH * sides[0])} {ground}{"".join(steps)}V{ground}Z"/>'


def plot(
    shapes: Iterable[str],
    *,
    name: str,
    description: str,
    up: Sequence[Tick] = (),
    across: Sequence[Tick] = (),
    size: str = "middle",
    marks: Sequence[Mark] = (),
) -> str:
    """Shapes with the ticks of their axes, a name and a description for those who cannot see them.

    Marks, those first that matter most, have their number above as far as there is room, with a link to the panel.

    >>> from cometad.report.draw import level, plot
    >>> from cometad.report.times import Tick
    >>> figure = plot([level(0.5, "score")], name="Scores", description="A level.", across=[Tick(0.5, "noon")])
    >>> "<title" in figure, 'style="left:50%">noon' in figure
    (True, True)
    """
    return (
        f'<figure class="plot {size}">'
        f"{_badges(marks)}{_labels('up', 'bottom', up)}"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img">'
        f"<title>{escape(name)}</title><desc>{escape(description)}</desc>"
        f"{_grid(up, across)}{''.join(shapes)}</svg>"
        f"{_labels('across', 'left', across)}</figure>"
    )


def _badges(marks: Sequence[Mark]) -> str:
    if not marks:
        return ""
    free: list[Mark] = []
    for mark in marks:
        if all(abs(mark.peak - other.peak) >= NEAREST for other in free):
            free.append(mark)
    links = (
        f'<a href="#event-{mark.number}" style="left:{_number(100 * mark.peak)}%" title="To event {mark.number}">'
        f"{mark.number}</a>"
        for mark in sorted(free, key=lambda mark: mark.peak)
    )
    return f'<div class="badges">{"".join(links)}</div>'


def _labels(kind: str, side: str, ticks: Sequence[Tick]) -> str:
    spans = (
        f'<span{_end(tick.place)} style="{side}:{_number(100 * tick.place)}%">{escape(tick.label)}</span>'
        for tick in ticks
        if -0.001 <= tick.place <= 1.001
    )
    return f'<div class="{kind}" aria-hidden="true">{"".join(spans)}</div>'


def _end(place: float) -> str:
    """The class of a label that would otherwise stick out at one end."""
    return ' class="first"' if place < 0.04 else ' class="last"' if place > 0.96 else ""


def _grid(up: Sequence[Tick], across: Sequence[Tick]) -> str:
    rows = "".join(f"M0 {_number(HEIGHT * (1 - tick.place))}H{WIDTH}" for tick in up)
    columns = "".join(f"M{_number(WIDTH * tick.place)} 0V{HEIGHT}" for tick in across)
    return f'<path class="grid" d="{rows}{columns}"/>' if rows or columns else ""


def _number(value: float) -> str:
    """As exact as a tenth of a pixel, as short as it can be written."""
    return f"{round(value, 1) + 0.0:g}" if abs(value) < 1e5 else f"{value:.0f}"

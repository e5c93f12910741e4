"""The drawings of a page: SVG shapes that stretch to any width, and labels that do not.

Shapes get their color, dash and line width from their class in style.css. Places run from 0 to 1, left to right and
bottom to top. The macro `plot` in templates/parts.html puts a `Plot` on the page.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from cometad.arrays import Floats
from cometad.report.axes import Axis, Tick
from cometad.report.contents import Line, Mark

WIDTH, HEIGHT = 1000, 100  # of the SVG's coordinate system
CLOSEST = 0.08  # badges closer together than this would overlap on a phone


@dataclass(frozen=True)
class Plot:
    """Shapes with the ticks of their axes, and a name and a description for screen readers."""

    shapes: Sequence[Markup]  # later ones cover earlier ones
    name: str
    description: str
    up: Sequence[Tick] = ()
    across: Sequence[Tick] = ()
    size: str = "medium"  # or "tall" or "low"
    marks: Sequence[Mark] = ()  # events to number above the plot, most important first

    @property
    def grid(self) -> Markup:
        rows = "".join(f"M0 {rounded(HEIGHT * (1 - tick.place))}H{WIDTH}" for tick in self.up)
        columns = "".join(f"M{rounded(WIDTH * tick.place)} 0V{HEIGHT}" for tick in self.across)
        return Markup(f'<path class="grid" d="{rows}{columns}"/>' if rows or columns else "")

    @property
    def badges(self) -> list[Mark]:
        """The marks with room for their number, from left to right."""
        numbered: list[Mark] = []
        for mark in self.marks:
            if all(abs(mark.peak - other.peak) >= CLOSEST for other in numbered):
                numbered.append(mark)
        return sorted(numbered, key=lambda mark: mark.peak)


def curve(line: Line, axis: Axis, kind: str) -> Markup:
    """A curve, interrupted where a value is missing."""
    across, up = WIDTH * line.places, HEIGHT * (1 - axis.place(line.values))
    pen, steps = "M", []
    for x, y in zip(across.tolist(), up.tolist(), strict=True):
        if y != y:
            pen = "M"
            continue
        steps.append(f"{pen}{rounded(x)} {rounded(y)}")
        pen = "L"
    if len(steps) == 1:
        steps.append("h0")  # a line of length 0: its round cap makes a single point visible
    return Markup(f'<path class="curve {kind}" d="{"".join(steps)}"/>')


def level(place: float, kind: str) -> Markup:
    return Markup(f'<path class="curve {kind}" d="M0 {rounded(HEIGHT * (1 - place))}H{WIDTH}"/>')


def bands(marks: Sequence[Mark]) -> list[Markup]:
    """One shaded band per event, with a left edge that stays visible however short the event is; the faintest first."""
    shades = [f"{max(mark.strength, 0.1):.1f}" for mark in marks]
    return [_shaded([mark for mark, own in zip(marks, shades, strict=True) if own == s], s) for s in sorted({*shades})]


def _shaded(marks: Sequence[Mark], opacity: str) -> Markup:
    ends = [(rounded(WIDTH * mark.start), rounded(WIDTH * mark.stop)) for mark in marks]
    areas = "".join(f"M{start} 0H{stop}V{HEIGHT}H{start}Z" for start, stop in ends if start != stop)
    edges = "".join(f"M{start} 0V{HEIGHT}" for start, _ in ends)
    shapes = f'<path class="band" d="{areas}"/><path class="edge" d="{edges}"/>'
    return Markup(f'<g class="event" opacity="{opacity}">{shapes}</g>')


def bars(heights: Floats, axis: Axis, kind: str) -> Markup:
    """Adjacent bars (bar,) of equal width, upward from zero or downward where negative."""
    sides = np.linspace(0, WIDTH, len(heights) + 1)[1:]
    zero = rounded(float(HEIGHT * (1 - axis.place(0.0))))
    tops = HEIGHT * (1 - axis.place(heights))
    steps = (f"V{rounded(y)}H{rounded(x)}" for y, x in zip(tops.tolist(), sides.tolist(), strict=True))
    return Markup(f'<path class="bars {kind}" d="M0 {zero}{"".join(steps)}V{zero}Z"/>')


def rounded(value: float) -> str:
    """A coordinate to a tenth, in as few characters as possible."""
    return f"{round(value, 1) + 0.0:g}" if abs(value) < 1e5 else f"{value:.0f}"

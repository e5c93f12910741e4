"""The report as one self-contained HTML file, for any screen width, light or dark, with no script and no network.

Plots are SVG shapes that stretch to any width, and labels that do not. Shapes get their color, dash and line width from
their class in style.css. Places run from 0 to 1, left to right and bottom to top. The macro `plot` in
templates/parts.html puts a `Plot` on the page.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from cometad.arrays import Floats
from cometad.files import write_whole
from cometad.report.axes import AsinhAxis, Axis, LinearAxis, Tick, format_number, score_axis
from cometad.report.contents import LEVELS, EventPanel, Line, Mark, Report, ScoreDrift, Strip, Trace, Usage
from cometad.report.html import render, rounded

OPEN = 5  # panels of the worst alerts start open; the others open on a click
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
    ends: dict[str, list[tuple[str, str]]] = {}  # by opacity
    for mark in marks:
        own = ends.setdefault(f"{max(mark.strength, 0.1):.1f}", [])
        own.append((rounded(WIDTH * mark.start), rounded(WIDTH * mark.stop)))
    return [_shaded(own, opacity) for opacity, own in sorted(ends.items())]


def _shaded(ends: Sequence[tuple[str, str]], opacity: str) -> Markup:
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


def save_report(path: str | os.PathLike[str], report: Report) -> None:
    """Write a report to an HTML file, whole or not at all.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from cometad import BASELINES
    >>> from cometad.report.gather import gather
    >>> from cometad.report.page import save_report
    >>> normal = np.random.default_rng(0).normal(size=(500, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_report(Path(folder) / "report.html", gather(BASELINES["squared-norm"]().fit(normal), normal))
    ...     (Path(folder) / "report.html").read_text().startswith("<!doctype html>")
    True
    """
    content = page(report)
    write_whole(path, lambda temporary: temporary.write_text(content, encoding="utf-8"))


def page(report: Report) -> str:
    """The HTML of a report; the same report gives the same text."""
    drawn = [_panel(panel, report, k < OPEN and panel.level == "alert") for k, panel in enumerate(report.panels)]
    return render(
        "report.html",
        title=report.headline,
        report=report,
        overview=_overview(report),
        alerts=[each for each in drawn if each["panel"].level == "alert"],
        notices=[each for each in drawn if each["panel"].level == "notice"],
        usages=[{"patch_size": usage.patch_size, "plot": _usage(usage)} for usage in report.usages],
        quantiles=_quantiles(report),
        histogram=_histogram(report.drift),
        settings_json=json.dumps(report.settings, indent=2, ensure_ascii=False),
    )


def _overview(report: Report) -> dict[str, Any]:
    axis, shapes = _score_plot(report.strip, report)
    marks = {mark.number: mark for mark in report.strip.marks}
    highest = format_number(float(np.nanmax(report.strip.alerts.values)))
    plot = Plot(
        shapes,
        name="Scores over time",
        description=f"{report.headline}. The highest alert score is {highest}.",
        up=axis.ticks(4),
        across=report.strip.ticks,
        size="tall",
        marks=[marks[panel.number] for panel in report.panels],
    )
    return {"plot": plot, "is_logarithmic": isinstance(axis, AsinhAxis)}


def _score_plot(strip: Strip, report: Report) -> tuple[Axis, list[Markup]]:
    """The axis of the scores, and their curves over the events."""
    lines = {"score": strip.alerts, "ranking": strip.ranking, "threshold": strip.thresholds}
    known = {kind: line for kind, line in lines.items() if line is not None}
    axis = score_axis([line.values for line in known.values()], report.center, report.threshold)
    return axis, [*bands(strip.marks), *(curve(line, axis, kind) for kind, line in known.items())]


def _panel(panel: EventPanel, report: Report, is_open: bool) -> dict[str, Any]:
    """The plots of an event, one below the other; only the last one shows the ticks of their common time axis."""
    axis, shapes = _score_plot(panel.strip, report)
    score = format_number(panel.score)
    scores = Plot(
        shapes,
        name=f"Event {panel.number}: scores",
        description=f"Event {panel.number} from {panel.start} to {panel.end}, peak {score} at {panel.peak}.",
        up=axis.ticks(2),
        across=() if panel.traces else panel.strip.ticks,
        size="low",
    )
    traces = [
        {
            "variable": trace.variable,
            "share": trace.share,
            "sentence": trace.sentence,
            "plot": _trace(trace, panel, panel.strip.ticks if trace is panel.traces[-1] else ()),
        }
        for trace in panel.traces
    ]
    return {"panel": panel, "is_open": is_open, "scores": scores, "traces": traces}


def _trace(trace: Trace, panel: EventPanel, across: Sequence[Tick]) -> Plot:
    axis = LinearAxis.over(trace.observed.values, trace.normal.values)
    return Plot(
        [*bands(panel.strip.marks), curve(trace.normal, axis, "normal"), curve(trace.observed, axis, "observed")],
        name=f"Event {panel.number}: {trace.variable}",
        description=trace.sentence,
        up=axis.ticks(3),
        across=across,
    )


def _usage(usage: Usage) -> Plot:
    highest = max(float(usage.training.max()), float(usage.here.max()), 1e-9)
    axis = LinearAxis(-1.05 * highest, 1.05 * highest)
    value = _round_below(highest)
    codes, used, here = len(usage.training), np.count_nonzero(usage.training), np.count_nonzero(usage.here)
    return Plot(
        [bars(usage.training, axis, "before"), bars(-usage.here, axis, "here"), level(0.5, "zero")],
        name=f"Codebook usage: patches of {usage.patch_size} readings",
        description=(
            f"Of {codes:,} codes, training used {used:,} and this data uses {here:,}. Of this data's "
            f"patches, {100 * usage.unseen:.2g} % are closest to a code that training never used."
        ),
        up=[Tick(float(axis.place(place)), f"{100 * abs(place):.2g} %") for place in (0.0, value, -value)],
        across=[Tick(0.0, "1"), Tick(0.5, f"{(codes + 1) // 2:,}"), Tick(1.0, f"{codes:,} codes")] if codes > 2 else (),
    )


def _round_below(highest: float) -> float:
    """The largest of ..., 0.5, 1, 2, 5, 10, ... that is not above `highest`."""
    power = 10.0 ** np.floor(np.log10(highest))
    return float(max(value for value in (0.5 * power, power, 2 * power, 5 * power) if value <= highest))


def _quantiles(report: Report) -> Plot:
    drift = report.drift
    axis = score_axis([drift.quantiles, drift.training], report.center, report.threshold)
    bins = drift.quantiles.shape[1]
    places = (np.arange(bins) + 0.5) / bins
    kinds = ("middle", "upper", "uppermost")
    curves = [curve(Line(places, row), axis, kind) for row, kind in zip(drift.quantiles, kinds, strict=True)]
    medians = (drift.training[0], drift.quantiles[0, 0], drift.quantiles[0, -1])
    training, first, last = (format_number(float(median)) for median in medians)
    return Plot(
        [*(level(float(axis.place(value)), "then") for value in drift.training), *curves],
        name="Quantiles of the alert scores over time",
        description=(
            f"The median alert score was {training} in training. In this data it starts at {first} and ends at {last}. "
            f"Of its scores, {100 * drift.above:.2g} % exceed the {100 * LEVELS[-1]:g} % quantile of the training "
            f"scores; {100 * (1 - LEVELS[-1]):.2g} % would be normal."
        ),
        up=axis.ticks(4),
        across=report.strip.ticks,
    )


def _histogram(drift: ScoreDrift) -> Plot:
    before, after = 100 * drift.before, 100 * drift.after
    axis = LinearAxis.over(before, after, start=0.0)
    return Plot(
        [bars(before, axis, "before"), bars(after, axis, "line")],
        name="Histogram of the alert scores in training and in this data",
        description="Share of readings by score in training and in this data; the last bar includes all higher scores.",
        up=[Tick(tick.place, f"{tick.label} %") for tick in axis.ticks(3)],
        across=LinearAxis(float(drift.edges[0]), float(drift.edges[-1])).ticks(3),
    )

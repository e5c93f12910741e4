"""The report as one self-contained HTML file, for any screen width, light or dark, with no script and no network."""

import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from cometad.files import write_whole
from cometad.report.axes import AsinhAxis, Axis, LinearAxis, Tick, format_number, score_axis
from cometad.report.contents import LEVELS, EventPanel, Line, Report, ScoreDrift, Strip, Trace, Usage
from cometad.report.draw import Plot, bands, bars, curve, level
from cometad.report.html import render

OPEN = 5  # panels of the worst alerts start open; the others open on a click


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
        overview=_overview(report, [panel.number for panel in report.panels]),
        alerts=[each for each in drawn if each["panel"].level == "alert"],
        notices=[each for each in drawn if each["panel"].level == "notice"],
        usages=[{"patch_size": usage.patch_size, "plot": _usage(usage)} for usage in report.usages],
        quantiles=_quantiles(report),
        histogram=_histogram(report.drift),
        settings_json=json.dumps(report.settings, indent=2, ensure_ascii=False),
    )


def _overview(report: Report, numbers: Sequence[int]) -> dict[str, Any]:
    """The plot of all scores; `numbers` are the events to number, most important first, while there is room."""
    axis = _score_axis(report.strip, report)
    marks = {mark.number: mark for mark in report.strip.marks}
    highest = format_number(float(np.nanmax(report.strip.alerts.values)))
    plot = Plot(
        _score_shapes(report.strip, axis),
        name="Scores over time",
        description=f"{report.headline}. The highest alert score is {highest}.",
        up=axis.ticks(4),
        across=report.strip.ticks,
        size="tall",
        marks=[marks[number] for number in numbers],
    )
    return {"plot": plot, "is_logarithmic": isinstance(axis, AsinhAxis)}


def _score_axis(strip: Strip, report: Report) -> Axis:
    ranking = [] if strip.ranking is None else [strip.ranking.values]
    values = [strip.alerts.values, strip.thresholds.values, *ranking]
    return score_axis(values, report.center, report.threshold)


def _score_shapes(strip: Strip, axis: Axis) -> list[Markup]:
    ranking = [] if strip.ranking is None else [curve(strip.ranking, axis, "ranking")]
    curves = [curve(strip.alerts, axis, "score"), *ranking, curve(strip.thresholds, axis, "threshold")]
    return [*bands(strip.marks), *curves]


def _panel(panel: EventPanel, report: Report, is_open: bool) -> dict[str, Any]:
    """The plots of an event, one below the other; only the last one shows the ticks of their common time axis."""
    axis = _score_axis(panel.strip, report)
    score = format_number(panel.score)
    scores = Plot(
        _score_shapes(panel.strip, axis),
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
    codes = len(usage.training)
    return Plot(
        [bars(usage.training, axis, "before"), bars(-usage.here, axis, "here"), level(0.5, "zero")],
        name=f"Codebook usage: patches of {usage.patch_size} readings",
        description=(
            f"Of {codes:,} codes, training used {usage.used:,} and this data uses {usage.used_here:,}. Of this data's "
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

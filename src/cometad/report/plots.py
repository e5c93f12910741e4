"""Plots for your own figures: the plots of a report and more, each drawn on a matplotlib `Axes`."""

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cometad.alerting.alerts import Event
from cometad.arrays import Floats
from cometad.errors import InputError, needs_extra
from cometad.explain.reasons import Explanation
from cometad.files import write_whole
from cometad.report.contents import LEVELS, ScoreDrift, Usage, thin

Interval = tuple[int, int]  # half-open, in time steps

INK, SCORE, LIMIT, FOUND, MISSED = "#30343f", "#1f6f8b", "#b5502f", "#3b8f5a", "#c0392b"
BEFORE = "#9aa3b0"  # the training data
FAULT = "#f2c14e"  # a planted fault
COLORS = 256  # of a .png

_DASHES = ("-", "--", ":")  # of the quantiles in `drift`


def series(axes: Any, values: NDArray[Any], names: Sequence[str]) -> None:
    """Draw variables (time, variable) one above the other, each scaled to its own range.

    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from cometad.report import plots
    >>> axes = Figure().subplots()
    >>> plots.series(axes, np.zeros((10, 2)), ["flow", "pressure"])
    >>> [label.get_text() for label in axes.get_yticklabels()]
    ['flow', 'pressure']
    """
    for row, column in enumerate(values.T):
        spread = np.ptp(column) or 1.0
        axes.plot(row - 0.42 + 0.84 * (column - column.min()) / spread, color=INK, linewidth=0.5)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0, len(values))


def scores(
    axes: Any,
    scores: ArrayLike,
    threshold: ArrayLike,
    events: Sequence[Event] = (),
    times: NDArray[Any] | None = None,
) -> None:
    """Draw scores (time,), the threshold (one value, or one per time step) and events; long series are thinned first.

    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from cometad.report import plots
    >>> from cometad.alerting.alerts import Event
    >>> axes = Figure().subplots()
    >>> event = Event(number=1, start=3, stop=5, peak=4, peak_score=4.0, severity=0.2, steps=1, open=False)
    >>> plots.scores(axes, np.arange(5.0), threshold=3.0, events=[event])
    >>> axes.get_ylabel(), axes.get_xlabel(), len(axes.patches)
    ('score', 'time step', 1)
    """
    values = np.asarray(scores, np.float64)
    limits = np.broadcast_to(np.asarray(threshold, np.float64), values.shape)
    chosen, moving = thin(values), thin(limits)
    axes.plot(_across(chosen, times), values[chosen], color=SCORE, linewidth=0.7)
    axes.plot(_across(moving, times), limits[moving], color=LIMIT, linewidth=1, linestyle="--", label="threshold")
    _bound(axes, 0, len(values), times)
    axes.set_ylabel("score")
    for event in events:  # as strong as it is severe
        shade(axes, [(event.start, event.stop)], [False], times, alpha=max(0.6 * event.severity, 0.05))


def event(axes: Any, explanation: Explanation, variable: str | None = None, times: NDArray[Any] | None = None) -> None:
    """Draw a variable during an event with what was expected; by default the one with the largest share.

    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from cometad import Comet
    >>> from cometad.report import plots
    >>> normal, fresh = np.random.default_rng(0).normal(size=(2, 1000, 3))
    >>> fresh[500, 1] = 12.0
    >>> explanation = Comet().fit(normal).explain(fresh, 500)
    >>> axes = Figure().subplots()
    >>> plots.event(axes, explanation)
    >>> axes.get_ylabel(), float(axes.lines[1].get_ydata().max())
    ('v1', 12.0)
    """
    name = explanation.reasons[0].variable if variable is None else variable
    if name not in explanation.names:
        raise InputError(f"Unknown variable {name!r}; choose from {', '.join(explanation.names)}.")
    column = explanation.names.index(name)
    steps = np.arange(explanation.begin, explanation.begin + len(explanation.observed))
    share = next(reason.share for reason in explanation.reasons if reason.variable == name)
    for values, color, dash, label in (
        (explanation.normal, FOUND, "--", "expected"),
        (explanation.observed, SCORE, "-", "observed"),
    ):
        chosen = thin(values[:, column])
        places = _across(steps[chosen], times)
        axes.plot(places, values[chosen, column], color=color, linewidth=1.2, linestyle=dash, label=label)
    _bound(axes, explanation.begin, explanation.begin + len(steps), times)
    shade(axes, [(explanation.start, explanation.stop)], [False], times)
    axes.set_ylabel(name)
    axes.set_title(f"{100 * share:.0f} % share", fontsize=9, loc="left")


def codebook(axes: Any, usage: Usage) -> None:
    """Draw how often each code is used: upward in training, downward in the series.

    >>> from matplotlib.figure import Figure
    >>> from cometad.report import plots
    >>> from cometad.report.contents import usage
    >>> axes = Figure().subplots()
    >>> plots.codebook(axes, usage(8, training=[5, 3, 0], here=[1, 0, 1]))
    >>> axes.get_title(loc="left"), len(axes.patches)
    ('patches of 8 readings', 2)
    """
    edges = np.arange(len(usage.training) + 1)
    axes.stairs(usage.training, edges, fill=True, color=BEFORE, label="training")
    axes.stairs(-usage.here, edges, fill=True, color=SCORE, label="this data")
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.set_xlim(0, len(usage.training))
    axes.yaxis.set_major_formatter(lambda share, _: f"{100 * abs(share):.2g} %")
    axes.set_xlabel("code")
    axes.set_title(f"patches of {usage.patch_size} readings", fontsize=9, loc="left")


def drift(axes: Any, drift: ScoreDrift) -> None:
    """Draw quantiles of the scores over time, with those of the training scores as thin lines.

    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from cometad.report import plots
    >>> from cometad.report.contents import drift
    >>> axes = Figure().subplots()
    >>> plots.drift(axes, drift(np.arange(100.0), training=np.arange(50.0)))
    >>> [line.get_label() for line in axes.lines][::2]
    ['median', '90 %', '99 %']
    """
    bins = drift.quantiles.shape[1]
    places = 100 * (np.arange(bins) + 0.5) / bins
    rows = zip(drift.quantiles, drift.training, LEVELS, _DASHES, strict=True)
    for row, before, level, dash in rows:
        label = "median" if level == 0.5 else f"{100 * level:g} %"
        axes.plot(places, row, color=SCORE, linewidth=1.2, linestyle=dash, label=label)
        axes.axhline(before, color=BEFORE, linewidth=0.8, label=f"{label} in training")
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of the data")
    axes.set_ylabel("score")


def histogram(axes: Any, drift: ScoreDrift) -> None:
    """Draw the distribution of the scores in training and in the series; the last bar includes all higher scores.

    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from cometad.report import plots
    >>> from cometad.report.contents import drift
    >>> axes = Figure().subplots()
    >>> plots.histogram(axes, drift(np.arange(100.0), training=np.arange(50.0)))
    >>> [patch.get_label() for patch in axes.patches]
    ['training', 'this data']
    """
    axes.stairs(drift.before, drift.edges, fill=True, color=BEFORE, label="training")
    axes.stairs(drift.after, drift.edges, color=SCORE, linewidth=1.5, label="this data")
    axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.2g} %")
    axes.set_xlabel("score")


def shade(
    axes: Any,
    intervals: Sequence[Interval],
    found: Sequence[bool],
    times: NDArray[Any] | None = None,
    alpha: float = 0.3,
) -> None:
    """Shade intervals, green where found and red where missed.

    >>> from matplotlib.figure import Figure
    >>> from cometad.report import plots
    >>> axes = Figure().subplots()
    >>> plots.shade(axes, [(3, 5), (8, 9)], [True, False])
    >>> len(axes.patches)
    2
    """
    left, right = axes.get_xlim()
    min_width = 0.002 * (right - left)  # a spike of one time step must be visible too
    for (start, stop), hit in zip(intervals, found, strict=True):
        begin, end = axes.convert_xunits(_across(np.array([start, stop - 1]), times)) + np.array([0, times is None])
        axes.axvspan(begin, max(end, begin + min_width), color=FOUND if hit else MISSED, alpha=alpha, linewidth=0)


class Excerpt(NamedTuple):
    """A few readings of one variable around a fault, and what was expected of it."""

    title: str
    start: int  # the first time step
    readings: Floats  # (time,)
    expected: Floats  # (time,)  NaN where unknown
    band: float | None  # normal readings are this close to what is expected
    fault: Interval
    raised: int | None  # the time step of its alert


def excerpt(axes: Any, shown: Excerpt) -> None:
    """Draw an excerpt: readings over the expected band, with the fault shaded and its alert marked.

    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from cometad.report import plots
    >>> axes, shown = Figure().subplots(), plots.Excerpt("spike", 5, np.arange(9.0), np.zeros(9), 1.0, (7, 9), raised=8)
    >>> plots.excerpt(axes, shown)
    >>> axes.get_title(loc="left"), [float(x) for x in axes.get_xlim()]
    ('spike', [5.0, 13.0])
    """
    steps, width = shown.start + np.arange(len(shown.readings)), shown.band or 0.0
    axes.fill_between(
        steps, shown.expected - width, shown.expected + width, color=FOUND, alpha=0.35, linewidth=0, label="expected"
    )
    axes.plot(steps, shown.readings, color=INK, linewidth=1.1, label="reading")
    axes.set_xlim(steps[0], steps[-1])
    _mark_stretches(axes, [shown.fault], FAULT, "fault")
    if shown.raised is not None:
        _mark_alerts(axes, [shown.raised], LIMIT, "alert")
    axes.set_title(shown.title, fontsize=9, loc="left", pad=12)
    axes.set_xticks([shown.fault[0]])
    axes.set_yticks([])
    axes.tick_params(labelsize=8)


def save_overview(
    path: str | os.PathLike[str],
    excerpts: Sequence[Excerpt],
    alert_scores: Floats,
    threshold: ArrayLike,
    faults: Sequence[Interval],
    right: Sequence[int],
    wrong: Sequence[int],
    harmless: Sequence[Interval] = (),
    dismissed: Sequence[int] = (),
) -> None:
    """Write a PNG: excerpts above, all alert scores below.

    Faults and harmless stretches are shaded. Alerts are marked: right, wrong, and dismissed ones, which are about a
    harmless stretch.
    """
    figure = needs_extra("matplotlib.figure", "viz").Figure(figsize=(11, 5.4), dpi=130, layout="constrained")
    grid = figure.add_gridspec(2, len(excerpts), height_ratios=(2, 3))
    for k, shown in enumerate(excerpts):
        excerpt(figure.add_subplot(grid[0, k]), shown)
    below = figure.add_subplot(grid[1, :])
    _draw_scores(below, alert_scores, threshold)
    _mark_stretches(below, faults, FAULT, "fault")
    _mark_stretches(below, harmless, BEFORE, "harmless")
    for steps, color, label in (
        (right, LIMIT, "alert"),
        (wrong, "none", "false alert"),
        (dismissed, BEFORE, "alert called normal"),
    ):
        _mark_alerts(below, steps, color, label)
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    marks = {label: mark for axes in figure.axes for mark, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(marks.values(), marks.keys(), loc="outside upper center", ncols=len(marks), frameon=False, fontsize=9)
    save_figure(path, figure)


def save_figure(path: str | os.PathLike[str], figure: Any) -> None:
    """Write a matplotlib figure, completely or not at all; a .png says that cometad drew it."""
    is_png = Path(path).suffix.lower() == ".png"
    write_whole(path, lambda temporary: _save_png(temporary, figure) if is_png else figure.savefig(temporary))


def _save_png(path: Path, figure: Any) -> None:
    """Write a figure with few colors, which takes a third of the space."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    drawn, note = io.BytesIO(), PngInfo()
    figure.savefig(drawn, format="png")
    note.add_text("Software", "cometad")
    with Image.open(drawn) as image:
        few = image.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE)
        few.save(path, "PNG", optimize=True, pnginfo=note, dpi=image.info["dpi"])


def _draw_scores(axes: Any, alert_scores: Floats, threshold: ArrayLike) -> None:
    scores(axes, alert_scores, threshold)
    axes.lines[0].set_label("score")
    axes.lines[1].set(linestyle="-", linewidth=1.6)
    axes.set_ylabel("score")
    top = 1.1 * max(float(np.max(threshold)), float(np.quantile(alert_scores, 0.999)))
    axes.set_ylim(min(0.0, float(alert_scores.min())), top)


def _mark_stretches(axes: Any, stretches: Sequence[Interval], color: str, label: str) -> None:
    left, right = axes.get_xlim()
    for start, stop in stretches:  # a spike of one time step must be visible too
        width = max(stop - start, 0.003 * (right - left))
        axes.axvspan(start, start + width, color=color, alpha=0.45, linewidth=0, label=label, zorder=0)


def _mark_alerts(axes: Any, steps: Sequence[int], color: str, label: str) -> None:
    if not steps:
        return
    axes.plot(
        *(steps, np.full(len(steps), 1.04)),
        **{"marker": "v", "markersize": 7, "markerfacecolor": color, "markeredgecolor": LIMIT, "linestyle": "none"},
        **{"label": label, "clip_on": False, "transform": axes.get_xaxis_transform()},
    )


def _across(steps: NDArray[Any], times: NDArray[Any] | None) -> NDArray[Any]:
    return steps if times is None else times[steps]


def _bound(axes: Any, start: int, stop: int, times: NDArray[Any] | None) -> None:
    axes.set_xlabel("time step" if times is None else "time")
    axes.set_xlim(*((start, stop) if times is None else (times[start], times[stop - 1])))

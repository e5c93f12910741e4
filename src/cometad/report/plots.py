"""Plots for your own figures: the plots of a report and more, each drawn on a matplotlib `Axes`."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cometad.alerting.alerts import Event
from cometad.arrays import Floats
from cometad.errors import InputError, needs_extra
from cometad.explain.reasons import Explanation
from cometad.files import write_whole
from cometad.report.drift import LEVELS, ScoreDrift
from cometad.report.thin import thin
from cometad.report.usage import Usage

Interval = tuple[int, int]  # half-open, in time steps

INK, SCORE, LIMIT, FOUND, MISSED = "#30343f", "#1f6f8b", "#b5502f", "#3b8f5a", "#c0392b"
BEFORE = "#9aa3b0"  # the training data

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
    shade(axes, [(event.start, event.stop) for event in events], [False] * len(events), times)


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
    >>> from cometad.report.usage import usage
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
    >>> from cometad.report.drift import drift
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
    >>> from cometad.report.drift import drift
    >>> axes = Figure().subplots()
    >>> plots.histogram(axes, drift(np.arange(100.0), training=np.arange(50.0)))
    >>> [patch.get_label() for patch in axes.patches]
    ['training', 'this data']
    """
    axes.stairs(drift.before, drift.edges, fill=True, color=BEFORE, label="training")
    axes.stairs(drift.after, drift.edges, color=SCORE, linewidth=1.5, label="this data")
    axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.2g} %")
    axes.set_xlabel("score")


def shade(axes: Any, intervals: Sequence[Interval], found: Sequence[bool], times: NDArray[Any] | None = None) -> None:
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
        axes.axvspan(begin, max(end, begin + min_width), color=FOUND if hit else MISSED, alpha=0.3, linewidth=0)


def overview(
    above: Any,
    below: Any,
    values: NDArray[Any],
    names: Sequence[str],
    alert_scores: Floats,
    threshold: ArrayLike,
    intervals: Sequence[Interval],
    found: Sequence[bool],
) -> None:
    """Draw variables (time, variable) above and alert scores (time,) with their threshold below; faults are shaded.

    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from cometad.report import plots
    >>> above, below = Figure().subplots(2, 1)
    >>> plots.overview(above, below, np.zeros((9, 1)), ["flow"], np.arange(9.0), 7.0, [(7, 9)], [True])
    >>> len(above.patches), len(below.patches)
    (1, 1)
    """
    series(above, values, names)
    scores(below, alert_scores, threshold)
    below.set_ylabel("alert score")
    top = 1.15 * max(float(np.max(threshold)), float(np.quantile(alert_scores, 0.999)))
    below.set_ylim(min(0.0, float(alert_scores.min())), top)
    for axes in (above, below):
        shade(axes, intervals, found)
        axes.spines[["top", "right"]].set_visible(False)
    above.set_title("Planted faults: green if found, red if missed", fontsize=10, loc="left")
    below.legend(loc="upper right", frameon=False, fontsize=8)


def save_overview(
    path: str | os.PathLike[str],
    values: NDArray[Any],
    names: Sequence[str],
    alert_scores: Floats,
    threshold: ArrayLike,
    intervals: Sequence[Interval],
    found: Sequence[bool],
) -> None:
    """Write a PNG: variables above, their alert scores below, planted faults shaded in both.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from cometad.report import plots
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "overview.png"
    ...     plots.save_overview(path, np.zeros((9, 1)), ["flow"], np.arange(9.0), 7.0, [(7, 9)], [True])
    ...     path.exists()
    True
    """
    figure = needs_extra("matplotlib.figure", "viz").Figure(figsize=(11, 5.2), dpi=130, layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    overview(above, below, values, names, alert_scores, threshold, intervals, found)
    write_whole(path, lambda temporary: figure.savefig(temporary))


def _across(steps: NDArray[Any], times: NDArray[Any] | None) -> NDArray[Any]:
    """Horizontal positions of time steps: their times if given."""
    return steps if times is None else times[steps]


def _bound(axes: Any, start: int, stop: int, times: NDArray[Any] | None) -> None:
    axes.set_xlabel("time step" if times is None else "time")
    axes.set_xlim(*((start, stop) if times is None else (times[start], times[stop - 1])))

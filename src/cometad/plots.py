"""Series, scores and faults for the eye: functions that draw on a matplotlib `Axes`."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cometad.errors import needs_extra
from cometad.files import write_whole

Interval = tuple[int, int]  # half-open, in time steps

INK, SCORE, LIMIT, FOUND, MISSED = "#30343f", "#1f6f8b", "#b5502f", "#3b8f5a", "#c0392b"


def plot_series(axes: Any, values: NDArray[Any], names: Sequence[str]) -> None:
    """Draw some variables (time, variable) one above the other, each in its own units.

    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from cometad.plots import plot_series
    >>> axes = Figure().subplots()
    >>> plot_series(axes, np.zeros((10, 2)), ["flow", "pressure"])
    >>> [label.get_text() for label in axes.get_yticklabels()]
    ['flow', 'pressure']
    """
    for row, column in enumerate(values.T):
        spread = np.ptp(column) or 1.0
        axes.plot(row - 0.42 + 0.84 * (column - column.min()) / spread, color=INK, linewidth=0.5)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0, len(values))


def plot_scores(axes: Any, scores: NDArray[np.float64], threshold: float) -> None:
    """Draw scores (time,) and the threshold.

    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from cometad.plots import plot_scores
    >>> axes = Figure().subplots()
    >>> plot_scores(axes, np.arange(5.0), threshold=3.0)
    >>> axes.get_ylabel()
    'score'
    """
    axes.plot(scores, color=SCORE, linewidth=0.7)
    axes.axhline(threshold, color=LIMIT, linewidth=1, linestyle="--", label="threshold")
    axes.set_xlim(0, len(scores))
    axes.set_ylabel("score")
    axes.set_xlabel("time step")


def shade(axes: Any, intervals: Sequence[Interval], found: Sequence[bool]) -> None:
    """Shade intervals, in one color where they were found and in another where they were missed.

    >>> from matplotlib.figure import Figure
    >>> from cometad.plots import shade
    >>> axes = Figure().subplots()
    >>> shade(axes, [(3, 5), (8, 9)], [True, False])
    >>> len(axes.patches)
    2
    """
    least = 0.002 * (axes.get_xlim()[1] - axes.get_xlim()[0])  # a spike of one step must be seen too
    for (start, stop), hit in zip(intervals, found, strict=True):
        axes.axvspan(start, max(stop, start + least), color=FOUND if hit else MISSED, alpha=0.3, linewidth=0)


def save_overview(
    path: str | os.PathLike[str],
    values: NDArray[Any],
    names: Sequence[str],
    scores: NDArray[np.float64],
    threshold: float,
    intervals: Sequence[Interval],
    found: Sequence[bool],
) -> None:
    """Write one PNG: some variables above, the scores below, planted faults shaded in both."""
    figure = needs_extra("matplotlib.figure", "viz").Figure(figsize=(11, 5.2), dpi=130, layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    plot_series(above, values, names)
    plot_scores(below, scores, threshold)
    below.set_ylim(min(0.0, float(scores.min())), max(1.15 * threshold, float(np.quantile(scores, 0.999)) * 1.2))
    for axes in (above, below):
        shade(axes, intervals, found)
        axes.spines[["top", "right"]].set_visible(False)
    above.set_title("Planted faults, shaded green where found and red where missed", fontsize=10, loc="left")
    below.legend(loc="upper right", frameon=False, fontsize=8)
    write_whole(path, lambda aside: figure.savefig(aside))

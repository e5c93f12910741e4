"""Figures of the drift experiment.

Several results with the same setting are drawn as their mean, with the deviation over seeds as a thin bar.
"""

import os
from collections.abc import Sequence
from typing import Any

import polars as pl
from matplotlib.figure import Figure

from cometad.report.plots import INK, LIMIT, SCORE, save_figure
from cometad_bench.datasets.drift import DRIFTS
from cometad_bench.drift.experiment import CONTAMINATED, CONTAMINATIONS
from cometad_bench.drift.report import GROUP, SETTING
from cometad_bench.frame import DEVIATION, mean, over_seeds

ARMS: dict[str, dict[str, Any]] = {
    "fixed": {"label": "as fitted", "color": LIMIT, "markersize": 6, "markerfacecolor": "none"},
    "adapting": {"label": "adapting", "color": SCORE, "markersize": 4.5},
}
APART = 0.32  # between the two points of one setting, so that equal ones stay visible; settings are 1 apart
LINES = ("-", "--")  # for each drift in CONTAMINATED
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
BAR = 0.7  # line width of a deviation bar, in points


def plot_drift(axes: Any, frame: pl.DataFrame, figure: str) -> None:
    """Draw one figure after the drift by kind of drift, without faults during it: as fitted above, adapting below."""
    means = _means(frame, figure)
    drifts = [drift for drift in DRIFTS if (drift, 0.0) in means]
    for row, drift in enumerate(drifts):
        ends = []
        for arm, side in zip(ARMS, (-1, 1), strict=True):
            value, deviation = means[drift, 0.0][arm]
            ends.append((value, row + side * APART / 2))
            style = ARMS[arm] if row == 0 else ARMS[arm] | {"label": None}  # one legend entry
            axes.errorbar(*ends[-1], xerr=deviation, fmt="o", elinewidth=BAR, **style)
        axes.plot(*zip(*ends, strict=True), color=INK, linewidth=BAR, zorder=0)
    axes.set_yticks(range(len(drifts)), drifts)
    axes.set_ylim(len(drifts) - 0.5, -0.5)
    _finish(axes, figure, "x")


def plot_contamination(axes: Any, frame: pl.DataFrame, figure: str) -> None:
    means = _means(frame, figure)
    for drift, line in zip(CONTAMINATED, LINES, strict=True):
        shares = [share for share in CONTAMINATIONS if (drift, share) in means]
        for arm, side in zip(ARMS, (-1, 1), strict=True):
            places = [CONTAMINATIONS.index(share) + side * APART / 4 for share in shares]
            heights, deviations = ([means[drift, share][arm][k] for share in shares] for k in (0, 1))
            style = ARMS[arm] | {"label": f"{ARMS[arm]['label']}, drift: {drift}", "linewidth": 1, "elinewidth": BAR}
            axes.errorbar(places, heights, yerr=deviations, fmt=f"o{line}", **style)
    axes.set_xticks(range(len(CONTAMINATIONS)), [f"{100 * share:g} %" for share in CONTAMINATIONS])
    axes.set_xlim(-0.5, len(CONTAMINATIONS) - 0.5)
    _finish(axes, figure, "y")


def _means(frame: pl.DataFrame, figure: str) -> dict[tuple[str, float], dict[str, tuple[float, float]]]:
    """Return mean and deviation by setting, then by arm; the mean is NaN, which is not drawn, if it is unknown."""
    paths = {arm: f"{arm}.phases.after.{figure}" for arm in ARMS}
    found = over_seeds(frame, SETTING, {path: mean(path) for path in paths.values()})
    return {
        (one[SETTING[0]], one[SETTING[1]]): {
            arm: (float("nan") if one[path] is None else one[path], one[path + DEVIATION] or 0.0)
            for arm, path in paths.items()
        }
        for one in found.iter_rows(named=True)
    }


def _finish(axes: Any, figure: str, along: str) -> None:
    axis = {"x": axes.xaxis, "y": axes.yaxis}[along]
    axes.set(**{f"{along}lim": (-0.03, 1.03)})  # the whole range, so that small differences look small
    axis.set_ticks(TICKS, [f"{100 * tick:g} %" for tick in TICKS])
    if figure == "auc_roc":
        line = axes.axvline if along == "x" else axes.axhline
        line(0.5, color=INK, linewidth=BAR, linestyle=":", zorder=0)  # random scores
    axis.grid(color=INK, alpha=0.1)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK)


# The panels of a row: how each is drawn, which figure it shows, and its title.
PANELS = (
    (plot_drift, "false_alarms", "false alarms after the drift,\nby kind of drift"),
    (plot_drift, "auc_roc", "AUC-ROC after the drift,\nby kind of drift"),
    (plot_contamination, "false_alarms", "false alarms after the drift,\nby share of faults during it"),
    (plot_contamination, "auc_roc", "AUC-ROC after the drift,\nby share of faults during it"),
)


def save_drift(path: str | os.PathLike[str], frame: pl.DataFrame) -> None:
    """Write the figure of one arm, with a row of panels per dataset: false alarms and AUC-ROC after the drift.

    Each is drawn by kind of drift, without faults during it, and by the share of faults during it.
    """
    rows = {str(name): part for (name,), part in frame.group_by(GROUP.alias("group"), maintain_order=True)}
    heights = [2 + max(3, part[SETTING[0]].n_unique()) for part in rows.values()]
    figure = Figure(figsize=(14, 1 + 0.28 * sum(heights)), dpi=80, layout="constrained")
    axes = figure.subplots(len(rows), len(PANELS), squeeze=False, sharex="col", height_ratios=heights)
    for (name, part), panels in zip(rows.items(), axes, strict=True):
        for panel, (plot, shown, _) in zip(panels, PANELS, strict=True):
            plot(panel, part, shown)
        entities = part["entity"].n_unique()
        lines = [*name.split(", "), *([f"{entities} entities"] if entities > 1 else [])]
        panels[0].set_ylabel("\n".join(lines), fontweight="bold", color=INK)
    for panel, (_, _, title) in zip(axes[0], PANELS, strict=True):
        panel.set_title(title, fontsize=11, color=INK)
    _legend(figure, axes[0])
    save_figure(path, figure)


def _legend(figure: Any, panels: Sequence[Any]) -> None:
    entries: dict[str, Any] = {}
    for panel in panels:
        handles, labels = panel.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    figure.legend(list(entries.values()), list(entries), loc="outside upper center", ncols=6, frameon=False)

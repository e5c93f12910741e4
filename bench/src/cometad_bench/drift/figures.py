"""Figures of the drift experiment: functions that draw on a matplotlib `Axes`.

Several results with the same setting are drawn as their mean, with the deviation over seeds as a thin bar.
"""

from collections.abc import Sequence
from typing import Any

from cometad.errors import unknown
from cometad.report.plots import INK, LIMIT, SCORE
from cometad_bench.datasets.drift import DRIFTS
from cometad_bench.drift.experiment import CONTAMINATED, CONTAMINATIONS
from cometad_bench.drift.summary import Measured, of_phase, over_seeds

LABELS = {
    "false_alarms": "false alarms (of normal readings)",
    "found": "found (of fault readings)",
    "auc_roc": "AUC-ROC",
    "auc_pr": "AUC-PR",
    "normal_score": "median normal score / threshold",
}
ARMS: dict[str, dict[str, Any]] = {
    "fixed": {"label": "as fitted", "color": LIMIT, "markersize": 6, "markerfacecolor": "none"},
    "adapting": {"label": "adapting", "color": SCORE, "markersize": 4.5},
}
APART = 0.32  # between the two points of one setting, so that equal ones stay visible; settings are 1 apart
LINES = ("-", "--")  # for each drift in CONTAMINATED
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
BAR = 0.7  # line width of a deviation bar, in points


def plot_drift(
    axes: Any,
    results: Sequence[Measured],
    figure: str = "false_alarms",
    phase: str = "after",
    contamination: float = 0.0,
) -> None:
    """Draw one figure of `measure` in one phase by kind of drift, as fitted above and adapting below."""
    drifts = [drift for drift in DRIFTS if _of(results, drift, contamination)]
    for row, drift in enumerate(drifts):
        here = _of(results, drift, contamination)
        ends = []
        for arm, side in zip(ARMS, (-1, 1), strict=True):
            mean, deviation = _spread(here, arm, phase, figure)
            ends.append((mean, row + side * APART / 2))
            style = ARMS[arm] if row == 0 else ARMS[arm] | {"label": None}  # one legend entry
            axes.errorbar(*ends[-1], xerr=deviation, fmt="o", elinewidth=BAR, **style)
        axes.plot(*zip(*ends, strict=True), color=INK, linewidth=BAR, zorder=0)
    axes.set_yticks(range(len(drifts)), drifts)
    axes.set_ylim(len(drifts) - 0.5, -0.5)
    axes.set_xlabel(LABELS[figure])
    _finish(axes, figure, "x")


def plot_contamination(axes: Any, results: Sequence[Measured], figure: str = "auc_roc", phase: str = "after") -> None:
    """Draw one figure of `measure` in one phase over the share of faults during the drift."""
    for drift, line in zip(CONTAMINATED, LINES, strict=True):
        shares = [share for share in CONTAMINATIONS if _of(results, drift, share)]
        for arm, side in zip(ARMS, (-1, 1), strict=True):
            spreads = [_spread(_of(results, drift, share), arm, phase, figure) for share in shares]
            places = [CONTAMINATIONS.index(share) + side * APART / 4 for share in shares]
            means, deviations = ([spread[k] for spread in spreads] for k in (0, 1))
            style = ARMS[arm] | {"label": f"{ARMS[arm]['label']}, drift: {drift}", "linewidth": 1, "elinewidth": BAR}
            axes.errorbar(places, means, yerr=deviations, fmt=f"o{line}", **style)
    axes.set_xticks(range(len(CONTAMINATIONS)), [f"{100 * share:g} %" for share in CONTAMINATIONS])
    axes.set_xlim(-0.5, len(CONTAMINATIONS) - 0.5)
    axes.set_xlabel("faulty readings during the drift")
    axes.set_ylabel(LABELS[figure])
    _finish(axes, figure, "y")


def _of(results: Sequence[Measured], drift: str, contamination: float) -> list[Measured]:
    wanted = {"drift": drift, "contamination": contamination}
    return [result for result in results if wanted.items() <= result["setting"].items()]


def _spread(results: Sequence[Measured], arm: str, phase: str, figure: str) -> tuple[float, float]:
    """Return the mean and deviation; the mean is NaN, which is not drawn, if no result has the figure."""
    if figure not in LABELS:
        raise unknown("figure", figure, LABELS)
    spread = over_seeds(results, of_phase(arm, phase, figure))
    return (float("nan"), 0.0) if spread is None else (spread.mean, spread.deviation or 0.0)


def _finish(axes: Any, figure: str, along: str) -> None:
    """Format axes whose figures run along x or y."""
    axis = {"x": axes.xaxis, "y": axes.yaxis}[along]
    if figure != "normal_score":  # a share: show the whole range, so that small differences look small
        axes.set(**{f"{along}lim": (-0.03, 1.03)})
        axis.set_ticks(TICKS, [f"{100 * tick:g} %" for tick in TICKS])
    if figure == "auc_roc":
        line = axes.axvline if along == "x" else axes.axhline
        line(0.5, color=INK, linewidth=BAR, linestyle=":", zorder=0)  # random scores
    axis.grid(color=INK, alpha=0.1)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK)

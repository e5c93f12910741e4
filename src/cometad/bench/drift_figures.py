"""The drift experiment for the eye: functions that draw on a matplotlib `Axes`.

An outcome is a mapping with the `setting` of a series and what `measure` said of it, `adapting` and `fixed`. Several
outcomes of one setting, from other series or seeds, are drawn as their mean.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from cometad.bench.drift import CONTAMINATED
from cometad.data.drift import DRIFTS, PHASES
from cometad.errors import unknown
from cometad.plots import INK, LIMIT, SCORE

Outcome = Mapping[str, Any]

LABELS = {
    "false_alarms": "false alarms (share of normal readings)",
    "found": "found (share of fault readings)",
    "auc_roc": "AUC-ROC",
    "auc_pr": "AUC-PR",
    "normal_score": "median normal score / threshold",
}
# What `measure` was called with: the name shown, the color, the marker's filling.
ARMS = {"adapting": ("adapting", SCORE, SCORE), "fixed": ("as fitted", LIMIT, "none")}


def plot_drift(
    axes: Any, outcomes: Sequence[Outcome], figure: str = "false_alarms", contamination: float = 0.05
) -> None:
    """Draw one figure of `measure` before, during and after each drift, with adaptation and without it.

    >>> from matplotlib.figure import Figure
    >>> from cometad.bench.drift_figures import plot_drift
    >>> phases = {name: {"found": 0.5} for name in ("before", "during", "after")}
    >>> setting = {"drift": "gain", "strength": 1.0, "contamination": 0.05}
    >>> axes = Figure().subplots()
    >>> plot_drift(axes, [{"setting": setting, "adapting": {"phases": phases}, "fixed": {"phases": phases}}], "found")
    >>> axes.get_ylabel()
    'found (share of fault readings)'
    """
    chosen = [outcome for outcome in outcomes if outcome["setting"]["contamination"] == contamination]
    drifts = [drift for drift in DRIFTS if drift in {outcome["setting"]["drift"] for outcome in chosen}]
    steps = len(PHASES) + 1  # and a gap, where the line is broken
    for arm, (name, color, filling) in ARMS.items():
        means = [[*(_mean(chosen, arm, figure, phase, drift=drift) for phase in PHASES), np.nan] for drift in drifts]
        axes.plot(np.ravel(means), "o-", color=color, markerfacecolor=filling, linewidth=1, markersize=4, label=name)
    axes.set_xticks([1 + steps * k for k in range(len(drifts))], drifts)
    axes.set_xlabel("drift; in each: before, during, after")
    _finish(axes, figure)


def plot_contamination(axes: Any, outcomes: Sequence[Outcome], figure: str = "auc_roc", phase: str = "after") -> None:
    """Draw one figure of `measure` in one phase over the share of faults while adapting.

    >>> from matplotlib.figure import Figure
    >>> from cometad.bench.drift_figures import plot_contamination
    >>> setting = {"drift": "none", "strength": 1.0, "contamination": 0.1}
    >>> said = {"phases": {"after": {"auc_roc": 0.9}}}
    >>> axes = Figure().subplots()
    >>> plot_contamination(axes, [{"setting": setting, "adapting": said, "fixed": said}])
    >>> [label.get_text() for label in axes.get_xticklabels()]
    ['10 %']
    """
    drifts = [drift for drift in CONTAMINATED if drift in {outcome["setting"]["drift"] for outcome in outcomes}]
    chosen = [outcome for outcome in outcomes if outcome["setting"]["drift"] in drifts]
    shares = sorted({outcome["setting"]["contamination"] for outcome in chosen})
    for drift, line in zip(drifts, ("-", "--"), strict=False):
        for arm, (name, color, filling) in ARMS.items():
            means = [_mean(chosen, arm, figure, phase, drift=drift, contamination=share) for share in shares]
            style = {"color": color, "markerfacecolor": filling, "linestyle": line, "linewidth": 1, "markersize": 4}
            axes.plot(means, marker="o", label=f"{drift}, {name}", **style)
    axes.set_xticks(range(len(shares)), [f"{100 * share:g} %" for share in shares])
    axes.set_xlabel(f"faulty readings during the drift; shown: {phase}")
    _finish(axes, figure)


def _mean(outcomes: Iterable[Outcome], arm: str, figure: str, phase: str, **setting: object) -> float:
    """The mean over outcomes of that setting; NaN, which is not drawn, where there is none."""
    if figure not in LABELS:
        raise unknown("figure", figure, LABELS)
    values = [
        outcome[arm]["phases"][phase][figure]
        for outcome in outcomes
        if all(outcome["setting"][name] == value for name, value in setting.items())
    ]
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else np.nan


def _finish(axes: Any, figure: str) -> None:
    axes.set_ylabel(LABELS[figure])
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK)
    axes.legend(frameon=False, fontsize=8)

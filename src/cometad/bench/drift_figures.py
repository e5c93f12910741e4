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
    "false_alarms": "false alarms (of normal readings)",
    "found": "found (of fault readings)",
    "auc_roc": "AUC-ROC",
    "auc_pr": "AUC-PR",
    "normal_score": "median normal score / threshold",
}
# How each outcome of `measure` is drawn: rings around dots, so that equal figures are seen as two.
ARMS: dict[str, dict[str, Any]] = {
    "adapting": {"label": "adapting", "color": SCORE, "markersize": 3.5},
    "fixed": {"label": "as fitted", "color": LIMIT, "markersize": 8, "markerfacecolor": "none"},
}
LINES = ("-", "--")  # of each drift in CONTAMINATED


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
    'found (of fault readings)'
    """
    chosen = [outcome for outcome in outcomes if outcome["setting"]["contamination"] == contamination]
    drifts = [drift for drift in DRIFTS if drift in {outcome["setting"]["drift"] for outcome in chosen}]
    places = [k * (len(PHASES) + 1) + step for k in range(len(drifts)) for step in range(len(PHASES))]
    for arm, style in ARMS.items():
        means = [_mean(chosen, arm, figure, phase, drift=drift) for drift in drifts for phase in PHASES]
        axes.plot(places, means, "o", **style)  # no lines: the faults during a drift are not those before and after it
    axes.set_xticks(places, [name for drift in drifts for name in ("b", f"d\n{drift}", "a")], fontsize=8)
    axes.set_xlabel("drift; in each b(efore), d(uring), a(fter)")
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
    for drift, line in zip(drifts, LINES, strict=False):
        for arm, style in ARMS.items():
            means = [_mean(chosen, arm, figure, phase, drift=drift, contamination=share) for share in shares]
            axes.plot(means, f"o{line}", linewidth=1, **style | {"label": f"{drift}, {style['label']}"})
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
    if figure != "normal_score":  # a share: the whole range, so that small differences look small
        axes.set_ylim(-0.03, 1.03)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK)
    axes.legend(frameon=False, fontsize=8, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))

"""Tables and figures of the drift experiment."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from cometad.errors import InputError, needs_extra
from cometad.report.plots import INK, save_figure
from cometad_bench.drift.figures import plot_contamination, plot_drift
from cometad_bench.drift.summary import Measured, Read, group_name, of_phase, over_seeds
from cometad_bench.results import Record, latest
from cometad_bench.tables import Cell, Group, ResultColumn, ResultRow, ResultTable


def _probes_moved(record: Measured) -> float | None:
    """Return how far adaptation moved the probes on average, in multiples of the threshold."""
    moved = [probe["difference"] for probe in record["moved"]["probes"].values()]
    known = [value for value in moved if value is not None]
    return float(np.mean(known)) if known else None


def _columns() -> list[tuple[ResultColumn, Read]]:
    columns: list[tuple[ResultColumn, Read]] = []
    for figure, title in (("false_alarms", "false alarms"), ("auc_roc", "AUC-ROC"), ("auc_pr", "AUC-PR")):
        columns.append((ResultColumn(f"{title} before", scale=100), of_phase("fixed", "before", figure)))
        for phase in ("during", "after"):
            for arm in ("fixed", "adapting"):
                columns.append((ResultColumn(f"{title} {phase}, {arm}", scale=100), of_phase(arm, phase, figure)))
    columns.append((ResultColumn("faults moved by", digits=2), _probes_moved))
    columns.append((ResultColumn("normal moved by", digits=2), lambda record: record["moved"]["normal"]["difference"]))
    columns.append((ResultColumn("steps"), lambda record: record["adapting"]["steps"]))
    return columns


NOTES = (
    "All figures except the last three are in percent. False alarms are the share of normal readings above the 99 % "
    "quantile of the training scores, the benchmark's threshold for every detector; AUC-ROC and AUC-PR need no "
    "threshold. Figures are means over the entities of a dataset; ± is the sample standard deviation (n - 1) over "
    "seeds.",
    "random and all-positive are no-skill references: their rows are means over all drifts and shares of faults.",
    "fixed: the detector as fitted. adapting: the same detector, adapting while it scores the same series.",
    "before, during, after: a third of the series each. The drift sets in during the second third; the last third "
    "repeats the normal readings and the faults of the first under the full drift.",
    "moved by: how far adaptation raised the scores of the planted faults, and of the median normal reading, in the "
    "last third, in multiples of the threshold. steps: how many adaptation steps the detector took.",
)


def drift_table(records: Iterable[Record], title: str, references: Iterable[Record] = ()) -> ResultTable:
    """Return the table of one arm before, during and after each drift, with and without adaptation.

    The rows of the no-skill `references` follow those of each dataset.
    """
    counted = latest(records)
    if not counted:
        raise InputError("There are no results to show; run some trials first.")
    columns, floor = _columns(), latest(references)
    groups = []
    for name in dict.fromkeys(map(group_name, counted)):
        group = [record for record in counted if group_name(record) == name]
        rows = []
        for setting in dict.fromkeys(map(_setting, group)):
            results = [record for record in group if _setting(record) == setting]
            rows.append(ResultRow(setting, tuple(_cell(results, read) for _, read in columns)))
        for arm in dict.fromkeys(record["arm"] for record in floor):
            results = [record for record in floor if record["arm"] == arm and group_name(record) == name]
            rows.append(ResultRow(arm, tuple(_cell(results, read) for _, read in columns)))
        groups.append(Group(name, tuple(rows)))
    return ResultTable(title, tuple(column for column, _ in columns), tuple(groups), NOTES, rows="drift")


OWN_COLUMNS = (
    ("threshold unmoved", "fixed", "_unmoved"),
    ("own rule", "fixed", ""),
    ("own rule, adapting", "adapting", ""),
)
OWN_NOTES = (
    "Figures are in percent. false alarms: the share of normal readings flagged. faults touched: the share of planted "
    "faults with at least one flag. Figures are means over the entities of a dataset; ± is the sample standard "
    "deviation (n - 1) over seeds.",
    "own rule: the detector's own threshold on its alert scores. threshold unmoved: the same scores at the value where "
    "that threshold starts. A fault that is touched may be touched by chance: the more false alarms, the more often.",
)


def has_own_rule(records: Iterable[Record]) -> bool:
    """Return whether any result says what the detector's own threshold rule flags; older results do not."""
    return any("own" in record["fixed"] for record in records)


def own_rule_table(records: Iterable[Record], title: str) -> ResultTable:
    """Return what the detector's own threshold rule flags before, during and after each drift."""
    columns: list[tuple[ResultColumn, Read]] = []
    for figure, name, phases in (
        ("false_alarms", "false alarms", ("before", "during", "after")),
        ("touched", "faults touched", ("before", "after")),
    ):
        for phase in phases:
            for words, arm, suffix in OWN_COLUMNS:
                column = ResultColumn(f"{name} {phase}, {words}", scale=100)
                columns.append((column, _of_own(arm, phase, figure + suffix)))
    counted = [record for record in latest(records) if has_own_rule([record])]
    groups = []
    for name in dict.fromkeys(map(group_name, counted)):
        group = [record for record in counted if group_name(record) == name]
        rows = [
            ResultRow(setting, tuple(_cell(results, read) for _, read in columns))
            for setting in dict.fromkeys(map(_setting, group))
            for results in [[record for record in group if _setting(record) == setting]]
        ]
        groups.append(Group(name, tuple(rows)))
    return ResultTable(title, tuple(column for column, _ in columns), tuple(groups), OWN_NOTES, rows="drift")


def _of_own(arm: str, phase: str, figure: str) -> Read:
    return lambda record: record[arm]["own"][phase][figure]


def _setting(record: Record) -> str:
    setting = record["setting"]
    return f"{setting['drift']}, {100 * setting['contamination']:g} % faults"


def _cell(records: Sequence[Record], read: Read) -> Cell:
    spread = over_seeds(records, read)
    return Cell() if spread is None else Cell(*spread)


# The panels of a row: how each is drawn, which figure it shows, and its title.
PANELS = (
    (plot_drift, "false_alarms", "false alarms after the drift,\nby kind of drift"),
    (plot_drift, "auc_roc", "AUC-ROC after the drift,\nby kind of drift"),
    (plot_contamination, "false_alarms", "false alarms after the drift,\nby share of faults during it"),
    (plot_contamination, "auc_roc", "AUC-ROC after the drift,\nby share of faults during it"),
)


def save_drift(path: str | os.PathLike[str], records: Sequence[Record]) -> None:
    """Write the figure of one arm, with a row of panels per dataset: false alarms and AUC-ROC after the drift.

    Each is drawn by kind of drift, without faults during it, and by the share of faults during it.
    """
    counted = latest(records)
    rows: dict[str, list[Record]] = {}
    for record in counted:
        rows.setdefault(group_name(record), []).append(record)
    heights = [2 + max(3, len({record["setting"]["drift"] for record in group})) for group in rows.values()]
    figure = needs_extra("matplotlib.figure", "viz").Figure(
        figsize=(14, 1 + 0.28 * sum(heights)), dpi=80, layout="constrained"
    )
    axes = figure.subplots(len(rows), len(PANELS), squeeze=False, sharex="col", height_ratios=heights)
    for (name, group), panels in zip(rows.items(), axes, strict=True):
        for panel, (plot, shown, _) in zip(panels, PANELS, strict=True):
            plot(panel, group, shown)
            panel.set(xlabel="", ylabel="")  # the title of the column is enough
        entities = len({record["entity"] for record in group})
        lines = [*name.split(", "), *([f"{entities} entities"] if entities > 1 else [])]
        panels[0].set_ylabel("\n".join(lines), fontweight="bold", color=INK)
    for panel, (_, _, title) in zip(axes[0], PANELS, strict=True):
        panel.set_title(title, fontsize=11, color=INK)
    _legend(figure, axes[0])
    save_figure(path, figure)


def _legend(figure: Any, panels: Sequence[Any]) -> None:
    """Draw one legend above all panels."""
    entries: dict[str, Any] = {}
    for panel in panels:
        handles, labels = panel.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    figure.legend(list(entries.values()), list(entries), loc="outside upper center", ncols=6, frameon=False)

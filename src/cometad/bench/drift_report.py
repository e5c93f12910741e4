"""The drift experiment's tables and figures."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from cometad.bench.drift_figures import plot_contamination, plot_drift
from cometad.bench.drift_summary import Outcome, Read, of_phase, over_seeds, place
from cometad.bench.results import Record, latest
from cometad.bench.tables import Cell, Column, Group, Row, Table
from cometad.errors import InputError, needs_extra
from cometad.files import write_whole
from cometad.report.plots import INK


def _probes_moved(record: Outcome) -> float | None:
    """The mean over the probes of how far adaptation moved them, in thresholds."""
    moved = [probe["difference"] for probe in record["moved"]["probes"].values()]
    known = [value for value in moved if value is not None]
    return float(np.mean(known)) if known else None


def _columns() -> list[tuple[Column, Read]]:
    columns: list[tuple[Column, Read]] = []
    for figure, title in (("false_alarms", "false alarms"), ("auc_roc", "AUC-ROC"), ("auc_pr", "AUC-PR")):
        columns.append((Column(f"{title} before", scale=100), of_phase("fixed", "before", figure)))
        for phase in ("during", "after"):
            for arm in ("fixed", "adapting"):
                columns.append((Column(f"{title} {phase}, {arm}", scale=100), of_phase(arm, phase, figure)))
    columns.append((Column("faults moved by", digits=2), _probes_moved))
    columns.append((Column("normal moved by", digits=2), lambda record: record["moved"]["normal"]["difference"]))
    columns.append((Column("steps"), lambda record: record["adapting"]["steps"]))
    return columns


NOTES = (
    "Figures but the last three are in percent: false alarms are the share of normal readings above the 99 % quantile "
    "of the training scores, the benchmark's threshold for every detector; the areas need none. Means over the "
    "entities of a dataset, ± the standard deviation over seeds.",
    "random and all-positive need no skill: their rows are means over all drifts and shares of faults of a dataset.",
    "fixed: the detector as it was fitted; adapting: the same detector, learning as it reads the same series.",
    "before, during, after: a third of the series each. The drift sets in during the second; the last repeats the "
    "normal readings and the faults of the first under the full drift.",
    "moved by: how much higher adaptation made the scores of the planted faults, and of the median normal reading, in "
    "the last third; the unit is the threshold. steps: how often the detector learned.",
)


def drift_table(records: Iterable[Record], title: str, references: Iterable[Record] = ()) -> Table:
    """One arm's figures before, during and after each drift, with and without adaptation.

    Below those of a dataset stand those of the arms without any skill, if there are `references`.

    >>> from cometad.bench.drift_report import drift_table
    >>> phase = {"false_alarms": 0.01, "auc_roc": 0.9, "auc_pr": 0.5}
    >>> said = {"phases": dict.fromkeys(("before", "during", "after"), phase), "steps": 3}
    >>> moved = {"probes": {"spike": {"difference": -0.1}}, "normal": {"difference": 0.0}}
    >>> record = {"experiment": "drift", "dataset": "plant", "entity": "short", "arm": "comet", "seed": 0}
    >>> record |= {"setting": {"drift": "gain", "strength": 1.0, "contamination": 0.05}, "error": None}
    >>> table = drift_table([record | {"adapting": said, "fixed": said, "moved": moved}], "Drift")
    >>> table.groups[0].name, table.groups[0].rows[0].arm
    ('plant', 'gain, 5 % faults')
    """
    counted = latest(records)
    if not counted:
        raise InputError("There is no result to show; run some trials first.")
    columns, floor = _columns(), latest(references)
    groups = []
    for name in dict.fromkeys(map(place, counted)):
        here = [record for record in counted if place(record) == name]
        rows = []
        for setting in dict.fromkeys(map(_setting, here)):
            there = [record for record in here if _setting(record) == setting]
            rows.append(Row(setting, tuple(_cell(there, read) for _, read in columns)))
        for arm in dict.fromkeys(record["arm"] for record in floor):
            there = [record for record in floor if record["arm"] == arm and place(record) == name]
            rows.append(Row(arm, tuple(_cell(there, read) for _, read in columns)))
        groups.append(Group(name, tuple(rows)))
    return Table(title, tuple(column for column, _ in columns), tuple(groups), NOTES, rows="drift")


def _setting(record: Record) -> str:
    setting = record["setting"]
    return f"{setting['drift']}, {100 * setting['contamination']:g} % faults"


def _cell(records: Sequence[Record], read: Read) -> Cell:
    spread = over_seeds(records, read)
    return Cell() if spread is None else Cell(*spread)


# The panels of a row: how each is drawn, what of, and what stands above it.
PANELS = (
    (plot_drift, "false_alarms", "false alarms after the drift,\nby its kind"),
    (plot_drift, "auc_roc", "AUC-ROC after the drift,\nby its kind"),
    (plot_contamination, "false_alarms", "false alarms after the drift,\nby the share of faults during it"),
    (plot_contamination, "auc_roc", "AUC-ROC after the drift,\nby the share of faults during it"),
)


def save_drift(path: str | os.PathLike[str], records: Sequence[Record]) -> None:
    """Write one arm's figure, a row of panels for each dataset: false alarms and AUC-ROC after the drift.

    Each is drawn by kind of drift, without faults during it, and by the share of faults during it.
    """
    counted = latest(records)
    rows = {name: [it for it in counted if place(it) == name] for name in dict.fromkeys(map(place, counted))}
    heights = [2 + max(3, len({it["setting"]["drift"] for it in here})) for here in rows.values()]
    figure = needs_extra("matplotlib.figure", "viz").Figure(
        figsize=(14, 1 + 0.28 * sum(heights)), dpi=130, layout="constrained"
    )
    axes = figure.subplots(len(rows), len(PANELS), squeeze=False, sharex="col", height_ratios=heights)
    for (name, here), panels in zip(rows.items(), axes, strict=True):
        for panel, (plot, said, _) in zip(panels, PANELS, strict=True):
            plot(panel, here, said)
            panel.set(xlabel="", ylabel="")  # said above, once for each column
        entities = len({it["entity"] for it in here})
        lines = [*name.split(", "), *([f"{entities} entities"] if entities > 1 else [])]
        panels[0].set_ylabel("\n".join(lines), fontweight="bold", color=INK)
    for panel, (_, _, title) in zip(axes[0], PANELS, strict=True):
        panel.set_title(title, fontsize=11, color=INK)
    _legend(figure, axes[0])
    write_whole(path, lambda aside: figure.savefig(aside))


def _legend(figure: Any, panels: Sequence[Any]) -> None:
    """One legend above all panels."""
    entries: dict[str, Any] = {}
    for panel in panels:
        handles, labels = panel.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    figure.legend(list(entries.values()), list(entries), loc="outside upper center", ncols=6, frameon=False)

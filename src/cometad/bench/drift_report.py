"""The drift experiment's tables and figures."""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from cometad.bench.drift_figures import plot_contamination, plot_drift
from cometad.bench.results import Record, latest
from cometad.bench.tables import Cell, Column, Group, Row, Table
from cometad.errors import InputError, needs_extra
from cometad.files import write_whole

Read = Callable[[Record], float | None]


def _phase(arm: str, phase: str, figure: str) -> Read:
    return lambda record: record[arm]["phases"][phase][figure]


def _probes_moved(record: Record) -> float | None:
    """The mean over the probes of how far adaptation moved them, in thresholds."""
    moved = [probe["difference"] for probe in record["moved"]["probes"].values()]
    known = [value for value in moved if value is not None]
    return float(np.mean(known)) if known else None


def _columns() -> list[tuple[Column, Read]]:
    columns: list[tuple[Column, Read]] = []
    for figure, title in (("false_alarms", "false alarms"), ("auc_roc", "AUC-ROC"), ("auc_pr", "AUC-PR")):
        columns.append((Column(f"{title} before", scale=100), _phase("fixed", "before", figure)))
        for phase in ("during", "after"):
            for arm in ("fixed", "adapting"):
                columns.append((Column(f"{phase}, {arm}", scale=100), _phase(arm, phase, figure)))
    columns.append((Column("faults moved by", digits=2), _probes_moved))
    columns.append((Column("normal moved by", digits=2), lambda record: record["moved"]["normal"]["difference"]))
    columns.append((Column("steps"), lambda record: record["adapting"]["steps"]))
    return columns


NOTES = (
    "Figures but the last three are in percent: false alarms are the share of normal readings above the detector's own "
    "threshold; the areas need none. Means over the entities of a dataset, ± the standard deviation over seeds.",
    "Scores drawn at random have an AUC-ROC of 50 and an AUC-PR of the share of faulty readings.",
    "fixed: the detector as it was fitted; adapting: the same detector, learning as it reads the same series.",
    "before, during, after: a third of the series each. The drift sets in during the second; the last repeats the "
    "normal readings and the faults of the first under the full drift.",
    "moved by: how much higher adaptation made the scores of the planted faults, and of the median normal reading, in "
    "the last third; the unit is the threshold. steps: how often the detector learned.",
)


def drift_table(records: Iterable[Record], title: str) -> Table:
    """One arm's figures before, during and after each drift, with and without adaptation.

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
    columns = _columns()
    groups = []
    for name in dict.fromkeys(map(_place, counted)):
        here = [record for record in counted if _place(record) == name]
        rows = []
        for setting in dict.fromkeys(map(_setting, here)):
            there = [record for record in here if _setting(record) == setting]
            rows.append(Row(setting, tuple(_cell(there, read) for _, read in columns)))
        groups.append(Group(name, tuple(rows)))
    return Table(title, tuple(column for column, _ in columns), tuple(groups), NOTES, rows="drift")


def _place(record: Record) -> str:
    """The dataset; a long stream stands by itself."""
    return f"{record['dataset']}, a long stream" if record["entity"] == "long" else str(record["dataset"])


def _setting(record: Record) -> str:
    setting = record["setting"]
    return f"{setting['drift']}, {100 * setting['contamination']:g} % faults"


def _cell(records: Sequence[Record], read: Read) -> Cell:
    """The mean over entities under each seed, then mean and deviation over seeds."""
    by_seed: dict[int, list[float]] = {}
    for record in records:
        value = read(record)
        if value is not None:
            by_seed.setdefault(record["seed"], []).append(value)
    means = [float(np.mean(values)) for values in by_seed.values()]
    if not means:
        return Cell()
    return Cell(float(np.mean(means)), float(np.std(means)) if len(means) > 1 else None)


def save_drift(path: str | os.PathLike[str], records: Sequence[Record]) -> None:
    """Write one arm's figure: false alarms and AUC-ROC over each drift, and over the share of faults while adapting."""
    short: list[Any] = [record for record in latest(records) if record["entity"] != "long"]
    figure = needs_extra("matplotlib.figure", "viz").Figure(figsize=(11, 7.5), dpi=130, layout="constrained")
    axes = figure.subplots(2, 2, width_ratios=(2, 1))
    for row, name in zip(axes, ("false_alarms", "auc_roc"), strict=True):
        plot_drift(row[0], short, name)
        plot_contamination(row[1], short, name)
    write_whole(path, lambda aside: figure.savefig(aside))

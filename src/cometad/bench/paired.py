"""What a change to a method does, seed by seed: arms held against the one that they change.

Arms of one seed share much of their chance, often the whole training, so the spread over seeds says little about the
difference of two arms. Each dataset and seed gives a pair, and its difference says it.
"""

from collections.abc import Iterable

import numpy as np

from cometad.bench.results import Record, latest
from cometad.bench.summaries import REFERENCES
from cometad.bench.tables import Cell, Column, Group, Row, Table
from cometad.metrics import METRICS

SHOWN = ("auc_roc", "auc_pr", "aff_f1")
NOTES = (
    "Each figure is an arm less {base}, on one dataset with one seed, in percent; ± is the standard deviation over "
    "these pairs.",
    "lower: in how many of the pairs the arm is below {base}.",
)


def paired_table(records: Iterable[Record], title: str, base: str) -> Table:
    """The mean difference of each arm from `base` over all pairs of a dataset (or entity) and a seed, and its sign.

    >>> from cometad.bench.paired import paired_table
    >>> cell = {"experiment": "ablation", "dataset": "MSL", "entity": "all", "setting": {}, "error": None}
    >>> figures = [("full", 0, 0.5), ("full", 1, 0.7), ("part", 0, 0.4), ("part", 1, 0.8)]
    >>> records = [
    ...     cell | {"arm": arm, "seed": seed, "metrics": dict.fromkeys(("auc_roc", "auc_pr", "aff_f1"), value)}
    ...     for arm, seed, value in figures
    ... ]
    >>> lower = paired_table(records, "Paired", "full").groups[0].rows[0].cells[1]
    >>> lower.value, lower.total
    (1, 2)
    """
    counted = latest(records)
    values = {(it["arm"], it["dataset"], it["entity"], it["seed"]): it["metrics"] for it in counted}
    rows = []
    for arm in dict.fromkeys(it["arm"] for it in counted if it["arm"] != base):
        pairs = [
            (metrics, values[base, *where])
            for (name, *where), metrics in values.items()
            if name == arm and (base, *where) in values
        ]
        if pairs:
            cells = [cell for metric in SHOWN for cell in _cells([one[metric] - other[metric] for one, other in pairs])]
            rows.append(Row(arm, tuple(cells), kind="reference" if arm in REFERENCES else "detector"))
    columns = [
        column
        for name in SHOWN
        for column in (Column(METRICS[name].title, scale=100), Column(f"{METRICS[name].title} lower", digits=0))
    ]
    notes = tuple(note.format(base=base) for note in NOTES)
    return Table(title, tuple(columns), (Group(f"against {base}", tuple(rows)),), notes)


def _cells(differences: list[float]) -> tuple[Cell, Cell]:
    deviation = float(np.std(differences)) if len(differences) > 1 else None
    lower = sum(difference < 0 for difference in differences)
    return Cell(float(np.mean(differences)), deviation), Cell(lower, total=len(differences))

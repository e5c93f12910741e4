"""The effect of a change to a method, seed by seed: each arm compared with the base arm.

Arms with the same seed share much of their randomness, often the whole training, so the spread over seeds says little
about the difference between two arms. The difference within each pair of results from one dataset and seed does.
"""

from collections.abc import Iterable

from cometad.metrics import METRICS
from cometad_bench.results import Record, latest
from cometad_bench.summaries import REFERENCES, spread
from cometad_bench.tables import Cell, Group, ResultColumn, ResultRow, ResultTable

SHOWN = ("auc_roc", "auc_pr", "aff_f1")
NOTES = (
    "Figures are means of the arm's result minus that of {base} on the same dataset with the same seed, in percent; "
    "± is the sample standard deviation (n - 1) over these pairs.",
    "lower: the number of pairs in which the arm is below {base}.",
)


def paired_table(records: Iterable[Record], title: str, base: str) -> ResultTable:
    """Return the mean difference of each arm from `base` over entities and seeds, and how often the arm is lower."""
    counted = latest(records)
    names = ("arm", "dataset", "entity", "seed")
    values = {tuple(record[name] for name in names): record["metrics"] for record in counted}
    rows = []
    for arm in dict.fromkeys(record["arm"] for record in counted if record["arm"] != base):
        pairs = [
            (metrics, values[base, *where])
            for (name, *where), metrics in values.items()
            if name == arm and (base, *where) in values
        ]
        if pairs:
            cells = [cell for metric in SHOWN for cell in _cells([one[metric] - other[metric] for one, other in pairs])]
            rows.append(ResultRow(arm, tuple(cells), kind="reference" if arm in REFERENCES else "detector"))
    columns = [
        column
        for name in SHOWN
        for column in (
            ResultColumn(METRICS[name].title, scale=100),
            ResultColumn(f"{METRICS[name].title} lower", digits=0),
        )
    ]
    notes = tuple(note.format(base=base) for note in NOTES)
    return ResultTable(title, tuple(columns), (Group(f"against {base}", tuple(rows)),), notes)


def _cells(differences: list[float]) -> tuple[Cell, Cell]:
    lower = sum(difference < 0 for difference in differences)
    return Cell(*spread(differences)), Cell(lower, total=len(differences))

"""Arms compared trial by trial: the effect of a change to a method, and deep baselines under both schedules.

Arms with the same seed share much of their randomness, often the whole training, so the spread over seeds says little
about the difference between two arms. The difference within each pair of results from one dataset and seed does.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl

from cometad.arrays import Floats
from cometad.metrics import METRICS
from cometad_bench.experiments import CONVERGED, REFERENCES, SIMPLE
from cometad_bench.frame import RANKED_BY, arms_of, blocks, distinct, mean
from cometad_bench.statistics import signed_rank
from cometad_bench.tables import Cell, Group, ResultColumn, ResultRow, ResultTable, percent

SHOWN = ("auc_roc", "auc_pr", "aff_f1")
NOTES = (
    "Figures are means of the arm's result minus that of {base} on the same dataset with the same seed, in percent; "
    "± is the sample standard deviation (n - 1) over these pairs.",
    "lower: the number of pairs in which the arm is below {base}.",
)
_OTHER = " of the other"  # ends the figures of the second arm of a pair


def paired_table(frame: pl.DataFrame, title: str, base: str) -> ResultTable:
    """Return the mean difference of each arm from `base` over entities and seeds, and how often the arm is lower."""
    of_base = frame.filter(pl.col("arm") == base)
    rows = []
    for arm in distinct(frame, "arm"):
        pairs = _pairs(frame.filter(pl.col("arm") == arm), of_base)
        if arm != base and len(pairs):
            cells = [cell for name in SHOWN for cell in _cells((pairs[name] - pairs[name + _OTHER]).to_numpy())]
            rows.append(ResultRow(arm, tuple(cells)))
    columns = [
        column
        for name in SHOWN
        for column in (*percent(METRICS[name].title), ResultColumn(f"{METRICS[name].title} lower", digits=0))
    ]
    notes = tuple(note.format(base=base) for note in NOTES)
    return ResultTable(title, tuple(columns), (Group(f"against {base}", tuple(rows)),), notes)


def _cells(differences: Floats) -> tuple[Cell, Cell]:
    spread = float(np.std(differences, ddof=1)) if len(differences) > 1 else None
    lower = int((differences < 0).sum())
    return Cell(float(differences.mean()), spread), Cell(lower, total=len(differences))


def _pairs(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    return first.join(second, on=("dataset", "entity", "seed"), suffix=_OTHER, maintain_order="left")


def schedules_table(frame: pl.DataFrame, title: str, base: str, metric: str = RANKED_BY) -> Iterator[ResultTable]:
    """Yield, by dataset and deep baseline, the mean of either schedule, and of the base arm on the same entities.

    Both schedules are compared on the entities and seeds that both have, which may be a part of a dataset, and the
    better one with the base arm. Picking the better one by the test labels favors the deep baseline. Nothing if
    no deep baseline has a trial with either schedule.
    """
    groups = []
    for (dataset,), trials in frame.group_by("dataset", maintain_order=True):
        rows = [_schedules_row(trials, arm, base, metric) for arm in distinct(trials, "arm")]
        if any(rows):
            groups.append(Group(str(dataset), tuple(row for row in rows if row)))
    columns = (
        ResultColumn("entities", digits=0),
        *percent("published schedule", "trained to convergence", base, "best simple baseline", f"{base} ahead by"),
        ResultColumn("p", digits=4, is_probability=True),
    )
    notes = (
        f"Figures are {METRICS[metric].title} in percent, means over the entities and seeds that both schedules have.",
        f"{base} ahead by: of the better of the two schedules. Picking it by these figures favors the baseline. The "
        "best simple baseline is picked the same way.",
        "p: Wilcoxon's signed-rank test of that difference over entities, two-sided, not corrected for several tests.",
    )
    if groups:
        yield ResultTable(title, columns, tuple(groups), notes)


def _schedules_row(trials: pl.DataFrame, arm: str, base: str, metric: str) -> ResultRow | None:
    pairs = _pairs(*(trials.filter(pl.col("arm") == name) for name in (arm, arm + CONVERGED)))
    if pairs.is_empty():
        return None
    names = metric, metric + _OTHER
    own = pairs.group_by("entity", maintain_order=True).agg(mean(name).alias(name) for name in names)
    both = [float(own[name].to_numpy().mean()) for name in names]
    better = own[names[int(both[1] > both[0])]]
    others = blocks(trials.filter(pl.col("entity").is_in(own["entity"].to_list())), metric, "entity", references=True)
    simple = [
        float(others[name].to_numpy().mean()) for name in SIMPLE if name in arms_of(others) and name not in REFERENCES
    ]
    values = (float(len(own)), *both)
    best = max(simple, default=None)
    if base not in others.columns:
        return ResultRow.of(arm, (*values, None, best, None, None))
    ours = own.select("entity").join(others.select("entity", base), on="entity", maintain_order="left")[base]
    gains = (ours - better).to_numpy()
    return ResultRow.of(arm, (*values, float(ours.to_numpy().mean()), best, float(gains.mean()), signed_rank(gains)))

"""Tables of the drift experiment."""

from collections.abc import Iterator, Sequence

import polars as pl

from cometad_bench.frame import DEVIATION, distinct, mean, over_seeds
from cometad_bench.tables import Cell, Group, ResultColumn, ResultRow, ResultTable

SETTING = ["setting.drift", "setting.contamination"]
PROBES = "moved.probes"
OWN_RULE = "fixed.own.before.false_alarms"  # results without it are older than the figures of the detector's own rule
# The group that a result belongs to: its dataset; the long stream is a group of its own.
GROUP = pl.when(pl.col("entity") == "long").then(pl.col("dataset") + ", a long stream").otherwise(pl.col("dataset"))


def _columns() -> Iterator[ResultColumn]:
    for figure, title in (("false_alarms", "false alarms"), ("auc_roc", "AUC-ROC"), ("auc_pr", "AUC-PR")):
        yield ResultColumn(f"{title} before", scale=100, figure=f"fixed.phases.before.{figure}")
        for phase in ("during", "after"):
            for arm in ("fixed", "adapting"):
                path = f"{arm}.phases.{phase}.{figure}"
                yield ResultColumn(f"{title} {phase}, {arm}", scale=100, figure=path)
    yield ResultColumn("faults moved by", digits=2, figure=PROBES)
    yield ResultColumn("normal moved by", digits=2, figure="moved.normal.difference")
    yield ResultColumn("steps", figure="adapting.steps")


def _own_columns() -> Iterator[ResultColumn]:
    for figure, name, phases in (
        ("false_alarms", "false alarms", ("before", "during", "after")),
        ("touched", "faults touched", ("before", "after")),
    ):
        for phase in phases:
            for words, arm, suffix in (
                ("threshold unmoved", "fixed", "_unmoved"),
                ("own rule", "fixed", ""),
                ("own rule, adapting", "adapting", ""),
            ):
                path = f"{arm}.own.{phase}.{figure}{suffix}"
                yield ResultColumn(f"{name} {phase}, {words}", scale=100, figure=path)


COLUMNS, OWN_COLUMNS = tuple(_columns()), tuple(_own_columns())

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
OWN_NOTES = (
    "Figures are in percent. false alarms: the share of normal readings flagged. faults touched: the share of planted "
    "faults with at least one flag. Figures are means over the entities of a dataset; ± is the sample standard "
    "deviation (n - 1) over seeds.",
    "own rule: the detector's own threshold on its alert scores. threshold unmoved: the same scores at the value where "
    "that threshold starts. A fault that is touched may be touched by chance: the more false alarms, the more often.",
)


def drift_table(frame: pl.DataFrame, title: str, references: pl.DataFrame) -> ResultTable:
    """Return the table of one arm before, during and after each drift, with and without adaptation.

    The rows of the no-skill `references` follow those of each dataset.
    """
    # How far adaptation moved the probes on average, in multiples of the threshold.
    moved = pl.mean_horizontal(rf"^{PROBES}\..*\.difference$").alias(PROBES)
    own, others = frame.with_columns(moved), references.with_columns(moved)
    floor = {(group.name, row.arm): row for group in _groups(others, COLUMNS, ["arm"]) for row in group.rows}
    groups = []
    for name, rows in _groups(own, COLUMNS, SETTING):
        below = (floor.get((name, arm), ResultRow(arm, (Cell(),) * len(COLUMNS))) for arm in distinct(others, "arm"))
        groups.append(Group(name, (*rows, *below)))
    return ResultTable(title, COLUMNS, tuple(groups), NOTES, rows="drift")


def has_own_rule(frame: pl.DataFrame) -> bool:
    """Return whether any result says what the detector's own threshold rule flags; older results do not."""
    return OWN_RULE in frame.columns and frame[OWN_RULE].null_count() < len(frame)


def own_rule_table(frame: pl.DataFrame, title: str) -> ResultTable:
    groups = _groups(frame.filter(pl.col(OWN_RULE).is_not_null()), OWN_COLUMNS, SETTING)
    return ResultTable(title, OWN_COLUMNS, groups, OWN_NOTES, rows="drift")


def _groups(frame: pl.DataFrame, columns: Sequence[ResultColumn], by: Sequence[str]) -> tuple[Group, ...]:
    joined = {column.figure: mean(column.figure) for column in columns}
    groups = []
    for (name,), part in frame.group_by(GROUP.alias("group"), maintain_order=True):
        means = over_seeds(part, by, joined).iter_rows(named=True)
        rows = (ResultRow(_label(*(one[key] for key in by)), _cells(one, columns)) for one in means)
        groups.append(Group(str(name), tuple(rows)))
    return tuple(groups)


def _cells(means: dict[str, float | None], columns: Sequence[ResultColumn]) -> tuple[Cell, ...]:
    return tuple(Cell(means[column.figure], means[column.figure + DEVIATION]) for column in columns)


def _label(name: str, contamination: float | None = None) -> str:
    return name if contamination is None else f"{name}, {100 * contamination:g} % faults"

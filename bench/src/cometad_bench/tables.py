"""Tables of results: one group of rows per dataset, each with the no-skill references, and footnotes with caveats.

Comparisons use the figures as printed: figures that print alike share their mark, and a figure is above the floor only
if it prints higher. `forms` writes a table as Markdown, LaTeX or HTML.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from cometad.metrics import METRICS
from cometad_bench import frame as figures_of
from cometad_bench.experiments import REFERENCES
from cometad_bench.frame import (
    COVERS_ALL,
    DEVIATION,
    RANKED_BY,
    arms_of,
    blocks,
    distinct,
    mean,
    mean_over_seeds,
    ranked,
    twins,
)
from cometad_bench.notes import coverage, metric_notes, threshold_notes
from cometad_bench.results import Record
from cometad_bench.statistics import mean_ranks

AVERAGE = "average"

Mark = Literal["", "best", "second"]
Means = dict[str, Any]  # a row of `mean_over_seeds`: the means of one arm on one dataset
Ranks = dict[tuple[str, str], float]  # by dataset and arm
Published = dict[tuple[str, str], Mapping[str, float]]


@dataclass(frozen=True)
class ResultColumn:
    """A column header with its footnote symbol, the number format of its figures, and where they come from."""

    header: str
    note: str = ""
    scale: float = 1.0  # 100 for percent
    digits: int = 1
    is_probability: bool = False  # never prints as 0
    figure: str = ""  # a figure of `mean_over_seeds`, for the tables made from it
    better: int = 0  # 1: higher is better, -1: lower is better, 0: no marks
    has_floor: bool = False
    total: str = ""  # the figure that this one is a part of
    with_deviation: bool = True

    def shown(self, value: float) -> str:
        smallest = 10**-self.digits
        if self.is_probability and value < smallest / 2:
            return f"< {smallest:.{self.digits}f}"
        return f"{self.scale * value:,.{self.digits}f}"

    def printed(self, value: float) -> float:
        return round(self.scale * value, self.digits) if np.isfinite(value) else value


@dataclass(frozen=True)
class Cell:
    value: float | None = None
    deviation: float | None = None
    total: float | None = None  # the 5 in "3 of 5"
    mark: Mark = ""
    at_floor: bool = False  # not above the no-skill references


@dataclass(frozen=True)
class ResultRow:
    arm: str
    cells: tuple[Cell, ...]
    note: str = ""

    @classmethod
    def of(cls, arm: str, values: Iterable[float | None], note: str = "") -> "ResultRow":
        return cls(arm, tuple(map(Cell, values)), note)

    @property
    def label(self) -> str:
        return f"{self.arm} ({self.note})" if self.note else self.arm


class Group(NamedTuple):
    name: str
    rows: tuple[ResultRow, ...]


@dataclass(frozen=True)
class ResultTable:
    title: str
    columns: tuple[ResultColumn, ...]
    groups: tuple[Group, ...]
    footnotes: tuple[str, ...]
    rows: str = "arm"  # header of the column of row names


def percent(*headers: str) -> tuple[ResultColumn, ...]:
    return tuple(ResultColumn(header, scale=100) for header in headers)


THRESHOLD_COLUMNS = (
    ResultColumn("precision", scale=100, figure=figures_of.PRECISION, better=1),
    ResultColumn("recall", scale=100, figure=figures_of.RECALL, better=1),
    ResultColumn("F1", scale=100, figure=figures_of.F1, better=1, has_floor=True),
    ResultColumn("anomalies found", figure=figures_of.FOUND, better=1, total=figures_of.ANOMALIES),
    ResultColumn("false alarms per day", digits=2, figure=figures_of.FALSE_ALARMS, better=-1),
    ResultColumn("fit (s)", digits=2, figure="fit_seconds"),
    ResultColumn("score (s)", digits=2, figure="score_seconds"),
    ResultColumn("peak memory (MiB)", scale=2**-20, digits=0, figure="peak_bytes", with_deviation=False),
    ResultColumn("parameters", digits=0, figure="parameters", with_deviation=False),
)


def metric_table(
    frame: pl.DataFrame,
    title: str,
    published: Iterable[Record] = (),
    ranked_by: str = RANKED_BY,
    over: str = "dataset",
) -> ResultTable:
    """Return the metrics of one experiment in percent, and the mean rank by one of them over datasets or entities.

    Rows are in the order in which arms first appear in the frame, with the no-skill references last.
    """
    means = mean_over_seeds(frame)
    ranks, rank_notes = _ranks(frame, ranked_by, over)
    plain, plain_notes = _plain_ranks(frame, ranked_by) if ranks and over == "entity" else ({}, [])
    names = [name for name in METRICS if means[name].null_count() < len(means)]
    columns = [_metric_column(name) for name in names]
    if ranks:
        columns.append(ResultColumn(f"rank by {METRICS[ranked_by].title}", digits=2, figure="rank", better=-1))
    if plain:
        columns.append(ResultColumn("plain mean rank", digits=2, figure="plain rank", better=-1))
    rows = [
        row | {"rank": ranks.get((row["dataset"], row["arm"])), "plain rank": plain.get((row["dataset"], row["arm"]))}
        for row in _with_average(means).to_dicts()
    ]
    theirs = {(one["dataset"], one["arm"]): one["metrics"] for one in published}
    paper = _with_published_average(theirs, distinct(means, "dataset"))
    paper_notes = ["Rows named paper hold the published figures for the arm above."] if paper else []
    notes = (*metric_notes(means, frame, names), *rank_notes, *plain_notes, *paper_notes)
    return ResultTable(title, tuple(columns), _groups(rows, columns, paper), notes)


def threshold_table(frame: pl.DataFrame, title: str) -> ResultTable:
    """Return how each arm performs at a threshold set on its training scores without labels, and its cost."""
    means = mean_over_seeds(frame)
    groups = _groups(means.to_dicts(), THRESHOLD_COLUMNS, {})
    return ResultTable(title, THRESHOLD_COLUMNS, groups, tuple(threshold_notes(means, frame)))


def _metric_column(name: str) -> ResultColumn:
    metric = METRICS[name]
    note, better = "*" if metric.needs_oracle_threshold else "", 1 if metric.higher_is_better else -1
    return ResultColumn(metric.title, note, scale=100, figure=name, better=better, has_floor=True)


# --- from means to rows -----------------------------------------------------------------------------------------------


def _groups(means: Sequence[Means], columns: Sequence[ResultColumn], paper: Published) -> tuple[Group, ...]:
    by_dataset: dict[str, list[Means]] = {}
    for one in means:
        by_dataset.setdefault(one["dataset"], []).append(one)
    return tuple(Group(dataset, tuple(_rows(own, columns, paper))) for dataset, own in by_dataset.items())


def _rows(means: Sequence[Means], columns: Sequence[ResultColumn], paper: Published) -> Iterator[ResultRow]:
    """The rows of one dataset, references last; the published figures of an arm follow its own."""
    cells = [_cells(means, column) for column in columns]
    last = {arm: place for place, arm in enumerate(REFERENCES, 1)}
    for one in sorted(means, key=lambda one: last.get(one["arm"], 0)):
        arm, where = one["arm"], (one["dataset"], one["arm"])
        yield ResultRow(arm, tuple(column[arm] for column in cells), coverage(one))
        if where in paper:
            yield ResultRow.of("paper", (paper[where].get(column.figure) for column in columns))


def _cells(means: Sequence[Means], column: ResultColumn) -> dict[str, Cell]:
    """The cells of one column by arm. Only means over the same entities are compared."""
    compared = {
        one["arm"]: column.printed(one[column.figure])
        for one in means
        if one[column.figure] is not None and one["entities"] == one["all_entities"]
    }
    ours = {arm: column.better * value for arm, value in compared.items() if arm not in REFERENCES}
    order = sorted(set(ours.values()), reverse=True) if column.better else []
    marks: dict[float, Mark] = dict(zip(order, ("best", "second"), strict=False))  # equal figures share a mark
    floor = max((compared[arm] for arm in REFERENCES if arm in compared), default=-np.inf)
    cells = {}
    for one in means:
        arm, value = one["arm"], one[column.figure]
        at_floor = column.has_floor and arm in ours and compared[arm] <= floor
        deviation = one.get(column.figure + DEVIATION) if column.with_deviation else None
        mark = marks.get(ours[arm], "") if arm in ours else ""
        cells[arm] = Cell() if value is None else Cell(value, deviation, one.get(column.total), mark, at_floor)
    return cells


# --- average over datasets, and ranks ---------------------------------------------------------------------------------


def _with_average(means: pl.DataFrame) -> pl.DataFrame:
    """Add a group with the mean over all datasets, for arms that cover them all; only if there are several datasets."""
    count = means["dataset"].n_unique()
    if count < 2:
        return means
    complete = means.filter((COVERS_ALL.sum() == count).over("arm"))
    average = complete.group_by("arm", maintain_order=True).agg(
        pl.lit(AVERAGE).alias("dataset"),
        *(mean(name, strict=True).alias(name) for name in METRICS),
        pl.col("seeds").min(),
        pl.col("all_seeds").max(),
        entities=pl.lit(1),
        all_entities=pl.lit(1),
    )
    return pl.concat([means, average.fill_nan(None)], how="diagonal_relaxed")


def _ranks(frame: pl.DataFrame, metric: str, over: str) -> tuple[Ranks, list[str]]:
    """The mean rank by dataset and arm, and its mean over datasets, with footnotes; nothing if none to rank."""
    found = blocks(frame, metric, over)
    arms = arms_of(found)
    if len(found) < 2 or len(arms) < 2:
        return {}, []
    ranks: Ranks = {}
    same: dict[str, dict[str, str]] = {}
    for dataset in distinct(found, "dataset"):
        rows = found.filter(pl.col("dataset") == dataset)
        same[dataset] = twins(frame.filter(pl.col("dataset") == dataset, pl.col("arm").is_in(arms)))
        kept = [arm for arm in arms if arm not in same[dataset]]
        own = dict(zip(kept, mean_ranks(rows.select(kept).to_numpy()).tolist(), strict=True))
        ranks |= {(dataset, arm): own[same[dataset].get(arm, arm)] for arm in arms}
    ranks |= {(AVERAGE, arm): float(np.mean([ranks[dataset, arm] for dataset in same])) for arm in arms}
    several = "datasets" if over == "dataset" else "entities"
    note = (
        f"Rank: mean rank by {METRICS[metric].title} over the {several} (1 is best), among the {len(arms)} detectors "
        f"with results for all {len(found)} {several}."
    )
    if over == "entity" and len(same) > 1:
        note += " The average is over the datasets, so that each of them counts the same."
    return ranks, [note, *_twin_notes(same)]


def _plain_ranks(frame: pl.DataFrame, metric: str) -> tuple[Ranks, list[str]]:
    """The mean rank of each arm over the entities of all datasets, for the average; nothing for one dataset."""
    found, ranks, same = ranked(frame, metric, "entity")
    if found["dataset"].n_unique() < 2 or not ranks:
        return {}, []
    note = f"Plain mean rank: over all {len(found)} entities, so that a dataset with many of them counts more."
    return {(AVERAGE, arm): ranks[same.get(arm, arm)] for arm in (*ranks, *same) if same.get(arm, arm) in ranks}, [note]


def _twin_notes(same: Mapping[str, Mapping[str, str]]) -> list[str]:
    datasets: dict[str, list[str]] = {}
    for dataset, twins_here in same.items():
        for arm, twin in twins_here.items():
            datasets.setdefault(f"{twin} and {arm}", []).append(dataset)
    parts = [f"{pair} ({', '.join(where)})" for pair, where in datasets.items()]
    if not parts:
        return []
    return [f"Ranked as one arm, because their figures are identical in every trial: {'; '.join(parts)}."]


# --- published figures ------------------------------------------------------------------------------------------------


def _with_published_average(paper: Published, datasets: Sequence[str]) -> Published:
    averages: Published = {}
    for arm in dict.fromkeys(arm for _, arm in paper):
        figures = [paper.get((dataset, arm), {}) for dataset in datasets]
        names = [name for name in METRICS if all(name in figure for figure in figures)]
        averages[AVERAGE, arm] = {name: float(np.mean([figure[name] for figure in figures])) for name in names}
    return {where: figures for where, figures in (paper | averages).items() if figures}

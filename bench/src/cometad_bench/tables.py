"""Tables of results: one group of rows per dataset, each with the no-skill references, and footnotes with caveats.

Comparisons use the figures as printed: figures that print alike share their mark, and a figure is above the floor only
if it prints higher. `forms` writes a table as Markdown, LaTeX or HTML.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from scipy.stats import rankdata

from cometad.errors import InputError
from cometad.metrics import METRICS
from cometad_bench.footnotes import metric_notes, threshold_notes
from cometad_bench.results import Record
from cometad_bench.statistics import mean_ranks
from cometad_bench.summaries import (
    RANKED_BY,
    REFERENCES,
    Spread,
    Summary,
    blocks,
    summarize,
    twins,
    without_twins,
)

AVERAGE = "average"

Mark = Literal["", "best", "second"]
Kind = Literal["detector", "reference", "paper"]
Cells = dict[tuple[str, str], Summary]
Published = dict[tuple[str, str], Mapping[str, float]]


@dataclass(frozen=True)
class ResultColumn:
    """A column header with its footnote symbol, and the number format of its figures."""

    header: str
    note: str = ""
    scale: float = 1.0  # 100 for percent
    digits: int = 1
    is_probability: bool = False  # never prints as 0

    def shown(self, value: float) -> str:
        """Return the value as printed."""
        smallest = 10**-self.digits
        if self.is_probability and value < smallest / 2:
            return f"< {smallest:.{self.digits}f}"
        return f"{self.scale * value:,.{self.digits}f}"


@dataclass(frozen=True)
class Cell:
    """A figure; None if there is none."""

    value: float | None = None
    deviation: float | None = None
    total: float | None = None  # the 5 in "3 of 5"
    mark: Mark = ""
    at_floor: bool = False  # not above the no-skill references


@dataclass(frozen=True)
class ResultRow:
    """The figures of one arm, with a note on missing trials."""

    arm: str
    cells: tuple[Cell, ...]
    note: str = ""
    kind: Kind = "detector"

    @property
    def label(self) -> str:
        """The name of the row with its note."""
        return f"{self.arm} ({self.note})" if self.note else self.arm


@dataclass(frozen=True)
class Group:
    """The rows of one dataset, or of the average over all."""

    name: str
    rows: tuple[ResultRow, ...]


@dataclass(frozen=True)
class ResultTable:
    """The content of a table, independent of markup."""

    title: str
    columns: tuple[ResultColumn, ...]
    groups: tuple[Group, ...]
    footnotes: tuple[str, ...]
    rows: str = "arm"  # header of the column of row names


class Field(NamedTuple):
    """A value of a `Summary` as a column."""

    name: str
    column: ResultColumn
    better: int  # 1: higher is better, -1: lower is better, 0: no marks
    has_floor: bool = False
    total: str = ""  # name of the value that the figure is a part of
    with_deviation: bool = True


THRESHOLD_FIELDS = (
    Field("precision", ResultColumn("precision", scale=100), 1),
    Field("recall", ResultColumn("recall", scale=100), 1),
    Field("f1", ResultColumn("F1", scale=100), 1, has_floor=True),
    Field("anomalies_found", ResultColumn("anomalies found"), 1, total="anomalies"),
    Field("false_alarms_per_day", ResultColumn("false alarms per day", digits=2), -1),
    Field("fit_seconds", ResultColumn("fit (s)", digits=2), 0),
    Field("score_seconds", ResultColumn("score (s)", digits=2), 0),
    Field("peak_bytes", ResultColumn("peak memory (MiB)", scale=2**-20, digits=0), 0, with_deviation=False),
    Field("parameters", ResultColumn("parameters", digits=0), 0, with_deviation=False),
)


def metric_table(
    records: Iterable[Record],
    title: str,
    published: Iterable[Record] = (),
    ranked_by: str = RANKED_BY,
    over: str = "dataset",
) -> ResultTable:
    """Return the metrics of one experiment in percent, and the mean rank by one of them over datasets or entities.

    Rows are in the order in which arms first appear in the records, with the no-skill references last.
    """
    records = list(records)
    summaries = summarize(records)
    ranks, rank_notes = _ranks(records, ranked_by, over)
    plain, plain_notes = _plain_ranks(records, ranked_by) if ranks and over == "entity" else ({}, [])
    cells = {
        where: _with_values(summary, {"rank": ranks.get(where), "plain rank": plain.get(where)})
        for where, summary in _with_average(summaries).items()
    }
    names = [name for name in METRICS if any(name in summary.values for summary in summaries.values())]
    fields = [_metric_field(name) for name in names]
    if ranks:
        fields.append(Field("rank", ResultColumn(f"rank by {METRICS[ranked_by].title}", digits=2), -1))
    if plain:
        fields.append(Field("plain rank", ResultColumn("plain mean rank", digits=2), -1))
    paper = _with_published_average(_published(published), _datasets(summaries))
    return ResultTable(
        title,
        tuple(field.column for field in fields),
        _groups(cells, fields, paper),
        (*metric_notes(summaries, records, names), *rank_notes, *plain_notes, *_paper_notes(paper)),
    )


def threshold_table(records: Iterable[Record], title: str) -> ResultTable:
    """Return how each arm performs at a threshold set on its training scores without labels, and its cost."""
    records = list(records)
    summaries = summarize(records)
    return ResultTable(
        title,
        tuple(field.column for field in THRESHOLD_FIELDS),
        _groups(summaries, THRESHOLD_FIELDS, {}),
        tuple(threshold_notes(summaries, records)),
    )


def _metric_field(name: str) -> Field:
    metric = METRICS[name]
    column = ResultColumn(metric.title, "*" if metric.needs_oracle_threshold else "", scale=100)
    return Field(name, column, 1 if metric.higher_is_better else -1, has_floor=True)


# --- from summaries to rows -------------------------------------------------------------------------------------------


def _groups(cells: Cells, fields: Sequence[Field], paper: Published) -> tuple[Group, ...]:
    return tuple(
        Group(dataset, tuple(_rows([cell for cell in cells.values() if cell.dataset == dataset], fields, paper)))
        for dataset in _datasets(cells)
    )


def _rows(summaries: Sequence[Summary], fields: Sequence[Field], paper: Published) -> list[ResultRow]:
    """Return the rows of one dataset; the published figures of an arm follow its own."""
    columns = [_column(summaries, field) for field in fields]
    rows = []
    for summary in sorted(summaries, key=_reference_position):
        where = summary.dataset, summary.arm
        kind: Kind = "reference" if summary.arm in REFERENCES else "detector"
        rows.append(ResultRow(summary.arm, tuple(column[summary.arm] for column in columns), summary.coverage, kind))
        if where in paper:
            rows.append(ResultRow("paper", tuple(Cell(paper[where].get(field.name)) for field in fields), kind="paper"))
    return rows


def _reference_position(summary: Summary) -> int:
    """Return a sort key that puts the no-skill references last."""
    return 1 + REFERENCES.index(summary.arm) if summary.arm in REFERENCES else 0


def _column(summaries: Sequence[Summary], field: Field) -> dict[str, Cell]:
    """Return the cells of one column by arm. Only means over the same entities are compared."""
    compared = {
        summary.arm: summary.values[field.name].mean
        for summary in summaries
        if _has(summary, field) and summary.covers_all_entities
    }
    marks = _marks({arm: value for arm, value in compared.items() if arm not in REFERENCES}, field)
    floor = max((compared[arm] for arm in REFERENCES if arm in compared), default=-np.inf)
    cells = {}
    for summary in summaries:
        arm = summary.arm
        at_floor = field.has_floor and arm in marks and _printed(compared[arm], field) <= _printed(floor, field)
        cells[arm] = replace(_cell(summary, field), mark=marks.get(arm, ""), at_floor=at_floor)
    return cells


def _cell(summary: Summary, field: Field) -> Cell:
    if not _has(summary, field):
        return Cell()
    mean, deviation = summary.values[field.name]
    total = summary.values[field.total].mean if field.total in summary.values else None
    return Cell(mean, deviation if field.with_deviation else None, total)


def _has(summary: Summary, field: Field) -> bool:
    return field.name in summary.values


def _printed(value: float, field: Field) -> float:
    """Return the value rounded as printed."""
    return round(field.column.scale * value, field.column.digits) if np.isfinite(value) else value


def _marks(values: Mapping[str, float], field: Field) -> dict[str, Mark]:
    """Return the mark of each arm. Arms with equal figures share a mark."""
    goodness = {arm: field.better * _printed(value, field) for arm, value in values.items()}
    order = sorted(set(goodness.values()), reverse=True)
    marks: dict[float, Mark] = dict(zip(order, ("best", "second"), strict=False)) if field.better else {}
    return {arm: marks.get(value, "") for arm, value in goodness.items()}


def _datasets(cells: Cells) -> list[str]:
    return list(dict.fromkeys(dataset for dataset, _ in cells))


# --- average over datasets, and ranks ---------------------------------------------------------------------------------


def _with_average(cells: Cells) -> Cells:
    """Add a group with the mean over all datasets, for arms that cover them all; only if there are several datasets."""
    datasets = _datasets(cells)
    complete = [
        arm
        for arm in dict.fromkeys(arm for _, arm in cells)
        if all((dataset, arm) in cells and cells[dataset, arm].covers_all_entities for dataset in datasets)
    ]
    if len(datasets) < 2:
        return cells
    return cells | {(AVERAGE, arm): _average([cells[dataset, arm] for dataset in datasets]) for arm in complete}


def _average(summaries: Sequence[Summary]) -> Summary:
    names = [name for name in METRICS if all(name in summary.values for summary in summaries)]
    means = {name: float(np.mean([summary.values[name].mean for summary in summaries])) for name in names}
    values = {name: Spread(mean, None) for name, mean in means.items()}
    return Summary(
        AVERAGE,
        summaries[0].arm,
        values,
        seeds=min(summary.seeds for summary in summaries),
        all_seeds=max(summary.all_seeds for summary in summaries),
        entities=1,
        all_entities=1,
    )


def _ranks(records: Sequence[Record], metric: str, over: str) -> tuple[dict[tuple[str, str], float], list[str]]:
    """Return the mean rank by dataset and arm, and its mean over datasets, with footnotes; nothing if none to rank."""
    names, arms, values = blocks(records, metric, over)
    if len(names) < 2 or len(arms) < 2:
        return {}, []
    ranks: dict[tuple[str, str], float] = {}
    same: dict[str, dict[str, str]] = {}
    for dataset in dict.fromkeys(name[0] for name in names):
        same[dataset] = twins(record for record in records if record["dataset"] == dataset)
        kept = [arm for arm in arms if arm not in same[dataset]]
        rows = values[[name[0] == dataset for name in names]][:, [arms.index(arm) for arm in kept]]
        own = dict(zip(kept, rankdata(-rows, axis=1).mean(axis=0).tolist(), strict=True))
        ranks |= {(dataset, arm): own[same[dataset].get(arm, arm)] for arm in arms}
    ranks |= {(AVERAGE, arm): float(np.mean([ranks[dataset, arm] for dataset in same])) for arm in arms}
    several = "datasets" if over == "dataset" else "entities"
    note = (
        f"Rank: mean rank by {METRICS[metric].title} over the {several} (1 is best), among the {len(arms)} detectors "
        f"with results for all {len(names)} {several}."
    )
    if over == "entity" and len(same) > 1:
        note += " The average is over the datasets, so that each of them counts the same."
    return ranks, [note, *_twin_notes(same)]


def _plain_ranks(records: Sequence[Record], metric: str) -> tuple[dict[tuple[str, str], float], list[str]]:
    """Return the mean rank of each arm over the entities of all datasets, for the average; nothing for one dataset."""
    found, same = blocks(records, metric, "entity"), twins(records)
    distinct = without_twins(found, same)
    if len({name[0] for name in found.blocks}) < 2 or len(distinct.arms) < 2:
        return {}, []
    ranks = dict(zip(distinct.arms, mean_ranks(distinct.values).tolist(), strict=True))
    note = f"Plain mean rank: over all {len(found.blocks)} entities, so that a dataset with many of them counts more."
    return {(AVERAGE, arm): ranks[same.get(arm, arm)] for arm in found.arms}, [note]


def _twin_notes(same: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return which arms were ranked as one, on which datasets."""
    datasets: dict[str, list[str]] = {}
    for dataset, twins_here in same.items():
        for arm, twin in twins_here.items():
            datasets.setdefault(f"{twin} and {arm}", []).append(dataset)
    parts = [f"{pair} ({', '.join(where)})" for pair, where in datasets.items()]
    if not parts:
        return []
    return [f"Ranked as one arm, because their figures are identical in every trial: {'; '.join(parts)}."]


def _with_values(summary: Summary, more: Mapping[str, float | None]) -> Summary:
    known = {name: Spread(value, None) for name, value in more.items() if value is not None}
    return replace(summary, values={**summary.values, **known})


# --- published figures ------------------------------------------------------------------------------------------------


def _published(records: Iterable[Record]) -> Published:
    paper: Published = {}
    for record in records:
        where = record["dataset"], record["arm"]
        if where in paper:
            raise InputError(
                f"There are two published rows for {where[1]} on {where[0]}. Pass those of one experiment."
            )
        paper[where] = record["metrics"]
    return paper


def _with_published_average(paper: Published, datasets: Sequence[str]) -> Published:
    """Add the average of the published figures over the same datasets as ours."""
    averages: Published = {}
    for arm in dict.fromkeys(arm for _, arm in paper):
        figures = [paper.get((dataset, arm), {}) for dataset in datasets]
        names = [name for name in METRICS if all(name in figure for figure in figures)]
        averages[AVERAGE, arm] = {name: float(np.mean([figure[name] for figure in figures])) for name in names}
    return {where: figures for where, figures in (paper | averages).items() if figures}


def _paper_notes(paper: Published) -> list[str]:
    return ["Rows named paper hold the published figures for the arm above."] if paper else []

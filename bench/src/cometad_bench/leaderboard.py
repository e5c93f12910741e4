"""Our figures on TSB-AD-M next to published ones: VUS-PR, as a mean over series and as a mean over sources."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from statistics import fmean

from cometad.metrics import METRICS
from cometad_bench.datasets.readers import READERS
from cometad_bench.datasets.tsb_ad import source_of
from cometad_bench.results import Record, latest
from cometad_bench.summaries import REFERENCES
from cometad_bench.tables import Cell, Group, Kind, ResultColumn, ResultRow, ResultTable

OTHERS = ("vus_roc", "auc_pr", "auc_roc")  # metrics that the leaderboard shows as well


@dataclass(frozen=True)
class PublishedMethod:
    """The published VUS-PR of a method over the evaluation series of a dataset."""

    dataset: str
    method: str
    mean: float  # over series
    macro: float | None  # over the means of the sources; None if it was not published and cannot be computed
    source: str


def published_methods(dataset: str) -> list[PublishedMethod]:
    """Return the published figures on a dataset, best first."""
    lines = (files("cometad_bench") / "leaderboard.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [PublishedMethod(**json.loads(line)) for line in lines]
    return sorted((row for row in rows if row.dataset == dataset), key=lambda row: -row.mean)


@dataclass(frozen=True)
class Standing:
    """The figures of one arm: means over seeds, then over series."""

    arm: str
    series: dict[str, float]  # VUS-PR by entity
    sources: dict[str, float]  # its mean by source
    others: dict[str, float]  # the means of `OTHERS`
    seconds: float  # to fit and score all series once

    @property
    def mean(self) -> float:
        """The mean VUS-PR over series: the figure of the leaderboard."""
        return fmean(self.series.values())

    @property
    def macro(self) -> float:
        """The mean VUS-PR over sources, each of which counts once, however many series it has."""
        return fmean(self.sources.values())


def standings(records: Iterable[Record]) -> list[Standing]:
    """Return the figures of each arm on one dataset, best first."""
    arms: dict[str, dict[str, list[Record]]] = {}
    for record in latest(records):
        arms.setdefault(record["arm"], {}).setdefault(record["entity"], []).append(record)
    return sorted((_standing(arm, entities) for arm, entities in arms.items()), key=lambda one: -one.mean)


def _standing(arm: str, entities: dict[str, list[Record]]) -> Standing:
    def mean(name: str, seeds: Sequence[Record]) -> float:
        return fmean(record["metrics"][name] for record in seeds)

    series = {entity: mean("vus_pr", seeds) for entity, seeds in entities.items()}
    sources: dict[str, list[float]] = {}
    for entity, seeds in entities.items():
        sources.setdefault(source_of(entity) or seeds[0]["dataset"], []).append(series[entity])
    return Standing(
        arm,
        series,
        {source: fmean(values) for source, values in sources.items()},
        {name: fmean(mean(name, seeds) for seeds in entities.values()) for name in OTHERS},
        sum(fmean(one["fit_seconds"] + one["score_seconds"] for one in seeds) for seeds in entities.values()),
    )


def leaderboard_tables(records: Sequence[Record], title: str) -> list[ResultTable]:
    """Return, for each dataset, our arms among the published methods, best first, and our arms by source."""
    tables = []
    for dataset in dict.fromkeys(record["dataset"] for record in records):
        ours = standings(record for record in records if record["dataset"] == dataset)
        tables += [_among_published(dataset, ours, title), _by_source(dataset, ours, title)]
    return tables


def leaderboard_notes(records: Sequence[Record]) -> tuple[str, ...]:
    """Return the figure of the best arm in one sentence for each dataset, and whether it may be compared."""
    notes = []
    for dataset in dict.fromkeys(record["dataset"] for record in records):
        ours = standings(record for record in records if record["dataset"] == dataset)
        most = max(len(one.series) for one in ours)
        best = next(one for one in ours if len(one.series) == most)
        notes.append(
            f"{dataset}: {best.arm} has the best mean VUS-PR of our arms: {best.mean:.3f} over {most} series, and "
            f"{best.macro:.3f} over {len(best.sources)} sources."
        )
        wanted = _series_in(dataset)
        if published_methods(dataset) and most < wanted:
            notes.append(
                f"These are {most} of the {wanted} series of {dataset}, so the published figures, which are over all "
                "of them, cannot be compared with ours yet."
            )
    return tuple(notes)


def _among_published(dataset: str, ours: Sequence[Standing], title: str) -> ResultTable:
    published = published_methods(dataset)
    most = max(len(one.series) for one in ours)
    rows = [(one.mean, _own_row(one, most)) for one in ours]
    groups = []
    if published and most < _series_in(dataset):  # not comparable
        theirs = tuple(_published_row(one, "") for one in published)
        groups.append(Group(f"published, all {_series_in(dataset)} series", theirs))
    else:
        rows += [(one.mean, _published_row(one, "published")) for one in published]
    columns = (
        ResultColumn("VUS-PR, mean over series", digits=3),
        ResultColumn("VUS-PR, mean over sources", digits=3),
        *(ResultColumn(METRICS[name].title, digits=3) for name in OTHERS),
        ResultColumn("fit and score (s)", digits=0),
    )
    ordered = tuple(row for _, row in sorted(rows, key=lambda pair: -pair[0]))
    return ResultTable(title, columns, (Group(dataset, ordered), *groups), tuple(_notes(published)))


def _series_in(dataset: str) -> int:
    return READERS[dataset].published.entities if dataset in READERS else 0


def _own_row(one: Standing, most: int) -> ResultRow:
    values = (one.mean, one.macro, *one.others.values(), one.seconds)
    kind: Kind = "reference" if one.arm in REFERENCES else "detector"
    note = "" if len(one.series) == most else f"{len(one.series)} of {most} series"
    return ResultRow(one.arm, tuple(Cell(value) for value in values), note, kind)


def _published_row(one: PublishedMethod, note: str) -> ResultRow:
    cells = (Cell(one.mean), Cell(one.macro), *(Cell() for _ in OTHERS), Cell())
    return ResultRow(one.method, cells, note, "paper")


def _notes(published: Sequence[PublishedMethod]) -> list[str]:
    notes = [
        "VUS-PR as on the leaderboard: flavor vus, 250 ranks, the widest window from the autocorrelation of the first "
        "variable; over the whole series, training rows included.",
        "A series that failed is missing here; on the leaderboard it counts as 0.",
    ]
    if published:
        notes += [
            "The methods of the benchmark itself were tuned on the 20 series for tuning; our arms use their defaults.",
            "The default of Comet was chosen on entities of other collections, among them SMD, MSL and SMAP: the "
            "series of TSB-AD-M from these sources are parts of the same recordings.",
        ]
    for source in dict.fromkeys(one.source for one in published):
        methods = ", ".join(one.method for one in published if one.source == source)
        notes.append(f"{methods}: {source}.")
    return notes


def _by_source(dataset: str, ours: Sequence[Standing], title: str) -> ResultTable:
    sources = sorted({source for one in ours for source in one.sources})
    rows = tuple(
        ResultRow(
            one.arm,
            tuple(Cell(one.sources.get(source)) for source in sources),
            kind="reference" if one.arm in REFERENCES else "detector",
        )
        for one in ours
    )
    columns = tuple(ResultColumn(source, digits=3) for source in sources)
    return ResultTable(f"{title}: by source", columns, (Group(dataset, rows),), ("VUS-PR, mean over series.",))

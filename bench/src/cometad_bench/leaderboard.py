"""Our figures on TSB-AD-M next to published ones: VUS-PR, as a mean over series and as a mean over sources."""

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import polars as pl

from cometad.metrics import METRICS
from cometad_bench.datasets.readers import READERS
from cometad_bench.datasets.tsb_ad import source_of
from cometad_bench.tables import Group, ResultColumn, ResultRow, ResultTable

SHOWN = "vus_pr"
OTHERS = ("vus_roc", "auc_pr", "auc_roc")  # metrics that the leaderboard shows as well

# One published method: its mean VUS-PR over the evaluation series of a dataset, the mean over the means of the sources
# (`macro`; None if it was not published and cannot be computed), and where that was published.
PublishedMethod = dict[str, Any]


def published_methods(dataset: str) -> list[PublishedMethod]:
    """Return the published figures on a dataset, best first."""
    lines = (files("cometad_bench") / "leaderboard.jsonl").read_text(encoding="utf-8").splitlines()
    return sorted(
        (row for row in map(json.loads, lines) if row["dataset"] == dataset), key=lambda row: -float(row["mean"])
    )


def series_means(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the figures of each arm on each series of one dataset: means over seeds, with the source of the series."""
    seconds = pl.col("fit_seconds") + pl.col("score_seconds")
    means = frame.group_by("arm", "dataset", "entity", maintain_order=True).agg(
        pl.col(SHOWN, *OTHERS).mean(), seconds=seconds.mean()
    )
    sources = [source_of(entity) or dataset for dataset, entity in means.select("dataset", "entity").iter_rows()]
    return means.with_columns(source=pl.Series(sources, dtype=pl.String))


def standings(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the figures of each arm on one dataset, best first: means over series, and over sources (`macro`).

    In the second, each source counts once, however many series it has. `seconds` fit and score all series once.
    """
    series = series_means(frame)
    by_source = series.group_by("arm", "source", maintain_order=True).agg(pl.col(SHOWN).mean())
    macro = by_source.group_by("arm").agg(macro=pl.col(SHOWN).mean(), sources=pl.len())
    means = series.group_by("arm", maintain_order=True).agg(
        pl.col(OTHERS).mean(), mean=pl.col(SHOWN).mean(), series=pl.len(), seconds=pl.col("seconds").sum()
    )
    return means.join(macro, on="arm", maintain_order="left").sort("mean", descending=True, maintain_order=True)


def leaderboard_tables(frame: pl.DataFrame, title: str) -> list[ResultTable]:
    """Return, for each dataset, our arms among the published methods, best first, and our arms by source."""
    tables = []
    for (dataset,), own in frame.group_by("dataset", maintain_order=True):
        tables += [_among_published(str(dataset), standings(own), title), _by_source(str(dataset), own, title)]
    return tables


def leaderboard_notes(frame: pl.DataFrame) -> list[str]:
    """Return the figure of the best arm in one sentence for each dataset, and whether it may be compared."""
    notes = []
    for (dataset,), own in frame.group_by("dataset", maintain_order=True):
        ours, wanted = standings(own), _series_in(str(dataset))
        best = ours.filter(pl.col("series") == pl.col("series").max()).row(0, named=True)
        notes.append(
            f"{dataset}: {best['arm']} has the best mean VUS-PR of our arms: {best['mean']:.3f} over {best['series']} "
            f"series, and {best['macro']:.3f} over {best['sources']} sources."
        )
        if published_methods(str(dataset)) and best["series"] < wanted:
            notes.append(
                f"These are {best['series']} of the {wanted} series of {dataset}, so the published figures, which are "
                "over all of them, cannot be compared with ours yet."
            )
    return notes


def _among_published(dataset: str, ours: pl.DataFrame, title: str) -> ResultTable:
    published = published_methods(dataset)
    most = ours.select(pl.col("series").max()).item()
    rows = []
    for one in ours.iter_rows(named=True):
        values = (one["mean"], one["macro"], *(one[name] for name in OTHERS), one["seconds"])
        note = "" if one["series"] == most else f"{one['series']} of {most} series"
        rows.append((one["mean"], ResultRow.of(one["arm"], values, note)))
    groups = []
    if published and most < _series_in(dataset):  # not comparable
        theirs = tuple(_published_row(one, "") for one in published)
        groups.append(Group(f"published, all {_series_in(dataset)} series", theirs))
    else:
        rows += [(one["mean"], _published_row(one, "published")) for one in published]
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


def _published_row(one: PublishedMethod, note: str) -> ResultRow:
    return ResultRow.of(one["method"], (one["mean"], one["macro"], *(None,) * (len(OTHERS) + 1)), note)


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
    for source in dict.fromkeys(one["source"] for one in published):
        methods = ", ".join(one["method"] for one in published if one["source"] == source)
        notes.append(f"{methods}: {source}.")
    return notes


def _by_source(dataset: str, frame: pl.DataFrame, title: str) -> ResultTable:
    means = series_means(frame).sort("source").pivot("source", index="arm", values=SHOWN, aggregate_function="mean")
    ordered = standings(frame).select("arm").join(means, on="arm", maintain_order="left")
    rows = tuple(ResultRow.of(arm, values) for arm, *values in ordered.iter_rows())
    columns = tuple(ResultColumn(source, digits=3) for source in means.columns[1:])
    return ResultTable(f"{title}: by source", columns, (Group(dataset, rows),), ("VUS-PR, mean over series.",))

"""Our figures on TSB-AD-M next to published ones: VUS-PR, as a mean over series and as a mean over sources."""

import json
from collections.abc import Iterator, Mapping, Sequence
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


def standings(series: pl.DataFrame) -> pl.DataFrame:
    """Return the figures of each arm on one dataset, best first, from `series_means`: means over series and sources.

    In the second (`macro`), each source counts once, however many series it has. `seconds` fit and score all of them.
    """
    by_source = series.group_by("arm", "source", maintain_order=True).agg(pl.col(SHOWN).mean())
    macro = by_source.group_by("arm").agg(macro=pl.col(SHOWN).mean(), sources=pl.len())
    means = series.group_by("arm", maintain_order=True).agg(
        pl.col(OTHERS).mean(), mean=pl.col(SHOWN).mean(), series=pl.len(), seconds=pl.col("seconds").sum()
    )
    return means.join(macro, on="arm", maintain_order="left").sort("mean", descending=True, maintain_order=True)


def leaderboard(frame: pl.DataFrame, title: str) -> Iterator[ResultTable | str]:
    """Yield, for each dataset, our arms among the published methods, our arms by source, and which of them is best."""
    for (name,), own in frame.group_by("dataset", maintain_order=True):
        dataset, series, published = str(name), series_means(own), published_methods(str(name))
        ours, wanted = standings(series), READERS[dataset].published.entities if dataset in READERS else 0
        most = ours.select(pl.col("series").max()).item()
        best = ours.filter(pl.col("series") == most).row(0, named=True)
        yield (
            f"{dataset}: {best['arm']} has the best mean VUS-PR of our arms: {best['mean']:.3f} over {most} series, "
            f"and {best['macro']:.3f} over {best['sources']} sources."
        )
        rows = [
            _row(one["arm"], one, "" if one["series"] == most else f"{one['series']} of {most} series")
            for one in ours.iter_rows(named=True)
        ]
        groups = []
        if most < wanted:
            if published:
                yield (
                    f"These are {most} of the {wanted} series of {dataset}, so the published figures, which are over "
                    "all of them, cannot be compared with ours yet."
                )
                theirs = tuple(_row(one["method"], one) for one in published)
                groups = [Group(f"published, all {wanted} series", theirs)]
        else:
            rows += [_row(one["method"], one, "published") for one in published]
            rows.sort(key=lambda row: -(row.cells[0].value or 0.0))
        columns = (
            ResultColumn("VUS-PR, mean over series", digits=3),
            ResultColumn("VUS-PR, mean over sources", digits=3),
            *(ResultColumn(METRICS[name].title, digits=3) for name in OTHERS),
            ResultColumn("fit and score (s)", digits=0),
        )
        yield ResultTable(title, columns, (Group(dataset, tuple(rows)), *groups), tuple(_notes(published)))
        yield _by_source(dataset, series, ours, title)


def _row(arm: str, one: Mapping[str, Any], note: str = "") -> ResultRow:
    return ResultRow.of(arm, (one.get(name) for name in ("mean", "macro", *OTHERS, "seconds")), note)


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


def _by_source(dataset: str, series: pl.DataFrame, ours: pl.DataFrame, title: str) -> ResultTable:
    means = series.sort("source").pivot("source", index="arm", values=SHOWN, aggregate_function="mean")
    ordered = ours.select("arm").join(means, on="arm", maintain_order="left")
    rows = tuple(ResultRow.of(arm, values) for arm, *values in ordered.iter_rows())
    columns = tuple(ResultColumn(source, digits=3) for source in means.columns[1:])
    return ResultTable(f"{title}: by source", columns, (Group(dataset, rows),), ("VUS-PR, mean over series.",))

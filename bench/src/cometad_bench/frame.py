"""The results as one frame, a trial per row, and the means and blocks that the sections of a report are made of."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from cometad.arrays import Floats
from cometad.errors import InputError
from cometad.metrics import METRICS
from cometad_bench.experiments import REFERENCES
from cometad_bench.results import Record, latest
from cometad_bench.statistics import mean_ranks

RANKED_BY = "auc_pr"  # needs no threshold, and reflects false alarms when anomalies are rare
UNTIED_VUS_PR = "untied.vus_pr"
PRECISION, RECALL, F1 = "at_threshold.precision", "at_threshold.recall", "at_threshold.f1"
FOUND, ANOMALIES = "at_threshold.anomalies_found", "at_threshold.anomalies"
FALSE_ALARMS = "at_threshold.false_alarms_per_day"
DEVIATION = " ±"  # ends the name of a column of deviations

TEXTS = (
    *("experiment", "setting", "dataset", "entity", "arm", "detector", "fingerprint", "device", "source"),
    *("versions.cometad", "setting.drift"),
)
HELD_OUT = "hyper_parameters.validation_share"
OTHERS = ("start_bytes", HELD_OUT)


def mean(name: str, *, strict: bool = False) -> pl.Expr:
    """The mean of the known values of a column in each group; if `strict`, NaN if any of them is unknown."""
    # Not the mean of polars: it differs in the last bit, and so in the last digit of figures in earlier reports.
    return _of_group(lambda values: float(np.mean(values)) if len(values) else None, name, strict=strict)


def deviation(name: str) -> pl.Expr:
    """The sample standard deviation (n - 1) of the known values of a column in each group; null for one."""
    return _of_group(lambda values: float(np.std(values, ddof=1)) if len(values) > 1 else None, name)


def _of_group(function: Callable[[Floats], float | None], name: str, *, strict: bool = False) -> pl.Expr:
    values = pl.col(name).fill_null(math.nan) if strict else pl.col(name).drop_nulls()
    return pl.map_groups([values], lambda found: function(found[0].to_numpy()), pl.Float64, returns_scalar=True)


# How the figures of several entities are joined. They are unknown if one of the trials lacks them.
JOINED: dict[str, pl.Expr] = {
    **{name: mean(name, strict=True) for name in (*METRICS, UNTIED_VUS_PR, RECALL, F1, FALSE_ALARMS)},
    PRECISION: mean(PRECISION),  # without alarms there is none: the mean is over the trials that raised one
    **{name: _of_group(math.fsum, name, strict=True) for name in (FOUND, ANOMALIES, "fit_seconds", "score_seconds")},
    **{name: _of_group(np.max, name, strict=True) for name in ("peak_bytes", "parameters")},
}


def frame_of(records: Iterable[Record]) -> pl.DataFrame:
    """Return the results that count as a frame: a trial per row, with null where it has no such field.

    A column is named after the path to its field in a result (`at_threshold.f1`), metrics by their own names.
    """
    rows = [dict(_fields(record)) | {"setting": str(record["setting"])} for record in latest(records)]
    figures = dict.fromkeys((*JOINED, *OTHERS, *(name for row in rows for name in row)), pl.Float64())
    texts = dict.fromkeys(TEXTS, pl.String())
    return pl.DataFrame(rows, schema={**figures, **texts, "seed": pl.Int64()})


def _fields(record: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the numbers in a result, and the texts that tables use, with their paths."""
    for name, value in record.items():
        path = above + name
        if isinstance(value, dict):
            yield from _fields(value, "" if path == "metrics" else f"{path}.")
        elif path in (*TEXTS, *OTHERS) or (not above.startswith("hyper_") and isinstance(value, int | float | None)):
            yield path, value


def detectors(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.filter(~pl.col("arm").is_in(REFERENCES))


def distinct(frame: pl.DataFrame, *names: str) -> list[Any]:
    """Return the values of a column, or the rows of several, in the order in which they first appear."""
    found = frame.select(names).unique(maintain_order=True)
    return found.rows() if len(names) > 1 else found.to_series().to_list()


# --- means ------------------------------------------------------------------------------------------------------------


def over_seeds(frame: pl.DataFrame, by: Sequence[str], joined: Mapping[str, pl.Expr]) -> pl.DataFrame:
    """Return mean and deviation over seeds of figures that are first `joined` over entities, for each group `by`.

    The deviation is that of a sample (n - 1), null for a single seed. Unknown figures are null.
    """
    by_seed = frame.group_by(*by, "seed", maintain_order=True).agg(**joined)
    found = by_seed.group_by(*by, maintain_order=True).agg(
        *(mean(name).alias(name) for name in joined),
        *(deviation(name).alias(name + DEVIATION) for name in joined),
        seeds=pl.len(),
    )
    return found.fill_nan(None)


def mean_over_seeds(frame: pl.DataFrame) -> pl.DataFrame:
    """Return mean and deviation of the figures of each dataset and arm, with its numbers of seeds and entities.

    The seed of an arm with the most entities determines which entities count; seeds that lack any of them are left out.
    """
    for name in ("experiment", "setting"):
        if len(seen := distinct(frame, name)) > 1:
            raise InputError(f"A table cannot mix {name}s, here {' and '.join(seen)}. Select one of them.")
    cell = ["dataset", "arm"]
    first = [pl.col("row").min().over(name) for name in cell]  # rows are in the order of the first appearance of names
    trials = frame.with_row_index("row").sort(first, maintain_order=True)
    counted = trials.group_by(cell, maintain_order=True).map_groups(_full)
    is_silent = pl.col(RECALL).is_not_null() & pl.col(PRECISION).is_null()
    counts = counted.group_by(cell).agg(entities=pl.col("entity").n_unique(), trials=pl.len(), silent=is_silent.sum())
    everything = frame.group_by("dataset").agg(
        all_seeds=pl.col("seed").n_unique(), all_entities=pl.col("entity").n_unique()
    )
    means = over_seeds(counted, cell, JOINED)
    return means.join(counts, on=cell, maintain_order="left").join(everything, on="dataset", maintain_order="left")


COVERS_ALL = pl.col("entities") == pl.col("all_entities")  # such means can be compared


def _full(trials: pl.DataFrame) -> pl.DataFrame:
    fullest = max(trials.group_by("seed", maintain_order=True).agg("entity")["entity"], key=len)
    return trials.filter(pl.col("entity").is_in(fullest.to_list())).filter(pl.len().over("seed") == len(fullest))


# --- blocks -----------------------------------------------------------------------------------------------------------


def blocks(frame: pl.DataFrame, figure: str, over: str = "dataset", *, references: bool = False) -> pl.DataFrame:
    """Return one figure of the detectors that cover every dataset (or every "entity"): a row each, a column per arm.

    The first columns name the dataset and, if asked for, the entity. The no-skill references are left out, unless
    `references`.
    """
    shown = frame if references else detectors(frame)
    if over == "entity":
        block = ["dataset", "entity"]
        values = frame.group_by(*block, "arm", maintain_order=True).agg(mean(figure, strict=True).alias(figure))
    else:
        block = ["dataset"]
        values = mean_over_seeds(frame).filter(COVERS_ALL)
    wide = values.pivot("arm", index=block, values=figure).fill_nan(None)
    found = shown.select(block).unique(maintain_order=True).join(wide, on=block, how="left", maintain_order="left")
    complete = [arm for arm in distinct(shown, "arm") if arm in wide.columns and not found[arm].null_count()]
    return found.select(*block, *complete)


def arms_of(found: pl.DataFrame) -> list[str]:
    return [name for name in found.columns if name not in ("dataset", "entity")]


def family_means(frame: pl.DataFrame, figure: str, *, references: bool = False) -> dict[str, dict[str, float]]:
    """Return the mean over the entities of each family (a dataset), by arm; arms that lack an entity are left out."""
    found = blocks(frame, figure, "entity", references=references)
    arms = arms_of(found)
    means = found.group_by("dataset", maintain_order=True).agg(mean(arm).alias(arm) for arm in arms)
    return {arm: dict(means.select("dataset", arm).iter_rows()) for arm in arms}


def twins(frame: pl.DataFrame, first: str = "") -> dict[str, str]:
    """Return the arms whose metrics equal those of another arm in every trial, each with that arm.

    The other one is the first of them in the frame, or `first`. The no-skill references have no twins.
    """
    columns = ["dataset", "entity", "seed", *METRICS]
    arms = detectors(frame).group_by("arm", maintain_order=True)
    trials = {str(arm): frozenset(own.select(columns).rows()) for (arm,), own in arms}
    with_them: dict[frozenset[Any], str] = {}
    order = sorted(trials, key=lambda name: name != first)
    return {arm: twin for arm in order if (twin := with_them.setdefault(trials[arm], arm)) != arm}


class ArmRanks(NamedTuple):
    """Arms ranked over the datasets or entities that they all cover; twins count as one arm."""

    blocks: pl.DataFrame  # without twins
    ranks: dict[str, float]  # the mean rank of each arm, 1 is best; empty with less than two arms or blocks
    twins: dict[str, str]


def ranked(frame: pl.DataFrame, metric: str, over: str, first: str = "") -> ArmRanks:
    same = twins(frame, first)
    found = blocks(frame, metric, over).drop(list(same), strict=False)
    arms = arms_of(found)
    if len(found) < 2 or len(arms) < 2:
        return ArmRanks(found, {}, same)
    return ArmRanks(found, dict(zip(arms, mean_ranks(found.select(arms).to_numpy()).tolist(), strict=True)), same)


def lacking(frame: pl.DataFrame, has: pl.Expr) -> str:
    """Return the arms that have trials without something, in words; empty if no trial lacks it."""
    counts = frame.group_by("arm", maintain_order=True).agg(trials=pl.len(), without=(~has).sum()).rows()
    if counts and all(trials == without for _, trials, without in counts):
        return "all arms"
    words = {
        arm: "" if all_ == without else f" ({without} of {all_} trials)" for arm, all_, without in counts if without
    }
    return ", ".join(arm + some for arm, some in words.items())

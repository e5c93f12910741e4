"""Summaries of many results: mean and deviation per dataset and arm, and which trials they lack.

With several entities: first the mean over the entities for each seed, then mean and deviation over the seeds.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cometad.errors import InputError, unknown
from cometad.metrics import METRICS
from cometad_bench.results import Record, latest

RANDOM, ALL_POSITIVE = "random", "all-positive"
REFERENCES = (RANDOM, ALL_POSITIVE)  # no-skill arms: they set the floor and are not ranked
RANKED_BY = "auc_pr"  # needs no threshold, and reflects false alarms when anomalies are rare

Trials = dict[int, dict[str, Record]]  # the results of one arm on one dataset, by seed and entity


class Spread(NamedTuple):
    """A mean over seeds and the sample standard deviation (n - 1), None for a single seed."""

    mean: float
    deviation: float | None


def spread(values: Sequence[float]) -> Spread:
    """Return the mean and the sample standard deviation of some values."""
    return Spread(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None)


@dataclass(frozen=True)
class Summary:
    """One arm on one dataset."""

    dataset: str
    arm: str
    values: Mapping[str, Spread]  # by the names in METRICS, THRESHOLD_VALUES and COSTS; unknown values are left out
    seeds: int
    all_seeds: int  # seeds that any arm has on this dataset
    entities: int
    all_entities: int
    trials: int = 0
    trials_without_alarm: int = 0  # these have no precision

    @property
    def covers_all_entities(self) -> bool:
        """Whether its means are comparable with those of the other arms."""
        return self.entities == self.all_entities

    @property
    def coverage(self) -> str:
        """The part of the trials that has results, in words; empty if all have."""
        parts = [] if self.covers_all_entities else [f"{self.entities} of {self.all_entities} entities"]
        if self.seeds < self.all_seeds and self.arm != ALL_POSITIVE:  # that arm is deterministic
            parts.append("one seed" if self.seeds == 1 else f"{self.seeds} of {self.all_seeds} seeds")
        return ", ".join(parts)


def summarize(records: Iterable[Record]) -> dict[tuple[str, str], Summary]:
    """Return the summary of each dataset and arm, in the order in which they first appear in the records.

    The seed of an arm with the most entities determines which entities count; seeds that lack any of them are left out.
    """
    cells = _cells(_checked(records))
    summaries = {}
    for dataset in dict.fromkeys(dataset for dataset, _ in cells):
        here = {arm: trials for (where, arm), trials in cells.items() if where == dataset}
        seeds = {seed for trials in here.values() for seed in trials}
        entities = {entity for trials in here.values() for seed in trials.values() for entity in seed}
        for arm, trials in here.items():
            summaries[dataset, arm] = _summary(dataset, arm, _full(trials), len(seeds), len(entities))
    return summaries


class Blocks(NamedTuple):
    """The values (block, arm) to rank; a block is a dataset or one of its entities."""

    blocks: list[tuple[str, ...]]  # (dataset,) or (dataset, entity)
    arms: list[str]
    values: NDArray[np.float64]


def blocks(records: Iterable[Record], metric: str, over: str = "dataset", *, references: bool = False) -> Blocks:
    """Return one metric of the detectors that cover every dataset (or every entity), ready for `mean_ranks`.

    The no-skill references are left out, unless `references`.
    """
    if metric not in RANKABLE:
        raise unknown("metric", metric, RANKABLE)
    if over not in ("dataset", "entity"):
        raise unknown("kind of block", over, ("dataset", "entity"))
    counted = _checked(records)
    detectors = [record for record in counted if references or record["arm"] not in REFERENCES]
    parts = ("dataset", "entity") if over == "entity" else ("dataset",)
    names = list(dict.fromkeys(tuple(str(record[part]) for part in parts) for record in detectors))
    means = _entity_means(counted, metric) if over == "entity" else _dataset_means(counted, metric)
    arms = [
        arm
        for arm in dict.fromkeys(record["arm"] for record in detectors)
        if all((name, arm) in means for name in names)
    ]
    values = np.array([[means[name, arm] for arm in arms] for name in names]).reshape(len(names), len(arms))
    return Blocks(names, arms, values)


def twins(records: Iterable[Record], first: str = "") -> dict[str, str]:
    """Return the arms whose metrics equal those of another arm in every trial, each with that arm.

    The other one is the first of them in the records, or `first`. The no-skill references have no twins.
    """
    trials: dict[str, dict[tuple[object, ...], object]] = {}
    for record in latest(records):
        if record["arm"] not in REFERENCES:
            where = record["dataset"], record["entity"], record["seed"]
            trials.setdefault(record["arm"], {})[where] = record.get("metrics")
    found: dict[str, str] = {}
    distinct: list[str] = []
    for arm in sorted(trials, key=lambda name: name != first):
        twin = next((other for other in distinct if trials[other] == trials[arm]), None)
        if twin is None:
            distinct.append(arm)
        else:
            found[arm] = twin
    return found


def without_twins(found: Blocks, same: Mapping[str, str]) -> Blocks:
    """Return the blocks without the arms that `twins` found: those count as one arm with their twin."""
    kept = [place for place, arm in enumerate(found.arms) if arm not in same]
    return Blocks(found.blocks, [found.arms[place] for place in kept], found.values[:, kept])


def several_versions(records: Iterable[Record]) -> list[str]:
    """Return the datasets on which arms ran on different series, according to their fingerprints."""
    versions: dict[tuple[str, str], set[object]] = {}
    for record in latest(records):
        versions.setdefault((record["dataset"], record["entity"]), set()).add(record.get("fingerprint"))
    return list(dict.fromkeys(dataset for (dataset, _), seen in versions.items() if len(seen) > 1))


class Quantity(NamedTuple):
    """How to read a figure from a result (nan if it has none), and how to combine those of several entities."""

    read: Callable[[Record], float]
    join: Callable[[Sequence[float]], float]


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _largest(values: Sequence[float]) -> float:
    return float(np.max(values))  # not max(), which may ignore nan


def _mean_of_known(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return _mean(known) if known else math.nan


def _from(*path: str) -> Callable[[Record], float]:
    """Return a function that follows these names into a record."""

    def read(record: Record) -> float:
        value: object = record
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return float(value) if isinstance(value, int | float) else math.nan

    return read


THRESHOLD_VALUES = {
    # Without alarms there is no precision: the mean is over the trials that raised one.
    "precision": Quantity(_from("at_threshold", "precision"), _mean_of_known),
    "recall": Quantity(_from("at_threshold", "recall"), _mean),
    "f1": Quantity(_from("at_threshold", "f1"), _mean),
    "anomalies_found": Quantity(_from("at_threshold", "anomalies_found"), math.fsum),
    "anomalies": Quantity(_from("at_threshold", "anomalies"), math.fsum),
    "false_alarms_per_day": Quantity(_from("at_threshold", "false_alarms_per_day"), _mean),
}
COSTS = {
    "fit_seconds": Quantity(_from("fit_seconds"), math.fsum),
    "score_seconds": Quantity(_from("score_seconds"), math.fsum),
    "peak_bytes": Quantity(_from("peak_bytes"), _largest),
    "parameters": Quantity(_from("parameters"), _largest),
}
UNTIED_VUS_PR = "untied_vus_pr"
RANKABLE = {name: Quantity(_from("metrics", name), _mean) for name in METRICS} | {
    UNTIED_VUS_PR: Quantity(_from("untied", "vus_pr"), _mean)
}
QUANTITIES = RANKABLE | THRESHOLD_VALUES | COSTS


def _checked(records: Iterable[Record]) -> list[Record]:
    """Return the results that count; they must be of one experiment and one setting."""
    counted = latest(records)
    if not counted:
        raise InputError("There are no results to show; run some trials first.")
    for name, what in (("experiment", "experiments"), ("setting", "settings")):
        seen = list(dict.fromkeys(str(record[name]) for record in counted))
        if len(seen) > 1:
            raise InputError(f"A table cannot mix {what}, here {' and '.join(seen)}. Select one of them.")
    return counted


def _cells(records: Iterable[Record]) -> dict[tuple[str, str], Trials]:
    """Return the trials of each dataset and arm."""
    records = list(records)
    arms = dict.fromkeys(record["arm"] for record in records)
    datasets = dict.fromkeys(record["dataset"] for record in records)
    cells: dict[tuple[str, str], Trials] = {(dataset, arm): {} for dataset in datasets for arm in arms}
    for record in records:
        cells[record["dataset"], record["arm"]].setdefault(record["seed"], {})[record["entity"]] = record
    return {where: trials for where, trials in cells.items() if trials}


def _full(trials: Trials) -> Trials:
    """Return the seeds that have all entities of the most complete seed, restricted to those entities."""
    fullest = max(trials.values(), key=len)
    entities = sorted(fullest)
    return {
        seed: {entity: here[entity] for entity in entities}
        for seed, here in trials.items()
        if all(entity in here for entity in entities)
    }


def _summary(dataset: str, arm: str, trials: Trials, all_seeds: int, all_entities: int) -> Summary:
    by_seed = [list(entities.values()) for entities in trials.values()]
    spreads = {name: _spread(by_seed, quantity) for name, quantity in QUANTITIES.items()}
    flat = [record for records in by_seed for record in records]
    return Summary(
        dataset,
        arm,
        {name: spread for name, spread in spreads.items() if not math.isnan(spread.mean)},
        seeds=len(by_seed),
        all_seeds=all_seeds,
        entities=len(by_seed[0]),
        all_entities=all_entities,
        trials=len(flat),
        trials_without_alarm=sum(_is_silent(record) for record in flat),
    )


def _spread(by_seed: Sequence[Sequence[Record]], quantity: Quantity) -> Spread:
    values = [quantity.join([quantity.read(record) for record in records]) for records in by_seed]
    if quantity.join is _mean_of_known:
        values = [value for value in values if not math.isnan(value)] or [math.nan]
    return spread(values)


def _is_silent(record: Record) -> bool:
    figures = record.get("at_threshold")
    return figures is not None and figures["precision"] is None


def _dataset_means(records: Sequence[Record], metric: str) -> dict[tuple[tuple[str, ...], str], float]:
    return {
        ((dataset,), arm): summary.values[metric].mean
        for (dataset, arm), summary in summarize(records).items()
        if metric in summary.values and summary.covers_all_entities
    }


def _entity_means(records: Sequence[Record], metric: str) -> dict[tuple[tuple[str, ...], str], float]:
    """Return the mean over seeds for each entity and arm."""
    values: dict[tuple[tuple[str, ...], str], list[float]] = {}
    for record in records:
        where = ((record["dataset"], record["entity"]), record["arm"])
        values.setdefault(where, []).append(QUANTITIES[metric].read(record))
    return {where: _mean(seeds) for where, seeds in values.items() if not math.isnan(_mean(seeds))}

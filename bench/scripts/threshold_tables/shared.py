"""Entities of the benchmark, and which of their readings count as normal."""

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import TypeVar

import numpy as np

from cometad.datasets.dataset import Dataset
from cometad.views.trim import stretches
from cometad_bench.datasets.characters import CHARACTERS, plant_of
from cometad_bench.datasets.readers import load
from cometad_bench.plants import SEEDS, VARIABLES, plant_family
from cometad_bench.split import part_of

DATASETS = ("SMD", "ASD", "MSL", "SMAP", "SKAB")
FAMILIES = (*DATASETS, "plants", *CHARACTERS)
MARGIN = 32  # readings on either side of an anomaly that count neither as normal nor as anomalous

Result = TypeVar("Result")


def far_from(labels: np.ndarray) -> np.ndarray:
    """Which readings (time,) are more than MARGIN away from any anomaly."""
    return ~np.convolve(labels, np.ones(2 * MARGIN + 1), "same").astype(bool)


def anomalies(entity: Dataset) -> list[tuple[int, int]]:
    return [(start, stop) for start, stop in stretches(np.asarray(entity.labels, bool))]


def touched(flags: np.ndarray, entity: Dataset) -> float:
    """The share of anomalies with at least one flag."""
    return float(np.mean([flags[start:stop].any() for start, stop in anomalies(entity)]))


def family_of(name: str, data_dir: str | None) -> list[Dataset]:
    if name == "plants":
        return plant_family()
    if name not in CHARACTERS:
        return load(name, data_dir)
    plants = {seed: plant_of(name, variables=VARIABLES, seed=seed).as_dataset() for seed in SEEDS}
    return [replace(plant, name=name, entity=f"seed-{seed}") for seed, plant in plants.items()]


def chosen(families: tuple[str, ...], part: str | None, data_dir: str | None) -> list[Dataset]:
    """The entities of these families that belong to a part, or to any; large ones first, for the workers' sake."""
    entities = [one for name in families for one in family_of(name, data_dir)]
    parts = [part_of(one.name, one.entity) for one in entities]
    kept = [one for one, own in zip(entities, parts, strict=True) if own is not None and part in (None, own)]
    return sorted(kept, key=lambda one: -one.train.size)


def each(function: Callable[[Dataset], list[Result]], entities: list[Dataset], workers: int) -> Iterator[Result]:
    """The results of all entities, one after the other."""
    if workers == 1:
        yield from (result for entity in entities for result in function(entity))
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from (result for results in pool.map(function, entities) for result in results)


def head(*columns: str) -> None:
    print(f"| {' | '.join(columns)} |")
    print("|---" * len(columns) + "|", flush=True)


def row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)

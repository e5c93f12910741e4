"""Synthetic plants as families of benchmark entities: one per seed, with every kind of fault."""

from dataclasses import replace

from cometad.datasets.dataset import Dataset
from cometad.datasets.synthetic import Plant, synthetic_plant
from cometad_bench.datasets.characters import plant_of

PLANTS = "plants"
SEEDS = range(10)
VARIABLES = 12
ROWS = 5000  # of each part
FAULTS_PER_KIND = 2


def plant_family() -> list[Dataset]:
    """Return ten plants of 12 variables, each with two faults of every kind in its test part."""
    return [
        _entity(
            synthetic_plant(
                train_rows=ROWS, test_rows=ROWS, variables=VARIABLES, faults_per_kind=FAULTS_PER_KIND, seed=seed
            ),
            PLANTS,
            seed,
        )
        for seed in SEEDS
    ]


def character_family(character: str) -> list[Dataset]:
    """Return ten plants of one character, each with two faults of every kind in its test part."""
    return [_entity(plant_of(character, variables=VARIABLES, seed=seed), character, seed) for seed in SEEDS]


def _entity(plant: Plant, family: str, seed: int) -> Dataset:
    return replace(plant.as_dataset(), name=family, entity=f"seed-{seed}")

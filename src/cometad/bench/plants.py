"""Synthetic plants as a family of benchmark entities: one per seed, with every kind of fault."""

from dataclasses import replace

from cometad.datasets.dataset import Dataset
from cometad.datasets.synthetic import synthetic_plant

PLANTS = "plants"
SEEDS = range(10)
VARIABLES = 12
ROWS = 5000  # of each part
FAULTS_PER_KIND = 2


def plant_family() -> list[Dataset]:
    """Return ten plants of 12 variables, each with two faults of every kind in its test part.

    >>> from cometad.bench.plants import plant_family
    >>> [plant.entity for plant in plant_family()][:2]
    ['seed-0', 'seed-1']
    """
    plants = {
        f"seed-{seed}": synthetic_plant(
            train_rows=ROWS, test_rows=ROWS, variables=VARIABLES, faults_per_kind=FAULTS_PER_KIND, seed=seed
        )
        for seed in SEEDS
    }
    return [replace(plant.as_dataset(), name=PLANTS, entity=entity) for entity, plant in plants.items()]

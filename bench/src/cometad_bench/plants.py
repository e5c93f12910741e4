"""Synthetic plants as a family of benchmark entities: one per seed, with every kind of fault."""

from dataclasses import replace

from cometad.datasets.dataset import Dataset
from cometad.datasets.synthetic import synthetic_plant

PLANTS = "plants"
SEEDS = range(10)
VARIABLES = 12
ROWS = 5000  # of each part


def plant_family() -> list[Dataset]:
    rows = {"train_rows": ROWS, "test_rows": ROWS, "variables": VARIABLES, "faults_per_kind": 2}
    plants = {seed: synthetic_plant(**rows, seed=seed).as_dataset() for seed in SEEDS}
    return [replace(plant, name=PLANTS, entity=f"seed-{seed}") for seed, plant in plants.items()]

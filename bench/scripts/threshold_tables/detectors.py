"""Promised and measured rates of `Comet()` on unseen normal readings of development entities."""

from collections.abc import Iterator

import numpy as np

from cometad import Budget, Comet
from cometad.alerting.spot import DriftingSpot, Spot
from cometad.alerting.thresholds import Conformal, Quantile
from cometad.datasets.synthetic import synthetic_plant
from cometad_bench.datasets.readers import load
from threshold_tables.shared import far_from, head, row

RULES = (Budget(0.01), Quantile(0.01), Conformal(0.01), Spot(1e-3), DriftingSpot(1e-3))


def on_detectors(data_dir: str | None) -> None:
    names = (f"{type(rule).__name__} {rule.rate:g}" for rule in RULES)
    head("series", "training readings", "new normal readings", *names)
    for name, train, test, normal in normal_series(data_dir):
        detector = Comet().fit(train)
        rates = [detector.with_threshold(rule).predict(test)[normal].mean() for rule in RULES]
        row(name, f"{len(train):,}", f"{normal.sum():,}", *(f"{rate:.2g}" for rate in rates))


def normal_series(data_dir: str | None) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """Name, training part, test part, and which test readings are certainly normal."""
    noise = np.random.default_rng(0).normal(size=(30_000, 3))
    yield "independent noise", noise[:10_000], noise[10_000:], np.ones(20_000, bool)
    for seed in (101, 102):
        plant = synthetic_plant(seed=seed, drift=0.0)
        yield f"synthetic plant {seed}, no drift", plant.train, plant.test, far_from(plant.labels)
    for dataset, entities in {"ASD": ("omi-1", "omi-4"), "SMD": ("machine-1-2",), "MSL": ("C-1", "F-8")}.items():
        for one in load(dataset, data_dir):
            if one.entity in entities:
                yield f"{dataset} {one.entity}", one.train, one.test, far_from(one.labels)

"""What `Comet()` flags once one variable of a plant without faults vanishes for good."""

import numpy as np

from cometad import Comet
from cometad.alerting.thresholds import Quantile
from cometad.data.gaps import ScoreMeasured
from cometad.datasets.synthetic import synthetic_plant
from threshold_tables.shared import head, row

ROWS, VANISHES = 6_000, 1_000  # readings of each part, and the time step from which a variable is missing
SEEDS = (101, 102)


def when_a_variable_vanishes() -> None:
    head("variables", "flagged if all are there", "mean over the one that vanishes", "worst")
    for variables in (8, 12, 24):
        usual, lacking = [], []
        for seed in SEEDS:
            sizes = {"train_rows": ROWS, "test_rows": ROWS, "variables": variables}
            plant = synthetic_plant(**sizes, faults_per_kind=0, drift=0.0, seed=seed)
            # A fixed threshold: a budget would hide the difference.
            detector = Comet(gaps=ScoreMeasured(), threshold=Quantile(0.01)).fit(plant.train)
            usual.append(flagged(detector, plant.test))
            lacking += [flagged(detector, without(plant.test, i)) for i in range(variables)]
        row(variables, *(f"{100 * share:.1f} %" for share in (np.mean(usual), np.mean(lacking), max(lacking))))


def flagged(detector: Comet, readings: np.ndarray) -> float:
    return float(detector.predict(readings)[VANISHES:].mean())


def without(readings: np.ndarray, variable: int) -> np.ndarray:
    lacking = readings.copy()
    lacking[VANISHES:, variable] = np.nan
    return lacking

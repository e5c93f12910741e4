"""Severities of the faults of plants whose history is clean, or a tenth of it faulty."""

import numpy as np

from alert_tables.plants import scored
from cometad import Comet
from cometad.alerting.severity import ScoreTail, severity
from cometad.compute import thread_count_of
from cometad.datasets.synthetic import Plant
from cometad_bench.datasets.characters import CHARACTERS, plant_of
from threshold_tables.shared import each, head, row

SEEDS, ROWS = range(3), 28_800


def severities(work: tuple[str, int]) -> list[tuple[str, float, float, float]]:
    """The median severity of the same new faults after a clean and after a dirty history, and how dirty that is."""
    character, seed = work
    plant = plant_of(character, rows=ROWS, faults_per_kind=4, seed=seed)
    half = ROWS // 2
    labels, new = plant.labels[:half], [fault for fault in plant.faults if fault.start >= half]
    keep = int(0.1 / max(labels.mean(), 0.1) * half)  # faults in a tenth of the history, the rest is clean
    dirty = np.concatenate([plant.train[half + keep :], plant.test[:keep]])
    today = Plant(plant.train[half:], plant.test[half:], plant.labels[half:], plant.names, ())
    found = []
    for history in (plant.train[half:], dirty):
        with thread_count_of(1):
            scores = scored(today, Comet().fit(history), character)
        tail = ScoreTail.fit(scores.training)
        peaks = [scores.test[fault.start - half : fault.stop - half].max() for fault in new]
        found.append(float(np.median(severity(peaks, tail))))
    return [(character, *found, float(plant.labels[:keep].sum() / len(dirty)))]


def dirty(asked) -> None:
    results = list(each(severities, [(character, seed) for character in CHARACTERS for seed in SEEDS], asked.workers))
    head("plant", "history faulty", "median severity of new faults, clean history", "dirty history")
    for character in (*CHARACTERS, "mean"):
        own = np.mean([one[1:] for one in results if character in (one[0], "mean")], axis=0)
        row(character, f"{own[2]:.0%}", f"{own[0]:.2f}", f"{own[1]:.2f}")

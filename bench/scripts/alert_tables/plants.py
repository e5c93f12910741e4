"""The default on plants of five characters: alerts without faults, faults found, and how long that takes."""

from typing import NamedTuple

import numpy as np

from alert_tables.curve import COMET, detectors
from alert_tables.judged import DEFAULT, Raised, Scores, judged
from cometad import Comet
from cometad.compute import thread_count_of
from cometad.datasets.dataset import Dataset
from cometad.datasets.synthetic import Fault, Plant
from cometad_bench.datasets.characters import CHARACTER_FAULTS, CHARACTERS, plant_of
from threshold_tables.shared import DATASETS, chosen, each, head, row

SEEDS, ROWS, FAULTS_PER_KIND = range(5), 14_400, 2
PERIODS = {"unknown": np.nan, "1 s": 1.0}
STRONG = 0.5  # severity


class Outcome(NamedTuple):
    """The default on one plant."""

    character: str
    period: str
    clean: Raised
    faulty: Raised
    faults: tuple[Fault, ...]


def scored(plant: Plant, detector: Comet, name: str) -> Scores:
    entity = Dataset(name, "plant", plant.train, plant.test, np.asarray(plant.labels, bool), plant.names)
    with thread_count_of(1):
        return Scores.of(detector, entity)


def outcomes(work: tuple[str, int]) -> list[Outcome]:
    character, seed = work
    clean, faulty = (plant_of(character, rows=ROWS, faults_per_kind=count, seed=seed) for count in (0, FAULTS_PER_KIND))
    with thread_count_of(1):
        detector = Comet().fit(clean.train)
    scores = [scored(plant, detector, character) for plant in (clean, faulty)]
    return [
        Outcome(character, name, *(judged(one, DEFAULT, period) for one in scores), faulty.faults)
        for name, period in PERIODS.items()
    ]


def all_outcomes(workers: int) -> list[Outcome]:
    return list(each(outcomes, [(character, seed) for character in CHARACTERS for seed in SEEDS], workers))


def delays_of(raised: Raised, faults) -> list[tuple[str, float]]:
    """The kind of each fault, and the readings from its start to the first alert in it; NaN if there is none."""
    steps = np.sort(raised.steps)
    inside = [steps[(steps >= fault.start) & (steps < fault.stop)] for fault in faults]
    return [
        (fault.kind, float(own[0] - fault.start) if len(own) else np.nan)
        for fault, own in zip(faults, inside, strict=True)
    ]


def plants(asked) -> None:
    """Alerts on clean plants, and faults found."""
    found = all_outcomes(asked.workers)
    total = len(CHARACTER_FAULTS) * FAULTS_PER_KIND
    head("plant", "readings every", "alerts without faults", "most", f"above {STRONG:g}", f"faults found of {total}")
    for period in PERIODS:
        for character in (*CHARACTERS, "mean"):
            own = [one for one in found if one.period == period and character in (one.character, "mean")]
            alerts = [len(one.clean.steps) for one in own]
            strong = [sum(event.severity > STRONG for event in one.clean.events) for one in own]
            caught = [sum(not np.isnan(delay) for _, delay in delays_of(one.faulty, one.faults)) for one in own]
            row(
                character,
                period,
                f"{np.mean(alerts):.1f}",
                max(alerts),
                f"{np.mean(strong):.1f}",
                f"{np.mean(caught):.1f}",
            )


def delay(asked) -> None:
    """Readings from the start of an anomaly to its alert."""
    pairs = [
        pair
        for one in all_outcomes(asked.workers)
        if one.period == "unknown"
        for pair in delays_of(one.faulty, one.faults)
    ]
    results = list(each(_real_delays, chosen(DATASETS, asked.part, asked.data_dir), asked.workers))
    head("anomaly", "found", "median delay", "90 % quantile")
    for name, own in [(f"plants: {kind}", [d for k, d in pairs if k == kind]) for kind in CHARACTER_FAULTS] + [
        (name, [d for k, d in results if k == name]) for name in DATASETS
    ]:
        known = np.array([value for value in own if not np.isnan(value)])
        quantiles = (f"{value:.0f}" for value in np.quantile(known, (0.5, 0.9))) if len(known) else ("", "")
        row(name, f"{len(known)} of {len(own)}", *quantiles)


def _real_delays(entity: Dataset) -> list[tuple[str, float]]:
    with thread_count_of(1):
        scores = Scores.of(detectors(0)[COMET].fit(entity.train), entity)
    faults = [Fault(entity.name, start, stop, ()) for start, stop in scores.anomalies]
    return delays_of(judged(scores, DEFAULT), faults)

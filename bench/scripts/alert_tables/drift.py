"""Alerts against the budget where readings drift, jump, stay constant or are missing."""

from collections.abc import Callable

import numpy as np

from alert_tables.judged import DEFAULT, Scores, judged
from cometad import Comet
from cometad.compute import thread_count_of
from cometad.data.gaps import ScoreMeasured
from cometad_bench.datasets.characters import CHARACTERS, plant_of
from threshold_tables.shared import each, head, row

SEEDS, ROWS, MOST = range(5), 14_400, 1.2


def drifting(test: np.ndarray, scale: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A third of the variables drift by up to four deviations."""
    course = np.linspace(0, 4, len(test))[:, None] * (rng.random(test.shape[1]) < 1 / 3)
    return test + course * scale


def jumping(test: np.ndarray, scale: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Every 2,000 readings a variable jumps by two to six deviations, for good."""
    moved = test.copy()
    for start in range(1_000, len(test), 2_000):
        i = rng.integers(test.shape[1])
        moved[start:, i] += rng.choice([-1, 1]) * rng.uniform(2, 6) * scale[i]
    return moved


def constant(test: np.ndarray, scale: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """All variables keep their values for 500 of every 2,000 readings."""
    held = test.copy()
    for start in range(1_000, len(test), 2_000):
        held[start : start + 500] = held[start]
    return held


def missing(test: np.ndarray, scale: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A tenth of the cells is missing, and 200 of every 2,000 readings as a whole."""
    holes = np.where(rng.random(test.shape) < 0.1, np.nan, test)
    for start in range(1_000, len(test), 2_000):
        holes[start : start + 200] = np.nan
    return holes


KINDS: dict[str, Callable[[np.ndarray, np.ndarray, np.random.Generator], np.ndarray]] = {
    "drift": drifting,
    "jumps": jumping,
    "constant stretches": constant,
    "missing data": missing,
}


def ratios(work: tuple[str, int]) -> list[tuple[str, float]]:
    character, seed = work
    plant = plant_of(character, rows=ROWS, faults_per_kind=0, seed=seed)
    found = []
    with thread_count_of(1):
        detector = Comet(gaps=ScoreMeasured()).fit(plant.train)
        for name, change in KINDS.items():
            scored = detector.step_scores(change(plant.test, plant.train.std(axis=0), np.random.default_rng(seed)))
            scores = Scores(
                character, str(seed), detector.alert_scores_[~detector.imputed_], scored.alerts, [], np.ones(ROWS, bool)
            )
            raised = judged(scores, DEFAULT, gaps=scored.imputed)
            found.append((name, len(raised.steps) / (ROWS * DEFAULT.share())))
    return found


def drift(asked) -> None:
    found = list(each(ratios, [(character, seed) for character in CHARACTERS for seed in SEEDS], asked.workers))
    head("readings", "plants", f"within {MOST:g} times the budget", "mean", "most")
    for name in KINDS:
        own = np.array([ratio for kind, ratio in found if kind == name])
        row(name, len(own), f"{np.mean(own <= MOST):.0%}", f"{own.mean():.2f}", f"{own.max():.2f}")

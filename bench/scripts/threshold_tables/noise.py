"""What the thresholds of `Comet()` flag of independent noise, where every flag is false."""

from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np

from cometad import Comet
from cometad.compute import thread_count_of
from threshold_tables.promises import FIRST
from threshold_tables.promises import RULES as NAMED
from threshold_tables.shared import head, row

TRAINING = 10_000
VARIABLES = 3
RULES = tuple(NAMED.values())


class Task(NamedTuple):
    """One series of noise."""

    seed: int
    readings: int


def flagged(task: Task) -> list[tuple[float, float]]:
    """For each rule, the flagged share of the first readings and of all, as multiples of the promise."""
    noise = np.random.default_rng(task.seed).normal(size=(TRAINING + task.readings, VARIABLES))
    with thread_count_of(1):
        detector = Comet().fit(noise[:TRAINING])
        scores = detector.step_scores(noise[TRAINING:]).alerts
    flags = [detector.with_threshold(rule).judge().push(scores).flags for rule in RULES]
    return [(own[:FIRST].mean() / rule.rate, own.mean() / rule.rate) for own, rule in zip(flags, RULES, strict=True)]


def on_noise(draws: int, readings: int, workers: int) -> None:
    with ProcessPoolExecutor(workers) as pool:
        shares = np.array(list(pool.map(flagged, [Task(seed, readings) for seed in range(draws)])))
    head("rule", "promised", f"first {FIRST:,} readings", f"{readings:,} readings", "lowest and highest draw")
    names = list(NAMED)
    for k, rule in enumerate(RULES):
        first, every = shares[:, k].mean(axis=0)
        spread = f"{shares[:, k, 1].min():.2f} to {shares[:, k, 1].max():.2f} times"
        row(names[k], f"{rule.rate:g}", f"{first:.2f} times", f"{every:.2f} times", spread)

"""What faults in the training series cost, with and without trimming.

    python bench/scripts/dirty.py [--share 0.02] [--seeds 1 2] [--part select] [--workers 2] [--data-dir DIR]

Anomalies of each entity's own test part are pasted into its training part, which is the worst case: the same faults.
Prints mean AUC-PR by dataset, in percent, for clean and for dirty training data, and what trimming found.
"""

import argparse
import os

os.environ.setdefault("COMETAD_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np

from cometad import Comet
from cometad.datasets.dataset import Dataset
from cometad.metrics import evaluate
from cometad.views.trim import stretches, unusable
from cometad_bench.datasets.readers import load
from cometad_bench.split import part_of

DATASETS = ("SMD", "ASD", "MSL", "SMAP")


class Case(NamedTuple):
    """One entity with one way of dirtying it."""

    dataset: Dataset
    seed: int | None  # None: clean
    share: float


class Outcome(NamedTuple):
    """AUC-PR without and with trimming, and what trimming left out."""

    name: str
    dirty: bool
    plain: float
    trimmed: float
    left_out: float  # share of the training readings
    found: float  # share of the pasted ones


def pasted(dataset: Dataset, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The training part with anomalies of the test part in it, and where they are (time,)."""
    rng, train = np.random.default_rng(seed), dataset.train.copy()
    anomalies, dirty, missing = stretches(dataset.labels), np.zeros(len(train), bool), int(share * len(train))
    while missing > 0:
        start, stop = anomalies[rng.integers(len(anomalies))]
        length = min(stop - start, missing)
        begin, at = start + rng.integers(stop - start - length + 1), rng.integers(len(train) - length + 1)
        train[at : at + length] = dataset.test[begin : begin + length]
        dirty[at : at + length] = True
        missing -= length
    return train, dirty


def measure(case: Case) -> Outcome:
    dataset = case.dataset
    train, dirty = dataset.train, np.zeros(len(dataset.train), bool)
    if case.seed is not None:
        train, dirty = pasted(dataset, case.share, case.seed)
    figures, marked = [], dirty
    for trim in (False, True):
        detector = Comet(trim=trim, seed=0).fit(train)
        figures.append(evaluate(dataset.labels, detector.decision_function(dataset.test))["auc_pr"])
        marked = unusable(detector.trimmed_, len(train))
    found = float(marked[dirty].mean()) if dirty.any() else 0.0
    return Outcome(dataset.name, case.seed is not None, *figures, float(marked.mean()), found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=0.02)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--part", choices=("select", "validate"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--data-dir")
    given = parser.parse_args()
    entities = [entity for name in DATASETS for entity in load(name, given.data_dir)]
    chosen = [
        entity
        for entity in entities
        if (part := part_of(entity.name, entity.entity)) is not None and given.part in (None, part)
    ]
    cases = [Case(entity, seed, given.share) for entity in chosen for seed in (None, *given.seeds)]
    cases.sort(key=lambda case: -case.dataset.train.size)
    with ProcessPoolExecutor(given.workers) as pool:
        outcomes = list(pool.map(measure, cases))
    for dirty in (False, True):
        print(f"{100 * given.share:g} % of the test's anomalies in training" if dirty else "clean training data")
        means = []
        for name in DATASETS:
            own = [outcome for outcome in outcomes if outcome.name == name and outcome.dirty == dirty]
            plain, trimmed, left_out, found = np.mean([outcome[2:] for outcome in own], axis=0)
            means.append((plain, trimmed))
            faults = f", {100 * found:.0f} % of the faults" if dirty else ""
            print(
                f"  {name}: {100 * plain:.1f} without trimming, {100 * trimmed:.1f} with; "
                f"left out {100 * left_out:.1f} % of the readings{faults}"
            )
        plain, trimmed = np.mean(means, axis=0)
        print(f"  mean: {100 * plain:.2f} without trimming, {100 * trimmed:.2f} with")


if __name__ == "__main__":
    main()

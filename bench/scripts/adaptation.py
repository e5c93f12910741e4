"""What adaptation gains and costs: false alarms and faults found at a fixed threshold, as fitted and following levels.

    python bench/scripts/adaptation.py [--data-dir DIR] [--quick]

One fitted `Comet()` scores each stream twice, with `KeepFitted()` and with `FollowLevel()`, at the same threshold: the
99 % quantile of its training scores. Three kinds of streams:

* plants: 40,000 readings of the synthetic plant, with faults and with slow drift of offsets and gains;
* controlled: normal readings of a benchmark entity with a controlled drift and planted faults;
* test: the test parts of the benchmark entities, with whatever drifts there.

A fault counts as found if it is flagged at a time step where the same stream without the fault is not: otherwise every
false alarm would "find" the fault it happens to fall on. The test parts have no such twin, so there every anomaly with
a flag counts. False alarms are flags on normal readings, excluding those less than 64 readings after a fault, which
share a window with it. Only entities and plants that serve to choose a configuration are used (bench/split.py).
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import NamedTuple

import numpy as np

from cometad import Comet
from cometad.alerting import Quantile
from cometad.datasets.dataset import Dataset
from cometad.datasets.synthetic import synthetic_plant
from cometad.views.adaptation import FollowLevel, KeepFitted
from cometad_bench.datasets import drift as faults_of
from cometad_bench.datasets.drift import controlled_series, split_normal
from cometad_bench.datasets.readers import load
from cometad_bench.plants import PLANTS, SEEDS, VARIABLES
from cometad_bench.split import part_of

AFTER = 64  # readings: the longest window of a view
ENTITIES = 4  # of each dataset with controlled drift
CONTROLLED = ("none", "offset", "gain", "regime")
ADAPTATIONS = (KeepFitted(), FollowLevel())


def unfitted() -> Comet:
    return Comet(threshold=Quantile(rate=0.01))


class Case(NamedTuple):
    """A stream, and a detector that was fitted on what came before it."""

    group: str
    detector: Comet
    values: np.ndarray
    labels: np.ndarray
    twin: np.ndarray | None  # the same readings without the faults


class Outcome(NamedTuple):
    """The figures of one stream."""

    false_alarms: float  # share of normal readings
    touched: int  # faults with a flag
    found: int  # faults with a flag that the twin does not have
    faults: int
    steps: int
    rolled_back: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--quick", action="store_true", help="plants only")
    arguments = parser.parse_args()
    print("| streams | | false alarms, fitted | following | found, fitted | following | touched, fitted | following |")
    print("|---|---|---|---|---|---|---|---|")
    cases = plants() if arguments.quick else all_cases(arguments.data_dir)
    for group, members in groupby(cases, lambda case: case.group):
        outcomes = [[outcome(case, adaptation) for adaptation in ADAPTATIONS] for case in members]
        print(row(group, outcomes), flush=True)


def row(group: str, outcomes: list[list[Outcome]]) -> str:
    fitted, following = ([pair[k] for pair in outcomes] for k in range(2))
    faults = sum(one.faults for one in fitted)
    cells = [f"{100 * np.mean([one.false_alarms for one in arm]):.2f} %" for arm in (fitted, following)]
    cells += [f"{sum(one.found for one in arm)} of {faults}" for arm in (fitted, following)]
    cells += [f"{sum(one.touched for one in arm)}" for arm in (fitted, following)]
    steps, rolled_back = sum(one.steps for one in following), sum(one.rolled_back for one in following)
    return f"| {group} | {len(outcomes)} streams, {steps} steps, {rolled_back} undone | " + " | ".join(cells) + " |"


def outcome(case: Case, adaptation: KeepFitted | FollowLevel) -> Outcome:
    flags, steps = flagged(case.detector, case.values, adaptation)
    near = np.convolve(case.labels, np.ones(AFTER + 1))[: len(flags)] > 0
    own = flags if case.twin is None else flags & ~flagged(case.detector, case.twin, adaptation)[0]
    spans = intervals(case.labels)
    touched, found = (sum(bool(which[start:stop].any()) for start, stop in spans) for which in (flags, own))
    return Outcome(float(flags[~near].mean()), touched, found, len(spans), *steps)


def flagged(
    detector: Comet, values: np.ndarray, adaptation: KeepFitted | FollowLevel
) -> tuple[np.ndarray, tuple[int, int]]:
    stream = detector.stream(adaptation=adaptation)
    flags = stream.update_many(values).flags.astype(bool)
    return flags, stream.adaptation_steps


def intervals(labels: np.ndarray) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], labels.astype(int), [0]])))
    return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]


# -- streams ----------------------------------------------------------------------------------------------------------


def all_cases(data_dir: str | None) -> Iterator[Case]:
    yield from plants()
    for name in ("ASD", "SMD"):
        yield from controlled(name, chosen(name, data_dir)[:ENTITIES])
    for name in ("ASD", "MSL", "SMAP", "SMD"):
        for one in chosen(name, data_dir):
            yield Case(f"{name}, test parts", unfitted().fit(one.train), one.test, one.labels.astype(bool), None)


def chosen(name: str, data_dir: str | None) -> list[Dataset]:
    return [one for one in load(name, data_dir) if part_of(name, one.entity) == "select"]


def plants() -> Iterator[Case]:
    seeds = [seed for seed in SEEDS if part_of(PLANTS, f"seed-{seed}") == "select"]
    sizes = {"train_rows": 12_000, "test_rows": 40_000, "variables": VARIABLES}
    fitted: dict[int, Comet] = {}
    for drift in (0.0, 1.0, 2.0):
        for seed in seeds:
            plant, twin = (synthetic_plant(**sizes, faults_per_kind=count, drift=drift, seed=seed) for count in (6, 0))
            detector = fitted[seed] = fitted.get(seed) or unfitted().fit(plant.train)
            yield Case(f"plants, drift {drift:g}", detector, plant.test, plant.labels, twin.test)


def controlled(name: str, entities: list[Dataset]) -> Iterator[Case]:
    parts = [split_normal(one.train, most=30_000) for one in entities]
    detectors = [unfitted().fit(reference) for reference, _ in parts]
    for drift in CONTROLLED:
        for detector, part in zip(detectors, parts, strict=True):
            for seed in (0, 1):
                settings = {"drift": drift, "contamination": 0.05, "seed": seed}
                series = controlled_series(*part, **settings)
                with faults_left_out():
                    twin = controlled_series(*part, **settings).values
                yield Case(f"{name}, controlled: {drift}", detector, series.values, series.labels, twin)


@contextmanager
def faults_left_out() -> Iterator[None]:
    """Plant faults that change nothing."""
    kinds = dict(faults_of.FAULTS)
    faults_of.FAULTS.update(
        {name: kind._replace(readings=lambda readings, spread, rng: readings) for name, kind in kinds.items()}
    )
    try:
        yield
    finally:
        faults_of.FAULTS.update(kinds)


if __name__ == "__main__":
    main()

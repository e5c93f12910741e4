"""The promised and measured false-alarm rates of the thresholds, on simulated scores or on fitted detectors.

    python benchmarks/thresholds.py [--draws N] [--readings N]
    python benchmarks/thresholds.py --detectors [--data-dir DIR]
    python benchmarks/thresholds.py --entities [--part select] [--workers 2] [--data-dir DIR]

Each draw fits a rule to 10,000 scores and applies it to a stream of `--readings` more, without anomalies: every alarm
is false. The second table follows SPOT along streams in three variants: alarms left out of the tail as in the paper,
remembering all excesses or the last 1,000, and as implemented here, counting as many alarms as chance explains.

With --detectors, Comet() is fitted on normal series, and alarms are counted among unseen normal readings, excluding 32
readings on either side of each anomaly. The entities are development entities: their labels had been seen before
(docs/deviations.md).

With --entities, it is fitted on every entity of the benchmark. The share of flagged normal readings, again away from
anomalies, is given as a multiple of the promise, and the anomalies that have any flag beside those that as many flags
at random would touch.
"""

import argparse
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from scipy.signal import lfilter

from cometad import Budget, Comet
from cometad.alerting import spot
from cometad.alerting.spot import DriftingSpot, Peaks, Spot
from cometad.alerting.thresholds import Conformal, Quantile, expected_per_day
from cometad.alerting.watch import Threshold
from cometad.bench.plants import plant_family
from cometad.bench.split import part_of
from cometad.datasets.dataset import Dataset
from cometad.datasets.readers import load
from cometad.datasets.synthetic import synthetic_plant
from cometad.threads import thread_count_of
from cometad.views.trim import stretches

TRAINING = 10_000
RISE = 3.0  # rise of the drifting scores over the stream, in standard deviations
CORRELATION = 0.95  # between neighboring scores
PARTS = 5  # of the stream in the second table

Draw = Callable[[np.random.Generator, int], np.ndarray]


def correlated(rng: np.random.Generator, count: int) -> np.ndarray:
    noise = rng.normal(size=count + 200) * np.sqrt(1 - CORRELATION**2)
    return lfilter([1.0], [1.0, -CORRELATION], noise)[200:]


def drifting(rng: np.random.Generator, count: int) -> np.ndarray:
    rise = np.concatenate([np.zeros(TRAINING), np.linspace(0, RISE, count - TRAINING)])
    return rng.normal(size=count) + rise


SCORES: dict[str, Draw] = {
    "normal": lambda rng, count: rng.normal(size=count),
    "exponential": lambda rng, count: rng.exponential(size=count),
    "Student t, 4 degrees": lambda rng, count: rng.standard_t(4, size=count),
    "Pareto, exponent 3": lambda rng, count: rng.pareto(3, size=count),
    f"normal, neighbors correlated {CORRELATION}": correlated,
    f"normal, rising by {RISE:g} deviations": drifting,
}
RULES: tuple[Threshold, ...] = (Budget(), Quantile(), Conformal(), Spot(), DriftingSpot())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--readings", type=int, default=100_000)
    parser.add_argument("--detectors", action="store_true")
    parser.add_argument("--entities", action="store_true")
    parser.add_argument("--part", choices=("select", "validate"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--data-dir")
    arguments = parser.parse_args()
    if arguments.entities:
        on_entities(arguments.data_dir, arguments.part, arguments.workers)
        return
    if arguments.detectors:
        on_detectors(arguments.data_dir)
        return
    promises(arguments.draws, arguments.readings)
    print()
    shrinking(min(arguments.draws, 5), 4 * arguments.readings)


def promises(draws: int, readings: int) -> None:
    print("| scores | rule | promised | measured | lowest and highest draw | a day at one reading a minute |")
    print("|---|---|---|---|---|---|")
    for i, (scores, draw) in enumerate(SCORES.items()):
        for rule in RULES:
            rates = np.array([flags(rule, draw, (i, seed), readings).mean() for seed in range(draws)])
            ratio, day = rates.mean() / rule.rate, expected_per_day(rule, 60)
            print(
                f"| {scores} | {type(rule).__name__} | {rule.rate:g} | {rates.mean():.2g} ({ratio:.2f} times) "
                f"| {rates.min():.2g} to {rates.max():.2g} | {day:.3g} promised, {ratio * day:.3g} measured |",
                flush=True,
            )


def flags(rule: Threshold, draw: Draw, seed: int | tuple[int, int], readings: int) -> np.ndarray:
    scores = draw(np.random.default_rng(seed), TRAINING + readings)
    return rule.watch(rule.fit(scores[:TRAINING])).push(scores[TRAINING:])


def shrinking(draws: int, readings: int) -> None:
    heads = " | ".join(f"to reading {readings * (i + 1) // PARTS:,}" for i in range(PARTS))
    print(f"| scores | alarms in the tail | remembered | {heads} |")
    print("|---" * (PARTS + 3) + "|")
    for scores in ("normal", "Student t, 4 degrees"):
        draw = SCORES[scores]
        with alarms_left_out(), remembering(readings):
            print(f"| {scores} | none | all | {along(draw, draws, readings)} |", flush=True)
        with alarms_left_out():
            print(f"| {scores} | none | {spot.KEPT:,} | {along(draw, draws, readings)} |", flush=True)
        print(f"| {scores} | as many as chance explains | {spot.KEPT:,} | {along(draw, draws, readings)} |", flush=True)


def along(draw: Draw, draws: int, readings: int) -> str:
    rule = Spot(rate=1e-3)
    rates = np.mean(
        [flags(rule, draw, seed, readings).reshape(PARTS, -1).mean(axis=1) for seed in range(draws)], axis=0
    )
    return " | ".join(f"{rate / rule.rate:.2f}" for rate in rates)


@contextmanager
def alarms_left_out() -> Iterator[None]:
    """SPOT as in the paper: alarms never enter the tail."""
    learn_from = Peaks.learn_from

    def without(peaks: Peaks, score: float, alarm: bool) -> None:
        if not alarm:
            learn_from(peaks, score, alarm)

    Peaks.learn_from = without
    try:
        yield
    finally:
        Peaks.learn_from = learn_from


@contextmanager
def remembering(count: int) -> Iterator[None]:
    """SPOT with a longer memory."""
    kept, spot.KEPT = spot.KEPT, count
    try:
        yield
    finally:
        spot.KEPT = kept


def on_detectors(data_dir: str | None) -> None:
    rules = (Budget(0.01), Quantile(0.01), Conformal(0.01), Spot(1e-3), DriftingSpot(1e-3))
    heads = " | ".join(f"{type(rule).__name__} {rule.rate:g}" for rule in rules)
    print(f"| series | training readings | new normal readings | {heads} |")
    print("|---" * (len(rules) + 3) + "|")
    for name, train, test, normal in normal_series(data_dir):
        detector = Comet().fit(train)
        rates = [detector.with_threshold(rule).predict(test)[normal].mean() for rule in rules]
        shown = " | ".join(f"{rate:.2g}" for rate in rates)
        print(f"| {name} | {len(train):,} | {normal.sum():,} | {shown} |", flush=True)


ENTITY_RULES = (Quantile(0.01), Budget(0.01))
BAND = (0.3, 2.0)  # of the promise
LONG = 2_000  # normal readings: with fewer, chance moves the share too much to judge one entity


class Judged(NamedTuple):
    """The flags of one rule on one entity."""

    dataset: str
    rule: int
    normal: int  # readings
    false: int  # of them flagged
    touched: float  # share of the anomalies
    by_chance: float  # the same for as many flags at random


def judge(entity: Dataset) -> list[Judged]:
    with thread_count_of(1):
        detector = Comet().fit(entity.train)
        scored, normal = detector.step_scores(entity.test).alerts, far_from(entity.labels)
    lengths = [stop - start for start, stop in stretches(np.asarray(entity.labels, bool))]
    found = []
    for k, rule in enumerate(ENTITY_RULES):
        flags = detector.with_threshold(rule).judge().push(scored).flags
        touched = [flags[start:stop].any() for start, stop in stretches(np.asarray(entity.labels, bool))]
        chance = [1 - (1 - flags.mean()) ** length for length in lengths]
        found.append(
            Judged(entity.name, k, int(normal.sum()), int(flags[normal].sum()), np.mean(touched), np.mean(chance))
        )
    return found


def on_entities(data_dir: str | None, part: str | None, workers: int) -> None:
    entities = [one for name in ("SMD", "ASD", "MSL", "SMAP", "SKAB") for one in load(name, data_dir)] + plant_family()
    parts = [part_of(one.name, one.entity) for one in entities]
    chosen = [one for one, own in zip(entities, parts, strict=True) if own is not None and part in (None, own)]
    chosen.sort(key=lambda one: -one.train.size)
    with ProcessPoolExecutor(workers) as pool:
        judged = [one for found in pool.map(judge, chosen) for one in found]
    print("| dataset | rule | within 0.3 to 2 times the promise | normal readings flagged | touched | by chance |")
    print("|---" * 6 + "|")
    for dataset in (*dict.fromkeys(one.dataset for one in judged), "all"):
        for k, rule in enumerate(ENTITY_RULES):
            own = [one for one in judged if one.rule == k and dataset in (one.dataset, "all")]
            ratios = [one.false / one.normal / rule.rate for one in own if one.normal >= LONG]
            within = sum(BAND[0] <= ratio <= BAND[1] for ratio in ratios)
            together = sum(one.false for one in own) / sum(one.normal for one in own) / rule.rate
            touched, by_chance = np.mean([(one.touched, one.by_chance) for one in own], axis=0)
            print(
                f"| {dataset} | {type(rule).__name__} | {within} of {len(ratios)} | {together:.2f} times the promise "
                f"| {100 * touched:.0f} % | {100 * by_chance:.0f} % |",
                flush=True,
            )


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


def far_from(labels: np.ndarray) -> np.ndarray:
    return ~np.convolve(labels, np.ones(65), "same").astype(bool)


if __name__ == "__main__":
    main()

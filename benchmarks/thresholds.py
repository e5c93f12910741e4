"""What each threshold promises and what it keeps, on simulated scores: two tables.

    python benchmarks/thresholds.py [--draws N] [--readings N]

Each draw fits a rule to 10,000 scores and watches a stream of as many as `--readings` after them, without any anomaly:
every alarm is a false one. The second table follows SPOT along streams: with alarms left out of the tail as in the
paper, remembering all excesses or the last 1,000, and with alarms counted as far as chance explains them, as here.
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from scipy.signal import lfilter

from cometad.decision import spot
from cometad.decision.spot import DriftingSpot, Peaks, Spot
from cometad.decision.threshold import Conformal, Quantile, expected_per_day
from cometad.decision.watch import Threshold

TRAINING = 10_000
RISE = 3.0  # of the drifting scores over the stream, in standard deviations
LIKENESS = 0.95  # correlation of neighbors among the correlated scores
STEPS = 5  # parts of the stream in the second table

Draw = Callable[[np.random.Generator, int], np.ndarray]


def correlated(random: np.random.Generator, count: int) -> np.ndarray:
    noise = random.normal(size=count + 200) * np.sqrt(1 - LIKENESS**2)
    return lfilter([1.0], [1.0, -LIKENESS], noise)[200:]


def drifting(random: np.random.Generator, count: int) -> np.ndarray:
    rise = np.concatenate([np.zeros(TRAINING), np.linspace(0, RISE, count - TRAINING)])
    return random.normal(size=count) + rise


SCORES: dict[str, Draw] = {
    "normal": lambda random, count: random.normal(size=count),
    "exponential": lambda random, count: random.exponential(size=count),
    "Student t, 4 degrees": lambda random, count: random.standard_t(4, size=count),
    "Pareto, exponent 3": lambda random, count: random.pareto(3, size=count),
    f"normal, neighbors correlated {LIKENESS}": correlated,
    f"normal, rising by {RISE:g} deviations": drifting,
}
RULES: tuple[Threshold, ...] = (Quantile(), Conformal(), Spot(), DriftingSpot())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--readings", type=int, default=100_000)
    arguments = parser.parse_args()
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
    heads = " | ".join(f"to reading {readings * (i + 1) // STEPS:,}" for i in range(STEPS))
    print(f"| scores | alarms in the tail | remembered | {heads} |")
    print("|---" * (STEPS + 3) + "|")
    for scores in ("normal", "Student t, 4 degrees"):
        draw = SCORES[scores]
        with alarms_left_out(), remembering(readings):
            print(f"| {scores} | none | all | {along(draw, draws, readings)} |", flush=True)
        with alarms_left_out():
            print(f"| {scores} | none | {spot.KEPT:,} | {along(draw, draws, readings)} |", flush=True)
        print(f"| {scores} | as chance explains | {spot.KEPT:,} | {along(draw, draws, readings)} |", flush=True)


def along(draw: Draw, draws: int, readings: int) -> str:
    rule = Spot(rate=1e-3)
    rates = np.mean(
        [flags(rule, draw, seed, readings).reshape(STEPS, -1).mean(axis=1) for seed in range(draws)], axis=0
    )
    return " | ".join(f"{rate / rule.rate:.2f}" for rate in rates)


@contextmanager
def alarms_left_out() -> Iterator[None]:
    """SPOT as the paper has it: no alarm is ever part of the tail."""
    take = Peaks.take

    def without(peaks: Peaks, score: float) -> bool:
        alarm = score - peaks.base > peaks.limit
        return alarm if alarm else take(peaks, score)

    Peaks.take = without
    try:
        yield
    finally:
        Peaks.take = take


@contextmanager
def remembering(count: int) -> Iterator[None]:
    """SPOT with a longer memory."""
    kept, spot.KEPT = spot.KEPT, count
    try:
        yield
    finally:
        spot.KEPT = kept


if __name__ == "__main__":
    main()

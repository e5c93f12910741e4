"""Promised and measured rates on simulated scores, and SPOT along long streams."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from scipy.signal import lfilter

from cometad import Budget
from cometad.alerting import spot
from cometad.alerting.spot import DriftingSpot, Peaks, Spot
from cometad.alerting.thresholds import Conformal, Quantile, expected_per_day
from cometad.alerting.watch import Threshold
from threshold_tables.shared import head, row

TRAINING = 10_000
FIRST = 8_192  # readings of a stream that are also counted on their own
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
RULES: dict[str, Threshold] = {
    "Budget": Budget(0.01),
    "Quantile": Quantile(),
    "Conformal": Conformal(),
    "Spot": Spot(),
    "Spot, likeliest tail": Spot(tail="likeliest"),
    "DriftingSpot": DriftingSpot(),
}


def promises(draws: int, readings: int) -> None:
    head(
        "scores",
        "rule",
        "promised",
        f"first {FIRST:,} readings",
        f"{readings:,} readings",
        "lowest and highest draw",
        "a day at one reading a minute",
    )
    for i, (scores, draw) in enumerate(SCORES.items()):
        for name, rule in RULES.items():
            streams = [flags(rule, draw, (i, seed), readings) for seed in range(draws)]
            early = np.mean([one[:FIRST].mean() for one in streams]) / rule.rate
            rates = np.array([one.mean() for one in streams])
            ratio, day = rates.mean() / rule.rate, expected_per_day(rule, 60)
            row(
                scores,
                name,
                f"{rule.rate:g}",
                f"{early:.2f} times",
                f"{ratio:.2f} times",
                f"{rates.min():.2g} to {rates.max():.2g}",
                f"{day:.3g} promised, {ratio * day:.3g} measured",
            )


def flags(rule: Threshold, draw: Draw, seed: int | tuple[int, int], readings: int) -> np.ndarray:
    scores = draw(np.random.default_rng(seed), TRAINING + readings)
    return rule.watch(rule.fit(scores[:TRAINING])).push(scores[TRAINING:])


def shrinking(draws: int, readings: int) -> None:
    head(
        "scores",
        "alarms in the tail",
        "remembered",
        *(f"to reading {readings * (i + 1) // PARTS:,}" for i in range(PARTS)),
    )
    for scores in ("normal", "Student t, 4 degrees"):
        draw = SCORES[scores]
        with alarms_left_out(), remembering(readings):
            row(scores, "none", "all", *along(draw, draws, readings))
        with alarms_left_out():
            row(scores, "none", f"{spot.KEPT:,}", *along(draw, draws, readings))
        row(scores, "as many as chance explains", f"{spot.KEPT:,}", *along(draw, draws, readings))


def along(draw: Draw, draws: int, readings: int) -> list[str]:
    rule = Spot(rate=1e-3)
    rates = np.mean(
        [flags(rule, draw, seed, readings).reshape(PARTS, -1).mean(axis=1) for seed in range(draws)], axis=0
    )
    return [f"{rate / rule.rate:.2f}" for rate in rates]


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

"""What patience buys and costs: faults of 10 to 5,000 readings on simulated alert scores."""

from typing import NamedTuple

import numpy as np

from cometad import Alerts, Budget
from cometad.alerting.alerts import find_events
from cometad.alerting.severity import ScoreTail
from threshold_tables.shared import head, row

TRAINING = 10_000
LENGTHS = (10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)
PATIENCE = (0, 100, 500, 2_000)
CASES = ((3.0, 500_000), (30.0, 500_000), (30.0, 10_000))  # height of the fault, and normal readings before it
AFTER = 5_000  # normal readings after it
NOISE = 0.2  # of the fault, relative to its height


class Outcome(NamedTuple):
    """What became of one fault."""

    flagged: float  # share of the fault
    lasts: float  # whether the event that begins in the fault lasts to its end
    afterwards: float  # flags after the fault, as a multiple of the budget


def faults_of_every_length(seeds: int) -> None:
    print(
        "Share of the fault flagged / event to the end of the fault / flags afterwards, as a multiple of the budget.\n"
    )
    for height, before in CASES:
        print(f"A fault {height:g} thresholds high after {before:,} normal readings:\n")
        head("length of the fault", *(f"patience {patience:,}" for patience in PATIENCE))
        for length in LENGTHS:
            row(f"{length:,}", *(shown(height, before, length, patience, seeds) for patience in PATIENCE))
        print()


def shown(height: float, before: int, length: int, patience: int, seeds: int) -> str:
    outcomes = [outcome(height, before, length, patience, seed) for seed in range(seeds)]
    flagged, lasts, afterwards = np.mean(outcomes, axis=0)
    return f"{100 * flagged:.0f} % / {100 * lasts:.0f} % / {afterwards:.2f}"


def outcome(height: float, before: int, length: int, patience: int, seed: int) -> Outcome:
    rule, rng = Budget(rate=0.01, patience=patience), np.random.default_rng(seed)
    training = rng.exponential(size=TRAINING)
    watch = rule.watch(rule.fit(training))
    tail = ScoreTail.fit(training, watch.threshold)
    start, stop = before, before + length
    scores = rng.exponential(size=stop + AFTER)
    scores[start:stop] += height * watch.threshold * (1 + NOISE * rng.standard_normal(length))
    thresholds = watch.follow(scores)
    flags = scores > thresholds
    events = find_events(scores[start:], thresholds[start:], Alerts(), tail)
    first = [event for event in events if event.start < length][:1]
    return Outcome(
        flags[start:stop].mean(),
        float(any(event.stop >= length for event in first)),
        flags[stop:].mean() / rule.rate,
    )

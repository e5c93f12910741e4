"""The plants of the demo, with nothing but the defaults of `Comet()`."""

import numpy as np

from cometad import Comet
from cometad.compute import thread_count_of
from cometad.datasets.synthetic import synthetic_plant
from cometad.demo import false_alerts, flush, judge, watch
from threshold_tables.shared import each, head, row

SEEDS = range(1, 11)


def outcome(seed: int) -> list[tuple[int, int, int, int]]:
    flushed = flush(synthetic_plant(seed=seed))
    with thread_count_of(1):
        watched = watch(Comet().fit(flushed.plant.train), flushed)
    found = sum(judge(fault, watched).found for fault in flushed.plant.faults)
    return [(seed, found, len(false_alerts(flushed, watched.alerts)), len(watched.alerts))]


def demo(asked) -> None:
    found = list(each(outcome, list(SEEDS), asked.workers))
    head("seed", "faults found of 10", "false alerts", "alerts")
    for one in found:
        row(*one)
    row("mean", *(f"{value:.1f}" for value in np.mean(found, axis=0)[1:]))

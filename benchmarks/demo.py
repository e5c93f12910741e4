"""The demo on other plants: how many of ten faults are found, and how many alerts are false.

    python benchmarks/demo.py [--first 1] [--plants 20] [--per-week 12] [--workers 2]

One row per seed: faults found of ten, false alerts in 12,000 readings, all alerts, the share of the variables of faults
that were blamed, and of four flushes those that raised an alert without and with a verdict on the first. Then the means
for other budgets of alerts.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from typing import NamedTuple

import numpy as np

from cometad import Budget, Comet
from cometad.datasets.synthetic import synthetic_plant
from cometad.demo import ALERTS_PER_WEEK, PERIOD, Flushed, false_alerts, flush, flush_alerts, judge, new_detector, watch
from cometad.threads import thread_count_of

PER_DAY = (1.0, 1.5, 2.0, 3.0)  # other budgets


class Row(NamedTuple):
    """The outcome on one plant, or the mean of several."""

    found: float
    false: float
    alerts: float
    blamed: float
    unasked: float  # flushes that raise an alert if nobody calls one normal
    flushes: float  # and with a verdict on the first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--plants", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--per-week", type=float, default=ALERTS_PER_WEEK)
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.plants)
    budgets = [arguments.per_week / 7, *PER_DAY]
    columns = (
        "| faults found, of 10 | false alerts | alerts | variables of faults blamed | flushes alerted, without verdict"
    )
    print(f"| seed {columns} | with verdict |\n|---|---|---|---|---|---|---|")
    outcomes = []
    with ProcessPoolExecutor(arguments.workers) as pool:
        found = pool.map(rows, seeds, repeat(budgets))
        for seed, outcome in zip(seeds, found, strict=True):
            outcomes.append(outcome)
            show(seed, outcome[0])
    first = np.array([outcome[0] for outcome in outcomes])
    for name, row in (("mean", Row(*first.mean(0))), ("standard deviation", Row(*first.std(0)))):
        print(
            f"| {name} | {row.found:.2f} | {row.false:.2f} | {row.alerts:.1f} | {row.blamed:.0%} "
            f"| {row.unasked:.2f} | {row.flushes:.2f} |"
        )
    print("\n| budget | faults found, of 10 | all ten | false alerts | most | alerts | flushes alerted |")
    print("|---|---|---|---|---|---|---|")
    for k, per_day in enumerate(budgets):
        found, false, alerts, _, _, flushes = np.array([outcome[k] for outcome in outcomes]).T
        name = f"{per_day:g} a day" if k else f"{arguments.per_week:g} a week"
        print(
            f"| {name} | {found.mean():.2f} | {(found == 10).sum()} of {len(seeds)} | {false.mean():.2f} "
            f"| {false.max():.0f} | {alerts.mean():.1f} | {flushes.mean():.2f} |"
        )


def show(seed: int, row: Row) -> None:
    shown = (seed, row.found, row.false, row.alerts, f"{row.blamed:.0%}", row.unasked, row.flushes)
    print(f"| {' | '.join(map(str, shown))} |", flush=True)


def rows(seed: int, budgets: list[float]) -> list[Row]:
    """The outcome for each budget of alerts per day; the detector is fitted once."""
    flushed = flush(synthetic_plant(seed=seed))
    with thread_count_of(1):
        detector = new_detector().fit(flushed.plant.train)
        rules = [Budget(alerts_per_day=per_day, period=PERIOD) for per_day in budgets]
        return [measured(detector.with_threshold(rule), flushed) for rule in rules]


def measured(detector: Comet, flushed: Flushed) -> Row:
    watched, unasked = watch(detector, flushed), watch(detector, flushed, verdicts=False)
    results = [judge(fault, watched) for fault in flushed.plant.faults]
    right = sum(len(set(result.blamed) & set(result.fault.variables)) for result in results)
    return Row(
        sum(result.found for result in results),
        len(false_alerts(flushed, watched.alerts)),
        len(watched.alerts),
        right / sum(len(fault.variables) for fault in flushed.plant.faults),
        len(flush_alerts(flushed, unasked.alerts)),
        len(flush_alerts(flushed, watched.alerts)),
    )


if __name__ == "__main__":
    main()

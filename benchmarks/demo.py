"""The demo on other plants: how many of ten faults are found, and how many alerts are false.

    python benchmarks/demo.py [--first 1] [--plants 20] [--per-week 12]

One row per seed: faults found of ten, false alerts in 12,000 readings, all alerts, and the share of the variables of
faults that were blamed. Then their means for other budgets of alerts.
"""

import argparse
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from cometad import Budget, Comet
from cometad.datasets.synthetic import Plant, synthetic_plant
from cometad.demo import ALERTS, ALERTS_PER_WEEK, PERIOD, collect, false_alerts, judge, new_detector

PER_DAY = (1.0, 1.5, 2.0, 3.0)  # other budgets


class Row(NamedTuple):
    """The outcome on one plant, or the mean of several."""

    found: float
    false: float
    alerts: float
    blamed: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--plants", type=int, default=20)
    parser.add_argument("--per-week", type=float, default=ALERTS_PER_WEEK)
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.plants)
    budgets = [arguments.per_week / 7, *PER_DAY]
    print("| seed | faults found, of 10 | false alerts | alerts | variables of faults blamed |\n|---|---|---|---|---|")
    outcomes = []
    for seed in seeds:
        outcomes.append(list(rows(synthetic_plant(seed=seed), budgets)))
        row = outcomes[-1][0]
        print(f"| {seed} | {row.found} | {row.false} | {row.alerts} | {row.blamed:.0%} |", flush=True)
    first = np.array([outcome[0] for outcome in outcomes])
    for name, row in (("mean", Row(*first.mean(0))), ("standard deviation", Row(*first.std(0)))):
        print(f"| {name} | {row.found:.2f} | {row.false:.2f} | {row.alerts:.1f} | {row.blamed:.0%} |")
    print("\n| budget | faults found, of 10 | all ten | false alerts | most | alerts | variables of faults blamed |")
    print("|---|---|---|---|---|---|---|")
    for k, per_day in enumerate(budgets):
        found, false, alerts, blamed = np.array([outcome[k] for outcome in outcomes]).T
        name = f"{per_day:g} a day" if k else f"{arguments.per_week:g} a week"
        print(
            f"| {name} | {found.mean():.2f} | {(found == 10).sum()} of {len(seeds)} | {false.mean():.2f} "
            f"| {false.max():.0f} | {alerts.mean():.1f} | {blamed.mean():.0%} |"
        )


def rows(plant: Plant, budgets: list[float]) -> Iterator[Row]:
    """The outcome for each budget of alerts per day; the detector is fitted once."""
    detector = new_detector().fit(plant.train)
    for per_day in budgets:
        yield outcome(detector.with_threshold(Budget(alerts_per_day=per_day, period=PERIOD)), plant)


def outcome(detector: Comet, plant: Plant) -> Row:
    stream = detector.stream(alerts=ALERTS)
    live, alerts = collect([stream.update_many(plant.test), stream.finish()])
    results = [judge(fault, live, alerts) for fault in plant.faults]
    right = sum(len(set(result.blamed) & set(result.fault.variables)) for result in results)
    return Row(
        sum(result.found for result in results),
        len(false_alerts(plant, alerts)),
        len(alerts),
        right / sum(len(fault.variables) for fault in plant.faults),
    )


if __name__ == "__main__":
    main()

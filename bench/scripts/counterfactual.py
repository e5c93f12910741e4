"""Whether the variables an explanation names are the cause: without them the event must vanish.

    python bench/scripts/counterfactual.py [--seeds 3] [--workers 2]

For every event of the default detector on plants with faults, the readings of the named variables, its
`Explanation.causes`, are replaced by what was expected instead. *Below* is the share of events whose scores then stay
below the threshold; *as many at random* is the same with as many variables drawn at random.
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from cometad import Comet
from cometad.compute import thread_count_of
from cometad.datasets.synthetic import synthetic_plant
from cometad_bench.datasets.characters import CHARACTERS, plant_of
from threshold_tables.shared import each, head, row

UNITS = "units"  # the synthetic plant of the demo


def below(work: tuple[str, int]) -> list[tuple[str, str, int, bool, bool]]:
    """For each event, its plant and level, how many variables are named, and whether it vanishes without them."""
    name, seed = work
    plant = synthetic_plant(seed=seed) if name == UNITS else plant_of(name, seed=seed)
    rng, found = np.random.default_rng(seed), []
    with thread_count_of(1):
        detector = Comet().fit(plant.train)
        thresholds = detector.judge().push(detector.step_scores(plant.test).alerts, None).thresholds
        explain = detector.explainer(plant.test)
        for event in detector.events(plant.test):
            if not plant.labels[event.start : event.stop].any():
                continue
            explanation = explain(event)
            named = [explanation.names.index(reason.variable) for reason in explanation.causes]
            drawn = rng.choice(len(explanation.names), len(named), replace=False)
            vanished = [vanishes(detector, plant.test, thresholds, explanation, own) for own in (named, drawn)]
            found.append((name, event.level, len(named), *vanished))
    return found


def vanishes(detector, test, thresholds, explanation, variables) -> bool:
    values, begin, rows = test.copy(), explanation.begin, slice(explanation.begin, explanation.stop)
    moved = detector.trends_(test)
    for i in variables:
        expected = explanation.normal[: rows.stop - begin, i]
        movement = expected - (test - moved)[rows, i]
        level, gain = test[begin, i] - moved[begin, i], detector.trends_.gain[i]
        for t, own in enumerate(movement, begin):  # readings that move as expected; without a trend, those expected
            if not np.isnan(own):
                values[t, i] = level + own if gain else expected[t - begin]
                level += gain * own
    first = max(begin - 1000, 0)
    alerts = detector.step_scores(values[first : rows.stop]).alerts[explanation.start - first :]
    return bool((alerts <= thresholds[explanation.start : explanation.stop]).all())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    names = (UNITS, *CHARACTERS)
    results = list(each(below, [(name, seed) for name in names for seed in range(asked.seeds)], asked.workers))
    head("plant", "events in faults", "named variables", "below", "alerts only", "as many at random")
    for name in (*names, "all"):
        own = [one for one in results if name in (one[0], "all")]
        alerts = [one[3] for one in own if one[1] == "alert"]
        shares = [f"{np.mean(one):.2f}" if one else "" for one in ([o[3] for o in own], alerts, [o[4] for o in own])]
        row(name, len(own), f"{np.mean([one[2] for one in own]):.1f}", *shares)


if __name__ == "__main__":
    main()

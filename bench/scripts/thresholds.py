"""The promised and measured false-alarm rates of the thresholds, on simulated scores or on fitted detectors.

    python bench/scripts/thresholds.py [--draws N] [--readings N]
    python bench/scripts/thresholds.py --noise [--draws N] [--readings N] [--workers 2]
    python bench/scripts/thresholds.py --detectors [--data-dir DIR]
    python bench/scripts/thresholds.py --entities [--part select] [--families SMD,walks] [--workers 2] [--data-dir DIR]
    python bench/scripts/thresholds.py --missing
    python bench/scripts/thresholds.py --trends [--part select] [--families SMD,walks] [--workers 2] [--data-dir DIR]

Each draw fits a rule to 10,000 scores and applies it to a stream of `--readings` more, without anomalies: every alarm
is false. The second table follows SPOT along streams in three variants: alarms left out of the tail as in the paper,
remembering all excesses or the last 1,000, and as implemented here, counting as many alarms as chance explains.

With --noise, Comet() is fitted on 10,000 readings of independent noise and scores `--readings` more.

With --detectors, Comet() is fitted on normal series, and alarms are counted among unseen normal readings, excluding 32
readings on either side of each anomaly. The entities are development entities: their labels had been seen before
(docs/deviations.md).

With --entities, it is fitted on every entity of the benchmark. The share of flagged normal readings, again away from
anomalies, is given as a multiple of the promise, and the anomalies that have any flag beside those that as many flags
at random would touch. Entities with fewer than 2,000 normal readings are judged together. A second table names the
others that are outside the band.

With --trends, it is compared with Comet(trends=False) on the entities where it finds a trend. With --missing, each
variable of a plant vanishes in turn. Budgets of alerts have a script of their own: bench/scripts/alerts.py.
"""

import argparse

from threshold_tables.detectors import on_detectors
from threshold_tables.entities import on_entities
from threshold_tables.missing import when_a_variable_vanishes
from threshold_tables.noise import on_noise
from threshold_tables.promises import promises, shrinking
from threshold_tables.shared import FAMILIES
from threshold_tables.trends import without_and_with_trends


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    table = parser.add_mutually_exclusive_group()
    for name in ("noise", "detectors", "entities", "trends", "missing"):
        table.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--draws", type=int, default=50)
    parser.add_argument("--readings", type=int, default=100_000)
    parser.add_argument("--part", choices=("select", "validate"))
    parser.add_argument("--families", type=lambda text: tuple(text.split(",")), default=FAMILIES)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--data-dir")
    asked = parser.parse_args()
    if asked.entities:
        on_entities(asked.families, asked.part, asked.workers, asked.data_dir)
    elif asked.trends:
        without_and_with_trends(asked.families, asked.part, asked.workers, asked.data_dir)
    elif asked.missing:
        when_a_variable_vanishes()
    elif asked.noise:
        on_noise(asked.draws, asked.readings, asked.workers)
    elif asked.detectors:
        on_detectors(asked.data_dir)
    else:
        promises(asked.draws, asked.readings)
        print()
        shrinking(min(asked.draws, 5), 4 * asked.readings)


if __name__ == "__main__":
    main()

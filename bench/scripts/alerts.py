"""How many alerts there are, how many are false, how late they come, and whose fault they say it is.

    python bench/scripts/alerts.py [curve] [budget] [plants] [drift] [delay] [dirty] [shares] [demo] [relations]
                                [--part validate] [--workers 2] [--data-dir DIR] [--figure FILE]

Without a name, all tables are printed, one after the other; everything was chosen on `--part select`.

*Found* is the share of labeled anomalies in which an alert starts: is raised, that is, or a notice becomes one.
*Chance* is the same for these alerts at a random time, *false* are alerts raised more than 32 readings away from any
anomaly, per 1,000 such readings. *In alarm* is the share of these readings that are flagged within an alert, and *open*
the share between its start and its end. Everything is a mean over entities, then over SMD, ASD, SKAB, MSL and SMAP;
false alerts and shares of time are those of all readings of a family.

    curve   found and false for budgets of 0.1 to 5 alerts per 1,000 readings, for Comet() and simple baselines with
            its calibration; for the default by dataset, and the entities where it cries wolf
    budget  alerts raised by the default against its budget, by entity
    plants  the default on five kinds of plants, five seeds each, without and with faults, also at a reading a second
    drift   alerts against the budget where readings drift, jump, stay constant or are missing
    delay   readings from the start of an anomaly to its alert, by dataset and by kind of fault
    dirty   found and severities after faulty and stopped histories, short histories, a wind turbine stopped in the wind
    shares  shares of the true variable in faults of a single one
    demo    the demo's plants with nothing but Comet()'s defaults
    relations   faults in which every variable looks as usual, and only a relation breaks
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from alert_tables.curve import curve
from alert_tables.demo import demo
from alert_tables.dirty import dirty
from alert_tables.drift import drift
from alert_tables.plants import delay, plants
from alert_tables.promise import budget
from alert_tables.relations import relations
from alert_tables.shares import shares_of_single_faults

TABLES = {
    "curve": curve,
    "budget": budget,
    "plants": plants,
    "drift": drift,
    "delay": delay,
    "dirty": dirty,
    "shares": lambda asked: [shares_of_single_faults(seeds) for seeds in ([0, 1, 2], [3, 4])],  # chosen on, and not
    "demo": demo,
    "relations": relations,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", choices=[*TABLES, []], help="default: all")
    parser.add_argument("--part", choices=("select", "validate"), default="validate")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--data-dir")
    parser.add_argument("--figure", help="draw the curve to this file")
    asked = parser.parse_args()
    for name in asked.tables or TABLES:
        print(f"\n### {name}\n", flush=True)
        TABLES[name](asked)


if __name__ == "__main__":
    main()

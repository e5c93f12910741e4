"""Faults that only a calendar can see: right values at the wrong hour or on the wrong day.

    python bench/scripts/season.py [SEASON ...] [--workers 2]

A SEASON is a value of `Comet(season=...)`; default: none and auto. Five generated tables of twelve weeks of history and
twelve weeks with faults, 50 faults each, five kinds. *Seen* counts the faults whose best alert score beats 95 % of the
windows of the same length without faults. *Found*, *chance* and *false* are those of bench/scripts/alerts.py at the
default budget: alerts that start in a fault, the same at random times, and false ones per 1,000 normal readings.
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections import Counter

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from alert_tables.judged import DEFAULT, Scores, Worth, judged, worth
from cometad import Comet
from cometad.compute import thread_count_of
from cometad.datasets.synthetic import fault_labels
from cometad_bench.seasonal import COPIES, MINUTES, PROFILES, SEASONAL_FAULTS, seasonal_table, with_seasonal_faults
from threshold_tables.shared import each, far_from, head, row

BEATEN = 0.95  # share of the windows without faults


def outcome(work: tuple[str, str]) -> list[tuple[str, str, Counter, Counter, list[Worth]]]:
    """The table, the season, the faults seen by kind, the faults found by kind, and what the alerts are worth."""
    season, name = work
    table = seasonal_table(name)
    with thread_count_of(1):
        detector = Comet(season=season, timezone="Europe/Berlin").fit(table.frame(table.values[: table.split]))
        clean = detector.step_scores(table.frame(table.test, table.split)).alerts
        seen, found, worths = Counter(), Counter(), []
        for seed in range(COPIES):
            values, faults = with_seasonal_faults(table, seed)
            alerts = detector.step_scores(table.frame(values, table.split)).alerts
            anomalies = [(fault.start, fault.stop) for fault in faults]
            normal = far_from(fault_labels(tuple(faults), len(values)))
            scores = Scores(name, str(seed), detector.alert_scores_[~detector.imputed_], alerts, anomalies, normal)
            raised = judged(scores, DEFAULT, 60.0 * MINUTES[name])
            worths.append(worth(scores, raised))
            for fault in faults:
                usual = sliding_window_view(clean, fault.stop - fault.start).max(axis=1)
                seen[fault.kind] += bool(alerts[fault.start : fault.stop].max() > np.quantile(usual, BEATEN))
                found[fault.kind] += bool(((raised.steps >= fault.start) & (raised.steps < fault.stop)).any())
    return [(name, season, seen, found, worths)]


def show(season: str, name: str, own: list) -> None:
    worths = [value for *_, values in own for value in values]
    total = len(own) * COPIES
    for kind in (*SEASONAL_FAULTS, "all"):
        if kind != "all" and name != "all":
            continue
        of = COPIES * (len(SEASONAL_FAULTS) if kind == "all" else 1) * len(own)
        seen, found = (sum(one[k].total() if kind == "all" else one[k][kind] for one in own) for k in (2, 3))
        chance = f"{np.mean([one.chance for one in worths]):.2f}" if kind == "all" else ""
        false = 1000 * sum(one.false for one in worths) / sum(one.normal for one in worths)
        row(season, name, kind, of, seen, found, chance, f"{false:.2f}" if kind == "all" else "")
    assert total == len(worths)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seasons", nargs="*", default=["none", "auto"])
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    results = list(each(outcome, [(season, name) for season in asked.seasons for name in PROFILES], asked.workers))
    head("season", "table", "fault", "faults", "seen", "found", "chance", "false")
    for season in asked.seasons:
        own = [one for one in results if one[1] == season]
        for name in PROFILES:
            show(season, name, [one for one in own if one[0] == name])
        show(season, "all", own)


if __name__ == "__main__":
    main()

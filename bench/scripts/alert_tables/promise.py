"""Alerts raised by the default against its budget, on every entity."""

import numpy as np

from alert_tables.curve import COMET, only_comet
from threshold_tables.shared import DATASETS, chosen, each, head, row

MOST = 1.2  # times the budget


def budget(asked) -> None:
    """The budget of a short series is less than one alert, so entities with up to one more than it are shown too."""
    results = list(each(only_comet, chosen(DATASETS, asked.part, asked.data_dir), asked.workers))
    head("dataset", "entities", f"within {MOST:g} times the budget", "or within one alert of it", "alerts", "budget")
    for family in (*DATASETS, "all"):
        own = [(one, value) for name, rule, one, value in results if (name, rule) == (COMET, 0.0)]
        own = [(value.alerts, len(one.test) / 1000) for one, value in own if family in (one.family, "all")]
        alerts, allowed = np.array(own).T
        within = alerts <= MOST * allowed
        near = within | (alerts <= allowed + 1)
        counts = f"{within.sum()} ({within.mean():.0%})", f"{near.sum()} ({near.mean():.0%})"
        row(family, len(own), *counts, f"{alerts.sum():.0f}", f"{allowed.sum():.1f}")

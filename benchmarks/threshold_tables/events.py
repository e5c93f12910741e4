"""Anomalies found at three alerts per 1,000 readings, by `Comet()` and by simple baselines under the same rule."""

from typing import NamedTuple
from zlib import crc32

import numpy as np

from cometad import Budget, Comet
from cometad.bench.fair import FairBaseline
from cometad.datasets.dataset import Dataset
from cometad.detector import Detector
from cometad.threads import thread_count_of
from threshold_tables.shared import chosen, each, far_from, head, row, touched

SHARE = 0.003  # of readings that may begin an alert
RULE = Budget(alerts_per_day=SHARE * 1440, period=60.0)
BASELINES = ("random", "sensor-range", "squared-norm", "pca", "hbos", "isolation-forest", "kmeans", "knn")
COMET = "Comet()"
SHIFTS = 100


class Found(NamedTuple):
    """The alerts of one detector on one entity."""

    family: str
    detector: str
    normal: int  # readings
    flagged: int  # of them flagged
    false: int  # alerts that begin at one of them
    touched: float  # share of the anomalies
    by_chance: float  # the same for these flags at a random time


def detectors(seed: int) -> dict[str, Detector]:
    """Comet, and the baselines with its calibration and pooling; like its alert score, theirs is not smoothed."""
    simple = {name: FairBaseline(baseline=name, smoothing=(), threshold=RULE, seed=seed) for name in BASELINES}
    return {COMET: Comet(threshold=RULE)} | simple


def find(entity: Dataset) -> list[Found]:
    normal, rng = far_from(entity.labels), np.random.default_rng(0)
    found = []
    for name, detector in detectors(crc32(f"{entity.name} {entity.entity}".encode())).items():
        with thread_count_of(1):
            scored = detector.fit(entity.train).step_scores(entity.test).alerts
        flags, _, changes = detector.judge().push(scored)
        false = sum(bool(normal[change.event.start]) for change in changes if change.kind == "opened")
        shifts = rng.integers(len(flags), size=SHIFTS)
        chance = np.mean([touched(np.roll(flags, shift), entity) for shift in shifts])
        counts = int(normal.sum()), int(flags[normal].sum()), false
        found.append(Found(entity.name, name, *counts, touched(flags, entity), float(chance)))
    return found


def at_a_budget_of_alerts(families: tuple[str, ...], part: str | None, workers: int, data_dir: str | None) -> None:
    results = list(each(find, chosen(families, part, data_dir), workers))
    present = [name for name in families if any(one.family == name for one in results)]
    head(
        "family",
        "detector",
        "touched",
        "by chance",
        "false alerts per 1,000 normal readings",
        "flagged per 1,000 normal readings",
    )
    for family in (*present, "mean of families"):
        for name in (COMET, *BASELINES):
            means = np.mean(
                [summary(results, one, name) for one in present if family in (one, "mean of families")], axis=0
            )
            row(
                family, name, f"{100 * means[0]:.0f} %", f"{100 * means[1]:.0f} %", f"{means[2]:.1f}", f"{means[3]:.1f}"
            )


def summary(results: list[Found], family: str, detector: str) -> tuple[float, float, float, float]:
    """Share touched, also by chance, as means over entities; false alerts and flags per 1,000 normal readings."""
    own = [one for one in results if (one.family, one.detector) == (family, detector)]
    found, by_chance = np.mean([(one.touched, one.by_chance) for one in own], axis=0)
    normal, flagged, false = np.sum([(one.normal, one.flagged, one.false) for one in own], axis=0)
    return found, by_chance, 1000 * false / normal, 1000 * flagged / normal

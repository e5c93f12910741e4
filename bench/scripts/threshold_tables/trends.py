"""What it changes to score the movement of variables that only grow or wander."""

from typing import NamedTuple

import numpy as np
from sklearn.metrics import average_precision_score

from cometad import Comet
from cometad.compute import thread_count_of
from cometad.datasets.dataset import Dataset
from threshold_tables.shared import chosen, each, far_from, head, row, touched


class Outcome(NamedTuple):
    """One entity, without and with trends; each pair is equal if no trend was found."""

    family: str
    variables: float  # share of the variables with a trend
    precision: tuple[float, float]  # AUC-PR
    false: tuple[float, float]  # share of the normal readings that are flagged
    touched: tuple[float, float]  # share of the anomalies with at least one flag


def compare(entity: Dataset) -> list[Outcome]:
    with thread_count_of(1):
        detector = Comet().fit(entity.train)
        plain = Comet(trends=False).fit(entity.train) if detector.trends_.any else detector
        measured = [measure(one, entity) for one in (plain, detector)]
    return [Outcome(entity.name, float((detector.trends_.gain > 0).mean()), *zip(*measured, strict=True))]


def measure(detector: Comet, entity: Dataset) -> tuple[float, float, float]:
    scored = detector.step_scores(entity.test)
    flags = detector.judge().push(scored.alerts).flags
    precision = average_precision_score(entity.labels, scored.scores)
    return precision, flags[far_from(entity.labels)].mean(), touched(flags, entity)


def without_and_with_trends(families: tuple[str, ...], part: str | None, workers: int, data_dir: str | None) -> None:
    outcomes = list(each(compare, chosen(families, part, data_dir), workers))
    head("family", "entities with trends", "their variables with trends", "AUC-PR", "flagged", "touched")
    for name in families:
        own = [one for one in outcomes if one.family == name]
        found = [one for one in own if one.variables]
        if not found:
            continue
        pairs = [np.mean([getattr(one, field) for one in found], axis=0) for field in ("precision", "false", "touched")]
        shown = [f"{100 * before:.1f} to {100 * after:.1f} %" for before, after in pairs]
        row(name, f"{len(found)} of {len(own)}", f"{100 * np.mean([one.variables for one in found]):.0f} %", *shown)

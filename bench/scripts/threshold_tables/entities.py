"""The share of normal readings that `Comet()` flags on every entity of the benchmark."""

from typing import NamedTuple

import numpy as np

from cometad import Budget, Comet
from cometad.alerting.thresholds import Quantile
from cometad.compute import thread_count_of
from cometad.datasets.dataset import Dataset
from threshold_tables.shared import anomalies, chosen, each, far_from, head, row, touched

RULES = (Quantile(0.01), Budget(0.01))
BAND = (0.3, 2.0)  # of the promise
LONG = 2_000  # normal readings: with fewer, chance moves the share too much to judge one entity


class Judged(NamedTuple):
    """The flags of one rule on one entity."""

    family: str
    entity: str
    rule: int
    normal: int  # readings
    false: int  # of them flagged
    touched: float  # share of the anomalies
    by_chance: float  # the same for as many flags at random
    repeats: float  # share of the scores that equal the one before

    @property
    def is_long(self) -> bool:
        """Whether there are enough normal readings to judge the entity on its own."""
        return self.normal >= LONG


def judge(entity: Dataset) -> list[Judged]:
    with thread_count_of(1):
        detector = Comet().fit(entity.train)
        scored, normal = detector.step_scores(entity.test).alerts, far_from(entity.labels)
    found = []
    for k, rule in enumerate(RULES):
        flags = detector.with_threshold(rule).judge().push(scored).flags
        chance = np.mean([1 - (1 - flags.mean()) ** (stop - start) for start, stop in anomalies(entity)])
        repeats = float(np.mean(scored[1:] == scored[:-1]))
        counts = int(normal.sum()), int(flags[normal].sum())
        found.append(Judged(entity.name, entity.entity, k, *counts, touched(flags, entity), float(chance), repeats))
    return found


def ratio(judged: list[Judged]) -> float:
    """The share of flagged normal readings, as a multiple of the promise; NaN without normal readings."""
    normal = sum(one.normal for one in judged)
    return sum(one.false for one in judged) / normal / RULES[judged[0].rule].rate if normal else np.nan


def in_band(multiple: float) -> bool:
    return BAND[0] <= multiple <= BAND[1]


def on_entities(families: tuple[str, ...], part: str | None, workers: int, data_dir: str | None) -> None:
    judged = list(each(judge, chosen(families, part, data_dir), workers))
    present = [name for name in families if any(one.family == name for one in judged)]
    head(
        "family",
        "rule",
        "entities within 0.3 to 2 times the promise",
        "shorter entities together",
        "normal readings flagged",
        "touched",
        "by chance",
    )
    for name in (*present, "all"):
        for k, rule in enumerate(RULES):
            own = [one for one in judged if one.rule == k and name in (one.family, "all")]
            multiples = [ratio([one]) for one in own if one.is_long]
            found, by_chance = np.mean([(one.touched, one.by_chance) for one in own], axis=0)
            row(
                name,
                type(rule).__name__,
                f"{sum(map(in_band, multiples))} of {len(multiples)}",
                together(own),
                f"{ratio(own):.2f} times the promise",
                f"{100 * found:.0f} %",
                f"{100 * by_chance:.0f} %",
            )
    print()
    outside(judged)


def together(judged: list[Judged]) -> str:
    """The joint multiple of the short entities of one family, or how many families are within the band."""
    short: dict[str, list[Judged]] = {}
    for one in judged:
        if not one.is_long:
            short.setdefault(one.family, []).append(one)
    if len({one.family for one in judged}) > 1:
        return f"{sum(in_band(ratio(own)) for own in short.values())} of {len(short)} families"
    return "; ".join(f"{ratio(own):.2f} times ({len(own)})" for own in short.values()) or "none"


def outside(judged: list[Judged]) -> None:
    """Name every long entity outside the band."""
    head("outside the band", "rule", "times the promise", "normal readings", "scores equal to the one before")
    for one in sorted(judged, key=lambda one: (one.rule, one.family, one.entity)):
        if one.is_long and not in_band(ratio([one])):
            name = f"{one.family} {one.entity}"
            rule = type(RULES[one.rule]).__name__
            row(name, rule, f"{ratio([one]):.2f}", f"{one.normal:,}", f"{100 * one.repeats:.0f} %")

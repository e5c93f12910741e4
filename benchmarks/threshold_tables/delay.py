"""Severity and delay of `Comet()` on the faults of synthetic plants, by kind."""

from typing import NamedTuple

import numpy as np

from cometad import Comet
from cometad.bench import plants
from cometad.datasets.characters import CHARACTER_FAULTS, CHARACTERS, plant_of
from cometad.datasets.dataset import Dataset
from cometad.datasets.synthetic import PLANT_FAULTS, Fault, synthetic_plant
from cometad.threads import thread_count_of
from threshold_tables.shared import chosen, each, far_from, head, row

NO_FAULT = "no fault"


class Noticed(NamedTuple):
    """A fault, or an event away from any fault."""

    family: str
    kind: str
    severity: float  # the highest of the events that touch it; NaN if none does
    delay: float  # readings from its start to its first flag; NaN if it has none


def faults_of(entity: Dataset) -> tuple[Fault, ...]:
    """The faults of a plant, with their kinds, which a dataset does not carry."""
    seed = int(entity.entity.removeprefix("seed-"))
    if entity.name in CHARACTERS:
        return plant_of(entity.name, variables=plants.VARIABLES, seed=seed).faults
    return synthetic_plant(
        train_rows=plants.ROWS,
        test_rows=plants.ROWS,
        variables=plants.VARIABLES,
        faults_per_kind=plants.FAULTS_PER_KIND,
        seed=seed,
    ).faults


def notice(entity: Dataset) -> list[Noticed]:
    with thread_count_of(1):
        detector = Comet().fit(entity.train)
        scored = detector.step_scores(entity.test)
    judge = detector.judge()
    judged = judge.push(scored.alerts)
    events = [change.event for change in judged.changes + judge.finish() if change.kind == "closed"]
    noticed = []
    for fault in faults_of(entity):
        severities = [event.severity for event in events if event.start < fault.stop and fault.start < event.stop]
        hits = np.flatnonzero(judged.flags[fault.start : fault.stop])
        delay = float(hits[0]) if len(hits) else np.nan
        noticed.append(Noticed(entity.name, fault.kind, max(severities, default=np.nan), delay))
    normal = far_from(entity.labels)
    return noticed + [Noticed(entity.name, NO_FAULT, e.severity, 0.0) for e in events if normal[e.start : e.stop].all()]


def severity_and_delay(part: str | None, workers: int) -> None:
    print("Faults with a flag / median severity / median delay in readings; without a fault: events / severity.\n")
    for families, kinds in ((("plants",), PLANT_FAULTS), (tuple(CHARACTERS), CHARACTER_FAULTS)):
        noticed = list(each(notice, chosen(families, part, None), workers))
        head("kind", *families)
        for kind in (*kinds, NO_FAULT):
            row(kind, *(shown([one for one in noticed if (one.family, one.kind) == (name, kind)]) for name in families))
        print()


def shown(noticed: list[Noticed]) -> str:
    found = [one for one in noticed if not np.isnan(one.delay)]
    if not found:
        return f"0 of {len(noticed)}"
    severity = np.nanmedian([one.severity for one in found])
    if found[0].kind == NO_FAULT:
        return f"{len(found)} / {severity:.2f}"
    delay = np.median([one.delay for one in found])
    return f"{len(found)} of {len(noticed)} / {severity:.2f} / {delay:.0f}"

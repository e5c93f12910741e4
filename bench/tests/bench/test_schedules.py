"""Either schedule of a deep baseline is compared on the trials that both have, and the better one with the base arm."""

import numpy as np
import pytest

import trials
from cometad_bench.experiments import CONVERGED, DEEP, EXPERIMENTS
from cometad_bench.frame import frame_of
from cometad_bench.paired import schedules_table
from cometad_bench.statistics import signed_rank

ENTITIES = [f"omi-{number}" for number in range(1, 9)]
FIGURES = {"comet": 0.8, "pca": 0.4, "knn": 0.5, "usad": 0.3, "usad" + CONVERGED: 0.6, "vtt": 0.9}


def value(arm, entity, seed):
    wobble = np.random.default_rng([ENTITIES.index(entity), seed, len(arm)]).normal() / 20
    return FIGURES[arm] + wobble


def trial(arm, entity, seed=0):
    return trials.trial(arm, value(arm, entity, seed), "ASD", entity, seed)


@pytest.fixture
def records():
    """Return results in which the converged arm lacks two entities, and all its seeds but one."""
    arms = [arm for arm in FIGURES if not arm.endswith(CONVERGED)]
    lines = [trial(arm, entity, seed) for arm in arms for entity in ENTITIES for seed in (0, 1)]
    return lines + [trial("usad" + CONVERGED, entity) for entity in ENTITIES[:6]]


def test_every_deep_baseline_has_both_schedules():
    names = [arm.name for arm in EXPERIMENTS["entity"].arms]
    assert all(name in names and name + CONVERGED in names for name in DEEP)


def test_both_schedules_are_compared_on_the_trials_that_both_have(records):
    (table,) = schedules_table(frame_of(records), "Schedules", "comet")
    (group,) = table.groups
    (row,) = group.rows
    common = ENTITIES[:6]
    means = {arm: np.mean([value(arm, entity, 0) for entity in common]) for arm in ("usad", "usad" + CONVERGED)}
    ours = [np.mean([value("comet", entity, seed) for seed in (0, 1)]) for entity in common]
    gains = [one - value("usad" + CONVERGED, entity, 0) for one, entity in zip(ours, common, strict=True)]
    simple = np.mean([value("knn", entity, seed) for entity in common for seed in (0, 1)])
    expected = [6, *means.values(), np.mean(ours), simple, np.mean(gains), signed_rank(gains)]
    assert (group.name, row.arm) == ("ASD", "usad")
    assert [cell.value for cell in row.cells] == pytest.approx(expected)


def test_a_base_arm_without_one_of_the_entities_is_not_compared(records):
    lacking = [one for one in records if (one["arm"], one["entity"]) != ("comet", "omi-1")]
    (table,) = schedules_table(frame_of(lacking), "Schedules", "comet")
    (row,) = table.groups[0].rows
    assert [cell.value is None for cell in row.cells] == [False, False, False, True, False, True, True]


def test_without_a_trial_of_either_schedule_there_is_no_table(records):
    others = frame_of([one for one in records if one["arm"] != "usad"])
    assert list(schedules_table(others, "Schedules", "comet")) == []

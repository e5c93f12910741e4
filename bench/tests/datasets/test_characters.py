"""Plants of five characters: the same by seed, faults where they should be, and each character as described."""

import itertools

import numpy as np
import pytest

from cometad.datasets.synthetic import QUIET_START, fault_labels
from cometad.errors import ParameterError
from cometad_bench.datasets.characters import CHARACTER_FAULTS, CHARACTERS, plant_of

ROWS = 3000
every_character = pytest.mark.parametrize("character", CHARACTERS)


def counters_of(plant):
    return [i for i, name in enumerate(plant.names) if name.startswith(("id", "steady", "metered"))]


@every_character
@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_gives_the_same_plant_and_faults_change_nothing_but_their_variables(character, seed):
    faulty, again, normal = (plant_of(character, rows=ROWS, faults_per_kind=count, seed=seed) for count in (2, 2, 0))
    assert (faulty.train.tobytes(), faulty.test.tobytes()) == (again.train.tobytes(), again.test.tobytes())
    assert faulty.faults == again.faults
    assert faulty.train.tobytes() != plant_of(character, rows=ROWS, seed=9).train.tobytes()
    np.testing.assert_array_equal(faulty.train, normal.train)
    assert not normal.faults
    assert not normal.labels.any()
    sensors = np.delete(faulty.test - normal.test, counters_of(faulty), axis=1)
    assert np.all(sensors[~faulty.labels] == 0)
    changed = np.diff(faulty.test - normal.test, axis=0, prepend=0.0)
    for fault in faulty.faults:
        by_variable = np.abs(changed[fault.start : fault.stop]).max(axis=0)
        assert (by_variable[list(fault.variables)] > 0).all(), fault
        assert np.delete(by_variable, fault.variables).max() <= 1.0, fault  # a counter's whole part may differ by one
    assert len(faulty.faults) == 14
    assert {fault.kind for fault in faulty.faults} == set(CHARACTER_FAULTS)
    assert faulty.faults[0].start >= QUIET_START * ROWS
    assert faulty.faults[-1].stop < ROWS
    assert all(one.stop < next_one.start for one, next_one in itertools.pairwise(faulty.faults))
    assert all(1 <= len(fault.variables) <= 3 for fault in faulty.faults)
    np.testing.assert_array_equal(faulty.labels, fault_labels(faulty.faults, ROWS))


@every_character
def test_the_smallest_plant_has_all_faults(character):
    plants = [plant_of(character, rows=3000, variables=4, seed=seed) for seed in range(4)]
    assert all(len(plant.faults) == 14 and plant.test.shape == (3000, 4) for plant in plants)


def test_a_counter_keeps_the_difference_that_a_fault_made():
    faulty, normal = (plant_of("counters", rows=ROWS, faults_per_kind=count, seed=1) for count in (2, 0))
    gained = np.diff((faulty.test - normal.test)[:, counters_of(faulty)], axis=0)
    assert np.abs(gained[~faulty.labels[1:]]).max() <= 1  # both show the whole part of a sum
    assert np.abs(gained[faulty.labels[1:]]).max() > 1


@every_character
def test_the_test_part_runs_on_from_the_training_part(character):
    plant = plant_of(character, rows=ROWS, faults_per_kind=0)
    steps = np.abs(np.diff(plant.train, axis=0)).max(axis=0)
    assert (np.abs(plant.test[0] - plant.train[-1]) <= 1.5 * steps).all()


@pytest.mark.parametrize("seed", range(3))
def test_counters_only_grow(seed):
    plant = plant_of("counters", rows=ROWS, seed=seed)
    counts = counters_of(plant)
    readings = np.concatenate([plant.train, plant.test])[:, counts]
    assert (np.diff(readings, axis=0) >= 0).all()
    assert (readings == np.floor(readings)).all()
    assert (np.diff(plant.train[:, 0]) == 1).all()
    assert len(counts) < len(plant.names)


@pytest.mark.parametrize("seed", range(10))
def test_walks_leave_their_training_range(seed):
    plant = plant_of("walks", faults_per_kind=0, seed=seed)
    outside = (plant.test < plant.train.min(axis=0)) | (plant.test > plant.train.max(axis=0))
    assert (outside.mean(axis=0) > 0.05).sum() >= 3


def test_modes_switch_several_times_in_training():
    plant = plant_of("modes", seed=0)
    on_off = [i for i in range(12) if len(np.unique(plant.train[:, i])) == 2]
    assert len(on_off) == 3
    assert all((np.diff(plant.train[:, i]) != 0).sum() > 5 for i in on_off)


def test_neighboring_readings_of_a_periodic_plant_predict_each_other_better_than_those_of_a_noisy_one():
    explained = {}
    for character in ("periodic", "noisy"):
        train = plant_of(character, rows=ROWS).train
        past, now = np.column_stack([train[:-2], train[1:-1], np.ones(ROWS - 2)]), train[2:]
        rest = now - past @ np.linalg.lstsq(past, now, rcond=None)[0]
        explained[character] = (1 - rest.var(axis=0) / now.var(axis=0)).mean()
    assert explained["periodic"] > 0.98
    assert explained["noisy"] < 0.8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"character": "calm"}, "Unknown character 'calm'; choose from periodic"),
        ({"character": "noisy", "variables": 3}, "at least 4 variables"),
        ({"character": "noisy", "rows": 100}, "Use at least 355"),
        ({"character": "noisy", "faults_per_kind": -1}, "must not be negative"),
    ],
)
def test_impossible_plants_are_refused(options, message):
    with pytest.raises(ParameterError, match=message):
        plant_of(**options)

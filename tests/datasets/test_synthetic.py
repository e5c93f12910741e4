"""The synthetic plant: what is planted where, and which simple scores find it."""

import itertools

import numpy as np
import pytest

from cometad.datasets.synthetic import PLANT_FAULTS, QUIET_START, synthetic_plant
from cometad.errors import ParameterError

SEEDS = range(4)
SMALL = {"train_rows": 2000, "test_rows": 2000}


def small_plant(**options):
    return synthetic_plant(**{**SMALL, **options})


def standardized(plant):
    mean, spread = plant.train.mean(axis=0), plant.train.std(axis=0)
    return (plant.train - mean) / spread, (plant.test - mean) / spread


def ranking(scores, labels):
    """AUC-ROC: the share of (anomalous, normal) pairs in which the anomalous reading scores higher."""
    order = np.argsort(np.argsort(scores))
    anomalous = labels.sum()
    return (order[labels].sum() - anomalous * (anomalous - 1) / 2) / (anomalous * (~labels).sum())


def ranking_per_kind(score, seeds=SEEDS):
    found = {kind: [] for kind in PLANT_FAULTS}
    for seed in seeds:
        plant = synthetic_plant(seed=seed, drift=0)
        scores = score(*standardized(plant))
        for fault in plant.faults:
            rows = ~plant.labels
            rows[fault.start : fault.stop] = True
            found[fault.kind].append(ranking(scores[rows], plant.labels[rows]))
    return {kind: np.mean(values) for kind, values in found.items()}


def patches(series, length=8):
    padded = np.pad(series, ((length - 1, 0), (0, 0)), mode="edge")
    return np.lib.stride_tricks.sliding_window_view(padded, length, axis=0).reshape(len(series), -1)


def distance_to_principal_plane(train, test, dimensions):
    vectors = np.linalg.eigh(train.T @ train)[1][:, -dimensions:]
    return np.square(test - test @ vectors @ vectors.T).sum(axis=1)


def test_the_same_seed_gives_the_same_bytes():
    one, other = small_plant(seed=3), small_plant(seed=3)
    assert one.train.tobytes() == other.train.tobytes()
    assert one.test.tobytes() == other.test.tobytes()
    assert one.faults == other.faults
    assert one.train.tobytes() != small_plant(seed=4).train.tobytes()


def test_the_default_plant_has_twenty_four_variables_and_two_faults_of_each_kind():
    plant = synthetic_plant()
    assert plant.train.shape == plant.test.shape == (12_000, 24)
    assert sorted(fault.kind for fault in plant.faults) == sorted([*PLANT_FAULTS, *PLANT_FAULTS])
    assert np.isfinite(plant.train).all()
    assert np.isfinite(plant.test).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_labels_are_the_union_of_the_faults(seed):
    plant = small_plant(seed=seed)
    rows = {row for fault in plant.faults for row in range(fault.start, fault.stop)}
    assert set(np.flatnonzero(plant.labels)) == rows


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("drift", [0, 1])
def test_each_fault_changes_exactly_its_variables_and_rows(seed, drift):
    plant, clean = small_plant(seed=seed, drift=drift), small_plant(seed=seed, drift=drift, faults_per_kind=0)
    expected = np.zeros(plant.test.shape, dtype=bool)
    for fault in plant.faults:
        expected[fault.start : fault.stop, list(fault.variables)] = True
    np.testing.assert_array_equal(plant.test != clean.test, expected)
    np.testing.assert_array_equal(plant.train, clean.train)
    assert not clean.labels.any()


def test_drift_changes_only_the_test_part_and_grows_from_zero():
    drifting, steady = small_plant(drift=1, faults_per_kind=0), small_plant(drift=0, faults_per_kind=0)
    np.testing.assert_array_equal(drifting.train, steady.train)
    change = np.abs(drifting.test - steady.test) / steady.train.std(axis=0)
    np.testing.assert_allclose(change[0], 0, atol=1e-9)
    drifted = change[-500:].mean(axis=0) > 0.01
    assert 5 <= drifted.sum() <= 8
    np.testing.assert_allclose(change[:, ~drifted], 0, atol=1e-9)
    assert change[-500:, drifted].mean() > 0.15  # offsets drift to about 0.4 standard deviations


def test_twice_the_drift_moves_readings_twice_as_far():
    plants = [small_plant(drift=drift, faults_per_kind=0).test for drift in (0, 1, 2)]
    np.testing.assert_allclose(plants[2] - plants[0], 2 * (plants[1] - plants[0]), atol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_are_separated_and_start_after_the_quiet_start(seed):
    faults = synthetic_plant(seed=seed).faults
    assert faults[0].start >= QUIET_START * 12_000
    gaps = [later.start - earlier.stop for earlier, later in itertools.pairwise(faults)]
    assert min(gaps) > 250


@pytest.mark.parametrize("variables", [8, 13, 24, 40])
def test_every_variable_has_a_unique_name(variables):
    plant = small_plant(variables=variables)
    assert len(set(plant.names)) == len(plant.names) == plant.train.shape[1] == variables


def test_one_variable_is_near_constant_and_one_is_binary():
    plant = small_plant()
    voltage, standby = (plant.train[:, plant.names.index(name)] for name in ("plant_voltage", "plant_standby"))
    assert voltage.std() / voltage.mean() < 0.001
    assert set(np.unique(standby)) == {0.0, 1.0}


@pytest.mark.parametrize("seed", range(3))
def test_temperature_follows_a_daily_cycle_of_1440_time_steps(seed):
    plant = synthetic_plant(train_rows=100 * 1440, test_rows=254, variables=8, faults_per_kind=0, seed=seed)
    temperature = plant.train[:, plant.names.index("unit1_temperature")]
    spectrum = np.abs(np.fft.rfft(temperature - temperature.mean())) * 2 / len(temperature)
    daily, nearby = spectrum[100], spectrum[80:121]
    assert 4 < daily < 8  # a tenth of the span of 60, times a gain between 0.8 and 1.2
    assert daily == nearby.max()


def test_a_stuck_sensor_repeats_its_last_reading():
    plant = small_plant()
    for fault in (fault for fault in plant.faults if fault.kind == "stuck"):
        readings = plant.test[fault.start - 1 : fault.stop, list(fault.variables)]
        assert (readings == readings[0]).all()


def test_only_spikes_leave_the_training_range():
    plant = synthetic_plant(drift=0)
    low, high = plant.train.min(axis=0), plant.train.max(axis=0)
    for fault in plant.faults:
        columns = list(fault.variables)
        values = plant.test[fault.start : fault.stop, columns]
        outside = (values < low[columns]) | (values > high[columns])
        assert outside.any() == (fault.kind == "spike"), fault


def test_the_size_of_single_readings_reveals_spikes_and_little_else():
    found = ranking_per_kind(lambda train, test: np.abs(test).max(axis=1))
    assert found.pop("spike") > 0.95
    assert max(found.values()) < 0.75


def test_distance_to_the_principal_plane_reveals_context_and_correlation_faults():
    found = ranking_per_kind(lambda train, test: distance_to_principal_plane(train, test, 12))
    assert found["context"] > 0.85
    assert found["correlation"] > 0.7


def test_short_patches_reveal_every_kind_of_fault():
    def score(train, test):
        return distance_to_principal_plane(patches(train), patches(test), 60)

    assert min(ranking_per_kind(score, seeds=range(2)).values()) > 0.7


def test_the_dataset_of_a_plant_has_its_faults_as_causes():
    plant = small_plant()
    dataset = plant.as_dataset()
    assert len(dataset.causes) == len(plant.faults)
    assert dataset.causes[0] == ((plant.faults[0].start, plant.faults[0].stop), plant.faults[0].variables)
    np.testing.assert_array_equal(dataset.labels, plant.labels)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variables": 7}, "at least 8 variables"),
        ({"drift": -1}, "not negative"),
        ({"drift": float("nan")}, "not negative"),
        ({"faults_per_kind": -1}, "not negative"),
        ({"test_rows": 199}, "at least 254"),
        ({"train_rows": 100, "faults_per_kind": 0}, "at least 200"),
    ],
)
def test_impossible_plants_are_refused_with_advice(options, message):
    with pytest.raises(ParameterError, match=message):
        small_plant(**options)


@pytest.mark.parametrize("faults_per_kind", [1, 3, 10])
def test_the_smallest_plant_has_room_for_its_faults(faults_per_kind):
    rows = max(200, int(np.ceil(24 * 5 * faults_per_kind / 0.95)) + 1)
    plant = synthetic_plant(train_rows=rows, test_rows=rows, faults_per_kind=faults_per_kind)
    assert len(plant.faults) == 5 * faults_per_kind
    assert all(fault.start < fault.stop for fault in plant.faults)

"""Plants whose faults break nothing but relations: each variable alone looks as before."""

import numpy as np
import pytest

from cometad_bench.relations import BASE_RATE, FAULTS, LENGTHS, TURN, relation_family, relation_plant

LAGS = (1, 5, 20, 45)


@pytest.fixture(scope="module")
def plants():
    return [relation_plant(60, False, seed) for seed in range(4)]


def broken_and_normal(plant):
    """The broken variables within faults, one array (time, variable) per fault, and the same ones in training."""
    faults = [plant.test[start:stop, variables] for (start, stop), variables in plant.causes]
    return faults, plant.train[:, plant.causes[0][1]]


def autocorrelation(parts, lag):
    products = np.concatenate([part[lag:] * part[:-lag] for part in parts])
    return products.mean() / np.concatenate(parts).var()


def test_broken_variables_keep_their_level_their_values_and_their_spectrum(plants):
    faults, normal = zip(*map(broken_and_normal, plants), strict=True)
    scaled = [part / own.std(axis=0) for parts, own in zip(faults, normal, strict=True) for part in parts]
    usual = [own / own.std(axis=0) for own in normal]
    inside, outside = np.concatenate(scaled), np.concatenate(usual)
    assert abs(inside.mean()) < 0.1
    np.testing.assert_allclose(*(np.quantile(part, (0.05, 0.25, 0.75, 0.95)) for part in (inside, outside)), rtol=0.1)
    for lag in LAGS:
        assert abs(autocorrelation(scaled, lag) - autocorrelation(usual, lag)) < 0.1


def test_a_fault_breaks_what_the_others_tell_about_a_variable(plants):
    for plant in plants:
        half = plant.train.shape[1] // 2
        told = np.linalg.lstsq(plant.train[:, :half], plant.train[:, half:], rcond=None)[0]
        apart = np.abs(plant.test[:, half:] - plant.test[:, :half] @ told).mean(axis=1)
        assert apart[plant.labels].mean() > 2.5 * apart[~plant.labels].mean()


def test_nothing_jumps_where_a_fault_begins_or_ends(plants):
    for plant in plants:
        steps = np.abs(np.diff(plant.test, axis=0)).mean(axis=1)
        edges = np.flatnonzero(np.diff(plant.labels.astype(int)))
        near = np.unique(np.concatenate([edges + k for k in range(-TURN, TURN)]))
        assert steps[near].mean() < 1.5 * steps.mean()


def test_the_family_has_what_was_asked_for():
    family = relation_family(range(1))
    assert [one.entity for one in family] == ["12-seed-0", "12s-seed-0", "60-seed-0", "60s-seed-0"]
    for one in family:
        lengths = [stop - start for (start, stop), _ in one.causes]
        assert len(one.causes) == FAULTS
        assert LENGTHS[0] <= min(lengths) < max(lengths) <= LENGTHS[1]
        assert abs(one.labels.mean() - BASE_RATE) < 0.01
        single = {len(variables) for _, variables in one.causes} == {1}
        assert single == ("s" in one.entity.split("-")[0])
    assert family[0].fingerprint == relation_plant(12, False, 0).fingerprint != relation_plant(12, False, 1).fingerprint

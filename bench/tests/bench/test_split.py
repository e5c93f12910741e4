"""Which entities serve to choose and which to judge, and the synthetic plants among them."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from cometad.datasets.synthetic import PLANT_FAULTS, synthetic_plant
from cometad_bench.datasets.readers import load
from cometad_bench.plants import plant_family
from cometad_bench.split import DEVELOPMENT, part_of

SHARED = Path(__file__).parents[4] / "shared" / "data"


def test_the_part_is_the_parity_of_the_hash_of_the_name():
    for entity in [f"machine-{i}" for i in range(50)]:
        is_odd = int(hashlib.sha1(entity.encode()).hexdigest(), 16) % 2
        assert part_of("SMD", entity) == ("validate" if is_odd else "select")


def test_entities_seen_in_development_never_validate():
    assert {part_of(dataset, entity) for dataset, seen in DEVELOPMENT.items() for entity in seen} == {"select"}


def test_the_channel_that_repeats_another_belongs_to_no_part():
    assert part_of("MSL", "P-14") is None
    assert part_of("SMAP", "P-14") is not None


def test_plants_differ_by_seed_and_have_every_kind_of_fault():
    plants = plant_family()
    assert [plant.entity for plant in plants] == [f"seed-{seed}" for seed in range(10)]
    assert {plant.name for plant in plants} == {"plants"}
    assert len({plant.fingerprint for plant in plants}) == 10
    assert {plant.train.shape for plant in plants} == {(5000, 12)}
    again = synthetic_plant(train_rows=5000, test_rows=5000, variables=12, faults_per_kind=2, seed=3)
    np.testing.assert_array_equal(plants[3].test, again.test)
    assert {fault.kind for fault in again.faults} == set(PLANT_FAULTS)
    assert len(plants[3].causes) == 2 * len(PLANT_FAULTS)


def test_both_parts_have_plants():
    parts = [part_of("plants", f"seed-{seed}") for seed in range(10)]
    assert parts.count("select") == parts.count("validate") == 5


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"the benchmark archives are not in {SHARED}")
@pytest.mark.parametrize(
    ("name", "sizes"), [("SKAB", (15, 19)), ("ASD", (7, 5)), ("MSL", (16, 10)), ("SMAP", (28, 26))]
)
def test_the_official_datasets_are_split_in_two(name, sizes):
    parts = [part_of(name, dataset.entity) for dataset in load(name, SHARED)]
    assert (parts.count("select"), parts.count("validate")) == sizes

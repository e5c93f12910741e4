"""Ray: the same answers as local processes, to the bit; one small cluster is shared by the tests."""

import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from cometad import Fleet
from cometad.cli import main
from cometad.errors import InputError
from cometad.fleet.ray_engine import RayEngine, check_reachable
from fleet_case import die_at, machines

TESTS = str(Path(__file__).parents[1])


@pytest.fixture(scope="module")
def cluster():
    """A cluster of two cores on this machine."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'cometad[ray]'")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Workers import this package and the functions of the tests.
        patch.setenv("PYTHONPATH", os.pathsep.join([TESTS, os.environ.get("PYTHONPATH", "")]))
        ray.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=100 * 2**20,
            _node_ip_address="127.0.0.1",
        )
        yield ray
        ray.shutdown()


@pytest.mark.filterwarnings("ignore")
def test_ray_local_processes_and_this_process_give_the_same_bytes(cluster, tmp_path):
    machines(5).write_csv(tmp_path / "history.csv")
    fleets = [
        Fleet.fit(tmp_path / "history.csv", by="machine", folder=tmp_path / engine, engine=engine, workers=2)
        for engine in ("ray", "local", "serial")
    ]
    contents = [[fleet.content(name) for name in fleet] for fleet in fleets]
    assert len(contents[0]) == 5
    assert contents[0] == contents[1] == contents[2]
    scores = [
        fleet.score(tmp_path / "history.csv", engine=engine)
        for fleet, engine in zip(fleets, ("ray", "serial"), strict=False)
    ]
    assert scores[0].equals(scores[1])


@pytest.mark.filterwarnings("ignore")
def test_a_killed_ray_worker_is_replaced_and_its_task_tried_again(cluster, tmp_path):
    tasks = [("a", ""), ("fragile", str(tmp_path / "died")), ("b", "")]
    outcomes = sorted(RayEngine(workers=2).run(die_at, tasks))
    assert [outcome.result for outcome in outcomes] == ["A", "FRAGILE", "B"]


@pytest.mark.filterwarnings("ignore")
def test_a_task_that_kills_every_ray_worker_is_given_up_with_the_reason(cluster, tmp_path):
    tasks = [("deadly", str(tmp_path / "died")), ("b", "")]
    first, second = sorted(RayEngine(workers=2).run(die_at, tasks), key=lambda outcome: outcome.number)
    assert second.result == "B"
    assert first.error.startswith("All 3 attempts failed (")


@pytest.mark.filterwarnings("ignore")
def test_what_a_function_raises_on_ray_is_raised_here(cluster):
    with pytest.raises(TypeError):
        list(RayEngine().run(abs, ["text"]))


@pytest.mark.filterwarnings("ignore")
def test_the_benchmark_runs_its_trials_on_ray(cluster, tmp_path, capsys):
    rng = np.random.default_rng(0)
    folder = tmp_path / "data" / "ASD" / "omi-1"
    folder.mkdir(parents=True)
    for name, array in (("train", rng.normal(size=(300, 3))), ("test", rng.normal(size=(300, 3)))):
        np.save(folder / f"{name}.npy", array)
    np.save(folder / "test_label.npy", np.arange(300) // 20 == 7)
    command = ["bench", "run", "entity", "--dataset", "ASD", "--arm", "pca", "--seed", "0", "--engine", "ray"]
    command += ["--data-dir", str(tmp_path / "data"), "--results", str(tmp_path / "results")]
    assert main(command) == 0
    assert "Trials: 1 done, 0 done before, 0 failed." in capsys.readouterr().out


@pytest.mark.parametrize(
    "address, words",
    [
        ("127.0.0.1:1", r"Cannot reach a Ray cluster at '127.0.0.1:1' \(Connection refused\)\. Check the address"),
        ("nowhere", r"Cannot read the address 'nowhere'\. Write it like 10.0.0.5:6379\."),
        ("127.0.0.1:99999999", "Cannot reach a Ray cluster"),
    ],
)
def test_an_unreachable_address_is_refused_in_one_sentence(address, words):
    with pytest.raises(InputError, match=words):
        check_reachable(address)

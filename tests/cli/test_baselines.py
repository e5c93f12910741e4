"""Every baseline on the command line: fit, save, score, and refuse what makes no sense."""

import numpy as np
import polars as pl
import pytest

from cli_case import done, table_of_readings
from cometad.baselines import BASELINES
from cometad.network import OneCycle
from contract import FRESH, NAMES, NORMAL
from tiny import TINY


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("readings")
    pl.DataFrame(NORMAL, schema=NAMES).write_csv(path / "normal.csv")
    pl.DataFrame(FRESH, schema=NAMES).write_csv(path / "fresh.csv")
    return path


@pytest.fixture(autouse=True)
def inside(folder, monkeypatch):
    monkeypatch.chdir(folder)


def sets(name):
    plain = {key: value for key, value in TINY.get(name, {}).items() if key != "schedule"}
    given = [option for key, value in plain.items() for option in ("--set", f"{key}={value}")]
    return [*given, "--steps", "4"] if name in TINY else given


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_is_fitted_and_scores(name, folder):
    fits = ("fit", "normal.csv", "-o", f"{name}.model", "--detector", name, "--seed", "3", *sets(name))
    assert "Fitted on 500 readings of 3 variables" in done(*fits).out
    done("score", f"{name}.model", "fresh.csv", "-o", f"{name}.csv")
    table = pl.read_csv(f"{name}.csv")
    assert table.columns == ["step", "score", "alert_score", "threshold", "anomaly"]
    detector = BASELINES[name].load(folder / f"{name}.model")
    assert (detector.seed, detector.verbose) == (3, False)
    assert np.array_equal(table["score"].to_numpy(), detector.decision_function(FRESH))
    assert np.array_equal(table["anomaly"].to_numpy(), detector.predict(FRESH))


def test_steps_keep_the_learning_rate_of_the_detector():
    done("fit normal.csv -o vtt.model --detector vtt", *sets("vtt"))
    assert BASELINES["vtt"].load("vtt.model").schedule == OneCycle(4, BASELINES["vtt"]().schedule.learning_rate)


def test_the_events_of_a_detector_that_cannot_stream_have_times(tmp_path):
    readings = table_of_readings(300, seed=0)
    readings.write_csv(tmp_path / "normal.csv")
    readings[:60].with_columns(flow=pl.Series([9.0 * (step == 40) for step in range(60)])).write_csv(
        tmp_path / "fresh.csv"
    )
    done("fit", tmp_path / "normal.csv", "-o", tmp_path / "plain.comet", "--detector", "squared-norm")
    done("score", tmp_path / "plain.comet", tmp_path / "fresh.csv", "--events", tmp_path / "events.csv")
    events = pl.read_csv(tmp_path / "events.csv")
    assert 40 in events["start"]
    assert events["start_time"].to_list() == [f"2024-03-01T00:{start:02}:00Z" for start in events["start"]]

"""Every baseline on the command line: fit, save, score, and refuse what makes no sense."""

import numpy as np
import polars as pl
import pytest

from cometad.baselines import BASELINES
from cometad.cli import main
from cometad.network import OneCycle
from contract import FRESH, NAMES, NORMAL
from tiny import TINY


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("readings")
    pl.DataFrame(NORMAL, schema=NAMES).write_csv(path / "normal.csv")
    pl.DataFrame(FRESH, schema=NAMES).write_csv(path / "fresh.csv")
    return path


@pytest.fixture
def inside(folder, monkeypatch):
    monkeypatch.chdir(folder)


def sets(name):
    plain = {key: value for key, value in TINY.get(name, {}).items() if key != "schedule"}
    given = [option for key, value in plain.items() for option in ("--set", f"{key}={value}")]
    return [*given, "--steps", "4"] if name in TINY else given


@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_is_fitted_and_scores(name, folder, capsys):
    assert main(["fit", "normal.csv", "-o", f"{name}.model", "--detector", name, "--seed", "3", *sets(name)]) == 0
    assert "Fitted on 500 readings of 3 variables" in capsys.readouterr().out
    assert main(["score", f"{name}.model", "fresh.csv", "-o", f"{name}.csv"]) == 0
    table = pl.read_csv(f"{name}.csv")
    assert table.columns == ["step", "score", "alert_score", "threshold", "anomaly"]
    detector = BASELINES[name].load(folder / f"{name}.model")
    assert (detector.seed, detector.verbose) == (3, False)
    assert np.array_equal(table["score"].to_numpy(), detector.decision_function(FRESH))
    assert np.array_equal(table["anomaly"].to_numpy(), detector.predict(FRESH))


@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["fit", "normal.csv", "-o", "x", "--detector", "knm"],
            "Unknown detector 'knm'. Did you mean knn? Available: comet, network, random,",
        ),
        (["fit", "normal.csv", "-o", "x", "--detector", "knn", "--steps", "3"], "knn is not trained in steps"),
        (
            ["fit", "normal.csv", "-o", "x", "--detector", "vtt", "--set", "dims=3"],
            "Unknown hyperparameter 'dims'. Did you mean dim?",
        ),
        (
            ["fit", "normal.csv", "-o", "x", "--detector", "vtt", "--preset", "paper", "--dataset", "MSL"],
            "--dataset selects sizes of comet, not of vtt",
        ),
        (["fit", "normal.csv", "-o", "x", "--detector", "pca", "--set", "seed=3"], "Unknown hyperparameter 'seed'"),
    ],
)
def test_a_mistake_is_reported_in_a_sentence(arguments, words, capsys):
    assert main(arguments) == 2
    stderr = capsys.readouterr().err
    assert words in stderr
    assert stderr.count("\n") == 1


@pytest.mark.usefixtures("inside")
def test_a_stream_is_refused(capsys):
    BASELINES["pca"]().fit(NORMAL).save("pca.model")
    assert main(["stream", "pca.model"]) == 2
    assert "'pca.model' holds a PcaError, which cannot score a stream. Use cometad score." in capsys.readouterr().err


@pytest.mark.usefixtures("inside")
def test_steps_keep_the_learning_rate_of_the_detector():
    assert main(["fit", "normal.csv", "-o", "vtt.model", "--detector", "vtt", *sets("vtt")]) == 0
    assert BASELINES["vtt"].load("vtt.model").schedule == OneCycle(4, BASELINES["vtt"]().schedule.learning_rate)

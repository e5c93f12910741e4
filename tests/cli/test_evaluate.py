"""`cometad evaluate`: nine metrics for a file of labels and a file of scores."""

import json

import numpy as np
import polars as pl
import pytest

from cometad.cli import main
from cometad.metrics import METRICS, evaluate

LABELS = np.array([0, 1, 1, 0, 0, 0, 1, 0])
SCORES = np.array([0.1, 0.9, 0.8, 0.2, 0.3, 0.1, 0.2, 0.1])


@pytest.fixture
def files(tmp_path):
    np.save(tmp_path / "labels.npy", LABELS)
    pl.DataFrame({"step": range(8), "score": SCORES}).write_csv(tmp_path / "scores.csv")
    return str(tmp_path / "labels.npy"), str(tmp_path / "scores.csv")


def test_json_holds_the_result_of_evaluate(files, capsys):
    assert main(["evaluate", *files, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["name"]: row["value"] for row in rows} == evaluate(LABELS, SCORES)


def test_the_table_names_every_metric_and_its_oracles(files, capsys):
    assert main(["evaluate", *files]) == 0
    printed = capsys.readouterr().out
    assert all(metric.title in printed for metric in METRICS.values())
    assert printed.count("oracle threshold") == sum(metric.needs_oracle_threshold for metric in METRICS.values())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("missing.npy", None), "missing.npy"),
        ((None, None, "--scores-column", "nope"), "has no column 'nope'. Available: step, score"),
        ((None, None, "--protocol", "nope"), "Unknown protocol 'nope'. Available: paper"),
    ],
)
def test_mistakes_get_a_sentence_and_exit_code_2(files, arguments, sentence, capsys):
    given = [file if argument is None else argument for argument, file in zip(arguments, files, strict=False)]
    assert main(["evaluate", *given, *arguments[2:]]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert "Traceback" not in error

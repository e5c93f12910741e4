"""`cometad evaluate`: nine metrics for a file of labels and a file of scores."""

import json

import numpy as np
import polars as pl
import pytest

from cli_case import done
from cometad.metrics import METRICS, evaluate

LABELS = np.array([0, 1, 1, 0, 0, 0, 1, 0])
SCORES = np.array([0.1, 0.9, 0.8, 0.2, 0.3, 0.1, 0.2, 0.1])


@pytest.fixture
def files(tmp_path):
    np.save(tmp_path / "labels.npy", LABELS)
    pl.DataFrame({"step": range(8), "score": SCORES}).write_csv(tmp_path / "scores.csv")
    return str(tmp_path / "labels.npy"), str(tmp_path / "scores.csv")


def test_json_holds_the_result_of_evaluate(files):
    rows = json.loads(done("evaluate", *files, "--json").out)["rows"]
    assert {row["name"]: row["value"] for row in rows} == evaluate(LABELS, SCORES)


def test_the_table_names_every_metric_and_its_oracles(files):
    printed = done("evaluate", *files).out
    assert all(metric.title in printed for metric in METRICS.values())
    assert printed.count("oracle threshold") == sum(metric.needs_oracle_threshold for metric in METRICS.values())

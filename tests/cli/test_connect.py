"""`cometad connect`: what it refuses, and what it writes."""

import json

import numpy as np
import polars as pl
import pytest

from cli_case import done, refused
from cometad import Comet, load
from cometad.connect.source import CONNECTORS
from cometad.errors import OutputError
from cometad.live.output import AnswersFile
from serve_case import NAMES, START, faulty, frame, plant


class Nothing:
    """A source of our own that ends at once."""

    def __init__(self, address):
        pass

    async def run(self, intake):
        intake.connected()


def test_a_mistake_is_refused_before_anything_is_opened(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(CONNECTORS.rows, "none", Nothing)
    refused("Pass --stream NAME", "connect none://plant --detector absent.comet")
    refused("There is no stream 'pump'", "connect none://plant --stream pump")
    assert "secret" not in refused("contains a password", "connect none://u:secret@plant").err


def test_a_source_that_ends_ends_the_command(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(CONNECTORS.rows, "none", Nothing)
    assert "Took 0 readings; set 0 messages aside." in done("connect none://plant").err


def line(step, stream="pump", start=0.5):
    return {"stream": stream, "step": step, "time": start + step}


def steps(path):
    return [(one["stream"], one["step"]) for one in map(json.loads, path.read_text().splitlines())]


def test_a_file_is_continued_and_a_cut_line_is_written_again(tmp_path):
    path = tmp_path / "lines.jsonl"
    first = AnswersFile(path)
    first.write_lines([line(0), line(0, "fan"), line(1)])
    first.close()
    path.write_bytes(path.read_bytes() + b'{"stream": "pump", "st')
    again = AnswersFile(path)
    again.write_lines([line(1), line(2), line(0, "fan"), line(1, "fan")])
    again.close()
    assert steps(path) == [("pump", 0), ("fan", 0), ("pump", 1), ("pump", 2), ("fan", 1)]


def test_a_file_of_other_readings_or_of_somebody_else_is_left_alone(tmp_path):
    path = tmp_path / "lines.jsonl"
    first = AnswersFile(path)
    first.write_lines([line(0), line(1)])
    first.close()
    before = path.read_bytes()
    again = AnswersFile(path)
    with pytest.raises(OutputError, match="other readings"):
        again.write_lines([line(0, start=7.0)])
    again.close()
    assert path.read_bytes() == before
    path.write_text("dear diary\n")
    with pytest.raises(OutputError, match="Line 1"):
        AnswersFile(path)
    assert path.read_text() == "dear diary\n"


def test_readings_of_a_file_become_lines_once_however_often_it_runs(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    rows = faulty(200)
    Comet().fit(frame(plant(600))).save(tmp_path / "pump.comet")
    table = frame(rows).insert_column(0, pl.Series("time", [START + i for i in range(len(rows))]))
    (tmp_path / "in").mkdir()
    table.head(150).write_csv("in/a.csv")
    command = ["connect", f"file://{tmp_path}/in/?follow=no", "--stream", "pump", "--detector", "pump.comet"]
    done(*command, "-o", "lines.jsonl")
    table.tail(50).write_csv("in/b.csv")
    for _ in range(2):
        done(*command, "-o", "lines.jsonl")
    lines = list(map(json.loads, (tmp_path / "lines.jsonl").read_text().splitlines()))
    assert [one["step"] for one in lines] == list(range(200))
    assert [one["time"] for one in lines] == [START + i for i in range(200)]
    scored = load(tmp_path / "pump.comet").stream().update_many(rows)
    np.testing.assert_array_equal([one["alert_score"] for one in lines], scored.alert_scores)
    assert any(one.get("events") for one in lines)
    assert list(lines[0]["variables"]) == [
        name for _, name in sorted(zip(-scored.variables[0], NAMES, strict=True), key=lambda pair: pair[0])
    ]

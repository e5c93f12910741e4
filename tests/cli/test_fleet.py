"""`cometad fleet`: the verbs, their exit codes and what they say about bad input."""

import json
import re

import polars as pl
import pytest

from cli_case import done, refused, run
from cometad import Comet, Fleet
from cometad.fleet.storage import FleetFolder
from contract import is_a_sentence
from fleet_case import machine_rows, machines


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with history, today's readings and a fleet."""
    folder = tmp_path_factory.mktemp("cli-fleet")
    machines(3).write_csv(folder / "history.csv")
    today = machines(3, rows=200, seed=5)
    broken = (pl.col("machine") == "001") & pl.col("time").dt.hour().is_between(1, 1)
    today.with_columns(pl.when(broken).then(9.0).otherwise("flow").alias("flow")).write_parquet(
        folder / "today.parquet"
    )
    done("fleet", "fit", folder / "history.csv", "--by", "machine", "-o", folder / "fleet")
    return folder


def test_fit_takes_the_options_of_a_single_fit(folder):
    options = ["--by", "machine", "--views", "patterns:16,joint", "--threshold", "quantile:0.02", "--seed", "7"]
    _, out, _ = done("fleet", "fit", folder / "history.csv", "-o", folder / "other", *options)
    assert out.endswith("has 3 detectors.\n")
    made = Fleet.load(folder / "other")["000"]
    assert (len(made.views), made.threshold.rate, made.seed) == (2, 0.02, 7)
    own = machines(3).filter(pl.col("machine") == "000").drop("machine")
    assert made.to_bytes() == Comet(**made.get_params()).fit(own).to_bytes()


def test_the_same_command_again_says_that_nothing_is_left(folder):
    _, out, err = done("fleet", "fit", folder / "history.csv", "--by", "machine", "-o", folder / "fleet")
    assert out == f"3 entities: 3 done before. The fleet in '{folder / 'fleet'}' has 3 detectors.\n"
    assert err == ""


def test_every_verb_shows_rows_rate_and_time_left(folder):
    pages = ["report", folder / "fleet", folder / "today.parquet", "-o", folder / "paced.html"]
    scores = ["score", folder / "fleet", folder / "today.parquet", "-o", folder / "paced.csv"]
    fits = ["fit", folder / "history.csv", "--by", "machine", "-o", folder / "paced"]
    for words, last in ((fits, ", 0 failed"), (scores, ""), (pages, "")):
        _, _, err = done("fleet", *words)
        assert re.search(r"^table 1/1 \d+ rows read$", err, re.MULTILINE)
        assert re.search(rf"^entity 3/3 \S+ a second, about 0 s left{last}$", err, re.MULTILINE)
    assert re.search(r"^report 3/3 \S+ a second, about 0 s left$", err, re.MULTILINE)


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_scores_have_the_same_columns_in_every_format(folder, ending):
    output = folder / f"scores.{ending}"
    _, _, err = done("fleet", "score", folder / "fleet", folder / "today.parquet", "-o", output)
    assert "Scored 600 readings of 3 entities" in err
    read = {"csv": pl.read_csv, "parquet": pl.read_parquet, "jsonl": pl.read_ndjson}[ending]
    rows = read(output)
    assert rows.columns == [
        "entity",
        "step",
        "time",
        "score",
        "alert_score",
        "threshold",
        "anomaly",
        "variable",
        "imputed",
    ]
    flagged = rows.filter(pl.col("anomaly") == 1)["entity"].value_counts(sort=True)
    assert str(flagged["entity"][0]) in ("001", "1")
    code, _, _ = run("fleet", "score", folder / "fleet", folder / "today.parquet", "-o", output)
    assert code == 0  # it may replace its own output


def test_scores_equal_those_of_cometad_score(folder, tmp_path):
    Fleet.load(folder / "fleet")["001"].save(tmp_path / "one.comet")
    today = pl.read_parquet(folder / "today.parquet").filter(pl.col("machine") == "001").drop("machine")
    today.write_parquet(tmp_path / "one.parquet")
    done("score", tmp_path / "one.comet", tmp_path / "one.parquet", "-o", tmp_path / "s.parquet")
    run("fleet", "score", folder / "fleet", folder / "today.parquet", "-o", tmp_path / "fleet.parquet")
    ours = pl.read_parquet(tmp_path / "fleet.parquet").filter(pl.col("entity") == "001")
    alone = pl.read_parquet(tmp_path / "s.parquet")
    assert ours.select(alone.columns).equals(alone)


def test_the_overview_lists_the_worst_first_and_links_to_reports(folder):
    output = folder / "overview.html"
    _, _, err = done("fleet", "report", folder / "fleet", folder / "today.parquet", "-o", output, "--most", "2")
    assert "worst: 001. Wrote" in err
    page = output.read_text()
    assert page.index(">001<") < page.index(">000<")
    assert page.count('href="overview-entities/') == 2
    first = (folder / "overview-entities" / "00001.html").read_text()
    assert "<h1>001: " in first
    _, _, _ = done("fleet", "report", folder / "fleet", folder / "today.parquet", "-o", output, "--most", "1")
    assert len(list((folder / "overview-entities").glob("*.html"))) == 1


def test_list_shows_every_entity(folder):
    _, out, _ = done("fleet", "list", folder / "fleet")
    assert all(name in out for name in ("000", "001", "002", "fitted"))
    _, out, _ = run("fleet", "list", folder / "fleet", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["name"] for row in rows] == ["000", "001", "002"]
    assert rows[0]["readings"] == 300
    _, out, _ = run("fleet", "list", folder / "fleet", "--failed")
    assert "000" not in out


def test_check_passes_an_intact_fleet_and_names_what_is_missing(folder, tmp_path):
    machines(4, rows=50).write_csv(tmp_path / "more.csv")
    _, out, err = done("fleet", "check", folder / "fleet", tmp_path / "more.csv")
    assert out.startswith("Intact detectors: 3. ")
    assert "003: is in the data, but not in the fleet." in err


def test_check_refuses_a_damaged_pack(folder, tmp_path):
    made = Fleet.fit({"a": pl.DataFrame(machine_rows(300, 1))}, folder=tmp_path / "fleet", engine="serial")
    (pack,) = FleetFolder(tmp_path / "fleet").packs().values()
    content = bytearray(pack.read_bytes())
    content[made.entries["a"].length // 2] ^= 255
    pack.write_bytes(content)
    code, _, err = run("fleet", "check", tmp_path / "fleet")
    assert code == 2
    assert "is damaged: it does not match its SHA-256" in err


def test_an_entity_that_fails_gives_exit_code_1_and_its_reason(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    pl.DataFrame(machine_rows(300, 1)).write_csv(data / "good.csv")
    pl.DataFrame(machine_rows(1, 1)).write_csv(data / "short.csv")
    code, out, err = run("fleet", "fit", data, "-o", tmp_path / "fleet")
    assert code == 1
    assert "1 fitted, 1 failed" in out
    assert "cometad: short: The series has 1 reading" in err
    code, _, err = run("fleet", "score", tmp_path / "fleet", data, "-o", tmp_path / "scores.csv")
    assert code == 1
    assert "short: Its fit failed" in err
    assert pl.read_csv(tmp_path / "scores.csv").height == 300


@pytest.mark.parametrize(
    "words, expected",
    [
        (
            ["fit", "history.csv", "--by", "machine", "-o", "x", "--engine", "ray", "--address", "127.0.0.1:1"],
            "Cannot reach a Ray cluster at '127.0.0.1:1'",
        ),
        (["fit", "history.csv", "--by", "machine", "-o", "fleet", "--seed", "1"], "was fitted with seed=42, not 1"),
        (["score", "fleet", "today.parquet", "-o", "s.txt"], "does not end in .csv"),
        (["score", "fleet", "today.parquet", "-o", "today.parquet"], "would overwrite the input"),
        (["score", "fleet", "today.parquet", "-o", "history.csv"], "is not a table of scores of a fleet"),
        (
            ["score", "fleet", "today.parquet", "-o", "fleet/manifest.parquet", "--force"],
            "would overwrite the input 'fleet/manifest.parquet'",
        ),
        (["report", "fleet", "today.parquet", "-o", "page.txt"], "does not end in .html"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(folder, monkeypatch, words, expected):
    monkeypatch.chdir(folder)
    ended = refused(expected, "fleet", *words)
    assert ended.out == ""
    assert is_a_sentence(ended.err.splitlines()[-1].removeprefix("cometad: "))
    assert not (folder / "x").exists()

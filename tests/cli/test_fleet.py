"""`cometad fleet`: the verbs, their exit codes and what they say about bad input."""

import json
import re

import polars as pl
import pytest

from cometad import Comet, Fleet
from cometad.cli import main
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
    assert main(["fleet", "fit", str(folder / "history.csv"), "--by", "machine", "-o", str(folder / "fleet")]) == 0
    return folder


def run(capsys, *words):
    """Run a verb; returns its exit code and what it printed."""
    code = main(["fleet", *map(str, words)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_fit_takes_the_options_of_a_single_fit(folder, capsys):
    options = ["--by", "machine", "--views", "patterns:16,joint", "--threshold", "quantile:0.02", "--seed", "7"]
    code, out, _ = run(capsys, "fit", folder / "history.csv", "-o", folder / "other", *options)
    assert code == 0
    assert out.endswith("has 3 detectors.\n")
    made = Fleet.load(folder / "other")["000"]
    assert (len(made.views), made.threshold.rate, made.seed) == (2, 0.02, 7)
    own = machines(3).filter(pl.col("machine") == "000").drop("machine")
    assert made.to_bytes() == Comet(**made.get_params()).fit(own).to_bytes()


def test_the_same_command_again_says_that_nothing_is_left(folder, capsys):
    code, out, err = run(capsys, "fit", folder / "history.csv", "--by", "machine", "-o", folder / "fleet")
    assert code == 0
    assert out == f"3 entities: 3 done before. The fleet in '{folder / 'fleet'}' has 3 detectors.\n"
    assert err == ""


def test_every_verb_shows_rows_rate_and_time_left(folder, capsys):
    pages = ["report", folder / "fleet", folder / "today.parquet", "-o", folder / "paced.html"]
    scores = ["score", folder / "fleet", folder / "today.parquet", "-o", folder / "paced.csv"]
    fits = ["fit", folder / "history.csv", "--by", "machine", "-o", folder / "paced"]
    for words, last in ((fits, ", 0 failed"), (scores, ""), (pages, "")):
        code, _, err = run(capsys, *words)
        assert code == 0
        assert re.search(r"^table 1/1 \d+ rows read$", err, re.MULTILINE)
        assert re.search(rf"^entity 3/3 \S+ a second, about 0 s left{last}$", err, re.MULTILINE)
    assert re.search(r"^report 3/3 \S+ a second, about 0 s left$", err, re.MULTILINE)


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_scores_have_the_same_columns_in_every_format(folder, capsys, ending):
    output = folder / f"scores.{ending}"
    code, _, err = run(capsys, "score", folder / "fleet", folder / "today.parquet", "-o", output)
    assert code == 0
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
    code, _, _ = run(capsys, "score", folder / "fleet", folder / "today.parquet", "-o", output)
    assert code == 0  # it may replace its own output


def test_scores_equal_those_of_cometad_score(folder, capsys, tmp_path):
    Fleet.load(folder / "fleet")["001"].save(tmp_path / "one.comet")
    today = pl.read_parquet(folder / "today.parquet").filter(pl.col("machine") == "001").drop("machine")
    today.write_parquet(tmp_path / "one.parquet")
    assert (
        main(["score", str(tmp_path / "one.comet"), str(tmp_path / "one.parquet"), "-o", str(tmp_path / "s.parquet")])
        == 0
    )
    run(capsys, "score", folder / "fleet", folder / "today.parquet", "-o", tmp_path / "fleet.parquet")
    ours = pl.read_parquet(tmp_path / "fleet.parquet").filter(pl.col("entity") == "001")
    alone = pl.read_parquet(tmp_path / "s.parquet")
    assert ours.select(alone.columns).equals(alone)


def test_the_overview_lists_the_worst_first_and_links_to_reports(folder, capsys):
    output = folder / "overview.html"
    code, _, err = run(capsys, "report", folder / "fleet", folder / "today.parquet", "-o", output, "--most", "2")
    assert code == 0
    assert "worst: 001. Wrote" in err
    page = output.read_text()
    assert page.index(">001<") < page.index(">000<")
    assert page.count('href="overview-entities/') == 2
    first = (folder / "overview-entities" / "00001.html").read_text()
    assert "<h1>001: " in first
    code, _, _ = run(capsys, "report", folder / "fleet", folder / "today.parquet", "-o", output, "--most", "1")
    assert code == 0
    assert len(list((folder / "overview-entities").glob("*.html"))) == 1


def test_list_shows_every_entity(folder, capsys):
    code, out, _ = run(capsys, "list", folder / "fleet")
    assert code == 0
    assert all(name in out for name in ("000", "001", "002", "fitted"))
    _, out, _ = run(capsys, "list", folder / "fleet", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["name"] for row in rows] == ["000", "001", "002"]
    assert rows[0]["readings"] == 300
    _, out, _ = run(capsys, "list", folder / "fleet", "--failed")
    assert "000" not in out


def test_check_passes_an_intact_fleet_and_names_what_is_missing(folder, capsys, tmp_path):
    machines(4, rows=50).write_csv(tmp_path / "more.csv")
    code, out, err = run(capsys, "check", folder / "fleet", tmp_path / "more.csv")
    assert code == 0
    assert out.startswith("Intact detectors: 3. ")
    assert "003: is in the data, but not in the fleet." in err


def test_check_refuses_a_damaged_pack(folder, capsys, tmp_path):
    made = Fleet.fit({"a": pl.DataFrame(machine_rows(300, 1))}, folder=tmp_path / "fleet", engine="serial")
    (pack,) = FleetFolder(tmp_path / "fleet").packs().values()
    content = bytearray(pack.read_bytes())
    content[made.entries["a"].length // 2] ^= 255
    pack.write_bytes(content)
    code, _, err = run(capsys, "check", tmp_path / "fleet")
    assert code == 2
    assert "is damaged: it does not match its SHA-256" in err


def test_an_entity_that_fails_gives_exit_code_1_and_its_reason(capsys, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    pl.DataFrame(machine_rows(300, 1)).write_csv(data / "good.csv")
    pl.DataFrame(machine_rows(1, 1)).write_csv(data / "short.csv")
    code, out, err = run(capsys, "fit", data, "-o", tmp_path / "fleet")
    assert code == 1
    assert "1 fitted, 1 failed" in out
    assert "cometad: short: The series has 1 reading" in err
    code, _, err = run(capsys, "score", tmp_path / "fleet", data, "-o", tmp_path / "scores.csv")
    assert code == 1
    assert "short: Its fit failed" in err
    assert pl.read_csv(tmp_path / "scores.csv").height == 300


@pytest.mark.parametrize(
    "words, expected",
    [
        (["fit", "history.csv", "-o", "x"], "Name the column with its entities (--by COLUMN)"),
        (["fit", "history.csv", "--by", "pump", "-o", "x"], "has no column 'pump'"),
        (["fit", "nowhere.csv", "--by", "machine", "-o", "x"], "does not exist"),
        (["fit", "history.csv", "--by", "machine", "-o", "x", "--engine", "spark"], "Unknown engine 'spark'"),
        (
            ["fit", "history.csv", "--by", "machine", "-o", "x", "--engine", "ray", "--address", "127.0.0.1:1"],
            "Cannot reach a Ray cluster at '127.0.0.1:1'",
        ),
        (["fit", "history.csv", "--by", "machine", "-o", "fleet", "--seed", "1"], "was fitted with seed=42, not 1"),
        (["fit", "history.csv", "--by", "machine", "-o", "history.csv"], "history.csv"),
        (["fit", "history.csv", "--by", "machine", "-o", "x", "--detector", "magic"], "Unknown detector 'magic'"),
        (["score", "nowhere", "today.parquet", "-o", "s.csv"], "is not the folder of a fleet"),
        (["score", "fleet", "today.parquet", "-o", "s.txt"], "does not end in .csv"),
        (["score", "fleet", "today.parquet", "-o", "today.parquet"], "would overwrite the input"),
        (["score", "fleet", "today.parquet", "-o", "history.csv"], "is not a table of scores of a fleet"),
        (
            ["score", "fleet", "today.parquet", "-o", "fleet/manifest.parquet", "--force"],
            "would overwrite the input 'fleet/manifest.parquet'",
        ),
        (["report", "fleet", "today.parquet", "-o", "page.txt"], "does not end in .html"),
        (["list", "nowhere"], "is not the folder of a fleet"),
        (["check", "."], "is not the folder of a fleet"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(folder, capsys, monkeypatch, words, expected):
    monkeypatch.chdir(folder)
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, ""), err
    last = err.splitlines()[-1]
    assert expected in last
    assert is_a_sentence(last.removeprefix("cometad: "))
    assert not (folder / "x").exists()

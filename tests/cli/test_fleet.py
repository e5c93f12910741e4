"""`cometad fleet`: the verbs, their exit codes and what they say about bad input."""

import json
import re
from pathlib import Path

import polars as pl
import pytest

from cli_case import done, refused, run
from cometad import Comet, Fleet
from cometad.fleet.jobs import SCORES
from cometad.fleet.storage import FleetFolder
from contract import is_a_sentence
from fleet_case import machine_rows, machines

FIT, SCORE = "fleet fit history.csv --by machine", "fleet score fleet today.parquet"


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
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done(f"{FIT} -o fleet")
    return folder


@pytest.fixture(autouse=True)
def inside(folder, monkeypatch):
    monkeypatch.chdir(folder)


def test_fit_takes_the_options_of_a_single_fit():
    options = "--views patterns:16,joint --threshold quantile:0.02 --seed 7"
    assert done(f"{FIT} -o other {options}").out.endswith("has 3 detectors.\n")
    made = Fleet.load("other")["000"]
    assert (len(made.views), made.threshold.rate, made.seed) == (2, 0.02, 7)
    own = machines(3).filter(pl.col("machine") == "000").drop("machine")
    assert made.to_bytes() == Comet(**made.get_params()).fit(own).to_bytes()


def test_the_same_command_again_says_that_nothing_is_left():
    _, out, err = done(f"{FIT} -o fleet")
    assert out == "3 entities: 3 done before. The fleet in 'fleet' has 3 detectors.\n"
    assert err == ""


def test_every_verb_shows_rows_rate_and_time_left():
    pages = "fleet report fleet today.parquet -o paced.html"
    for words, last in ((f"{FIT} -o paced", ", 0 failed"), (f"{SCORE} -o paced.csv", ""), (pages, "")):
        _, _, err = done(words)
        assert re.search(r"^table 1/1 \d+ rows read$", err, re.MULTILINE)
        assert re.search(rf"^entity 3/3 \S+ a second, about 0 s left{last}$", err, re.MULTILINE)
    assert re.search(r"^report 3/3 \S+ a second, about 0 s left$", err, re.MULTILINE)


READERS = {"csv": pl.read_csv, "parquet": pl.read_parquet, "jsonl": pl.read_ndjson}


@pytest.mark.parametrize("ending", READERS)
def test_scores_have_the_same_columns_in_every_format(ending):
    for _ in range(2):  # it may replace its own output
        assert "Scored 600 readings of 3 entities" in done(f"{SCORE} -o scores.{ending}").err
    rows = READERS[ending](f"scores.{ending}")
    assert rows.columns == list(SCORES)
    flagged = rows.filter(pl.col("anomaly") == 1)["entity"].value_counts(sort=True)
    assert str(flagged["entity"][0]) in ("001", "1")


def test_scores_equal_those_of_cometad_score():
    Fleet.load("fleet")["001"].save("one.comet")
    today = pl.read_parquet("today.parquet").filter(pl.col("machine") == "001").drop("machine")
    today.write_parquet("one.parquet")
    done("score one.comet one.parquet -o s.parquet")
    done(f"{SCORE} -o scores.parquet")
    ours = pl.read_parquet("scores.parquet").filter(pl.col("entity") == "001")
    alone = pl.read_parquet("s.parquet")
    assert ours.select(alone.columns).equals(alone)


def test_the_overview_lists_the_worst_first_and_links_to_reports(folder):
    overview = "fleet report fleet today.parquet -o overview.html --most"
    assert "worst: 001. Wrote" in done(overview, 2).err
    page = Path("overview.html").read_text()
    assert page.index(">001<") < page.index(">000<")
    assert page.count('href="overview-entities/') == 2
    assert "<h1>001: " in Path("overview-entities/00001.html").read_text()
    done(overview, 1)
    assert len(list(Path("overview-entities").glob("*.html"))) == 1


def test_list_shows_every_entity():
    assert all(name in done("fleet list fleet").out for name in ("000", "001", "002", "fitted"))
    rows = [json.loads(line) for line in done("fleet list fleet --json").out.splitlines()]
    assert [(row["name"], row["readings"]) for row in rows] == [("000", 300), ("001", 300), ("002", 300)]
    assert "000" not in done("fleet list fleet --failed").out


def test_check_passes_an_intact_fleet_and_names_what_is_missing():
    machines(4, rows=50).write_csv("more.csv")
    _, out, err = done("fleet check fleet more.csv")
    assert out.startswith("Intact detectors: 3. ")
    assert "003: is in the data, but not in the fleet." in err


def test_check_refuses_a_damaged_pack(tmp_path):
    made = Fleet.fit({"a": pl.DataFrame(machine_rows(300, 1))}, folder=tmp_path / "fleet", engine="serial")
    (pack,) = FleetFolder(tmp_path / "fleet").packs().values()
    content = bytearray(pack.read_bytes())
    content[made.entries["a"].length // 2] ^= 255
    pack.write_bytes(content)
    refused("is damaged: it does not match its SHA-256", "fleet check", tmp_path / "fleet")


def test_an_entity_that_fails_gives_exit_code_1_and_its_reason(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    pl.DataFrame(machine_rows(300, 1)).write_csv("data/good.csv")
    pl.DataFrame(machine_rows(1, 1)).write_csv("data/short.csv")
    code, out, err = run("fleet fit data -o fleet")
    assert code == 1
    assert "1 fitted, 1 failed" in out
    assert "cometad: short: The series has 1 reading" in err
    code, _, err = run("fleet score fleet data -o scores.csv")
    assert code == 1
    assert "short: Its fit failed" in err
    assert pl.read_csv("scores.csv").height == 300
    assert "Pass --retry to retry entities that failed before." in done("fleet fit data -o fleet").err
    Path("lone").mkdir()
    Path("data/short.csv").rename("lone/short.csv")
    refused("No entity of the data could be scored. 'short': Its fit failed", "fleet score fleet lone -o s.csv")
    assert "1 entities of the fleet are not in the data" in done("fleet fit data -o fleet").err


def test_fit_says_how_many_entities_borrowed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    for name, rows in (("good", 300), ("new", 40)):
        pl.DataFrame(machine_rows(rows, rows)).write_csv(f"data/{name}.csv")
    sentence = "Entities with fewer than 200 readings that borrowed from others: 1."
    assert sentence in done("fleet fit data -o fleet --pool 200").err


@pytest.mark.parametrize(
    "words, expected",
    [
        (f"{FIT} -o x --engine ray --address 127.0.0.1:1", "Cannot reach a Ray cluster at '127.0.0.1:1'"),
        (f"{FIT} -o fleet --seed 1", "was fitted with seed=42, not 1"),
        (f"{SCORE} -o s.txt", "does not end in .csv"),
        (f"{SCORE} -o today.parquet", "would overwrite the input"),
        (f"{SCORE} -o history.csv", "is not a table of scores of a fleet"),
        (f"{SCORE} -o fleet/manifest.parquet --force", "would overwrite the input 'fleet/manifest.parquet'"),
        ("fleet report fleet today.parquet -o page.txt", "does not end in .html"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(words, expected):
    ended = refused(expected, words)
    assert ended.out == ""
    assert is_a_sentence(ended.err.splitlines()[-1].removeprefix("cometad: "))
    assert not Path("x").exists()

"""Real data on the command line: gaps, resampling, late readings and findings."""

import io
import json
import re
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from cli_case import NETWORK, done, refused, run, table_of_readings
from cometad import Comet
from cometad.data.gaps import Interpolate

ROOT = Path(__file__).parents[2]
TODAY = table_of_readings(120, seed=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with normal readings and two detectors fitted on them, with and without a gap rule."""
    folder = tmp_path_factory.mktemp("real")
    table_of_readings(300, seed=0).write_csv(folder / "normal.csv")
    gaps = ["--gaps", "interpolate:3"]
    kinds = {"strict.comet": [], "plant.comet": gaps, "network.comet": [*gaps, *NETWORK]}
    for name, options in kinds.items():
        done("fit", folder / "normal.csv", "-o", folder / name, *options)
    return folder


@pytest.fixture(autouse=True)
def inside(folder, monkeypatch):
    monkeypatch.chdir(folder)


def with_gaps(**steps):
    """Today's readings, without those of the variables at these steps."""
    missing = {name: pl.int_range(120).is_between(*ends) for name, ends in steps.items()}
    return TODAY.with_columns(pl.when(gone).then(None).otherwise(name).alias(name) for name, gone in missing.items())


GAPS = with_gaps(flow=(50, 51), level=(80, 99))
ALL_GONE = with_gaps(flow=(60, 79), level=(60, 79), valve=(60, 79))


# -- gaps -----------------------------------------------------------------------------------------------------------


def test_the_gap_rule_is_saved_with_the_detector(folder):
    assert Comet.load(folder / "plant.comet").gaps == Interpolate(3)


def test_score_marks_imputed_readings(folder):
    ALL_GONE.write_csv(folder / "today.csv")
    _, shown, stderr = done("score plant.comet today.csv")
    table = pl.read_csv(io.StringIO(shown))
    assert table.columns == ["step", "time", "score", "alert_score", "threshold", "anomaly", "variable", "imputed"]
    imputed = table.filter(pl.col("imputed") == 1)
    assert set(range(60, 80)) <= set(imputed["step"])
    assert imputed["anomaly"].sum() == 0
    assert set(imputed["variable"]) == {""}
    assert (
        "Variable 'flow' is missing in 20 of 120 readings; the longest gap, from time step 60, has length 20." in stderr
    )
    assert f"{len(imputed)} were imputed and not judged." in stderr


def test_the_columns_of_a_score_table_have_their_types(folder):
    ALL_GONE.write_csv(folder / "today.csv")
    done("score plant.comet today.csv -o today.parquet")
    assert pl.read_parquet("today.parquet").schema == {
        "step": pl.Int64,
        "time": pl.Datetime("us"),
        "score": pl.Float64,
        "alert_score": pl.Float64,
        "threshold": pl.Float64,
        "anomaly": pl.Int64,
        "variable": pl.String,
        "imputed": pl.Int64,
    }


def test_the_stream_accepts_gaps_and_equals_the_batch(folder):
    GAPS.write_csv(folder / "gaps.csv")
    expected = done("score plant.comet gaps.csv").table
    rows = [{name: value for name, value in row.items() if value is not None} for row in GAPS.iter_rows(named=True)]
    lines = "".join(json.dumps(row | {"time": str(row["time"])}) + "\n" for row in rows)
    for sent in (GAPS.write_csv(), lines):  # as empty cells, and as missing fields
        given = done("stream plant.comet", stdin=sent).lines
        assert [line["alert_score"] for line in given] == expected["alert_score"].to_list()
        assert [line["imputed"] for line in given] == expected["imputed"].to_list()
        assert given[50]["left_out"] == ["flow"]
        assert given[90]["left_out"] == ["level"]
        assert "level" not in given[90]["variables"]
        assert "left_out" not in given[20]


def test_without_a_gap_rule_gaps_are_refused_with_the_flag_to_use(folder):
    GAPS.write_csv(folder / "gaps.csv")
    stderr = refused(
        "Variable 'flow' is nan in row 52 of 'gaps.csv' (time step 50, 2024-03-01T00:50:00.000000).",
        "score strict.comet gaps.csv",
    ).err
    assert "pass a gap rule such as --gaps forward-fill:5." in stderr
    refused("Line 52: variable 'flow' is missing.", "stream strict.comet", stdin=GAPS.write_csv())


@pytest.mark.parametrize("verb", ["score", "stream"])
def test_a_missing_column_is_reported(folder, verb):
    gone = TODAY.drop("level")
    gone.write_csv(folder / "gone.csv")
    arguments, sent = (["gone.csv"], "") if verb == "score" else ([], gone.write_csv())
    _, shown, stderr = done(verb, "plant.comet", *arguments, stdin=sent)
    assert stderr.count("No column for 'level'. Its readings count as missing.") == 1
    assert len(shown.splitlines()) == 120 + (verb == "score")
    assert run(verb, "strict.comet", *arguments, stdin=sent).code == 2


def test_a_reading_without_any_variable_is_refused():
    refused("Line 1: there is no value for variable 'flow'.", "stream plant.comet", stdin='{"speed": 1.0}\n')


def test_explain_accepts_gaps_with_a_gap_rule_only(folder):
    table = GAPS.clone()
    table[51, "valve"] = 9.0  # while flow is missing
    table.write_csv(folder / "gaps.csv")
    _, shown, _ = done("explain network.comet gaps.csv --step 51 --json")
    shares = {reason["variable"]: reason["share"] for reason in json.loads(shown)["reasons"]}
    assert shares["flow"] == 0
    assert shares["valve"] == max(shares.values())
    done("fit normal.csv -o strict_network.comet", *NETWORK)
    refused("pass a gap rule such as --gaps forward-fill:5.", "explain strict_network.comet gaps.csv --step 51")


# -- sampling -------------------------------------------------------------------------------------------------------


def test_readings_are_resampled_for_fit_and_score(folder):
    irregular = table_of_readings(900, seed=0).with_columns(
        time=pl.Series([datetime(2024, 3, 1) + timedelta(seconds=20 * i + i % 7) for i in range(900)])
    )
    irregular.write_csv(folder / "irregular.csv")
    options = ["--resample", "60s:mean", "--gaps", "forward-fill:2"]
    _, _, stderr = done("fit irregular.csv -o regular.comet", *options)
    assert "Resampled to 300 readings: 0 are empty, 300 combine several." in stderr
    holey = irregular.filter(~pl.int_range(900).is_between(300, 329))
    holey.write_csv(folder / "holey.csv")
    _, shown, stderr = done("score regular.comet holey.csv --resample 60s:mean")
    table = pl.read_csv(io.StringIO(shown), try_parse_dates=True)
    assert len(table) == 300
    assert table["time"].diff().drop_nulls().unique().to_list() == [timedelta(minutes=1)]
    assert " are empty, " in stderr
    assert table.filter(pl.col("imputed") == 1)["step"].to_list()[:1] != []
    refused("Cannot read the period '60'.", "score regular.comet holey.csv --resample 60")


@pytest.mark.parametrize("cut", [0, 50, 200])
def test_a_resampled_stream_equals_the_resampled_file(folder, tmp_path, cut):
    table = table_of_readings(400, seed=2).with_columns(
        time=pl.Series([datetime(2024, 3, 1) + timedelta(seconds=20 * i + 5 * (i % 3)) for i in range(400)])
    )
    table = table.filter(~pl.int_range(400).is_between(100, 130))
    table.write_csv(folder / "fast.csv")
    expected = done("score plant.comet fast.csv --resample 60s:max").table
    header, *rows = table.write_csv().splitlines(keepends=True)
    arguments = ["stream", "plant.comet", "--resample", "60s:max", "--late", "drop", "--threshold", "quantile:0.01"]
    arguments += ["--longest", "1000"]  # so that an event is open at the end
    late = [*rows[:60], rows[3], *rows[60:]]
    kept = ["--snapshot", str(tmp_path / "state")]
    first = run(*arguments, *kept, stdin="".join([header, *late[:cut]]))
    assert first[0] == 0, first[2]
    second = run(*arguments, *kept, stdin="".join([header, *late[cut:]]))
    lines = [json.loads(line) for line in (first[1] + second[1]).splitlines()]
    assert [line["alert_score"] for line in lines] == expected["alert_score"].to_list()[: len(lines)]
    assert len(expected) - len(lines) == 1  # a bin that is not complete waits in the snapshot
    assert [line["time"][:19] for line in lines] == [time[:19] for time in expected["time"]][: len(lines)]
    assert "Dropped 1 late or repeated readings" in second[2]
    _, shown, stderr = done(*arguments, stdin="".join([header, *late]))
    *given, closing = [json.loads(line) for line in shown.splitlines()]
    assert [line["alert_score"] for line in given] == expected["alert_score"].to_list()
    assert [change["change"] for change in closing["events"]] == ["closed"]
    assert re.search(r"Resampled to \d+ readings: \d+ are empty", stderr)
    refused(
        "The snapshot was taken with different resampling, or with none.",
        "stream plant.comet",
        *kept,
        stdin="".join([header, *late[cut:]]),
    )


def test_a_resampled_stream_needs_times_in_order_and_a_gap_rule():
    refused(
        "Pass a gap rule such as --gaps forward-fill:5, or leave out --resample.",
        "stream strict.comet --resample 60s",
        stdin="",
    )
    refused("Line 2: resampling needs a time", "stream plant.comet --resample 60s", stdin="flow,level,valve\n1,2,3\n")
    rows = "time,flow,level,valve\n100,1,2,3\n200,1,2,3\n130,1,2,3\n"
    refused(
        "Line 4: the time 130 belongs to a bin that is already complete.",
        "stream plant.comet --resample 60s",
        stdin=rows,
    )


def test_a_baseline_scores_resampled_readings_too(folder):
    done("fit normal.csv -o knn.model --detector knn --gaps score-measured")
    TODAY[:10].write_csv(folder / "few.csv")
    _, shown, stderr = done("score knn.model few.csv --resample 30s")
    assert [row.split(",")[6] for row in shown.splitlines()] == ["imputed", *(["0", "1"] * 10)[:19]]
    assert "Readings are 30 s apart, but 60 s in training." in stderr


def test_explain_takes_what_score_takes(folder):
    TODAY.drop("level").write_csv(folder / "lacking.csv")
    GAPS.write_csv(folder / "gaps.csv")
    for name in ("lacking.csv", "gaps.csv"):
        done("score plant.comet", name)
        explained = json.loads(done("explain plant.comet", name, "--step", "51", "--json").out)
        assert explained["variables"] == ["flow", "level", "valve"]
        assert {len(row) for row in explained["observed"]} == {3}


def test_explain_resamples_like_score(folder):
    table = TODAY.with_columns(
        time=pl.Series([datetime(2024, 3, 1) + timedelta(seconds=20 * i) for i in range(120)]),
        flow=pl.when(pl.int_range(120) == 91).then(9.0).otherwise("flow"),
    )
    table.write_csv(folder / "fast.csv")
    assert pl.read_csv(io.StringIO(run("score plant.comet fast.csv --resample 60s:max").out))["variable"][30] == "flow"
    explained = json.loads(done("explain plant.comet fast.csv --resample 60s:max --step 30 --json").out)
    assert explained["reasons"][0]["variable"] == "flow"
    assert explained["times"][30 - explained["begin"]] == "2024-03-01T00:30:00.000000"


# -- late readings --------------------------------------------------------------------------------------------------


def test_late_and_duplicate_readings_are_dropped_and_counted_across_snapshots(folder, tmp_path):
    header, *rows = TODAY.write_csv().splitlines(keepends=True)
    _, whole, _ = run("stream strict.comet", stdin="".join([header, *rows]))
    late = [*rows[:30], rows[29], rows[3], *rows[30:]]
    refused("or pass --late drop.", "stream strict.comet", stdin="".join([header, *late]))
    code, shown, stderr = run("stream strict.comet --late drop", stdin="".join([header, *late]))
    assert (code, shown) == (0, whole)
    assert "Dropped 2 late or repeated readings." in stderr
    arguments = ["stream", "strict.comet", "--late", "drop", "--snapshot", str(tmp_path / "state")]
    first = run(*arguments, stdin="".join([header, *late[:31]]))
    second = run(*arguments, stdin="".join([header, *late[31:]]))
    assert "Dropped 1 late or repeated readings" in first[2]
    assert "Dropped 2 late or repeated readings" in second[2]
    assert whole.startswith(first[1] + second[1])
    refused("Unknown rule for late readings 'keep'. Available: refuse, drop.", "stream strict.comet --late keep")


# -- findings -------------------------------------------------------------------------------------------------------


def test_fit_and_score_report_problems_with_the_readings(folder):
    still = table_of_readings(300, seed=0).with_columns(valve=1.0)
    still.write_csv(folder / "still.csv")
    _, _, stderr = done("fit still.csv -o still.comet")
    assert "Variable 'valve' is always 1 in training, so there is no other value to compare with." in stderr
    broken = TODAY.with_columns(flow=1000 * pl.col("flow"), level=0.5)
    broken.write_csv(folder / "broken.csv")
    _, _, stderr = done("score strict.comet broken.csv")
    assert "a change from kilo-units to units (times 1000) would explain it. Check its unit." in stderr
    assert "Variable 'level' is stuck at 0.5 for 120 readings from time step 0" in stderr
    stderr = done("score strict.comet normal.csv").err
    assert [line for line in stderr.splitlines() if "Variable" in line] == []


def test_only_the_first_of_many_findings_are_printed(folder):
    wide = pl.DataFrame({f"v{i}": [1.0] * 60 for i in range(15)}).with_columns(pl.int_range(60).alias("flow"))
    wide.write_csv(folder / "wide.csv")
    assert run("fit wide.csv -o wide.model --detector squared-norm")[2].count("is always 1") == 10
    assert "There are 5 more findings like these." in run("score wide.model wide.csv")[2]

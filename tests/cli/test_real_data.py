"""Real data on the command line: gaps, resampling, late readings and findings."""

import io
import json
import re
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from cli_case import NETWORK, table_of_readings
from cometad import Comet
from cometad.cli import main
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
        assert main(["fit", str(folder / "normal.csv"), "-o", str(folder / name), *options]) == 0
    return folder


@pytest.fixture
def run(folder, monkeypatch, capsys):
    """Run a verb inside the folder; its exit code, stdout and stderr."""
    monkeypatch.chdir(folder)

    def run(*arguments, stdin=""):
        capsys.readouterr()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        return main(list(arguments)), *capsys.readouterr()

    return run


def with_gaps():
    return TODAY.with_columns(
        pl.when(pl.int_range(120).is_between(50, 51)).then(None).otherwise("flow").alias("flow"),
        *(pl.when(pl.int_range(120).is_between(80, 99)).then(None).otherwise(name).alias(name) for name in ("level",)),
    )


def all_gone():
    return TODAY.with_columns(
        pl.when(pl.int_range(120).is_between(60, 79)).then(None).otherwise(name).alias(name)
        for name in ("flow", "level", "valve")
    )


# -- gaps -----------------------------------------------------------------------------------------------------------


def test_the_gap_rule_is_saved_with_the_detector(folder):
    assert Comet.load(folder / "plant.comet").gaps == Interpolate(3)


def test_score_marks_imputed_readings(run, folder):
    all_gone().write_csv(folder / "today.csv")
    code, shown, stderr = run("score", "plant.comet", "today.csv")
    assert code == 0, stderr
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


def test_the_columns_of_a_score_table_have_their_types(run, folder):
    all_gone().write_csv(folder / "today.csv")
    assert run("score", "plant.comet", "today.csv", "-o", "today.parquet")[0] == 0
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


def test_the_stream_accepts_gaps_and_equals_the_batch(run, folder):
    table = with_gaps()
    table.write_csv(folder / "gaps.csv")
    _, shown, _ = run("score", "plant.comet", "gaps.csv")
    expected = pl.read_csv(io.StringIO(shown))
    rows = [{name: value for name, value in row.items() if value is not None} for row in table.iter_rows(named=True)]
    lines = "".join(json.dumps(row | {"time": str(row["time"])}) + "\n" for row in rows)
    for sent in (table.write_csv(), lines):  # as empty cells, and as missing fields
        code, shown, stderr = run("stream", "plant.comet", stdin=sent)
        assert code == 0, stderr
        given = [json.loads(line) for line in shown.splitlines()]
        assert [line["alert_score"] for line in given] == expected["alert_score"].to_list()
        assert [line["imputed"] for line in given] == expected["imputed"].to_list()
        assert given[50]["left_out"] == ["flow"]
        assert given[90]["left_out"] == ["level"]
        assert "level" not in given[90]["variables"]
        assert "left_out" not in given[20]


def test_without_a_gap_rule_gaps_are_refused_with_the_flag_to_use(run, folder):
    with_gaps().write_csv(folder / "gaps.csv")
    code, _, stderr = run("score", "strict.comet", "gaps.csv")
    assert code == 2
    assert "Variable 'flow' is nan in row 52 of 'gaps.csv' (time step 50, 2024-03-01T00:50:00.000000)." in stderr
    assert "pass a gap rule such as --gaps forward-fill:5." in stderr
    code, _, stderr = run("stream", "strict.comet", stdin=with_gaps().write_csv())
    assert code == 2
    assert "Line 52: variable 'flow' is missing." in stderr


@pytest.mark.parametrize("verb", ["score", "stream"])
def test_a_missing_column_is_reported(run, folder, verb):
    gone = TODAY.drop("level")
    gone.write_csv(folder / "gone.csv")
    arguments, sent = (["gone.csv"], "") if verb == "score" else ([], gone.write_csv())
    code, shown, stderr = run(verb, "plant.comet", *arguments, stdin=sent)
    assert code == 0, stderr
    assert stderr.count("No column for 'level'. Its readings count as missing.") == 1
    assert len(shown.splitlines()) == 120 + (verb == "score")
    code, _, _ = run(verb, "strict.comet", *arguments, stdin=sent)
    assert code == 2


def test_a_reading_without_any_variable_is_refused(run):
    code, _, stderr = run("stream", "plant.comet", stdin='{"speed": 1.0}\n')
    assert code == 2
    assert "Line 1: there is no value for variable 'flow'." in stderr


def test_explain_accepts_gaps_with_a_gap_rule_only(run, folder):
    table = with_gaps()
    table[51, "valve"] = 9.0  # while flow is missing
    table.write_csv(folder / "gaps.csv")
    code, shown, stderr = run("explain", "network.comet", "gaps.csv", "--step", "51", "--json")
    assert code == 0, stderr
    shares = {reason["variable"]: reason["share"] for reason in json.loads(shown)["reasons"]}
    assert shares["flow"] == 0
    assert shares["valve"] == max(shares.values())
    assert run("fit", "normal.csv", "-o", "strict_network.comet", *NETWORK)[0] == 0
    code, _, stderr = run("explain", "strict_network.comet", "gaps.csv", "--step", "51")
    assert code == 2
    assert "pass a gap rule such as --gaps forward-fill:5." in stderr


def test_an_unknown_gap_rule_is_refused(run):
    code, _, stderr = run("fit", "normal.csv", "-o", "no.comet", "--gaps", "guess")
    assert code == 2
    assert "Unknown gap rule 'guess'. Available: refuse, forward-fill, interpolate, score-measured." in stderr


# -- sampling -------------------------------------------------------------------------------------------------------


def test_readings_are_resampled_for_fit_and_score(run, folder):
    irregular = table_of_readings(900, seed=0).with_columns(
        time=pl.Series([datetime(2024, 3, 1) + timedelta(seconds=20 * i + i % 7) for i in range(900)])
    )
    irregular.write_csv(folder / "irregular.csv")
    options = ["--resample", "60s:mean", "--gaps", "forward-fill:2"]
    code, _, stderr = run("fit", "irregular.csv", "-o", "regular.comet", *options)
    assert code == 0, stderr
    assert "Resampled to 300 readings: 0 are empty, 300 combine several." in stderr
    holey = irregular.filter(~pl.int_range(900).is_between(300, 329))
    holey.write_csv(folder / "holey.csv")
    code, shown, stderr = run("score", "regular.comet", "holey.csv", "--resample", "60s:mean")
    assert code == 0, stderr
    table = pl.read_csv(io.StringIO(shown), try_parse_dates=True)
    assert len(table) == 300
    assert table["time"].diff().drop_nulls().unique().to_list() == [timedelta(minutes=1)]
    assert " are empty, " in stderr
    assert table.filter(pl.col("imputed") == 1)["step"].to_list()[:1] != []
    code, _, stderr = run("score", "regular.comet", "holey.csv", "--resample", "60")
    assert code == 2
    assert "Cannot read the period '60'." in stderr


@pytest.mark.parametrize("cut", [0, 50, 200])
def test_a_resampled_stream_equals_the_resampled_file(run, folder, tmp_path, cut):
    table = table_of_readings(400, seed=2).with_columns(
        time=pl.Series([datetime(2024, 3, 1) + timedelta(seconds=20 * i + 5 * (i % 3)) for i in range(400)])
    )
    table = table.filter(~pl.int_range(400).is_between(100, 130))
    table.write_csv(folder / "fast.csv")
    _, shown, _ = run("score", "plant.comet", "fast.csv", "--resample", "60s:max")
    expected = pl.read_csv(io.StringIO(shown))
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
    code, shown, stderr = run(*arguments, stdin="".join([header, *late]))
    assert code == 0
    *given, closing = [json.loads(line) for line in shown.splitlines()]
    assert [line["alert_score"] for line in given] == expected["alert_score"].to_list()
    assert [change["change"] for change in closing["events"]] == ["closed"]
    assert re.search(r"Resampled to \d+ readings: \d+ are empty", stderr)
    code, _, stderr = run("stream", "plant.comet", *kept, stdin="".join([header, *late[cut:]]))
    assert code == 2
    assert "The snapshot was taken with different resampling, or with none." in stderr


def test_a_resampled_stream_needs_times_in_order_and_a_gap_rule(run):
    code, _, stderr = run("stream", "strict.comet", "--resample", "60s", stdin="")
    assert code == 2
    assert "Pass a gap rule such as --gaps forward-fill:5, or leave out --resample." in stderr
    code, _, stderr = run("stream", "plant.comet", "--resample", "60s", stdin="flow,level,valve\n1,2,3\n")
    assert code == 2
    assert "Line 2: resampling needs a time" in stderr
    rows = "time,flow,level,valve\n100,1,2,3\n200,1,2,3\n130,1,2,3\n"
    code, _, stderr = run("stream", "plant.comet", "--resample", "60s", stdin=rows)
    assert code == 2
    assert "Line 4: the time 130 belongs to a bin that is already complete." in stderr


def test_a_baseline_scores_resampled_readings_too(run, folder):
    assert run("fit", "normal.csv", "-o", "knn.model", "--detector", "knn", "--gaps", "score-measured")[0] == 0
    TODAY[:10].write_csv(folder / "few.csv")
    code, shown, stderr = run("score", "knn.model", "few.csv", "--resample", "30s")
    assert code == 0, stderr
    assert [row.split(",")[6] for row in shown.splitlines()] == ["imputed", *(["0", "1"] * 10)[:19]]
    assert "Readings are 30 s apart, but 60 s in training." in stderr


def test_explain_takes_what_score_takes(run, folder):
    TODAY.drop("level").write_csv(folder / "lacking.csv")
    with_gaps().write_csv(folder / "gaps.csv")
    for name in ("lacking.csv", "gaps.csv"):
        assert run("score", "plant.comet", name)[0] == 0
        code, shown, stderr = run("explain", "plant.comet", name, "--step", "51", "--json")
        assert code == 0, stderr
        explained = json.loads(shown)
        assert explained["variables"] == ["flow", "level", "valve"]
        assert {len(row) for row in explained["observed"]} == {3}


def test_explain_resamples_like_score(run, folder):
    table = TODAY.with_columns(
        time=pl.Series([datetime(2024, 3, 1) + timedelta(seconds=20 * i) for i in range(120)]),
        flow=pl.when(pl.int_range(120) == 91).then(9.0).otherwise("flow"),
    )
    table.write_csv(folder / "fast.csv")
    _, shown, _ = run("score", "plant.comet", "fast.csv", "--resample", "60s:max")
    assert pl.read_csv(io.StringIO(shown))["variable"][30] == "flow"
    code, shown, stderr = run("explain", "plant.comet", "fast.csv", "--resample", "60s:max", "--step", "30", "--json")
    assert code == 0, stderr
    explained = json.loads(shown)
    assert explained["reasons"][0]["variable"] == "flow"
    assert explained["times"][30 - explained["begin"]] == "2024-03-01T00:30:00.000000"


# -- late readings --------------------------------------------------------------------------------------------------


def test_late_and_duplicate_readings_are_dropped_and_counted_across_snapshots(run, folder, tmp_path):
    header, *rows = TODAY.write_csv().splitlines(keepends=True)
    _, whole, _ = run("stream", "strict.comet", stdin="".join([header, *rows]))
    late = [*rows[:30], rows[29], rows[3], *rows[30:]]
    code, _, stderr = run("stream", "strict.comet", stdin="".join([header, *late]))
    assert code == 2
    assert "or pass --late drop." in stderr
    code, shown, stderr = run("stream", "strict.comet", "--late", "drop", stdin="".join([header, *late]))
    assert (code, shown) == (0, whole)
    assert "Dropped 2 late or repeated readings." in stderr
    arguments = ["stream", "strict.comet", "--late", "drop", "--snapshot", str(tmp_path / "state")]
    first = run(*arguments, stdin="".join([header, *late[:31]]))
    second = run(*arguments, stdin="".join([header, *late[31:]]))
    assert "Dropped 1 late or repeated readings" in first[2]
    assert "Dropped 2 late or repeated readings" in second[2]
    assert whole.startswith(first[1] + second[1])
    code, _, stderr = run("stream", "strict.comet", "--late", "keep")
    assert code == 2
    assert "Unknown rule for late readings 'keep'. Available: refuse, drop." in stderr


# -- findings -------------------------------------------------------------------------------------------------------


def test_fit_and_score_report_problems_with_the_readings(run, folder):
    still = table_of_readings(300, seed=0).with_columns(valve=1.0)
    still.write_csv(folder / "still.csv")
    code, _, stderr = run("fit", "still.csv", "-o", "still.comet")
    assert code == 0, stderr
    assert "Variable 'valve' is always 1 in training, so there is no other value to compare with." in stderr
    broken = TODAY.with_columns(flow=1000 * pl.col("flow"), level=0.5)
    broken.write_csv(folder / "broken.csv")
    code, _, stderr = run("score", "strict.comet", "broken.csv")
    assert code == 0, stderr
    assert "a change from kilo-units to units (times 1000) would explain it. Check its unit." in stderr
    assert "Variable 'level' is stuck at 0.5 for 120 readings from time step 0" in stderr
    code, _, stderr = run("score", "strict.comet", "normal.csv")
    assert [line for line in stderr.splitlines() if "Variable" in line] == []


def test_only_the_first_of_many_findings_are_printed(run, folder):
    wide = pl.DataFrame({f"v{i}": [1.0] * 60 for i in range(15)}).with_columns(pl.int_range(60).alias("flow"))
    wide.write_csv(folder / "wide.csv")
    assert run("fit", "wide.csv", "-o", "wide.model", "--detector", "squared-norm")[2].count("is always 1") == 10
    assert "There are 5 more findings like these." in run("score", "wide.model", "wide.csv")[2]

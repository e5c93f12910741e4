"""Tables as they are found, on the command line: what is recognized, what is refused, and `cometad check`."""

import io
import json

import numpy as np
import polars as pl
import pytest

from cli_case import done, refused, run, table_of_readings
from cometad import Comet
from cometad.data import ForwardFill

TODAY = table_of_readings(120, seed=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    table_of_readings(300, seed=0).write_csv(folder / "normal.csv")
    TODAY.write_csv(folder / "today.csv")
    done("fit", folder / "normal.csv", "-o", folder / "plant.comet")
    return folder


@pytest.fixture(autouse=True)
def inside(folder, monkeypatch):
    monkeypatch.chdir(folder)


def german(table=TODAY):
    """A table as a German spreadsheet saves it."""
    table = table.with_columns(pl.col("time").dt.strftime("%d.%m.%Y %H:%M:%S"))
    numbers = [pl.col(name).cast(pl.String).str.replace(".", ",", literal=True) for name in ("flow", "level", "valve")]
    return table.with_columns(numbers).write_csv(separator=";").encode("utf-16")


def test_a_foreign_table_gives_the_same_scores_in_every_verb(folder):
    (folder / "german.csv").write_bytes(german())
    _, expected, _ = run("score plant.comet today.csv")
    assert run("score plant.comet german.csv")[:2] == (0, expected)
    assert run("score plant.comet -", stdin=german())[:2] == (0, expected)
    for verb in (["explain", "--step", "70", "--json"], ["report", "-o", "report.html"], ["check"]):
        order = ["-", "plant.comet"] if verb[0] == "check" else ["plant.comet", "-"]
        done(verb[0], *order, *verb[1:], stdin=german())
    done("fit - -o again.comet", stdin=(folder / "normal.csv").read_bytes())
    assert (folder / "again.comet").read_bytes() == (folder / "plant.comet").read_bytes()
    alerts = pl.read_csv(io.StringIO(expected))["alert_score"].to_list()
    _, shown, _ = done("stream plant.comet", stdin=german())
    assert [line["alert_score"] for line in map(json.loads, shown.splitlines()) if "alert_score" in line] == alerts


def test_extra_columns_are_ignored_with_a_note_and_others_matched_by_name(folder):
    mixed = TODAY.select("valve", "time", "level", "flow").with_columns(note=pl.lit("on"), extra=1.0)
    mixed.write_csv(folder / "mixed.csv")
    _, expected, _ = run("score plant.comet today.csv")
    code, shown, stderr = run("score plant.comet mixed.csv")
    assert (code, shown) == (0, expected)
    assert stderr.count("Ignored 2 columns the detector was not fitted on: 'note', 'extra'.") == 1


def test_a_headerless_file_is_refused_with_the_flag_that_reads_it(folder):
    for name in ("normal", "today"):
        (folder / f"bare_{name}.csv").write_text((folder / f"{name}.csv").read_text().partition("\n")[2])
    refused(
        "which is a time, not a name. Put a header with the column names above it, or pass --no-header.",
        "fit bare_normal.csv -o bare.comet",
    )
    assert not (folder / "bare.comet").exists()
    done("fit bare_normal.csv -o bare.comet --no-header")
    assert Comet.load(folder / "bare.comet").names_ == ("v1", "v2", "v3")
    code, shown, _ = run("score bare.comet bare_today.csv --no-header")
    assert (code, len(shown.splitlines())) == (0, 121)
    bare = (folder / "bare_today.csv").read_bytes()
    code, shown, stderr = run("stream bare.comet --no-header --time-column v0", stdin=bare)
    assert (code, len(shown.splitlines()) >= 120) == (0, True), stderr


@pytest.mark.parametrize("marker", ["Bad", "-"])
def test_a_word_is_named_and_can_be_declared_missing(folder, marker):
    table = TODAY.with_columns(pl.col("flow").cast(pl.String))
    table[50, "flow"] = marker
    table.write_csv(folder / "words.csv")
    stderr = refused(
        f"Column 'flow' is not numeric: it has '{marker}' in row 52 of 'words.csv'.", "score plant.comet words.csv"
    ).err
    assert f"Declare it missing with --na {marker}, or leave out the column with --drop flow." in stderr
    options = ["--na", marker, "--gaps", "forward-fill:5"]
    done("score plant.comet words.csv", *options)
    done("stream plant.comet", *options, stdin=table.write_csv().encode())


@pytest.mark.parametrize(
    "verb",
    [
        *("fit words.csv -o never.comet", "score plant.comet words.csv", "score plant.comet words.csv --resample 60s"),
        *("explain plant.comet words.csv --step 60", "report plant.comet words.csv -o never.html", "check words.csv"),
        "check words.csv plant.comet --resample 60s",
        "evaluate words.csv today.csv --labels-column flow --scores-column level",
        "stream plant.comet",
    ],
)
def test_every_verb_names_the_row_of_a_bad_cell_as_an_editor_counts_it(folder, verb):
    table = TODAY.with_columns(pl.col("flow").cast(pl.String))
    table[70, "flow"] = "Bad"
    table.write_csv(folder / "words.csv")
    sentence = "Column 'flow' is not numeric: it has 'Bad' in row 72 of 'words.csv'."
    if verb.startswith("stream"):
        sentence = "Line 72: variable 'flow' is 'Bad', not a number."
    ended = refused(sentence, verb, stdin=table.write_csv())
    assert ("--drop" in ended.err) == (not verb.startswith(("evaluate", "stream")))  # which have no such option


@pytest.mark.parametrize(
    "row, words",
    [
        ("2024-03-01 01:10:00,,1,1", "Variable 'flow' is nan in row 72 of 'rows.csv' (time step 70, 2024-03-01T01:10"),
        ("2024-03-01 01:10:00,inf,1,1", "Variable 'flow' is inf in row 72 of 'rows.csv' (time step 70, 2024-03-01T0"),
        ("2024-03-01 01:09:00,1,1,1", "The timestamp of row 72 of 'rows.csv' (time step 70, 2024-03-01T01:09:00"),
        (",1,1,1", "The time column 'time' has empty cells, the first in row 72 of 'rows.csv'."),
    ],
)
def test_every_verb_names_the_row_of_a_bad_reading(folder, row, words):
    lines = (folder / "today.csv").read_text().splitlines()
    lines[71] = row
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    verbs = ("fit rows.csv -o never.comet", "score plant.comet rows.csv", "explain plant.comet rows.csv --step 60")
    verbs += ("report plant.comet rows.csv -o never.html", "check rows.csv", "check rows.csv plant.comet")
    for verb in verbs:
        refused(words, verb)


def test_a_repeated_time_is_named_with_its_row_in_the_second_file(folder):
    (folder / "twice").mkdir(exist_ok=True)
    TODAY[:60].write_csv(folder / "twice" / "a.csv")
    TODAY[60:].with_columns(pl.col("time").gather([0, 1, 1, *range(3, 60)])).write_csv(folder / "twice" / "b.csv")
    for verb in ("score plant.comet twice", "fit twice -o never.comet"):
        refused("The timestamp of row 4 of 'twice/b.csv' (time step 62, 2024-03-01T01:01:00.000000) appears tw", verb)


def test_a_variable_of_the_detector_holds_no_times_whatever_its_name(folder):
    today = TODAY.with_columns(valve=pl.int_range(120))
    for name, table in (("normal", table_of_readings(300, seed=0)), ("today", today)):
        table.drop("time").rename({"valve": "time_in_state"}).write_csv(folder / f"state_{name}.csv")
    done("fit state_normal.csv -o state.comet")
    assert len(done("score state.comet state_today.csv").out.splitlines()) == 121
    done("explain state.comet state_today.csv --step 60")
    done("report state.comet state_today.csv -o state.html")
    done("check state_today.csv state.comet")
    assert run("check state_today.csv").code == 2  # nothing says that it is a variable


@pytest.mark.parametrize("blank", ["\n", "\n\n\n", " \n"])
def test_blank_lines_are_skipped_in_files_and_streams_alike(folder, blank):
    lines = (folder / "today.csv").read_text().splitlines(keepends=True)
    text = "".join([*lines[:50], blank, *lines[50:], blank])
    (folder / "blank.csv").write_text(text)
    _, expected, _ = run("score plant.comet today.csv")
    assert run("score plant.comet blank.csv")[:2] == (0, expected)
    _, shown, _ = done("stream plant.comet", stdin=text.encode())
    assert sum("alert_score" in line for line in shown.splitlines()) == 120


def test_the_gap_rule_can_be_changed_without_a_new_fit(folder):
    holes = TODAY.with_columns(pl.when(pl.int_range(120) == 50).then(None).otherwise("flow").alias("flow"))
    holes.write_csv(folder / "holes.csv")
    rule = ("--gaps", "forward-fill:5")
    assert run("score plant.comet holes.csv")[0] == 2
    _, shown, _ = done("score plant.comet holes.csv", *rule)
    detector = Comet.load(folder / "plant.comet").with_gaps(ForwardFill(5))
    np.testing.assert_array_equal(pl.read_csv(io.StringIO(shown))["score"], detector.decision_function(holes))
    done("explain plant.comet holes.csv --step 60", *rule)
    done("report plant.comet holes.csv -o holes.html", *rule)
    done("stream plant.comet", *rule, stdin=holes.write_csv().encode())
    assert run("score plant.comet holes.csv --gaps guess")[0] == 2


def test_control_characters_never_reach_the_terminal(folder):
    (folder / "evil.csv").write_text("flow,level,valve\n1,2,\x1b]0;owned\x07\n")
    (folder / "name.csv").write_text("flow\x1b[2J,flow\x1b[2J\n1,2\n")
    for name in ("evil.csv", "name.csv"):
        code, shown, stderr = run("check", name)
        assert code == 2
        assert "\x1b" not in stderr + shown
        assert "\\x1b" in stderr


def test_control_characters_never_reach_the_terminal_from_explain_and_fit(folder):
    names = {"flow": "flow\x1b[2J", "level": "\x1b]0;owned\x07", "valve": "valve\x9b31m"}
    table_of_readings(300, seed=0).rename(names).write_csv(folder / "evil.csv")
    _, shown, stderr = done("fit evil.csv -o", "evil\x1b[2J.comet")
    controls = {"\x1b", "\x07", "\x9b"}
    assert not controls & set(shown + stderr)
    for options in ((), ("--json",)):
        _, shown, stderr = done("explain", "evil\x1b[2J.comet", "evil.csv", "--step", "200", *options)
        assert not controls & set(shown + stderr)
    assert "\\x1b" in run("explain", "evil\x1b[2J.comet", "evil.csv", "--step", "200").out


def test_names_are_written_so_that_a_spreadsheet_does_not_run_them(folder):
    names = {"flow": "=cmd()", "level": "@level", "valve": "+valve"}
    table_of_readings(300, seed=0).rename(names).write_csv(folder / "formula.csv")
    done("fit formula.csv -o formula.comet")
    done("score formula.comet formula.csv -o formulas.csv")
    variables = set(pl.read_csv(folder / "formulas.csv")["variable"])
    assert variables <= {"'=cmd()", "'@level", "'+valve"}


def test_labels_may_come_with_a_counter(folder):
    pl.DataFrame({"timestamp": range(120), "label": [0] * 100 + [1] * 20}).write_csv(folder / "labels.csv")
    done("score plant.comet today.csv -o scores.csv")
    assert json.loads(done("evaluate labels.csv scores.csv --json").out)["points"] == 120
    done("evaluate - scores.csv", stdin=(folder / "labels.csv").read_bytes())


def test_a_folder_is_scored_as_one_series(folder):
    (folder / "days").mkdir(exist_ok=True)
    TODAY[60:].write_csv(folder / "days" / "a.csv")
    TODAY[:60].write_csv(folder / "days" / "b.csv.gz", compression="gzip")
    _, expected, _ = run("score plant.comet today.csv")
    for path in ("days", "days/*.csv*"):
        assert run("score plant.comet", path)[:2] == (0, expected)


# --- dates of a stream ------------------------------------------------------------------------------------------------


def dated(*days):
    rows = zip(days, TODAY.select("flow", "level", "valve").rows(), strict=False)
    return ("time,flow,level,valve\n" + "".join(f"{day},{','.join(map(str, row))}\n" for day, row in rows)).encode()


@pytest.mark.parametrize(
    "days, options",
    [
        (("31/12/2025", "01/02/2026", "02/01/2026"), ()),
        (("31.12.2025 04:10", "01.02.2026 04:10", "02.01.2026 04:10"), ()),
        (("12/31/2025 11:59 PM", "01/03/2026 11:58 PM", "01/02/2026 11:59 PM"), ()),
        (("01/01/2026", "31/01/2026", "02/01/2026"), ()),
        (("01/02/2026", "02/03/2026", "03/02/2026"), ("--date-order", "day-first")),
        (("02/01/2026", "03/02/2026", "03/01/2026"), ("--date-order", "month-first")),
    ],
    ids=str,
)
@pytest.mark.parametrize("grid", [(), ("--resample", "1h", "--gaps", "score-measured")], ids=["clock", "grid"])
def test_dates_of_a_stream_are_put_in_order_as_those_of_a_file(days, options, grid):
    code, _, stderr = run("stream plant.comet", *options, *grid, stdin=dated(*days))
    assert code == 2
    which = "belongs to a bin that is already complete" if grid else f"is not after {days[1]}, the previous time"
    assert f"Line 4: the time {days[2]} {which}" in stderr
    code, _, stderr = run("stream plant.comet", *options, *grid, "--late", "drop", stdin=dated(*days))
    assert "Dropped 1 late or repeated readings." in stderr


def test_a_date_in_another_order_than_the_ones_before_is_refused():
    refused(
        "Line 3: the time '02/14/2026' is not a date with the day first.",
        "stream plant.comet",
        stdin=dated("13/02/2026", "02/14/2026"),
    )


def test_a_resumed_stream_remembers_the_order_of_its_dates(folder):
    command = ("stream", "plant.comet", "--snapshot", "dates.snapshot")
    done(*command, stdin=dated("30/11/2025", "01/12/2025"))
    done(*command, stdin=dated("02/12/2025"))
    refused("the time 01/12/2025 is not after 02/12/2025", *command, stdin=dated("01/12/2025"))


# --- check ------------------------------------------------------------------------------------------------------------


def test_check_says_what_would_happen(folder):
    _, shown, stderr = done("check normal.csv")
    assert "300 readings, usually 60 s apart" in shown
    assert "A detector could be fitted on these readings." in stderr
    table_of_readings(300, seed=0).with_columns(id=pl.int_range(300), still=1.0).write_csv(folder / "odd.csv")
    code, shown, stderr = run("check odd.csv --json")
    found = json.loads(shown)
    assert (code, found["ok"]) == (0, True)
    assert {column["name"]: column["use"] for column in found["columns"]}["still"] == "constant"
    assert "'id' only counts readings or tells the time: it is not learned." in found["notes"][0]


def test_check_compares_with_a_detector(folder):
    TODAY.with_columns(flow=1000 * pl.col("flow")).write_csv(folder / "units.csv")
    _, _, stderr = done("check units.csv plant.comet")
    assert "a change from kilo-units to units (times 1000) would explain it" in stderr
    assert "These readings could be scored." in stderr


def test_a_cell_of_any_length_gets_a_short_message():
    code, _, stderr = run("fit - -o new.comet", stdin=f"flow,level\n1,{'x' * 100_000}\n".encode())
    assert code == 2
    assert stderr.startswith("cometad: Column 'level' is not numeric: it has 'xxx")
    assert stderr.endswith("xxx, or leave out the column with --drop level.\n")
    assert len(stderr) < 2000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("flow,level,valve\n1,2,Bad\n", "it has 'Bad' in row 2 of 'standard input'."),
        ("flow,level,valve\n" + "1,2,\n" * 200, "--gaps forward-fill:5"),
        ("flow,level\n1,2\n", "fewer than"),
        ("flow,flow\n1,2\n", "two columns named 'flow'"),
    ],
)
def test_check_says_why_a_file_cannot_be_used(text, words):
    code, shown, stderr = run("check - --json", stdin=text.encode())
    assert code == 2
    assert words in json.loads(shown)["problem"]
    assert words in stderr


@pytest.mark.parametrize("kind", ["List", "Struct", "Categorical", "Binary", "Duration", "Time"])
def test_check_names_columns_of_other_types(tmp_path, kind):
    counts = pl.Series("odd", range(60))
    odd = {
        "List": counts.reshape((60, 1)).arr.to_list(),
        "Struct": counts.to_frame().to_struct("odd"),
        "Categorical": counts.cast(pl.String).cast(pl.Categorical),
        "Binary": counts.cast(pl.String).cast(pl.Binary),
        "Duration": counts.cast(pl.Duration("us")),
        "Time": counts.cast(pl.Time),
    }
    table_of_readings(60, seed=1).with_columns(odd[kind]).write_parquet(tmp_path / "odd.parquet")
    code, shown, _ = run("check", str(tmp_path / "odd.parquet"), "--json")
    assert code == 2
    found = json.loads(shown)
    assert f"Column 'odd' is not numeric (it is {kind}" in found["problem"]
    assert (found["columns"][-1]["kind"], found["columns"][-1]["use"]) == ("other", f"not numeric: {kind}")

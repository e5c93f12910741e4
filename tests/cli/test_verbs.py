"""The command line as a new user meets it: every verb, format, mistake and way to exit."""

import inspect
import io
import json
import re
import signal
import subprocess
import sys
import threading
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import typer

from cli_case import COMETAD, NETWORK, TIMEOUT, Ended, deadline, done, refused, run, table_of_readings
from cometad import Alerts, Budget, Comet, NetworkComet, Quantile
from cometad.cli.verbs import app
from cometad.data.text import Layout, Reading, readings
from cometad.errors import InputError
from cometad.live.lines import Interrupts
from cometad.live.session import Clock
from cometad.network.schedules import OneCycle
from cometad.views import Activity, Forecast


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a fitted detector, readings to score in all formats, and their scores."""
    folder = tmp_path_factory.mktemp("cli")
    table_of_readings(300, seed=0).write_csv(folder / "normal.csv")
    today = table_of_readings(100, seed=1)
    today[70, "flow"] = 9.0
    today.write_csv(folder / "today.csv")
    today.write_parquet(folder / "today.parquet")
    today.with_columns(pl.col("time").dt.to_string("iso:strict")).write_ndjson(folder / "today.jsonl")
    for name, options in (("plant.comet", []), ("network.comet", NETWORK)):
        done("fit", folder / "normal.csv", "-o", folder / name, *options)
    done("score", folder / "plant.comet", folder / "today.csv", "-o", folder / "scores.csv")
    return folder


@pytest.fixture(autouse=True)
def inside(folder, monkeypatch):
    """Tests run in the folder."""
    monkeypatch.chdir(folder)


@pytest.fixture
def ctrl_c_raises():
    """Let SIGINT raise KeyboardInterrupt, also where it is ignored, as in a background job."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


# --- help -------------------------------------------------------------------------------------------------------------


def test_help_does_not_load_torch_or_scikit_learn():
    code = (
        "import sys; from cometad.cli import main; code = main(['fit', '--help']); "
        "sys.exit(code or any(name in sys.modules for name in ('torch', 'sklearn', 'polars')))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=TIMEOUT)
    assert "Example: cometad fit normal.csv -o plant.comet" in shown.stdout


def commands(group):
    """All verbs of a group and of the groups in it."""
    for command in group.commands.values():
        yield from commands(command) if hasattr(command, "commands") else [command]


def test_a_verb_takes_its_options_in_groups():
    verbs = {verb.name: inspect.unwrap(verb.callback) for verb in commands(typer.main.get_command(app))}
    assert {name for name, verb in verbs.items() if len(inspect.signature(verb).parameters) > 8} == set()


def test_the_version_is_shown():
    assert run("--version")[:2] == (0, "cometad 0.2.0\n")


# --- fit and score ----------------------------------------------------------------------------------------------------


def test_fit_on_the_command_line_equals_fit_in_python(folder):
    parameters = {"window": 32, "patch_sizes": (2, 4), "patch_strides": (1, 2), "codebook_size": 16}
    network = NetworkComet(**parameters, dim=16, core_dim=8, schedule=OneCycle(10))
    for detector, name in ((Comet(), "plant.comet"), (network, "network.comet")):
        detector.fit(pl.read_csv("normal.csv", try_parse_dates=True)).save(folder / "python.comet")
        assert (folder / "python.comet").read_bytes() == (folder / name).read_bytes()


def test_the_options_of_comet_are_its_parameters():
    options = ("--views", "forecast:4,activity", "--no-trim", "--seed", "3", "--set", "pooling=8")
    done("fit normal.csv -o other.comet", *options, "--set", "smoothing=[16]")
    expected = Comet(views=(Forecast(4), Activity()), trim=False, seed=3, pooling=8, smoothing=(16,))
    assert Comet.load("other.comet").get_params() == expected.get_params()


def test_fit_says_which_variables_have_seasons_and_how_to_ignore_the_time():
    hours = np.arange(24 * 14)
    times = [datetime(2024, 3, 1) + timedelta(hours=int(hour)) for hour in hours]
    load = 9 * np.sin(hours * np.pi / 12) + np.random.default_rng(0).normal(size=len(hours))
    pl.DataFrame({"time": times, "load": load}).write_csv("load.csv")
    _, _, stderr = done("fit load.csv -o load.comet --timezone Europe/Berlin --holidays DE-BY")
    assert (
        "cometad: 'load' repeats every day: what is usual at that time is subtracted. To ignore the time, pass "
        "--season none." in stderr
    )
    detector = Comet.load("load.comet")
    assert (detector.season, detector.timezone, detector.holidays) == ("auto", "Europe/Berlin", "DE-BY")
    streamed = done("stream load.comet", stdin=Path("load.csv").read_text()).lines
    done("score load.comet load.csv -o load_scores.csv")
    assert [line["alert_score"] for line in streamed[:9]] == pl.read_csv("load_scores.csv")["alert_score"].to_list()[:9]
    timeless = "\n".join(["load", *map(str, load)])
    refused("every reading needs a time. Name the time column", "stream load.comet", stdin=timeless)
    assert "repeats" not in done("fit load.csv -o load.comet --force --season none").err
    done("fit load.csv -o load.comet --force --season 24")
    assert Comet.load("load.comet").season == 24


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--season 1y", "Unknown season '1y'. Choose from auto, 1d, 1w, none"),
        ("--season 1", "Unknown season 1."),
        ("--season 1w", "at most half of the series"),
        ("--season 1d --drop time", "Name the time column with --time-column"),
        ("--timezone Mars", "Unknown time zone 'Mars'. Write it like UTC or Europe/Berlin."),
        ("--holidays XX", "Unknown country 'XX'. Write it like DE"),
        ("--season 1d --detector knn", "--season is an option of comet, not of knn. Leave it out."),
    ],
)
def test_a_season_that_cannot_be_is_refused_with_what_to_write_instead(options, words):
    refused(words, f"fit normal.csv -o refused.comet {options}")


def test_fit_says_which_variables_have_trends_and_how_to_score_their_readings():
    table = pl.read_csv("normal.csv").with_row_index("pieces")
    table.write_csv("counted.csv")
    _, _, stderr = done("fit counted.csv -o counted.comet")
    assert (
        "cometad: 'pieces' only grows or only falls: its increments are scored instead of its readings. To score the "
        "readings, pass --no-trends." in stderr
    )
    later = pl.read_csv("today.csv").with_row_index("pieces", offset=5_000)
    later.write_csv("counted_today.csv")
    assert "'pieces'" not in run("score counted.comet counted_today.csv -o counted_scores.csv").err
    code, _, stderr = run("fit counted.csv -o plain.comet --no-trends")
    assert (code, "only grows" in stderr) == (0, False)
    assert not Comet.load("plain.comet").trends


def test_columns_that_are_no_measurements_are_questioned_and_clocks_are_not_learned():
    table = pl.read_csv("normal.csv", try_parse_dates=True)
    table = table.with_columns(hour=pl.col("time").dt.hour(), label=pl.lit(0), **{"my room": pl.lit(20)})
    table.with_row_index("row").with_row_index("pieces", offset=7).write_csv("columns.csv")
    for arguments in ("check columns.csv", "fit columns.csv -o columns.comet"):
        _, _, stderr = done(arguments)
        assert "cometad: 'row' and 'hour' only count readings or tell the time: they are not learned." in stderr
        for question in (
            "'pieces' only counts the readings. To leave it out, pass --drop pieces.",
            "'label' looks like a label, not like a measurement. To leave it out, pass --drop label.",
            "'my room' is always 20 in training, so there is no other value to compare with. To leave it out, pass "
            "--drop 'my room'.",
        ):
            assert f"cometad: Variable {question}" in stderr
    drop = [word for name in ("row", "pieces", "hour", "label", "my room") for word in ("--drop", name)]
    _, _, stderr = done("check columns.csv", *drop)
    assert "--drop" not in stderr
    _, _, stderr = done("check columns.csv columns.comet")
    assert "--drop" not in stderr


def test_kinds_are_declared_by_name():
    options = ("--counter", "flow", "--counter", "heat", "--state", "valve", "--no-trends")
    table = pl.read_csv("normal.csv")
    names = [name for name in table.columns if name != "time"]
    renamed = table.rename(dict(zip(names, ("flow", "heat"), strict=False))).with_columns(
        valve=pl.int_range(pl.len()) % 2
    )
    renamed.write_csv("kinds.csv")
    _, _, stderr = done("fit kinds.csv -o kinds.comet", *options)
    detector = Comet.load("kinds.comet")
    assert detector.kinds == {"flow": "counter", "heat": "counter", "valve": "state"}
    assert {detector.names_[i]: kind for i, kind in detector.trends_.kinds.items()} == detector.kinds
    assert "cometad: 'valve' holds few values: any other reading counts as far from them." in stderr
    assert "pass --no-trends" not in stderr  # which is passed, and keeps what is declared


def test_left_out_stretches_are_listed_with_their_times():
    both = ("--exclude", "40..60", "--exclude", "2024-03-01T02:00:00..2024-03-01 02:30")
    _, _, stderr = done("fit normal.csv -o other.comet --no-trim", *both)
    stretches = Comet.load("other.comet").trimmed_
    assert [(stretch.start, stretch.stop) for stretch in stretches] == [(40, 60), (120, 150)]
    said = [line for line in stderr.splitlines() if "Left out" in line]
    assert said == [
        "cometad: Left out of training: 2024-03-01 00:40 UTC to 00:59 UTC: excluded by the user.",
        "cometad: Left out of training: 2024-03-01 02:00 UTC to 02:29 UTC: excluded by the user.",
    ]


def test_only_the_first_of_many_left_out_stretches_are_listed():
    many = [word for start in range(10, 130, 10) for word in ("--exclude", f"{start}..{start + 2}")]
    _, _, stderr = run("fit normal.csv -o other.comet --no-trim", *many)
    assert stderr.count("Left out of training: ") == 10
    assert "2 more stretches were left out; cometad report lists all of them." in stderr


def test_fit_names_views_that_need_a_longer_history_in_one_sentence():
    pl.read_csv("normal.csv").head(110).write_csv("short.csv")
    _, _, stderr = done("fit short.csv -o short.comet")
    short = "cometad: The history is too short for these views: Patterns (128 readings), Activity (128 readings)."
    assert [line for line in stderr.splitlines() if "short" in line] == [short]
    assert Comet.load("short.comet").left_out_ == (0, 4)


def test_fit_ends_with_a_summary():
    preset = ("--preset", "paper", "--dataset", "WADI")
    code, shown, stderr = run("fit normal.csv -o other.comet", *NETWORK, *preset)
    threshold = NetworkComet.load("other.comet").threshold_
    assert code == 0
    assert shown == (
        f"Fitted on 300 readings of 3 variables; threshold {threshold:.4g}; wrote 'other.comet'.\n"
        "Expect 1 % of normal readings like these to be flagged: 14.4 a day at one reading every 60 s.\n"
    )
    assert "codes" in stderr
    assert "--steps replaces the published schedule of 20 epochs by one cycle of the learning rate." in stderr


def test_score_gives_one_row_per_reading(folder):
    scores = pl.read_csv(folder / "scores.csv", try_parse_dates=True)
    detector, today = Comet.load(folder / "plant.comet"), pl.read_parquet(folder / "today.parquet")
    assert scores.columns == ["step", "time", "score", "alert_score", "threshold", "anomaly", "variable"]
    assert scores["time"].equals(today["time"])
    np.testing.assert_array_equal(scores["score"], detector.decision_function(today))
    np.testing.assert_array_equal(scores["alert_score"], detector.step_scores(today).alerts)
    thresholds = detector.threshold.watch(detector.threshold_state_).follow(detector.step_scores(today).alerts)
    np.testing.assert_array_equal(scores["threshold"], thresholds)
    np.testing.assert_array_equal(scores["anomaly"], detector.predict(today))
    assert scores.row(70, named=True)["variable"] == "flow"


def test_the_two_scores_of_a_network_are_equal():
    done("score network.comet today.csv -o network_scores.csv")
    scores = pl.read_csv("network_scores.csv")
    detector = NetworkComet.load("network.comet")
    np.testing.assert_array_equal(scores["score"], detector.decision_function(pl.read_parquet("today.parquet")))
    assert scores["score"].equals(scores["alert_score"])


def test_the_threshold_of_a_row_is_the_one_in_force_there(folder):
    rule = ("--threshold", "drifting-spot:1e-3")
    done("score plant.comet today.csv -o drifting.csv", *rule)
    scores = pl.read_csv("drifting.csv")
    assert scores["threshold"].n_unique() > 1
    assert scores["anomaly"].to_list() == (scores["alert_score"] > scores["threshold"]).cast(int).to_list()
    _, shown, _ = run("stream plant.comet", *rule, stdin=(folder / "today.csv").read_bytes())
    assert [line["threshold"] for line in _answers(shown)] == scores["threshold"].to_list()


def test_scores_are_the_same_from_and_to_every_format(folder):
    text = (folder / "scores.csv").read_text()
    assert run("score plant.comet today.csv")[:2] == (0, text)
    assert run("score plant.comet today.parquet")[:2] == (0, text)
    code, shown, stderr = run("score plant.comet today.parquet -o scores.parquet")
    assert (code, shown) == (0, "")
    assert stderr.startswith("cometad: Scored 100 readings, ")
    assert pl.read_parquet("scores.parquet").drop("time").equals(pl.read_csv("scores.csv").drop("time"))


LONG = 2**17  # readings: more than the block of 2**16 that is read at a time


@pytest.fixture(scope="module")
def long(folder):
    """The folder with a detector that scores fast, and many readings."""
    detector = Comet(views=(Forecast(4), Activity(16)))
    detector.fit(pl.read_csv(folder / "normal.csv", try_parse_dates=True)).save(folder / "fast.comet")
    table_of_readings(LONG + 5, seed=3).drop("time").write_csv(folder / "long.csv")
    return folder


def test_a_file_of_several_blocks_is_scored_like_the_whole_series(long):
    readings = pl.read_csv(long / "long.csv")
    readings.write_parquet(long / "long.parquet")
    detector = Comet.load(long / "fast.comet")
    done("score fast.comet long.csv -o long_scores.csv")
    done("score fast.comet long.parquet -o long_scores.parquet")
    scores = pl.read_csv("long_scores.csv")
    assert pl.read_parquet("long_scores.parquet").equals(scores)
    assert scores["step"].to_list() == list(range(LONG + 5))
    np.testing.assert_array_equal(scores["score"], detector.decision_function(readings))
    np.testing.assert_array_equal(scores["anomaly"], detector.predict(readings))


@pytest.mark.parametrize("output", [[], ["-o", "never.csv"], ["-o", "never.parquet"]])
def test_a_bad_reading_in_a_late_block_leaves_no_partial_result(long, output):
    (long / "faulty.csv").write_text((long / "long.csv").read_text() + "1,,3\n")
    before = set(long.iterdir())
    sentence = f"'level' is nan in row {LONG + 7} of 'faulty.csv' (time step {LONG + 5})."
    assert refused(sentence, "score fast.comet faulty.csv", *output).out == ""
    assert set(long.iterdir()) == before


def test_times_must_increase_from_block_to_block(long):
    start = datetime(2024, 3, 1)
    rows = [f"{(start + timedelta(seconds=i)).isoformat()},1,2,3\n" for i in range(2**16)]
    (long / "back.csv").write_text("".join(["time,flow,level,valve\n", *rows, rows[-1]]))
    words = "row 65538 of 'back.csv' (time step 65536, 2024-03-01T18:12:15.000000) appears twice"
    refused(words, "score fast.comet back.csv")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems report the peak in other units")
def test_peak_memory_does_not_grow_with_the_file(long):
    header, *rows = (long / "long.csv").read_text().splitlines(keepends=True)
    # Not ru_maxrss: a process inherits that from the one that started it.
    code = (
        "import re, sys; from pathlib import Path; from cometad.cli import main; main(sys.argv[1:]); "
        r"print(re.search(r'VmHWM:\s+(\d+)', Path('/proc/self/status').read_text())[1])"
    )

    def peak(times: int) -> float:
        (long / "grown.csv").write_text("".join([header, *rows * times]))
        command = [sys.executable, "-c", code, "score", "fast.comet", "grown.csv", "-o", "grown_scores.csv"]
        ended = subprocess.run(command, cwd=long, capture_output=True, text=True, check=True, timeout=TIMEOUT)
        return int(ended.stdout) / 2**10

    assert peak(10) - peak(1) < 80  # MiB


def test_events_are_written_with_their_times(folder):
    detector, readings = Comet.load(folder / "plant.comet"), pl.read_parquet(folder / "today.parquet")
    arguments = ("--threshold", "quantile:0.02", "--min-length", "2")
    code, shown, stderr = run("score plant.comet today.csv -o s.csv --events events.csv", *arguments)
    expected = detector.with_threshold(Quantile(0.02)).events(readings, Alerts(min_length=2))
    assert (code, shown) == (0, "")
    assert expected
    alerts = sum(event.level == "alert" for event in expected)
    counts = (alerts, "alert"), (len(expected) - alerts, "notice")
    counted = " and ".join(f"{count} {level}{'s' * (count != 1)}" for count, level in counts)
    assert f": {counted}. Wrote 's.csv'. Wrote 'events.csv'." in stderr
    events = pl.read_csv("events.csv")
    assert events["level"].to_list() == [event.level for event in expected]
    assert events["start"].to_list() == [event.start for event in expected]
    assert events["severity"].to_list() == [event.severity for event in expected]
    for name, steps in {"start": [e.start for e in expected], "stop": [e.stop - 1 for e in expected]}.items():
        assert events[f"{name}_time"].to_list() == [f"{readings['time'][step]:%Y-%m-%dT%H:%M:%SZ}" for step in steps]


def test_a_budget_of_alerts_is_written_as_people_say_it():
    _, shown, _ = done("fit normal.csv -o other.comet --alerts 2/day")
    assert shown.endswith("Expect at most 1 event in 720 readings, 2 a day.\n")
    assert Comet.load("other.comet").threshold == Budget(alerts_per_day=2)
    done("fit normal.csv -o other.comet --alerts 2/1000,3/day --force")
    assert Comet.load("other.comet").threshold == Budget(alerts=2, per=1000, alerts_per_day=3)


def test_too_many_alerts_a_day_are_reduced_with_a_sentence():
    _, _, stderr = done("score plant.comet today.csv -o s.csv --force --alerts 100/day")
    assert "The budget of 100 alerts a day is one in 14.4 readings, too many to look at. It is reduced to" in stderr


def test_a_higher_mark_turns_alerts_into_notices():
    arguments = "score plant.comet today.csv -o s.csv --force --events events.csv"
    levels = []
    for mark in ("0", "1"):
        done(arguments, "--alert-from", mark)
        levels.append(pl.read_csv("events.csv")["level"].to_list())
    assert len(levels[0]) == len(levels[1]) > 0
    assert set(levels[0]) == {"alert"}
    assert "notice" in levels[1]


def test_a_time_is_explained_like_its_time_step(folder):
    time = pl.read_csv(folder / "today.csv", try_parse_dates=True)["time"][70]
    by_step, by_time = (run("explain plant.comet today.csv --json --step", at) for at in ("70", f"{time}Z"))
    assert by_step[0] == 0
    assert by_step == by_time
    pairs = (("70", "71"), (f"{time}Z", f"{time}Z"))  # the reading at a stop is included
    by_steps, by_times = (
        run("explain plant.comet today.csv --json --start", *pair[:1], "--stop", *pair[1:]) for pair in pairs
    )
    assert by_steps == by_times
    code, shown, stderr = run("explain plant.comet today.csv --step 2001-01-01T00:00Z")
    assert (code, shown) == (2, "")
    assert re.search(r"The time 2001-01-01T00:00Z is outside the series, which is from \S+Z to \S+Z\.", stderr)


@pytest.fixture(scope="module")
def moved(folder):
    """Readings of which one variable has moved."""
    table_of_readings(600, seed=2).with_columns(pl.col("level") + 3.0).write_csv(folder / "moved.csv")
    return folder / "moved.csv"


def test_score_says_when_far_more_readings_are_flagged_than_promised(moved):
    _, _, stderr = done("score plant.comet", moved.name, "--threshold", "quantile:0.01")
    assert stderr.count("times the promised 1 %, mostly because of level") == 1
    assert "promised" not in run("score plant.comet normal.csv --threshold quantile:0.01")[2]


def test_a_stream_says_so_once(moved):
    _, stdout, stderr = done("stream plant.comet --threshold quantile:0.01", stdin=moved.read_bytes())
    assert len(_answers(stdout)) == 600
    assert stderr.count("times the promised 1 %, mostly because of level") == 1


def test_the_events_of_a_baseline_are_written_too():
    done("fit normal.csv -o norm.model --detector squared-norm --threshold spot:1e-3")
    done("score norm.model today.csv -o s.csv --events events.parquet")
    assert 70 in pl.read_parquet("events.parquet")["peak"].to_list()


# --- stream -----------------------------------------------------------------------------------------------------------


def _lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def _answers(text: str) -> list[dict]:
    """The lines of readings, without one that closes an event at the end."""
    lines = _lines(text)
    assert all(list(line) == ["step", "events"] for line in lines[-1:] if "alert_score" not in line)
    return lines[:-1] if "alert_score" not in lines[-1] else lines


def _assert_scores(lines: list[dict], folder: Path) -> None:
    scores = pl.read_csv(folder / "scores.csv")
    for name in ("step", "alert_score", "threshold", "anomaly"):
        assert [line[name] for line in lines] == scores[name].to_list()
    assert [next(iter(line["variables"])) for line in lines] == scores["variable"].to_list()
    assert [line["time"][:19] for line in lines] == scores["time"].to_list()


def in_two(folder: Path, cut: int, *arguments: object) -> list[Ended]:
    """Run a stream on today's readings before `cut`, then on the others."""
    header, *rows = (folder / "today.csv").read_text().splitlines(keepends=True)
    return [run(*arguments, stdin="".join([header, *part])) for part in (rows[:cut], rows[cut:])]


@pytest.mark.parametrize("form", ["auto", "csv", "jsonl"])
@pytest.mark.parametrize("file", ["today.csv", "today.jsonl"])
def test_the_stream_equals_the_batch(folder, file, form):
    if form != "auto" and not file.endswith(form):
        return
    _, shown, _ = done("stream plant.comet --format", form, stdin=(folder / file).read_bytes())
    _assert_scores(_answers(shown), folder)


def test_fields_are_matched_by_name_and_others_ignored():
    mixed = pl.read_csv("today.csv").select("valve", pl.lit("pump 3").alias("where"), "flow", "level")
    _, shown, _ = done("stream plant.comet", stdin=mixed.write_csv())
    assert "time" not in _lines(shown)[0]
    assert [line["alert_score"] for line in _answers(shown)] == pl.read_csv("scores.csv")["alert_score"].to_list()


def test_a_line_has_no_ranking_score(folder):
    _, shown, _ = run("stream plant.comet", stdin=(folder / "today.csv").read_bytes())
    wanted = {"step", "time", "alert_score", "threshold", "anomaly", "variables"}
    assert {frozenset(line.keys() - {"events"}) for line in _answers(shown)} == {frozenset(wanted)}


@pytest.mark.parametrize("cut", [1, 3, 40, 99])
def test_a_stream_in_two_parts_scores_like_one(folder, tmp_path, cut):
    first, second = in_two(folder, cut, "stream", "plant.comet", "--snapshot", tmp_path / "plant.stream")
    assert f"after {cut} readings." in first[2]
    assert "after 100 readings." in second[2]
    assert len(_lines(first[1])) == cut
    _assert_scores(_lines(first[1] + second[1]), folder)


@pytest.mark.parametrize("cut", [1, 40])
def test_readings_of_a_network_that_wait_for_a_score_wait_in_the_snapshot(folder, tmp_path, cut):
    first, second = in_two(folder, cut, "stream", "network.comet", "--snapshot", tmp_path / "plant.stream")
    assert f"after {cut} readings;" in first[2]
    assert "after 100 readings;" in second[2]
    waiting = int(second[2].partition("scores of the last ")[2].split()[0])
    assert 0 < waiting < 4
    lines = _lines(first[1] + second[1])
    done("score network.comet today.csv -o network_scores.csv")
    scores = pl.read_csv("network_scores.csv")[: 100 - waiting]
    assert [line["alert_score"] for line in lines] == scores["alert_score"].to_list()
    assert [line["time"][:19] for line in lines] == scores["time"].to_list()  # including those that waited


@pytest.mark.parametrize("cut", [20, 71, 99])
def test_events_open_and_close_once_across_snapshots(folder, tmp_path, cut):
    arguments = "stream plant.comet --min-length 2 --merge-gap 1 --only-events"
    whole = run(arguments, stdin=(folder / "today.csv").read_bytes()).out
    parts = "".join(part.out for part in in_two(folder, cut, arguments, "--snapshot", tmp_path / "plant.stream"))
    changes = [change for line in _lines(whole) for change in line["events"]]
    readings = pl.read_parquet(folder / "today.parquet")
    events = Comet.load("plant.comet").events(readings, Alerts(min_length=2, merge_gap=1))
    closed = [change for change in changes if change["change"] == "closed"]
    assert [(change["number"], change["start"], change["stop"], change["severity"]) for change in closed] == [
        (event.number, event.start, event.stop, event.severity) for event in events
    ]
    assert len([change for change in changes if change["change"] == "opened"]) == len(events) > 0
    assert parts == whole[: len(parts)]  # except an event that is still open


def test_after_a_bad_reading_the_snapshot_resumes_with_the_corrected_one(folder, tmp_path):
    header, *rows = (folder / "today.csv").read_text().splitlines(keepends=True)
    snapshot = ["--snapshot", str(tmp_path / "plant.stream")]
    bad = rows[50].rpartition(",")[0] + ",\n"
    sentence = "Line 52: variable 'valve' is missing. Send it, or fit the detector with a gap rule"
    lines = "".join([header, *rows[:50], bad, *rows[51:]])
    first = refused(sentence, "stream plant.comet", *snapshot, stdin=lines)
    second = run("stream plant.comet", *snapshot, stdin="".join([header, *rows[50:]]))
    _assert_scores(_lines(first[1] + second[1]), folder)


def test_without_a_snapshot_every_reading_before_a_bad_one_is_scored(folder):
    lines = (folder / "today.jsonl").read_text().splitlines()[:50]
    sentence, given = "Line 51: there is no value for variable 'level'", "\n".join([*lines, '{"flow": 1}'])
    ended = refused(sentence, "stream plant.comet", stdin=given)
    assert [line["step"] for line in _lines(ended.out)] == list(range(50))


def test_bytes_that_are_no_text_are_no_number():
    refused("Line 2: variable 'valve' is", "stream plant.comet", stdin=b"flow,level,valve\n1,2,\xff\n")


def test_a_network_needs_a_window_of_readings():
    refused("The stream ended after 1 readings", "stream network.comet", stdin="flow,level,valve\n1,2,3\n")


def test_columns_are_matched_by_position_for_a_detector_fitted_on_an_array():
    layout = Layout(["v0", "v1"], named=False, time_column=None)
    assert [*readings(["time,a,b", "7,1,2"], "csv", layout)] == [Reading(2, [1.0, 2.0], "7")]
    assert [*readings(["[1, 2]"], "auto", layout)] == [Reading(1, [1.0, 2.0], None)]


@pytest.mark.parametrize("before, after", [("9", "10"), (9, 9.5), ("2024-03-01T01:00+01:00", "2024-03-01T00:30Z")])
def test_a_clock_reads_numbers_and_iso_times(before, after):
    clock = Clock()
    assert [len(clock.admit(Reading(1, [], time))) for time in (before, after)] == [1, 1]
    with pytest.raises(InputError, match="is not after"):
        clock.admit(Reading(1, [], before))
    with pytest.raises(InputError, match="Line 1: 'noon' is not a time"):
        clock.admit(Reading(1, [], "noon"))


@pytest.mark.usefixtures("ctrl_c_raises")
def test_an_interrupt_waits_for_the_current_step_and_the_lines_already_read():
    with Interrupts() as interrupts:
        lines = interrupts.lines(io.BytesIO(b"1\n2\n3"))
        assert next(lines) == "1"
        signal.raise_signal(signal.SIGINT)  # during a step: nothing is raised
        assert list(lines) == ["2"]  # the 3 might be the start of 30
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)  # the old handler is back


# --- as processes -----------------------------------------------------------------------------------------------------


def test_scores_are_printed_while_the_input_is_open_and_ctrl_c_keeps_the_rest(folder):
    lines = (folder / "today.csv").read_text().splitlines(keepends=True)
    with subprocess.Popen(
        [*COMETAD, "stream", "plant.comet", "--snapshot", "live.stream"],
        **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": folder, "text": True},
    ) as live:
        timeout = threading.Timer(TIMEOUT, live.kill)
        timeout.start()
        live.stdin.write("".join(lines[:41]))
        live.stdin.flush()
        first = [live.stdout.readline() for _ in range(40)]  # the input is still open
        live.send_signal(signal.SIGINT)
        rest, stderr = live.stdout.read(), live.stderr.read()  # communicate would miss what readline has buffered
        timeout.cancel()
    assert live.returncode == 0, stderr
    assert "Traceback" not in stderr
    assert "Wrote 'live.stream' after 40 readings" in stderr
    _, more, _ = run("stream plant.comet --snapshot live.stream", stdin="".join([lines[0], *lines[41:]]))
    assert rest == ""
    _assert_scores(_lines("".join(first) + more), folder)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("verb", ["score plant.comet today.csv", "stream plant.comet"])
def test_a_full_disk_is_reported_in_one_sentence(folder, verb):
    sentence = "Cannot write the output: No space left on device. Free some space or write elsewhere."
    with Path("/dev/full").open("w") as full:
        refused(sentence, verb, stdin=(folder / "today.csv").read_bytes(), stdout=full)


@pytest.mark.usefixtures("ctrl_c_raises")
def test_ctrl_c_during_fit_writes_nothing(folder):
    main_thread = threading.main_thread().ident
    ctrl_c = threading.Timer(1.0, signal.pthread_kill, [main_thread, signal.SIGINT])
    with deadline(60):
        ctrl_c.start()
        code, _, stderr = run("fit normal.csv -o late.comet", *NETWORK, "--steps", "1000000")
    assert code == 130
    assert stderr.endswith("cometad: Interrupted; nothing was written.\n")
    assert not list(folder.glob("*late*"))


# --- mistakes ---------------------------------------------------------------------------------------------------------


def test_a_bug_is_reported_as_a_bug(monkeypatch):
    def broken(path):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("cometad.comet.Comet.load", broken)
    code, _, stderr = run("score plant.comet today.csv")
    assert code == 1
    assert "ZeroDivisionError" in stderr
    assert stderr.endswith("Please report it with the lines above.\n")


# --- data -------------------------------------------------------------------------------------------------------------


def test_data_lists_missing_datasets_and_how_to_get_them(tmp_path):
    assert "Request it from iTrust" in done("data list --data-dir", tmp_path).out
    code, shown, _ = run("data check PSM --data-dir", tmp_path)
    assert (code, shown.startswith("PSM was not found. Take")) == (0, True)


def test_data_check_compares_counts_with_the_published_ones(tmp_path):
    (tmp_path / "ASD" / "omi-1").mkdir(parents=True)
    for part, shape in (("train", (8, 2)), ("test", (4, 2)), ("test_label", (4,))):
        np.save(tmp_path / "ASD" / "omi-1" / f"{part}.npy", np.zeros(shape))
    assert str(tmp_path / "ASD") in run("data list --data-dir", tmp_path)[1]
    _, shown, _ = done("data check ASD MSL --data-dir", tmp_path)
    assert "8 / 102,331" in shown
    assert "differs" in shown
    assert "MSL was not found" in shown


def test_a_damaged_dataset_is_reported_as_bad_input(tmp_path):
    (tmp_path / "ASD.tar.xz").write_bytes(b"not an archive")
    refused("is damaged", "data check ASD --data-dir", tmp_path)

"""No output destroys anything: not an input, not another output, not a file that cometad did not write."""

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from cli_case import table_of_readings
from cometad.cli import main
from cometad.cli.paths import KINDS, is_ours

COMETAD = [sys.executable, "-m", "cometad"]
TIMEOUT = 300  # seconds, for a process on a slow machine


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One file of each kind that cometad writes, and readings."""
    folder = tmp_path_factory.mktemp("outputs")
    table_of_readings(300, seed=0).write_csv(folder / "normal.csv")
    table_of_readings(60, seed=1).write_csv(folder / "today.csv")
    model, today = str(folder / "plant.comet"), str(folder / "today.csv")
    assert main(["fit", str(folder / "normal.csv"), "-o", model]) == 0
    assert main(["score", model, today, "-o", str(folder / "s.csv"), "--events", str(folder / "e.csv")]) == 0
    assert main(["score", model, today, "-o", str(folder / "s.parquet"), "--events", str(folder / "e.parquet")]) == 0
    assert main(["report", model, today, "-o", str(folder / "r.html")]) == 0
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    """A copy of those files, as the current folder."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    (tmp_path / "linked.csv").symlink_to("today.csv")
    os.link(tmp_path / "today.csv", tmp_path / "hard.csv")
    (tmp_path / "model_link.csv").symlink_to("plant.comet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def refused(folder: Path, capsys, *arguments: str) -> str:
    """The sentence with which a command is refused, before it changes anything."""
    before = contents(folder)
    capsys.readouterr()
    assert main(list(arguments)) == 2
    stderr = capsys.readouterr().err
    assert stderr.startswith("cometad: ")
    assert stderr.count("\n") == 1  # no work was begun
    assert contents(folder) == before
    return stderr


SCORE = ("score", "plant.comet", "today.csv")


@pytest.mark.parametrize(
    "arguments",
    [
        ("fit", "normal.csv", "-o", "normal.csv"),
        ("fit", "today.csv", "-o", "hard.csv"),
        ("fit", "linked.csv", "-o", "today.csv"),
        (*SCORE, "-o", "today.csv"),
        (*SCORE, "-o", "./today.csv"),
        (*SCORE, "-o", "linked.csv"),
        (*SCORE, "-o", "hard.csv"),
        (*SCORE, "-o", "model_link.csv"),
        (*SCORE, "--events", "today.csv"),
        (*SCORE, "-o", "new.csv", "--events", "linked.csv"),
        ("stream", "plant.comet", "--snapshot", "plant.comet"),
        ("stream", "plant.comet", "-o", "plant.comet"),
        ("stream", "plant.comet", "-o", "model_link.csv"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("force", [False, True])
def test_an_input_is_never_overwritten(folder, capsys, arguments, force):
    stderr = refused(folder, capsys, *arguments, *["--force"] * force)
    assert "would overwrite the input" in stderr


def test_a_report_does_not_overwrite_its_data(folder, capsys):
    (folder / "today.html").symlink_to("today.csv")
    assert "would overwrite the input 'today.csv'" in refused(
        folder, capsys, "report", "plant.comet", "today.csv", "-o", "today.html"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        (*SCORE, "-o", "both.csv", "--events", "./both.csv"),
        (*SCORE, "-o", "both.csv", "--events", "dangling.csv"),
        (*SCORE, "-o", "s.csv", "--events", "s_link.csv", "--force"),
        ("stream", "plant.comet", "-o", "both", "--snapshot", "both"),
    ],
    ids=" ".join,
)
def test_two_outputs_are_two_files(folder, capsys, arguments):
    (folder / "s_link.csv").symlink_to("s.csv")
    (folder / "dangling.csv").symlink_to("both.csv")
    before = sorted(folder.iterdir())
    assert main(list(arguments)) == 2
    assert "Two outputs cannot both go to" in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    "arguments, kind",
    [
        (("fit", "normal.csv", "-o", "today.csv"), "a detector"),
        (("fit", "normal.csv", "-o", "s.csv"), "a detector"),
        ((*SCORE, "-o", "normal.csv"), "a table of scores"),
        ((*SCORE, "-o", "e.csv"), "a table of scores"),
        ((*SCORE, "-o", "theirs.parquet"), "a table of scores"),
        ((*SCORE, "--events", "s.parquet"), "a table of events"),
        (("report", "plant.comet", "today.csv", "-o", "index.html"), "a report"),
        (("demo", "--out", "."), "a report"),
        (("stream", "plant.comet", "-o", "today.csv"), "the output of a stream"),
        (("stream", "plant.comet", "--snapshot", "today.csv"), "a snapshot of a stream"),
    ],
    ids=str,
)
def test_a_file_that_another_command_wrote_is_refused(folder, capsys, arguments, kind):
    (folder / "index.html").write_text("<!doctype html><title>My page</title>")
    shutil.copy(folder / "index.html", folder / "report.html")
    pl.read_csv("today.csv").write_parquet("theirs.parquet")
    stderr = refused(folder, capsys, *arguments)
    assert f"exists and is not {kind} written by cometad" in stderr
    assert "--force" in stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("fit", "normal.csv", "-o", "plant.comet"),
        (*SCORE, "-o", "s.csv", "--events", "e.csv"),
        (*SCORE, "-o", "s.parquet", "--events", "e.parquet"),
        ("report", "plant.comet", "today.csv", "-o", "r.html"),
        (*SCORE, "-o", "empty.csv"),
        (*SCORE, "-o", "normal.csv", "--force"),
    ],
    ids=" ".join,
)
def test_its_own_earlier_output_is_replaced(folder, arguments):
    (folder / "empty.csv").touch()
    before = contents(folder)["normal.csv"]
    assert main(list(arguments)) == 0
    assert (contents(folder)["normal.csv"] == before) == ("--force" not in arguments)


def test_each_kind_of_file_is_recognized_as_itself_only(folder):
    kinds = {"plant.comet": "detector", "s.csv": "scores", "e.csv": "events", "r.html": "report"}
    kinds |= {"s.parquet": "scores", "e.parquet": "events", "normal.csv": None}
    for name, own in kinds.items():
        for kind in KINDS:
            assert is_ours(folder / name, kind) == (kind == own), (name, kind)


def test_the_files_of_0_1_are_recognized(folder):
    (folder / "old.csv").write_text("step,time,score,anomaly,variable\n")
    (folder / "old.jsonl").write_text('{"step": 0, "score": 0.5, "anomaly": 0, "variables": {}}\n')
    assert is_ours(folder / "old.csv", "scores")
    assert is_ours(folder / "old.jsonl", "answers")
    fixtures = Path(__file__).parents[1] / "fixtures"
    assert is_ours(fixtures / "comet.comet", "detector")


def test_a_damaged_parquet_file_is_not_ours(folder, capsys):
    (folder / "damaged.parquet").write_bytes((folder / "s.parquet").read_bytes()[:100])
    assert "exists and is not a table of scores" in refused(folder, capsys, *SCORE, "-o", "damaged.parquet")


@pytest.mark.parametrize("redirection", [">> today.csv", "1<> today.csv"])
def test_standard_output_does_not_go_into_the_input(folder, redirection):
    before = contents(folder)
    command = f"{' '.join(COMETAD)} score plant.comet today.csv {redirection}"
    ended = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=TIMEOUT)
    assert ended.returncode == 2
    assert ended.stderr == "cometad: Standard output is redirected to the input 'today.csv'. Choose another file.\n"
    assert contents(folder) == before


@pytest.mark.parametrize("option", ["-o", "--snapshot"])
def test_a_stream_does_not_overwrite_the_file_it_reads(folder, option):
    before = contents(folder)
    command = f"{' '.join(COMETAD)} stream plant.comet {option} today.csv --force < today.csv"
    ended = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=TIMEOUT)
    assert ended.returncode == 2
    assert ended.stderr == (
        "cometad: The output 'today.csv' would overwrite the input on standard input. Choose another file.\n"
    )
    assert contents(folder) == before


def test_a_device_is_not_replaced_by_a_file(folder, capsys):
    os.mkfifo(folder / "pipe.csv")
    assert main([*SCORE, "-o", "pipe.csv", "--force"]) == 2
    assert "it is not a regular file" in capsys.readouterr().err
    assert (folder / "pipe.csv").is_fifo()


@pytest.fixture
def days(folder):
    """Two files in a folder of the current one."""
    (folder / "days").mkdir()
    for name in ("d1.csv", "d2.csv"):
        shutil.copy(folder / "today.csv", folder / "days" / name)
    (folder / "elsewhere.csv").symlink_to("days/d2.csv")
    return folder / "days"


@pytest.mark.parametrize("data", ["days", "days/", "days/*.csv", "**/d?.csv"])
@pytest.mark.parametrize(
    "verb, option, output",
    [
        ("score", "-o", "days/d2.csv"),
        ("score", "-o", "elsewhere.csv"),
        ("score", "--events", "days/d2.csv"),
        ("fit", "-o", "days/d2.csv"),
        ("report", "-o", "page.html"),
    ],
)
def test_a_file_of_an_input_folder_or_pattern_is_never_overwritten(days, capsys, data, verb, option, output):
    Path("page.html").symlink_to("days/d1.csv")
    before = contents(days)
    model = [] if verb == "fit" else ["plant.comet"]
    assert main([verb, *model, data, option, output, "--force"]) == 2
    assert f"The output '{output}' would overwrite the input 'days/d" in capsys.readouterr().err
    assert contents(days) == before


@pytest.mark.parametrize("data", ["days", "days/*", "**/*.csv"])
def test_a_new_file_does_not_become_an_input(days, capsys, data):
    before = contents(days)
    assert main(["score", "plant.comet", data, "-o", "days/scores.csv", "--force"]) == 2
    assert f"'days/scores.csv' would itself be one of the inputs '{data}' the next time" in capsys.readouterr().err
    assert contents(days) == before


def test_an_input_folder_may_hold_outputs_that_are_no_tables(days):
    (days / "d2.csv").unlink()
    shutil.copy("normal.csv", days / "d1.csv")
    (days / "more").mkdir()
    assert main(["fit", "days", "-o", "days/plant.comet"]) == 0
    assert main(["score", "plant.comet", "days/*.csv", "-o", "days/more/scores.csv"]) == 0
    assert main(["report", "plant.comet", "days", "-o", "days/report.html"]) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("score", "plant.comet", "days"),
        ("check", "days/d1.csv", "--json"),
        ("check", "days/*.csv"),
        ("check", "normal.csv", "days/d1.csv"),
        ("explain", "plant.comet", "days", "--step", "3"),
        ("evaluate", "days/d1.csv", "days/d1.csv"),
    ],
    ids=" ".join,
)
def test_no_verb_prints_into_its_input(days, monkeypatch, capsys, arguments):
    before = contents(days)
    with (days / "d1.csv").open("a") as printed:
        monkeypatch.setattr("sys.stdout", printed)
        assert main(list(arguments)) == 2
    assert "Standard output is redirected to the input 'days/d1.csv'" in capsys.readouterr().err
    assert contents(days) == before


def test_hidden_files_of_others_survive(folder):
    (folder / "more").mkdir()
    shutil.copy(folder / "today.csv", folder / "more" / ".cometad-input.csv")
    (folder / "more" / ".cometad-notes").write_text("keep")
    assert main(["score", "plant.comet", "more/.cometad-input.csv", "-o", "more/s.csv"]) == 0
    assert sorted(contents(folder / "more")) == [".cometad-input.csv", ".cometad-notes", "s.csv"]


@pytest.mark.parametrize("arguments", [("score", "plant.comet", "NAME"), ("score", "NAME", "today.csv")], ids=" ".join)
def test_an_input_that_would_be_deleted_is_refused(folder, capsys, arguments):
    name = ".cometad-4711-0123456789abcdef.csv"
    shutil.copy(folder / ("today.csv" if arguments[2] == "NAME" else "plant.comet"), folder / name)
    given = [name if word == "NAME" else word for word in arguments]
    assert "is a temporary file of cometad" in refused(folder, capsys, *given, "-o", "new.csv")


def test_a_link_as_output_is_written_through(folder):
    (folder / "more").mkdir()
    (folder / "link.csv").symlink_to("more/s.csv")
    assert main([*SCORE, "-o", "link.csv"]) == 0
    assert (folder / "link.csv").is_symlink()
    assert (folder / "more" / "s.csv").read_bytes() == (folder / "s.csv").read_bytes()


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("s.csv", (*SCORE, "-o", "s.csv")),
        ("plant.comet", ("fit", "normal.csv", "-o", "plant.comet")),
    ],
)
def test_a_read_only_output_needs_force_and_stays_read_only(folder, capsys, name, arguments):
    (folder / name).touch()
    (folder / name).chmod(0o444)
    assert f"'{name}' is read-only" in refused(folder, capsys, *arguments)
    assert main([*arguments, "--force"]) == 0
    assert (folder / name).stat().st_mode & 0o777 == 0o444


def test_a_read_only_snapshot_is_refused(folder, capsys):
    arguments = ("stream", "plant.comet", "--snapshot", "state")
    assert main(list(arguments)) == 0
    (folder / "state").chmod(0o444)
    assert "'state' is read-only" in refused(folder, capsys, *arguments)

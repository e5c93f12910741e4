"""No output destroys anything: not an input, not another output, not a file that cometad did not write."""

import os
import shutil
from pathlib import Path

import polars as pl
import pytest

from cli_case import done, fitted, in_shell, refused
from cometad.cli.paths import KINDS, is_ours


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One file of each kind that cometad writes, and readings."""
    folder = fitted(tmp_path_factory.mktemp("outputs"))
    model, today = folder / "plant.comet", folder / "today.csv"
    for ending in ("csv", "parquet"):
        done("score", model, today, "-o", folder / f"s.{ending}", "--events", folder / f"e.{ending}")
    done("report", model, today, "-o", folder / "r.html")
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    """A copy of those files, as the current folder."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    (tmp_path / "linked.csv").symlink_to("today.csv")
    os.link(tmp_path / "today.csv", tmp_path / "hard.csv")
    (tmp_path / "model_link.csv").symlink_to("plant.comet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def untouched(sentence: str, *arguments: object) -> str:
    """The sentence with which a command is refused, before it changes anything."""
    before = contents(Path())
    ended = refused(sentence, *arguments)
    assert ended.err.count("\n") == 1  # no work was begun
    assert contents(Path()) == before
    return ended.err


SCORE = "score plant.comet today.csv"


@pytest.mark.parametrize(
    "arguments",
    [
        "fit normal.csv -o normal.csv",
        "fit today.csv -o hard.csv",
        "fit linked.csv -o today.csv",
        f"{SCORE} -o today.csv",
        f"{SCORE} -o ./today.csv",
        f"{SCORE} -o linked.csv",
        f"{SCORE} -o hard.csv",
        f"{SCORE} -o model_link.csv",
        f"{SCORE} --events today.csv",
        f"{SCORE} -o new.csv --events linked.csv",
        "stream plant.comet --snapshot plant.comet",
        "stream plant.comet -o plant.comet",
        "stream plant.comet -o model_link.csv",
    ],
)
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.usefixtures("folder")
def test_an_input_is_never_overwritten(arguments, force):
    untouched("would overwrite the input", arguments, *["--force"] * force)


def test_a_report_does_not_overwrite_its_data(folder):
    (folder / "today.html").symlink_to("today.csv")
    untouched("would overwrite the input 'today.csv'", "report plant.comet today.csv -o today.html")


@pytest.mark.parametrize(
    "arguments",
    [
        f"{SCORE} -o both.csv --events ./both.csv",
        f"{SCORE} -o both.csv --events dangling.csv",
        f"{SCORE} -o s.csv --events s_link.csv --force",
        "stream plant.comet -o both --snapshot both",
    ],
)
def test_two_outputs_are_two_files(folder, arguments):
    (folder / "s_link.csv").symlink_to("s.csv")
    (folder / "dangling.csv").symlink_to("both.csv")
    before = sorted(folder.iterdir())
    refused("Two outputs cannot both go to", arguments)
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    "arguments, kind",
    [
        ("fit normal.csv -o today.csv", "a detector"),
        ("fit normal.csv -o s.csv", "a detector"),
        (f"{SCORE} -o normal.csv", "a table of scores"),
        (f"{SCORE} -o e.csv", "a table of scores"),
        (f"{SCORE} -o theirs.parquet", "a table of scores"),
        (f"{SCORE} --events s.parquet", "a table of events"),
        ("report plant.comet today.csv -o index.html", "a report"),
        ("demo --out .", "a report"),
        ("stream plant.comet -o today.csv", "the output of a stream"),
        ("stream plant.comet --snapshot today.csv", "a snapshot of a stream"),
    ],
)
def test_a_file_that_another_command_wrote_is_refused(folder, arguments, kind):
    (folder / "index.html").write_text("<!doctype html><title>My page</title>")
    shutil.copy(folder / "index.html", folder / "report.html")
    pl.read_csv("today.csv").write_parquet("theirs.parquet")
    assert "--force" in untouched(f"exists and is not {kind} written by cometad", arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        "fit normal.csv -o plant.comet",
        f"{SCORE} -o s.csv --events e.csv",
        f"{SCORE} -o s.parquet --events e.parquet",
        "report plant.comet today.csv -o r.html",
        f"{SCORE} -o empty.csv",
        f"{SCORE} -o normal.csv --force",
    ],
)
def test_its_own_earlier_output_is_replaced(folder, arguments):
    (folder / "empty.csv").touch()
    before = contents(folder)["normal.csv"]
    done(arguments)
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


def test_a_damaged_parquet_file_is_not_ours(folder):
    (folder / "damaged.parquet").write_bytes((folder / "s.parquet").read_bytes()[:100])
    untouched("exists and is not a table of scores", f"{SCORE} -o damaged.parquet")


@pytest.mark.parametrize("redirection", [">> today.csv", "1<> today.csv"])
def test_standard_output_does_not_go_into_the_input(folder, redirection):
    before = contents(folder)
    sentence = "cometad: Standard output is redirected to the input 'today.csv'. Choose another file.\n"
    assert in_shell(f"cometad score plant.comet today.csv {redirection}") == (2, "", sentence)
    assert contents(folder) == before


@pytest.mark.parametrize("option", ["-o", "--snapshot"])
def test_a_stream_does_not_overwrite_the_file_it_reads(folder, option):
    before = contents(folder)
    sentence = "cometad: The output 'today.csv' would overwrite the input on standard input. Choose another file.\n"
    assert in_shell(f"cometad stream plant.comet {option} today.csv --force < today.csv") == (2, "", sentence)
    assert contents(folder) == before


def test_a_device_is_not_replaced_by_a_file(folder):
    os.mkfifo(folder / "pipe.csv")
    refused("it is not a regular file", f"{SCORE} -o pipe.csv --force")
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
def test_a_file_of_an_input_folder_or_pattern_is_never_overwritten(days, data):
    Path("page.html").symlink_to("days/d1.csv")
    before = contents(days)
    outputs = {"score plant.comet": ("-o days/d2.csv", "-o elsewhere.csv", "--events days/d2.csv")}
    outputs |= {"fit": ("-o days/d2.csv",), "report plant.comet": ("-o page.html",)}
    for verb, options in outputs.items():
        for option in options:
            sentence = f"The output '{option.split()[1]}' would overwrite the input 'days/d"
            refused(sentence, verb, data, *option.split(), "--force")
    assert contents(days) == before


@pytest.mark.parametrize("data", ["days", "days/*", "**/*.csv"])
def test_a_new_file_does_not_become_an_input(days, data):
    before = contents(days)
    sentence = f"'days/scores.csv' would itself be one of the inputs '{data}' the next time"
    refused(sentence, "score plant.comet", data, "-o", "days/scores.csv", "--force")
    assert contents(days) == before


def test_an_input_folder_may_hold_outputs_that_are_no_tables(days):
    (days / "d2.csv").unlink()
    shutil.copy("normal.csv", days / "d1.csv")
    (days / "more").mkdir()
    done("fit days -o days/plant.comet")
    done("score plant.comet 'days/*.csv' -o days/more/scores.csv")
    done("report plant.comet days -o days/report.html")


@pytest.mark.parametrize(
    "arguments",
    [
        "score plant.comet days",
        "check days/d1.csv --json",
        "check days/*.csv",
        "check normal.csv days/d1.csv",
        "explain plant.comet days --step 3",
        "evaluate days/d1.csv days/d1.csv",
    ],
)
def test_no_verb_prints_into_its_input(days, arguments):
    before = contents(days)
    with (days / "d1.csv").open("a") as printed:
        refused("Standard output is redirected to the input 'days/d1.csv'", arguments, stdout=printed)
    assert contents(days) == before


def test_hidden_files_of_others_survive(folder):
    (folder / "more").mkdir()
    shutil.copy(folder / "today.csv", folder / "more" / ".cometad-input.csv")
    (folder / "more" / ".cometad-notes").write_text("keep")
    done("score plant.comet more/.cometad-input.csv -o more/s.csv")
    assert sorted(contents(folder / "more")) == [".cometad-input.csv", ".cometad-notes", "s.csv"]


@pytest.mark.parametrize(
    "file, arguments", [("today.csv", "score plant.comet NAME"), ("plant.comet", "score NAME today.csv")]
)
def test_an_input_that_would_be_deleted_is_refused(folder, file, arguments):
    name = ".cometad-4711-0123456789abcdef.csv"
    shutil.copy(folder / file, folder / name)
    untouched("is a temporary file of cometad", arguments.replace("NAME", name), "-o", "new.csv")


def test_a_link_as_output_is_written_through(folder):
    (folder / "more").mkdir()
    (folder / "link.csv").symlink_to("more/s.csv")
    done(f"{SCORE} -o link.csv")
    assert (folder / "link.csv").is_symlink()
    assert (folder / "more" / "s.csv").read_bytes() == (folder / "s.csv").read_bytes()


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("s.csv", f"{SCORE} -o s.csv"),
        ("plant.comet", "fit normal.csv -o plant.comet"),
    ],
)
def test_a_read_only_output_needs_force_and_stays_read_only(folder, name, arguments):
    (folder / name).touch()
    (folder / name).chmod(0o444)
    untouched(f"'{name}' is read-only", arguments)
    done(arguments, "--force")
    assert (folder / name).stat().st_mode & 0o777 == 0o444


def test_a_read_only_snapshot_is_refused(folder):
    arguments = "stream plant.comet --snapshot state"
    done(arguments)
    (folder / "state").chmod(0o444)
    untouched("'state' is read-only", arguments)

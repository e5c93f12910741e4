"""Closed, full and odd standard streams, refusals of the system, and SIGTERM end in a sentence, not in a traceback."""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from cli_case import COMETAD, TIMEOUT, deadline, done, fitted, in_shell, refused, run, table_of_readings
from cometad.cli import main

ODD = "fl\x1b[31mow"  # turns a terminal red
CLOSED = "cometad: Standard output is closed. Redirect it to a file instead.\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Readings, and a detector of them."""
    folder = fitted(tmp_path_factory.mktemp("exits"), flow=ODD)
    raised = pl.col(ODD) + 5 * pl.int_range(pl.len()).is_between(30, 40)
    pl.read_csv(folder / "today.csv").with_columns(raised).write_csv(folder / "today.csv")
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    """A copy of those files, as the current folder."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def whole(made, tmp_path_factory):
    """What commands write when all standard streams are open, by name."""
    folder = tmp_path_factory.mktemp("whole")
    model = str(made / "plant.comet")
    done("score", model, made / "today.csv", "-o", folder / "new.csv")
    done("stream", model, "-o", folder / "new.jsonl", stdin=(made / "today.csv").read_bytes())
    files = {name: (folder / name).read_bytes() for name in ("new.csv", "new.jsonl")}
    return files | {"new.comet": (made / "plant.comet").read_bytes()}


@pytest.mark.parametrize("command", ["stream plant.comet", "score plant.comet -"])
def test_a_closed_input_is_named(folder, command):
    code, out, err = in_shell(f"cometad {command} <&-")
    assert (code, out) == (2, "")
    assert err.startswith("cometad: Standard input is closed. Send ")
    assert err.count("\n") == 1


def test_a_process_without_an_input_is_told_so(folder, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", None)
    assert main(["stream", "plant.comet"]) == 2
    assert capsys.readouterr().err.startswith("cometad: Standard input is closed. Send ")


@pytest.mark.parametrize(
    "command",
    [
        "score plant.comet today.csv",
        "check today.csv",
        "check today.csv --json",
        "explain plant.comet today.csv --step 40",
        "stream plant.comet < today.csv",
    ],
)
def test_results_are_not_printed_on_a_closed_output(folder, command):
    assert in_shell(f"cometad {command} >&-") == (2, "", CLOSED)


@pytest.mark.parametrize(
    "command, output",
    [
        ("fit normal.csv -o new.comet", "new.comet"),
        ("score plant.comet today.csv -o new.csv", "new.csv"),
        ("stream plant.comet -o new.jsonl < today.csv", "new.jsonl"),
    ],
)
@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_a_file_is_written_also_without_standard_output_or_error(folder, whole, command, output, closed):
    assert in_shell(f"cometad {command} {closed}").code == 0
    assert Path(output).read_bytes() == whole[output]


def test_a_mistake_has_its_exit_code_also_without_standard_error(folder):
    assert in_shell("cometad score plant.comet nowhere.csv 2>&-") == (2, "", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_output_is_named():
    sentence = "cometad: Cannot write the output: No space left on device. Free some space or write elsewhere.\n"
    assert in_shell("cometad --help > /dev/full") == (2, "", sentence)
    with Path("/dev/full").open("w") as full:
        assert run("--version", stdout=full) == (2, "", sentence)


def test_a_full_folder_for_temporary_files_is_named(folder):
    limited = (  # to 1,024 bytes a file, as if the disk was full
        "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024)); "
        "sys.argv[0] = 'cometad'; runpy.run_module('cometad', run_name='__main__')"
    )
    command = [sys.executable, "-c", limited, "check", "-"]
    with (folder / "normal.csv").open() as readings:
        ended = subprocess.run(command, stdin=readings, capture_output=True, text=True, timeout=TIMEOUT)
    assert ended.returncode == 2
    assert ended.stderr.startswith("cometad: Cannot copy standard input to a temporary file: File too large.")
    assert "set TMPDIR to another folder" in ended.stderr


@pytest.mark.parametrize(
    "arguments, problem",
    [
        ("score plant.comet locked/today.csv", "'locked/today.csv' cannot be read (Permission denied)"),
        ("score plant.comet locked", "cannot be read (Permission denied)"),
        ("score plant.comet locked/*.csv", "'locked/*.csv' cannot be read (Permission denied)"),
        ("score locked/plant.comet today.csv", "'locked/plant.comet' cannot be read (Permission denied)"),
        ("score plant.comet today.csv -o locked/s.csv", "Cannot write 'locked/s.csv': Permission denied"),
        ("stream plant.comet --snapshot locked/state", "Cannot write 'locked/state': Permission denied"),
        ("report plant.comet locked/today.csv", "'locked/today.csv' cannot be read (Permission denied)"),
        ("evaluate locked/today.csv today.csv", "'locked/today.csv' cannot be read (Permission denied)"),
        ("data list --data-dir locked/data", "Cannot open 'locked/data': Permission denied"),
    ],
)
def test_a_folder_that_may_not_be_searched_is_named(folder, monkeypatch, arguments, problem):
    (folder / "locked").mkdir()
    for name in ("today.csv", "plant.comet"):
        shutil.copy(name, folder / "locked")
    real = os.stat

    def stat(path, *args, **kwargs):
        # As for a user without permission: tests may run as root, which has all of them.
        if not isinstance(path, int) and "locked/" in os.fspath(path):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return real(path, *args, **kwargs)

    monkeypatch.setattr("os.stat", stat)
    assert refused(problem, arguments).err.count("\n") == 1


LONG = "n" * 300


@pytest.mark.parametrize(
    "arguments",
    [
        ("score", "plant.comet", f"{LONG}.csv"),
        ("score", LONG, "today.csv"),
        ("score", "plant.comet", "today.csv", "-o", f"{LONG}.csv"),
        ("stream", "plant.comet", "--snapshot", LONG),
    ],
    ids=["data", "model", "output", "snapshot"],
)
def test_a_name_that_is_too_long_is_refused(folder, arguments):
    assert refused("File name too long", *arguments).err.count("\n") == 1


def test_a_loop_of_links_is_no_output(folder):
    (folder / "loop.csv").symlink_to("loop.csv")
    sentence = "Cannot write 'loop.csv': Too many levels of symbolic links."
    refused(sentence, "score plant.comet today.csv -o loop.csv --events e.csv")
    assert (folder / "loop.csv").is_symlink()


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "device"])
def test_a_pipe_or_a_device_is_no_detector(folder, make):
    make(folder / "odd.comet")
    refused("The detector 'odd.comet' is a pipe or a device, not a file.", "score odd.comet today.csv")


def test_an_archive_is_no_array(folder):
    (folder / "z.npy").write_bytes(b"PK\3\4junk")
    refused("Cannot read 'z.npy' as an array.", "evaluate z.npy z.npy")


def test_sigterm_leaves_no_temporary_file(folder):
    command = [*COMETAD, "score", "plant.comet", "long.csv", "-o", "scores.parquet"]
    table_of_readings(200_000, seed=1).rename({"flow": ODD}).write_csv("long.csv")
    with deadline(TIMEOUT), subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while not list(folder.glob(".cometad-*.parts/0.parquet")):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        stderr = process.communicate()[1]
    assert process.returncode == 143
    assert stderr == "cometad: Interrupted; nothing was written.\n"
    assert sorted(path.name for path in folder.iterdir()) == ["long.csv", "normal.csv", "plant.comet", "today.csv"]


def test_names_do_not_control_a_terminal_but_are_exact_in_a_file(folder):
    command = [*COMETAD, "score", "plant.comet", "today.csv"]
    ours, theirs = pty.openpty()
    with deadline(TIMEOUT), subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL) as process:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 2**16):
                shown += part
        except OSError:  # how Linux ends a terminal
            pass
    os.close(ours)
    assert process.returncode == 0
    assert ODD.encode() not in shown
    assert rb"fl\x1b[31mow" in shown
    done("score plant.comet today.csv -o scores.csv")
    assert ODD in pl.read_csv("scores.csv")["variable"].to_list()
    assert done("score plant.comet today.csv").out == Path("scores.csv").read_text()


def test_names_do_not_put_control_characters_into_a_report(folder):
    done("report plant.comet today.csv -o report.html")
    page = Path("report.html").read_text()
    assert "\x1b" not in page
    assert r"fl\x1b[31mow" in page


def test_the_json_of_a_check_names_what_cannot_be_read(folder):
    (folder / "loop.csv").symlink_to("loop.csv")
    assert json.loads(run("check loop.csv --json").out)["ok"] is False

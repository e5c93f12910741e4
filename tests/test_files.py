"""Files are written whole, and what a killed process left behind is deleted by the next write."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from cometad.data.writing import write_chunks
from cometad.errors import OutputError
from cometad.files import PREFIX, write_whole

WRITE = """
import sys
from pathlib import Path
from cometad.files import parts_of, write_whole

def write(path):
    with parts_of(path) as parts:
        (parts / "0").write_text("part")
        path.write_text("half")
        print("writing", flush=True)
        sys.stdin.read()

write_whole(Path(sys.argv[1]), write)
"""


@pytest.fixture
def writing(tmp_path):
    """A process in the middle of writing a file, with parts."""
    command = [sys.executable, "-c", WRITE, str(tmp_path / "slow.txt")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "writing\n"
        yield process
        process.kill()


def hidden(folder: Path) -> list[Path]:
    return sorted(folder.glob(".*"))


def test_what_a_killed_process_left_is_deleted_by_the_next_write(tmp_path, writing):
    assert [f"{PREFIX}{writing.pid}-" in path.name for path in hidden(tmp_path)] == [True, True]
    writing.send_signal(signal.SIGKILL)
    writing.wait(timeout=60)
    assert len(hidden(tmp_path)) == 2
    write_whole(tmp_path / "other.txt", lambda path: path.write_text("whole"))
    assert [path.name for path in tmp_path.iterdir()] == ["other.txt"]


def test_the_files_of_a_running_process_are_kept(tmp_path, writing):
    write_whole(tmp_path / "other.txt", lambda path: path.write_text("whole"))
    assert len(hidden(tmp_path)) == 2
    writing.communicate(timeout=60)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"other.txt": "whole", "slow.txt": "half"}


def test_hidden_files_of_others_are_kept(tmp_path):
    names = [".0123456789abcdef.csv", ".profile", ".cometad", f"{PREFIX}input.csv", f"{PREFIX}notes"]
    names += [f"{PREFIX}1-0.csv", f"{PREFIX}1-0123456789abcdef.csv.gz", f"{PREFIX}1-0123456789ABCDEF"]
    for name in names:
        (tmp_path / name).write_text("theirs")
    write_whole(tmp_path / "other.txt", lambda path: path.write_text("whole"))
    assert [path.name for path in hidden(tmp_path)] == sorted(names)


def test_a_link_that_is_named_like_a_temporary_file_is_not_followed(tmp_path):
    (tmp_path / "data.csv").write_text("theirs")
    (tmp_path / f"{PREFIX}1-0123456789abcdef.csv").symlink_to(tmp_path / "data.csv")
    write_whole(tmp_path / "other.txt", lambda path: path.write_text("whole"))
    assert (tmp_path / "data.csv").read_text() == "theirs"


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_a_link_and_its_file_is_written(tmp_path, exists):
    folder = tmp_path / "folder"
    folder.mkdir()
    if exists:
        (folder / "data.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to("folder/data.csv")
    write_whole(tmp_path / "link.csv", lambda path: path.write_text(path.parent.name))  # atomic only beside the file
    assert (tmp_path / "link.csv").is_symlink()
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"data.csv": "folder"}


def test_a_loop_of_links_is_not_replaced(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OutputError, match="symbolic links"):
        write_whole(tmp_path / "loop", lambda path: path.write_text("whole"))
    assert (tmp_path / "loop").is_symlink()


@pytest.mark.parametrize("mode", [0o444, 0o600, 0o664])
def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path, mode):
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(mode)
    modes = []

    def write(path):
        modes.append(path.stat().st_mode & 0o777)
        path.write_text("new")

    write_whole(tmp_path / "file", write)
    assert (tmp_path / "file").read_text() == "new"
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode
    assert modes == [mode | 0o600]  # never readable by more people than before


@pytest.mark.parametrize("name", ["scores.csv", "scores.parquet"])
def test_a_failure_halfway_keeps_the_old_file_and_leaves_nothing(tmp_path, name):
    write_chunks(tmp_path / name, [pl.DataFrame({"step": [0]})])
    before = (tmp_path / name).read_bytes()

    def parts():
        yield pl.DataFrame({"step": [1]})
        raise OSError(28, "No space left on device")

    with pytest.raises(OutputError, match=r"No space left on device\. Choose"):
        write_chunks(tmp_path / name, parts())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {name: before}


def test_a_new_file_has_the_usual_permissions(tmp_path):
    write_whole(tmp_path / "new.txt", lambda path: path.write_text("whole"))
    (tmp_path / "plain.txt").write_text("whole")
    assert (tmp_path / "new.txt").stat().st_mode == (tmp_path / "plain.txt").stat().st_mode


def test_a_pipe_is_not_replaced_by_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OutputError, match="Not a regular file"):
        write_whole(tmp_path / "pipe", lambda path: path.write_text("whole"))
    assert (tmp_path / "pipe").is_fifo()

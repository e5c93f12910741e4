"""A stream that was killed continues where it was; full disks, closed pipes and clocks that jump lose nothing."""

import json
import os
import resource
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli_case import Ended, Killed, check_refused, done, fitted, in_shell, refused, run, table_of_readings
from cometad.files import lock
from cometad.live.session import Session

ROOT = Path(__file__).parents[2]
READINGS = 60
HEADER, *ROWS = table_of_readings(READINGS, seed=1).write_csv().splitlines(keepends=True)
ALL = "".join([HEADER, *ROWS])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return fitted(tmp_path_factory.mktemp("resume")) / "plant.comet"


@pytest.fixture
def stream(model, tmp_path, monkeypatch):
    """Run `cometad stream` in an empty folder. `kill` readings into it, it dies."""
    monkeypatch.chdir(tmp_path)
    take = Session.take

    def stream(*options: str, stdin: str = ALL, kill: int | None = None) -> Ended:
        taken = 0

        def die_in(session, reading):
            nonlocal taken
            if taken == kill:
                raise Killed
            taken += 1
            return take(session, reading)

        monkeypatch.setattr(Session, "take", die_in)
        return run("stream", model, *options, stdin=stdin)

    return stream


@pytest.fixture
def whole(stream):
    """The lines of a stream that nobody killed."""
    assert stream("-o", "whole", "--snapshot", "whole.state")[0] == 0
    text = Path("whole").read_text()
    assert len(text.splitlines()) == READINGS
    return text


SAVED = ("-o", "lines.jsonl", "--snapshot", "state", "--snapshot-every")


def lines_of(ended: Ended) -> str:
    """The file of a stream that ended well."""
    assert ended.code == 0, ended.err
    return Path("lines.jsonl").read_text()


def contents() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path().iterdir()}


# -- kill -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", ["1", "7", "30s", "1ms"])
@pytest.mark.parametrize("kills", [(0,), (1,), (30,), (3, 3, 30), (5, 0, 0, 50)])
def test_with_a_file_every_line_is_there_once(stream, whole, every, kills):
    for kill in kills:
        assert stream(*SAVED, every, kill=kill)[0] is None
        with Path("lines.jsonl").open("a") as file:
            file.write('{"step": 9')  # killed in the middle of a line
    assert lines_of(stream(*SAVED, every)) == whole
    assert not list(Path().glob(".*"))


@pytest.mark.parametrize("options", [["--late", "drop"], ["--only-events", "--threshold", "quantile:0.1"]])
def test_other_options_change_nothing(stream, options):
    assert stream(*options, "-o", "whole", "--snapshot", "whole.state")[0] == 0
    for kill in (20, 25):
        stream(*SAVED, "10", *options, kill=kill)
    ended = stream(*SAVED, "10", *options)
    assert ended.code == 0
    assert Path("lines.jsonl").read_text() == Path("whole").read_text() != ""
    assert "Dropped" not in ended.err


def test_readings_without_times_and_json_lines_resume_too(stream):
    rows = [dict(zip(("flow", "level", "valve"), map(float, row.split(",")[1:]), strict=True)) for row in ROWS]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    assert stream("-o", "whole", "--snapshot", "whole.state", stdin=lines)[0] == 0
    stream(*SAVED, "10", stdin=lines, kill=25)
    assert lines_of(stream(*SAVED, "10", stdin=lines)) == Path("whole").read_text()


def test_on_standard_output_every_line_is_there_at_least_once(stream, whole):
    _, first, _ = stream(*SAVED[2:], "10", kill=25)
    _, second, _ = stream(*SAVED[2:], "10")
    assert first == "".join(whole.splitlines(keepends=True)[:25])
    assert second == "".join(whole.splitlines(keepends=True)[20:])


def test_readings_that_follow_are_taken_as_new(stream, whole):
    stream(*SAVED, "10", kill=25)
    assert lines_of(stream(*SAVED, "10", stdin="".join([HEADER, *ROWS[20:]]))) == whole


def test_an_input_that_was_read_to_its_end_is_not_scored_again(stream, whole):
    stream(*SAVED, "10", stdin="".join([HEADER, *ROWS[:40]]))
    ended = stream(*SAVED, "10")  # the file has grown
    assert ended.code == 0
    assert "The input begins like the one before: its first 41 lines are skipped." in ended.err
    assert lines_of(stream(*SAVED, "10")) == whole


def test_equal_readings_without_times_are_new_ones(stream):
    for _ in range(3):
        assert stream(*SAVED, "10", stdin="[1, 2, 3]\n")[0] == 0
    assert [json.loads(line)["step"] for line in Path("lines.jsonl").read_text().splitlines()] == [0, 1, 2]


def test_a_corrected_input_may_be_sent_again_from_its_start(stream, whole):
    bad = "".join([HEADER, *ROWS[:30], ROWS[30].rpartition(",")[0] + ",\n", *ROWS[31:]])
    assert stream(*SAVED, "10", stdin=bad)[0] == 2
    assert lines_of(stream(*SAVED, "10")) == whole


def test_an_input_that_changed_before_the_position_is_refused(stream):
    stream(*SAVED, "10", kill=35)
    before = contents()
    check_refused(
        stream(*SAVED, "10", stdin="".join([HEADER, *ROWS[:20], ROWS[21], ROWS[20], *ROWS[22:]])),
        "differs from it within the first 31 lines, which were scored already.",
    )
    check_refused(
        stream(*SAVED, "10", stdin="".join([HEADER, *ROWS[:25]])),
        "The input has only 26 of the 31 lines that were scored already.",
    )
    assert stream(*SAVED, "10", stdin="")[0] == 0
    check_refused(stream(*SAVED, "10", stdin=HEADER), "The input has only 1 of the 31 lines that were scored already.")
    # Only the lines after the snapshot are gone from the output; they will be written again.
    assert before.pop("lines.jsonl").startswith(Path("lines.jsonl").read_bytes())
    assert before == {name: content for name, content in contents().items() if name != "lines.jsonl"}


# -- the output -----------------------------------------------------------------------------------------------------


def test_a_stream_starts_no_file_that_has_lines(stream, whole):
    check_refused(stream("-o", "whole"), "'whole' already has the output of a stream. Continue it with its --snapshot")
    assert Path("whole").read_text() == whole
    assert stream("-o", "whole", "--force", stdin="".join([HEADER, *ROWS[:20]]))[0] == 0
    assert Path("whole").read_text().splitlines()[:20] == whole.splitlines()[:20]


@pytest.mark.skipif(sys.platform == "win32", reason="no such locks")
@pytest.mark.parametrize("options", [(), ("--force",), ("--snapshot", "whole.state")], ids=" ".join)
def test_two_streams_do_not_write_to_one_file(stream, whole, options):
    with Path("whole" if options else "new").open("a") as file:
        assert lock(file.fileno())
        before = contents()
        sentence = f"Another stream is writing to '{file.name}'. Stop it first, or choose another file."
        check_refused(stream("-o", file.name, *options), sentence)
        assert contents() == before
    assert stream("-o", file.name, *options)[0] == 0
    assert Path(file.name).read_text() == whole


def test_a_resumed_stream_does_not_cut_the_output_of_another(stream, whole):
    stream(*SAVED, "10", kill=25)
    for other in (whole.replace('"anomaly": 0', '"anomaly": 1'), whole[:1000]):
        Path("mine.jsonl").write_text(other)
        ended = stream("-o", "mine.jsonl", *SAVED[2:], "10", "--force")
        check_refused(ended, "'mine.jsonl' is not the output that belongs to the snapshot.")
        assert Path("mine.jsonl").read_text() == other


def test_a_resumed_stream_may_write_to_a_new_file(stream, whole):
    stream(*SAVED, "10", kill=25)
    Path("lines.jsonl").rename("lines.1.jsonl")
    ended = stream(*SAVED, "10")
    assert ended.code == 0
    assert "'lines.jsonl' was missing or empty: it starts at step 20, without the lines before." in ended.err
    assert Path("lines.jsonl").read_text() == "".join(whole.splitlines(keepends=True)[20:])


def test_a_stream_that_was_printed_does_not_continue_a_file_with_lines(stream):
    stream(*SAVED[2:], "10", kill=25)
    Path("mine.jsonl").write_text('{"step": 0}\n')
    check_refused(
        stream("-o", "mine.jsonl", *SAVED[2:], "10", "--force"),
        "'mine.jsonl' is not the output that belongs to the snapshot.",
    )
    assert Path("mine.jsonl").read_text() == '{"step": 0}\n'


@pytest.mark.parametrize("kill", [25, None])
def test_lines_of_somebody_else_are_not_cut_off(stream, kill):
    stream(*SAVED, "10", kill=kill)
    with Path("lines.jsonl").open("a") as file:
        file.write("# checked by Ann\n")
    before = contents()
    sentence = "cometad: 'lines.jsonl' has a line after the snapshot that the stream did not write: '# checked by Ann'"
    check_refused(stream(*SAVED, "10"), sentence)
    assert contents() == before


def test_zeros_that_a_power_failure_left_are_cut_off(stream, whole):
    stream(*SAVED, "10", kill=25)
    with Path("lines.jsonl").open("ab") as file:
        file.write(bytes(100))
    assert lines_of(stream(*SAVED, "10")) == whole


@pytest.mark.parametrize("first", [True, False])
def test_a_file_has_all_lines_or_only_those_with_events(stream, first):
    options = [["--only-events"] if only else [] for only in (first, not first)]
    settings = (*SAVED, "10", "--threshold", "quantile:0.1")
    stream(*settings, *options[0], kill=50)
    before = contents()
    assert before["lines.jsonl"]
    check_refused(
        stream(*settings, *options[1]),
        f"cometad: 'lines.jsonl' was written {'with' if first else 'without'} --only-events.",
    )
    assert contents() == before
    assert stream(*settings, *options[1], "-o", "other.jsonl")[0] == 0


def test_a_resumed_stream_keeps_its_decimal_mark(stream):
    commas = [row.replace(",", ";").replace(".", ",").replace(",", ".", 1) for row in ROWS]
    header = HEADER.replace(",", ";")
    assert stream(*SAVED, "10", stdin="".join([header, *commas[:20]]))[0] == 0
    points = [row.replace(",", ";") for row in ROWS]
    ended = stream(*SAVED, "10", stdin="".join([header, *points[20:]]))
    for sentence in ("cometad: Line 2: variable 'flow' is", "numbers before it have a decimal comma."):
        check_refused(ended, sentence)
    check_refused(ended, "with one decimal mark: --decimal names it.")


# -- a last line without a line break -------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 7, 30])
def test_a_last_line_that_was_cut_is_scored_again_when_it_is_complete(stream, whole, rows):
    cut = "".join([HEADER, *ROWS[:rows]])[:-3]
    ended = stream(*SAVED, "10", stdin=cut)
    assert ended.code == 0
    assert (
        "The last line has no line break and may be incomplete: it is scored, but 'state' ends before it." in ended.err
    )
    assert len(Path("lines.jsonl").read_text().splitlines()) == rows
    assert lines_of(stream(*SAVED, "10")) == whole


def test_a_last_line_that_was_only_not_ended_is_there_once(stream, whole):
    for _ in range(3):
        assert lines_of(stream(*SAVED, "10", stdin=ALL.rstrip("\n"))) == whole
    assert lines_of(stream(*SAVED, "10")) == whole


def test_a_json_object_is_complete_without_a_line_break(stream):
    for step in range(2):
        code, _, stderr = stream(*SAVED, "10", stdin="[1, 2, 3]")
        assert code == 0
        assert "line break" not in stderr
        assert json.loads(Path("lines.jsonl").read_text().splitlines()[-1])["step"] == step


def test_without_a_snapshot_a_last_line_without_a_line_break_is_a_reading(stream):
    _, ended, _ = stream()
    code, shown, stderr = stream(stdin=ALL.rstrip("\n"))
    assert (code, shown) == (0, ended)
    assert "line break" not in stderr


# -- trouble --------------------------------------------------------------------------------------------------------


@contextmanager
def small_disk(size: int):
    """Let no file grow beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_stream_continues_after_a_full_disk(stream, whole):
    with small_disk(6000):
        check_refused(stream(*SAVED, "100000"), "cometad: Cannot write 'lines.jsonl': File too large. Free some space")
    assert lines_of(stream(*SAVED, "10")) == whole


@pytest.mark.parametrize("output", ["out.csv", "out.parquet"])
def test_a_full_disk_keeps_the_old_scores(model, tmp_path, monkeypatch, output):
    monkeypatch.chdir(tmp_path)
    Path("today.csv").write_text(ALL)
    done("score", model, "today.csv", "-o", output)
    before = contents()
    with small_disk(1000):
        arguments = ("score", model, "today.csv", "-o", output, "--threshold", "quantile:0.1")
        refused(f"cometad: Cannot write '{output}': ", *arguments)
    assert contents() == before


def test_a_full_disk_keeps_the_old_detector(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(model, "plant.comet")
    before = contents()
    with small_disk(1000):
        arguments = ("-o", "plant.comet", "--detector", "squared-norm", "--seed", "1")
        sentence = "cometad: Cannot write 'plant.comet': File too large."
        refused(sentence, "fit", model.with_name("normal.csv"), *arguments)
    assert contents() == before


@pytest.mark.parametrize("options", [["-o", "/proc/x"], ["--snapshot", "/proc/x"], ["-o", "."], ["--snapshot", "."]])
def test_a_folder_that_takes_no_files_is_refused_at_once(stream, options):
    assert check_refused(stream(*options), f"cometad: Cannot write '{options[1]}': ").out == ""


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_may_not_be_written_is_refused(stream, tmp_path):
    Path("lines.jsonl").touch(mode=0o400)
    ended = check_refused(stream("-o", "lines.jsonl"), "cometad: Cannot write 'lines.jsonl': Permission denied.")
    assert ended.out == ""
    tmp_path.chmod(0o500)
    assert stream("-o", "other.jsonl")[0] == 2
    tmp_path.chmod(0o700)


def test_readings_whose_clock_jumps_back_end_the_stream_and_can_be_corrected(stream, whole):
    jump = "".join([HEADER, *ROWS[:30], *ROWS[10:20], *ROWS[30:]])
    check_refused(
        stream(*SAVED, "10", stdin=jump),
        "cometad: Line 32: the time 2024-03-01T00:10:00.000000 is not after 2024-03-01T00:29:00.000000",
    )
    assert Path("lines.jsonl").read_text() == "".join(whole.splitlines(keepends=True)[:30])
    assert lines_of(stream(*SAVED, "10", "--late", "drop", stdin=jump)) == whole


def test_the_clock_of_the_machine_may_jump_back(stream, whole, monkeypatch):
    monkeypatch.setattr("time.time", iter(range(10**9, 0, -3600)).__next__)
    stream(*SAVED, "1ms", kill=30)
    assert lines_of(stream(*SAVED, "1ms")) == whole


@pytest.mark.parametrize("verb", ["score {model} today.csv", "stream {model}", "stream {model} --snapshot state"])
def test_a_closed_pipe_ends_a_command_quietly(model, tmp_path, monkeypatch, verb):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "today.csv").write_text(table_of_readings(2000, seed=2).write_csv())
    command = f"cometad {verb.format(model=model)} < today.csv | head -n 1; exit ${{PIPESTATUS[0]}}"
    ended = in_shell(command)
    assert ended.out.count("\n") == 1
    if "snapshot" in verb:
        check_refused(ended, "cometad: The output was closed, so the snapshot 'state' was not updated.")
    else:
        assert ended.code == 0
        assert "Traceback" not in ended.err


# -- real kills -----------------------------------------------------------------------------------------------------


@pytest.mark.timeout(600)
def test_nothing_is_lost_when_processes_are_killed():
    command = [sys.executable, str(ROOT / "bench" / "scripts" / "kill.py"), "--times", "5", "--rows", "500"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("0 problems") == 4

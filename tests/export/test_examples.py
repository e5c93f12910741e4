"""The examples for devices print the scores of a stream: in Python without cometad, and in Node."""

import csv
import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from cometad import Comet
from cometad.export import to_onnx
from fitted import fitted

ROOT = Path(__file__).parents[2]
EDGE = ROOT / "examples" / "edge"
INSTALLED = ROOT / ".pytest_cache" / "node"  # kept between runs
NAMES = ["flow", "level", "heat"]
WITHOUT_COMETAD = """
import runpy, sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("cometad", "numba", "onnx"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Without())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def plant(rows, seed):
    rng = np.random.default_rng(seed)
    wave = np.sin(np.arange(rows) / 6)
    return np.column_stack([wave, np.cos(np.arange(rows) / 6), wave**2]) + 0.1 * rng.normal(size=(rows, 3))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with an exported detector, its description, two parts of a series, and the lines that a stream has."""
    import polars as pl

    folder = tmp_path_factory.mktemp("edge")
    detector = fitted(Comet(), pl.DataFrame(plant(600, 0), schema=NAMES))
    described = to_onnx(detector, folder / "plant.onnx").as_json()
    (folder / "plant.json").write_text(json.dumps(described))
    readings = plant(200, 1)
    readings[150, 1] = 9.0
    for name, part in (("first.csv", readings[:90]), ("second.csv", readings[90:])):
        with (folder / name).open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["time", *reversed(NAMES)])  # another order, and a column of no use
            writer.writerows([t, *map(float, reversed(row))] for t, row in enumerate(part))
    scored = detector.stream().update_many(readings)
    lines = zip(scored.alert_scores, scored.thresholds, scored.flags, scored.variables.argmax(axis=1), strict=True)
    (folder / "expected.json").write_text(json.dumps([[s, h, int(f), NAMES[v]] for s, h, f, v in lines]))
    return folder


def assert_scored(folder, lines):
    expected = json.loads((folder / "expected.json").read_text())
    assert len(lines) == len(expected) == 200
    for line, (score, threshold, flag, variable) in zip(lines, expected, strict=True):
        assert line["alert_score"] == pytest.approx(score, abs=1e-9)
        assert line["threshold"] == pytest.approx(threshold, abs=1e-9)
        assert line["flag"] == flag
        assert line["variable"] == variable or score < 1e-9
    assert lines[150]["flag"] == 1
    assert lines[150]["variable"] == "level"


@pytest.fixture(scope="module")
def node():
    """A folder with the Node example and what it needs."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    INSTALLED.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "stream.mjs"):
        shutil.copy(EDGE / name, INSTALLED / name)
    if not (INSTALLED / "node_modules" / ".package-lock.json").exists():
        # Without scripts: onnxruntime's own would download libraries for graphics cards.
        flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--prefer-offline"]
        try:
            done = subprocess.run(
                ["npm", "install", *flags], cwd=INSTALLED, capture_output=True, text=True, check=False, timeout=120
            )
        except subprocess.TimeoutExpired:
            pytest.skip("npm install took more than two minutes")
        if done.returncode != 0:
            pytest.skip(f"npm install failed: {done.stderr.strip()[-200:]}")
    return INSTALLED


@pytest.fixture(params=["python", pytest.param("node", marks=pytest.mark.servers)])
def program(request):
    """The command of an example and its arguments, without the file of a state."""
    if request.param == "python":
        return [sys.executable, "-c", WITHOUT_COMETAD, str(EDGE / "stream.py"), "plant.onnx"]
    return ["node", str(request.getfixturevalue("node") / "stream.mjs"), "plant.onnx", "plant.json"]


def run_with(program, folder, readings, *state):
    """Run a program on readings as text."""
    return subprocess.run(
        [*program, *state], input=readings, cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )


def test_an_example_scores_as_a_stream_does_and_continues_from_its_state(folder, program, tmp_path):
    lines = []
    for part in ("first.csv", "second.csv"):
        done = run_with(program, folder, (folder / part).read_text(), tmp_path / "state")
        assert done.returncode == 0, done.stderr
        lines += [json.loads(line) for line in done.stdout.splitlines()]
    assert_scored(folder, lines)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_an_example_gives_no_score_to_a_reading_with_a_cell_that_is_not_a_number(folder, program):
    cells = ["", " ", "Bad", "NaN", "inf"]
    readings = ["\ufeffflow,level,heat", *(f"{cell},0.1,0.2" for cell in cells), "0.1,0.2"]  # the last one is too short
    done = run_with(program, folder, "\r\n".join(readings))
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["alert_score"], line["variable"], line["flag"]) for line in found] == [(None, None, 0)] * 6


def test_an_example_passes_local_times_to_a_season(program, tmp_path):
    import polars as pl

    hours = np.arange(24 * 21)
    load = 10 * np.sin(hours * 2 * np.pi / 24) + np.random.default_rng(0).normal(size=len(hours))
    times = [datetime(2024, 3, 12) + timedelta(hours=int(hour)) for hour in hours]
    frame = pl.DataFrame({"time": times, "load": load})
    detector = fitted(Comet(timezone="America/New_York"), frame[: 24 * 14])
    (tmp_path / "plant.json").write_text(json.dumps(to_onnx(detector, tmp_path / "plant.onnx").as_json()))
    rest, zone = frame[24 * 14 :], ZoneInfo("America/New_York")
    ats = [time.replace(tzinfo=UTC) for time in rest["time"]]
    lines = [f"{at.astimezone(zone):%Y-%m-%d %H:%M:%S},{one!r}" for at, one in zip(ats, rest["load"], strict=True)]
    done = run_with(program, tmp_path, "\n".join(["time,load", *lines, "yesterday,0.5"]))
    assert done.returncode == 0, done.stderr
    *found, broken = [json.loads(line)["alert_score"] for line in done.stdout.splitlines()]
    assert found == pytest.approx(detector.stream().update_many(rest).alert_scores.tolist(), abs=1e-9)
    assert broken is None
    done = run_with(program, tmp_path, "load\n0.5\n")
    assert (done.returncode, done.stdout, "no column 'time'" in done.stderr) == (1, "", True)


@pytest.mark.parametrize(
    "arguments, header, words",
    [
        (["foreign.state"], "flow,level,heat", "'foreign.state' is not a state of 'plant.onnx'."),
        ([], "flow,heat", "The header has no column 'level'."),
        (["a", "b", "c"], "flow,level,heat", "Usage: "),
    ],
)
def test_an_example_says_in_one_sentence_what_is_wrong(folder, program, arguments, header, words):
    (folder / "foreign.state").write_bytes(b"12345678")
    done = run_with(program, folder, f"{header}\n", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(words)
    assert done.stderr.count("\n") == 1


def test_no_lock_file_is_committed():
    assert sorted(path.name for path in EDGE.iterdir() if path.is_file()) == ["package.json", "stream.mjs", "stream.py"]

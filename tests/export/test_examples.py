"""The examples for devices print the scores of a stream: in Python without cometad, and in Node."""

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cometad import Comet
from cometad.export import to_onnx

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
    detector = Comet().fit(pl.DataFrame(plant(600, 0), schema=NAMES))
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


def scored_by(command, folder, *arguments):
    """The lines that a command prints for both parts of the series, with a state that is saved between them."""
    lines = []
    for part in ("first.csv", "second.csv"):
        with (folder / part).open() as readings:
            done = subprocess.run(
                [*command, *arguments],
                stdin=readings,
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
        assert done.returncode == 0, done.stderr
        lines += [json.loads(line) for line in done.stdout.splitlines()]
    return lines


def test_the_python_example_scores_as_a_stream_does_without_cometad(folder):
    command = [sys.executable, "-c", WITHOUT_COMETAD, str(EDGE / "stream.py")]
    assert_scored(folder, scored_by(command, folder, "plant.onnx", "python.state"))


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


def test_the_node_example_scores_as_a_stream_does(folder, node):
    command = ["node", str(node / "stream.mjs")]
    assert_scored(folder, scored_by(command, folder, "plant.onnx", "plant.json", "node.state"))


def test_no_lock_file_is_committed():
    assert sorted(path.name for path in EDGE.iterdir() if path.is_file()) == ["package.json", "stream.mjs", "stream.py"]

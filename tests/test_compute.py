"""Compilation: optional, cached on disk until a source changes, and announced when it happens."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cometad

TIMEOUT = 150  # seconds; compiling all kernels takes about one minute on a slow core

FIT = """
import json, logging
logging.basicConfig(level=logging.INFO)
import numpy as np
from cometad import NetworkComet
from cometad.network import OneCycle
noise = np.random.default_rng(0).normal(size=(400, 3))
series = np.sin(np.arange(400)[:, None] / np.array([3.0, 5.0, 7.0])) + 0.1 * noise
sizes = dict(window=20, patch_sizes=(2, 4), patch_strides=(1, 2), dim=8, core_dim=2, codebook_size=8, test_batch=2)
detector = NetworkComet(**sizes, schedule=OneCycle(20), refit=2).fit(series[:300])
print(json.dumps(detector.decision_function(series[300:]).tolist()))
"""

KERNELS = """
import json, logging
logging.basicConfig(level=logging.INFO)
import numpy as np
from cometad.network.fast.kernels import _products_single, mirror
mirror(np.zeros((2, 2)))
result = np.zeros(16, np.float32)
_products_single(np.full((1, 16), 2, np.float32), np.full(1, 3, np.float32), result)
print(json.dumps(result.tolist()))
"""


def python(script, **environment):
    """Run a script in a separate process; return the JSON it prints, and its log."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT,
    )
    return np.array(json.loads(done.stdout)), done.stderr


@pytest.fixture(scope="module")
def scores():
    """Scores from a process that compiles the kernels, or loads them if another test compiled them before."""
    return python(FIT)[0]


@pytest.fixture
def copied(tmp_path):
    """A copy of the kernels alone, in a package with the same name, and the environment to use it and its own cache."""
    package, copy = Path(cometad.__file__).parent, tmp_path / "cometad"
    for name in (
        "compute.py",
        "errors.py",
        "arrays.py",
        "intrinsics.py",
        "network/fast/lanes.py",
        "network/fast/kernels.py",
    ):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(package / name, copy / name)
    for folder in (".", "network", "network/fast"):
        (copy / folder / "__init__.py").touch()
    return copy, {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}


def test_scores_are_the_same_without_compilation(scores):
    plain, _ = python(FIT, NUMBA_DISABLE_JIT="1")
    np.testing.assert_allclose(plain, scores, rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("scores")
def test_every_compiled_function_is_cached_on_disk():
    assert "Compiling" not in python(FIT)[1]


def test_compilation_is_announced_once_and_not_when_the_cache_is_used(copied):
    _, environment = copied
    assert python(KERNELS, **environment)[1].count("Compiling for this machine") == 1
    assert "Compiling" not in python(KERNELS, **environment)[1]


def test_compilation_is_announced_on_stderr_where_nobody_set_up_logging(copied):
    script = KERNELS.replace("logging.basicConfig(level=logging.INFO)\n", "")
    assert script != KERNELS
    said = python(script, **copied[1])[1]
    assert said == "Compiling for this machine, once: about 15 seconds, for a trained network up to a minute.\n"


def test_editing_a_file_beside_a_kernel_recompiles_it(copied):
    """kernels.py is unchanged here; only the vector instructions that it imports from lanes.py are."""
    copy, environment = copied
    assert python(KERNELS, **environment)[0].tolist() == [6.0] * 16

    lanes = copy / "network/fast/lanes.py"
    before = lanes.read_text()
    after = before.replace("emits(fma)", "emits(lambda builder, left, right, _: builder.fsub(left, right))")
    assert after != before
    lanes.write_text(after)
    assert python(KERNELS, **environment)[0].tolist() == [-1.0] * 16

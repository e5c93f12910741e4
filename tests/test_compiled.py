"""Compilation: the same results without it, kept on disk with it, announced when it happens."""

import json
import os
import subprocess
import sys

import numpy as np

FIT = """
import json
import numpy as np
from cometad import Comet
from cometad.network import OneCycle
noise = np.random.default_rng(0).normal(size=(400, 3))
series = np.sin(np.arange(400)[:, None] / np.array([3.0, 5.0, 7.0])) + 0.1 * noise
sizes = dict(window=20, patch_sizes=(2, 4), patch_strides=(1, 2), dim=8, core_dim=2, codebook_size=8, test_batch=2)
detector = Comet(**sizes, schedule=OneCycle(20), refit=2).fit(series[:300])
print(json.dumps(detector.decision_function(series[300:]).tolist()))
"""


def scores(*more, **environment):
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([*more, FIT])],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return np.array(json.loads(done.stdout)), done.stderr


def test_without_compilation_the_scores_are_the_same():
    compiled, _ = scores()
    plain, _ = scores(NUMBA_DISABLE_JIT="1")
    np.testing.assert_allclose(plain, compiled, rtol=1e-3, atol=1e-3)


def test_compilation_is_announced_once_and_found_on_disk_afterwards(tmp_path):
    listen = "import logging; logging.basicConfig(level=logging.INFO)"
    _, first = scores(listen, NUMBA_CACHE_DIR=str(tmp_path))
    _, second = scores(listen, NUMBA_CACHE_DIR=str(tmp_path))
    assert first.count("Compiling for this machine") == 1
    assert "Compiling" not in second

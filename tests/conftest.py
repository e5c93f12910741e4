"""Settings for the whole suite.

Threads: one for torch and one for numpy, also in the processes that tests start. These detectors are too small to gain
from more, and threads spin while they wait for a busy core: two workers on two cores took eight times as long.

Numba: each worker of pytest-xdist has its own folder of compiled code. Numba does not lock the index of such a folder,
so two processes that compile variants of one function at once can mix them up. Before the workers of a first run start,
`warm_up.py` compiles what most tests need, once and without the cost of measuring coverage.

Hypothesis: no deadlines, because the first call compiles, and few examples of many shapes.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

# All before the first import of numpy, numba or torch.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
COMPILED = Path(__file__).parents[1] / ".pytest_cache" / "numba"
if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    if not (COMPILED / worker).exists():
        shutil.copytree(COMPILED / "first", COMPILED / worker)
    os.environ["NUMBA_CACHE_DIR"] = str(COMPILED / worker)

import torch  # noqa: E402
from hypothesis import settings  # noqa: E402

settings.register_profile("cometad", deadline=None, max_examples=20)
settings.load_profile("cometad")

torch.set_num_threads(1)


def pytest_configure(config):
    starts_workers = config.getoption("numprocesses", None) and not worker
    if starts_workers and not (COMPILED / "first").exists():
        script = Path(__file__).with_name("warm_up.py")
        environment = os.environ | {"NUMBA_CACHE_DIR": str(COMPILED / "first")}
        subprocess.run([sys.executable, str(script)], env=environment, check=True, timeout=600)

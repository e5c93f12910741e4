"""Settings for the whole suite.

Numba: each worker of pytest-xdist keeps compiled code in a folder of its own. Two processes that compile the same
function at once may otherwise store it under a wrong signature, because numba does not lock its index.

Hypothesis: no deadlines, because the first call compiles, and few examples of many shapes.

Torch: one thread, because the detectors here are too small to gain from a second.
"""

import os
from pathlib import Path

if worker := os.environ.get("PYTEST_XDIST_WORKER"):  # before anything imports numba
    folder = Path(__file__).parents[1] / ".pytest_cache" / "numba" / worker
    os.environ["NUMBA_CACHE_DIR"] = str(folder)  # also for the processes that tests start

import torch
from hypothesis import settings

settings.register_profile("cometad", deadline=None, max_examples=20)
settings.load_profile("cometad")

torch.set_num_threads(1)

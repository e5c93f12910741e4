"""Settings for the whole suite.

Threads: one for torch, numpy and numba, also in the processes that tests start. The detectors here are too small to
gain from a second, and threads that wait for a busy core spin: a test took six times as long. Numba's count matters
because UMAP starts numba's threads, which sets the count of torch as well.

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
os.environ |= dict.fromkeys(("COMETAD_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
COMPILED = Path(__file__).parent / ".pytest_cache" / "numba"
if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    if not (COMPILED / worker).exists():
        shutil.copytree(COMPILED / "first", COMPILED / worker)
    os.environ["NUMBA_CACHE_DIR"] = str(COMPILED / worker)

import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import settings  # noqa: E402

from postgres_case import postgres  # noqa: E402, F401

CHROMIUM_FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]

settings.register_profile("cometad", deadline=None, max_examples=20)
settings.load_profile("cometad")

torch.set_num_threads(1)


# What `make test` leaves to `make test-all`: real brokers, databases and browsers, kill -9, trained networks, the
# protocol of a public leaderboard, what is slow. Tests that use one of the fixtures belong to it, too, and the pages of
# the docs that start servers.
SERVER_FIXTURES = {"browser", "postgres"}
SERVER_TESTS = tuple(
    f"tests/{name}"
    for name in (
        *(f"connect/test_{name}.py" for name in ("brokers", "kafka", "mqtt", "nats", "opcua", "out", "plant_kill")),
        *("connect/test_prometheus.py", "serve/test_browser.py", "serve/test_monitoring.py", "serve/test_sharing.py"),
        *("cli/test_resume.py::test_nothing_is_lost", "fleet/test_ray.py", "serve/test_restart.py"),
        *("test_compute.py::test_every_compiled", "test_docs.py::test_the_site"),
        *(
            "network/",
            "explain/test_explain.py",
            "views/test_network_view.py",
            "test_network_comet.py",
            "test_presets.py",
            "metrics/test_tsb_ad.py",
        ),
    )
)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.nodeid.startswith(SERVER_TESTS) or SERVER_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("servers")


def pytest_configure(config):
    starts_workers = config.getoption("numprocesses", None) and not worker
    if starts_workers and not (COMPILED / "first").exists():
        script = Path(__file__).parent / "tests" / "warm_up.py"
        environment = os.environ | {"NUMBA_CACHE_DIR": str(COMPILED / "first")}
        subprocess.run([sys.executable, str(script)], env=environment, check=True, timeout=600)


@pytest.fixture(scope="module")
def browser():
    """Chromium, for the tests that open a page."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()

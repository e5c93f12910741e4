"""Speed and growth of the default detector: fitting, scoring, one reading of a stream.

    COMETAD_THREADS=1 python bench/scripts/views.py scoring stream growth compile
    python bench/scripts/views.py fit [--large]

`fit` uses all cores; `--large` adds a million readings of 123 variables, which needs 12 GB. The series are sums of
waves with noise: what is in them hardly matters for the time.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

from cometad import Comet
from cometad.compute import thread_count


def series(rows: int, variables: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    waves = np.sin(np.arange(rows)[:, None] / rng.uniform(5, 50, 8) + rng.uniform(0, 6, 8))
    return waves @ rng.normal(size=(8, variables)) + 0.3 * rng.normal(size=(rows, variables))


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """The shortest of a few runs: the others waited for something else."""
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return min(taken)


def fit(large: bool) -> None:
    Comet().fit(series(2_000, 3))
    shapes = [(25_000, 38), *([(1_000_000, 123)] if large else [])]
    for rows, variables in shapes:
        X = series(rows, variables)
        taken = seconds(lambda x=X: Comet().fit(x), 1)
        print(f"fit, {rows:,} x {variables}, {thread_count()} threads: {taken:.1f} s")


def scoring() -> None:
    X = series(100_000, 25)
    detector = Comet().fit(X[:10_000])
    detector.predict(X[:5_000])
    taken = seconds(lambda: detector.step_scores(X))
    print(f"scoring, 25 variables, {thread_count()} thread(s): {len(X) / taken:,.0f} readings/s")


def stream(readings: int = 20_000) -> None:
    X = series(readings + 1_000, 25)
    stream = Comet().fit(X[:10_000]).stream()
    for reading in X[:1_000]:
        stream.update(reading)
    taken = []
    for reading in X[1_000:]:
        started = time.perf_counter()
        stream.update(reading)
        taken.append(time.perf_counter() - started)
    print(f"stream, 25 variables: {latencies(taken)} a reading")
    print(f"the same amount of plain arithmetic, to show what the machine adds: {latencies(arithmetic(taken))}")


def latencies(taken: list[float]) -> str:
    middle, most, nearly_all = 1e6 * np.quantile(taken, (0.5, 0.99, 0.999))
    return f"median {middle:.0f}, p99 {most:.0f}, p99.9 {nearly_all:.0f} microseconds"


def arithmetic(like: list[float]) -> list[float]:
    """Seconds of a loop that always does the same and takes about as long as the median of `like`."""

    def add(times: int) -> float:
        started, total = time.perf_counter(), 0
        for k in range(times):
            total += k
        return time.perf_counter() - started

    times = int(10_000 * np.median(like) / np.median([add(10_000) for _ in range(100)]))
    return [add(times) for _ in like]


def growth() -> None:
    print("growth: seconds to fit and to score, and their ratio to the line before")
    for name, shapes in (
        ("readings", [(10_000, 25), (20_000, 25), (40_000, 25), (80_000, 25)]),
        ("variables", [(6_000, 32), (6_000, 64), (6_000, 128), (6_000, 256), (6_000, 512)]),
    ):
        before = None
        for rows, variables in shapes:
            X = series(rows, variables)
            started = time.perf_counter()
            detector = Comet(trim=False).fit(X)
            now = time.perf_counter() - started, seconds(lambda d=detector, x=X: d.step_scores(x))
            ratios = "" if before is None else f"   x {now[0] / before[0]:.1f}, x {now[1] / before[1]:.1f}"
            print(f"  {name}: {rows:,} x {variables}: {now[0]:.2f} s, {now[1]:.3f} s{ratios}", flush=True)
            before = now


FIRST_USE = """
import time
import numpy as np
from cometad import Comet
X = np.random.default_rng(0).normal(size=(600, 3))
started = time.process_time()
detector = Comet().fit(X)
detector.predict(X)
detector.stream().update(X[0])
print(time.process_time() - started)
"""


def compile() -> None:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        command = [sys.executable, "-c", FIRST_USE]
        first, later = (
            float(subprocess.check_output(command, env=environment, stderr=subprocess.DEVNULL)) for _ in range(2)
        )
    print(f"first fit, predict and update of a machine: {first:.1f} s of CPU time; of a later process: {later:.1f} s")


WHAT = {"fit": fit, "scoring": scoring, "stream": stream, "growth": growth, "compile": compile}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", choices=WHAT)
    parser.add_argument("--large", action="store_true", help="with fit: a million readings of 123 variables too")
    arguments = parser.parse_args()
    for what in arguments.what:
        WHAT[what](arguments.large) if what == "fit" else WHAT[what]()

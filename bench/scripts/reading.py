"""The time of one reading in this code relative to other code, both measured in one run on the same core.

    python bench/scripts/reading.py OTHER_SRC [--rounds N] [--variables N] [--other-scores]

OTHER_SRC is the folder `src` of another checkout. Each round starts a process with either code, in turns. It scores
readings of a seeded plant with `Comet()`, one at a time through `Stream.update` and all at once, and prints the
median and the 99 % quantile of a reading in microseconds, the Python and C functions called for it, and readings a
second of a batch. The scores of both must be equal to the bit, unless it is said that they are others.
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

TRAINING, FRESH, PASSES = 4_000, 3_000, 4
FIGURES = ("median_us", "p99_us", "calls", "batch_per_second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--variables", type=int, default=25)
    parser.add_argument("--other-scores", action="store_true", help="the scores of both may differ")
    parser.add_argument("--alone", action="store_true", help="measure the importable code, and print JSON")
    arguments = parser.parse_args()
    if arguments.alone:
        print(json.dumps(measured(arguments.variables)))
        return
    codes = {"other": arguments.other, "this": Path(__file__).parents[2] / "src"}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in codes}
    for _ in range(arguments.rounds):
        for name, source in codes.items():
            found[name].append(in_process(source, arguments.variables))
    hashes = {one["sha256"] for runs in found.values() for one in runs}
    assert len(hashes) == 1 or arguments.other_scores, "the scores differ"
    print("| figure | other | this | ratio |\n|---|---:|---:|---:|")
    for figure in FIGURES:
        other, this = (statistics.median(one[figure] for one in found[name]) for name in codes)
        print(f"| {figure} | {other:,.1f} | {this:,.1f} | {this / other:.2f} |")


def in_process(source: Path, variables: int) -> dict[str, Any]:
    """The figures of the code in a folder, measured in a process of its own on the first allowed core."""
    core = min(os.sched_getaffinity(0))
    command = [sys.executable, __file__, "--alone", "--variables", str(variables)]
    environment = os.environ | {"PYTHONPATH": str(source.resolve()), "COMETAD_THREADS": "1"}
    done = subprocess.run(
        ["taskset", "-c", str(core), *command], env=environment, check=True, capture_output=True, text=True
    )
    return dict(json.loads(done.stdout))


def measured(variables: int) -> dict[str, Any]:
    from cometad import Comet

    series = plant(TRAINING + FRESH, variables)
    detector, fresh = Comet().fit(series[:TRAINING]), series[TRAINING:]
    stream, times, digest = detector.stream(), [], hashlib.sha256()
    for turn in range(PASSES):
        for row in fresh:
            begun = time.perf_counter_ns()
            scored = stream.update(row)
            times.append(time.perf_counter_ns() - begun)
            if turn == 0:
                digest.update(scored.alert_scores.tobytes() + scored.scores.tobytes() + scored.flags.tobytes())
    median, p99 = np.quantile(np.array(times[FRESH:]) / 1e3, [0.5, 0.99])
    begun = time.perf_counter()
    detector.stream().update_many(np.tile(fresh, (5, 1)))
    batch = 5 * FRESH / (time.perf_counter() - begun)
    figures = (median, p99, calls_of(stream, fresh[:500]), batch)
    return {**dict(zip(FIGURES, figures, strict=True)), "sha256": digest.hexdigest()}


def plant(steps: int, variables: int) -> np.ndarray:
    """Waves with noise; a fault each 1,000 readings."""
    rng = np.random.default_rng(0)
    waves = np.sin(np.arange(steps)[:, None] / rng.uniform(5, 60, variables)) + 0.1 * rng.normal(
        size=(steps, variables)
    )
    for start in range(TRAINING + 500, steps, 1_000):
        waves[start : start + 20, rng.integers(variables)] += 3.0
    return waves


def calls_of(stream: Any, rows: np.ndarray) -> float:
    """The functions called for a reading, in Python and in C."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    for row in rows:
        stream.update(row)
    sys.setprofile(None)
    return count / len(rows)


if __name__ == "__main__":
    main()

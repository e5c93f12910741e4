"""Exported files against their detectors: the largest differences of scores, flags that differ, speed and size.

    python bench/scripts/edge.py [--readings 20000] [--seed 0]

Each row is a plant of one character with that many variables. The detector is fitted on 5,000 readings and scores
others, with faults; the exported file scores the same ones in onnxruntime, one by one and on one thread. Times are
those of the fastest stretch of 20 readings, because other processes only add to them.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

os.environ |= dict.fromkeys(("COMETAD_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import numpy as np

from cometad import Comet
from cometad.export import to_onnx
from cometad.export.agreement import StepScored, opened, run_steps
from cometad_bench.datasets.characters import CHARACTERS, plant_of

TRAINING = 5_000
STRETCH = 20  # readings
PLANTS = [*((name, 12) for name in CHARACTERS), ("rounded", 12), ("periodic", 4), ("periodic", 50), ("periodic", 200)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--readings", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print(
        "| plant | variables | largest difference | flags | flags that differ | µs per reading | file, kB | state, kB |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for character, variables in PLANTS:
        print(f"| {character} | {variables} | {compared(character, variables, arguments)} |", flush=True)


def compared(character: str, variables: int, arguments: argparse.Namespace) -> str:
    """The figures of one plant."""
    normal, fresh = readings_of(character, variables, arguments.readings, arguments.seed)
    detector = Comet().fit(normal[:TRAINING])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plant.onnx"
        exported = to_onnx(detector, path)
        session = opened(path.read_bytes())
    ours = detector.stream().update_many(fresh)
    theirs, seconds = timed(session, fresh)
    pairs = [(ours.alert_scores, theirs.alert_scores), (ours.variables, theirs.variables)]
    pairs.append((ours.thresholds, theirs.thresholds))
    difference = max(float((np.abs(a - b) / np.maximum(1, np.abs(a))).max()) for a, b in pairs)
    others = int((ours.flags != theirs.flags).sum())
    return (
        f"{difference:.1e} | {int(ours.flags.sum())} | {others} | {1e6 * seconds:.0f} | "
        f"{exported.file_bytes / 1000:.0f} | {exported.state_bytes / 1000:.1f}"
    )


def timed(session: object, series: np.ndarray) -> tuple[StepScored, float]:
    """What a file computes for a series, and the seconds per reading of the fastest stretch."""
    parts, fastest, state = [], np.inf, None
    for begin in range(0, len(series), STRETCH):
        stretch = series[begin : begin + STRETCH]
        started = time.perf_counter()
        parts.append(run_steps(session, stretch, state))
        fastest = min(fastest, (time.perf_counter() - started) / len(stretch))
        state = parts[-1].state
    *arrays, _ = (np.concatenate(each) for each in zip(*parts, strict=True))
    return StepScored(*arrays, parts[-1].state), fastest


def readings_of(character: str, variables: int, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal and new readings; *rounded* ones have few values, so that codes are often equally near."""
    plant = plant_of("modes" if character == "rounded" else character, rows=rows, variables=variables, seed=seed)
    if character != "rounded":
        return plant.train, plant.test
    unit = plant.train.std(axis=0)
    return np.round(plant.train / unit) * unit, np.round(plant.test / unit) * unit


if __name__ == "__main__":
    main()

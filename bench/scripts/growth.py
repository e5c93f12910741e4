"""How the cost of scoring grows with the number of readings, variables and codes: a table, and optionally a figure.

    python bench/scripts/growth.py [--threads N] [--figure docs/images/growth.png]

Starts from the paper's sizes on PSM (25 variables, embeddings of 256, 128 codes) and varies one at a time. Readings
come in chunks, as from a file. The exponent is the slope in a log-log plot: 1 is linear.
"""

import argparse
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from cometad.network.network import Network
from cometad.network.score import Scorer

WINDOW, CHUNK = 100, 128  # readings in a window, windows in a chunk
LENGTHS = (10_000, 100_000, 1_000_000, 10_000_000)
VARIABLES = (5, 10, 25, 50, 100, 200, 500)
CODES = (32, 64, 128, 256, 512, 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--figure", type=Path)
    arguments = parser.parse_args()
    os.environ["COMETAD_THREADS"] = str(arguments.threads)
    torch.set_num_threads(arguments.threads)
    curves = {
        "readings": [(rows, seconds(rows)) for rows in LENGTHS],
        "variables": [(count, seconds(100_000, variables=count)) for count in VARIABLES],
        "codes": [(count, seconds(200_000, codes=count)) for count in CODES],
    }
    print("| what grows | from | to | seconds | exponent |\n|---|---|---|---|---|")
    for what, points in curves.items():
        cells = ", ".join(f"{taken:.3g}" for _, taken in points)
        print(f"| {what} | {points[0][0]:,} | {points[-1][0]:,} | {cells} | {exponent(points):.2f} |")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"\nThe process never used more than {peak:,.0f} MiB.")
    if arguments.figure is not None:
        draw(curves, arguments.figure)


def seconds(rows: int, variables: int = 25, codes: int = 128) -> float:
    """The shortest time in seconds to score a number of readings."""
    torch.manual_seed(0)
    scorer = Scorer(
        Network(variables, (2, 4, 6), (1, 2, 3), 256, 64, codes), [np.ones(codes, bool)] * 3, 10, "local", "cpu"
    )
    times = []
    for _ in range(3 if rows <= 1_000_000 else 1):
        begun = time.perf_counter()
        for chunk in chunks(rows, variables):
            scorer.windows(chunk)
        times.append(time.perf_counter() - begun)
    return min(times)


def chunks(rows: int, variables: int) -> Iterator[np.ndarray]:
    """Chunks of random windows, generated once so that only scoring is timed."""
    windows = np.random.default_rng(0).normal(size=(CHUNK, WINDOW, variables)).astype(np.float32)
    left = rows // WINDOW
    while left > 0:
        yield windows[: min(CHUNK, left)]
        left -= CHUNK


def exponent(points: list[tuple[int, float]]) -> float:
    sizes, times = np.log(points).T
    return float(np.polyfit(sizes, times, 1)[0])


def draw(curves: dict[str, list[tuple[int, float]]], path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(curves), figsize=(10, 3), layout="constrained")
    for panel, (what, points) in zip(panels, curves.items(), strict=True):
        panel.loglog(*zip(*points, strict=True), marker="o")
        panel.set(xlabel=what, ylabel="seconds", title=f"exponent {exponent(points):.2f}")
        panel.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()

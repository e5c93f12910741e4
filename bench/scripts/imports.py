"""Seconds and memory of `from cometad import Comet` and of `cometad score` on a short file, each in a cold process.

    python bench/scripts/imports.py [--repeats N] [--detector NAME]

The kernels are compiled before; the best of several runs counts, because other processes only add to it.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

# No numpy or polars here: a child's peak memory is at least what its parent had when it started it.
ROWS, VARIABLES = 500, 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--detector", default="comet")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        readings, model = Path(folder) / "readings.csv", Path(folder) / "plant.comet"
        chance = random.Random(0)
        rows = [[f"v{i}" for i in range(VARIABLES)]]
        rows += [[f"{chance.gauss(0, 1):.6f}" for _ in range(VARIABLES)] for _ in range(ROWS)]
        readings.write_text("".join(",".join(row) + "\n" for row in rows))
        verb = [sys.executable, "-m", "cometad"]
        subprocess.run([*verb, "fit", readings, "-o", model, "--detector", arguments.detector], check=True)
        score = [*verb, "score", model, readings, "-o", Path(folder) / "scores.csv"]
        _measure(score)  # compiles what scoring needs
        print("| in a cold process | seconds | CPU seconds | MB |\n|---|---|---|---|")
        for name, command in {
            "`python -c pass`": [sys.executable, "-c", "pass"],
            "`from cometad import Comet`": [sys.executable, "-c", "from cometad import Comet"],
            f"`cometad score`, {ROWS} readings, {arguments.detector}": score,
        }.items():
            runs = [_measure(command) for _ in range(arguments.repeats)]
            seconds, busy, megabytes = (min(column) for column in zip(*runs, strict=True))
            print(f"| {name} | {seconds:.2f} | {busy:.2f} | {megabytes:.0f} |")


def _measure(command: Sequence[str | Path]) -> tuple[float, float, float]:
    """Seconds, CPU seconds (which depend less on what else runs) and peak memory in MB of a command."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    if status != 0:
        sys.exit(f"{' '.join(map(str, command))} failed.")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / (1024 if sys.platform == "linux" else 1024**2)


if __name__ == "__main__":
    main()

"""Print a table of how long each part of a report takes, and the size of its file.

    python bench/scripts/report.py [--readings N] [--variables N] [--detector comet]

Fits on 20,000 normal readings, then reports on `--readings` readings with a fault every 50,000. Reading a file is not
included. Progress goes to stderr.
"""

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl

from cometad import BASELINES, Comet, NetworkComet
from cometad.alerting import Spot
from cometad.detector import Detector
from cometad.network import NoAdaptation
from cometad.report.gather import gather
from cometad.report.page import save_report

TRAINING, FAULT_EVERY, FAULT_LENGTH = 20_000, 50_000, 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readings", type=int, default=1_000_000)
    parser.add_argument("--variables", type=int, default=10)
    parser.add_argument("--detector", choices=["comet", "comet-fixed", *BASELINES], default="comet")
    arguments = parser.parse_args()
    seconds: dict[str, float] = {}
    with measured("fit", seconds):
        detector = made(arguments.detector).fit(normal(TRAINING, arguments.variables, seed=0))
    data = with_faults(normal(arguments.readings, arguments.variables, seed=1))
    with measured("score every reading", seconds):
        scored = detector.step_scores(data)
    with measured("gather events, explanations, codebook usage and drift", seconds):
        report = gather(detector, data, scored=scored)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        with measured("render and write the page", seconds):
            save_report(path, report)
        size = path.stat().st_size
    what = f"{arguments.readings:,} readings of {arguments.variables} variables, {arguments.detector}"
    print(f"| {what} | seconds |\n|---|---|")
    for part, taken in seconds.items():
        print(f"| {part} | {taken:.2f} |")
    print(f"| total without fit | {sum(seconds.values()) - seconds['fit']:.2f} |")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"\n{report.headline}. The file has {size / 1000:,.0f} kB; peak memory was {peak:,.0f} MiB.")


def made(name: str) -> Detector:
    """The detector by name."""
    rule = {"threshold": Spot(rate=1e-4)}
    if name == "comet":
        return Comet(**rule)
    return NetworkComet(adaptation=NoAdaptation(), **rule) if name == "comet-fixed" else BASELINES[name](**rule)


def normal(rows: int, variables: int, seed: int) -> pl.DataFrame:
    """Normal readings, one every ten seconds."""
    steps = np.arange(rows)
    values = np.stack([np.sin(steps / (7 + 5 * k)) for k in range(variables)], axis=1)
    values += 0.1 * np.random.default_rng(seed).normal(size=values.shape)
    times = pl.Series("time", steps * 10_000_000 + int(datetime(2026, 3, 1).timestamp() * 1e6)).cast(pl.Datetime("us"))
    return pl.DataFrame([times, *(pl.Series(f"sensor_{k}", values[:, k]) for k in range(variables))])


def with_faults(frame: pl.DataFrame) -> pl.DataFrame:
    """The same readings with faults, in one variable after the other."""
    names = [name for name in frame.columns if name != "time"]
    columns = {name: frame[name].to_numpy().copy() for name in names}
    for number, start in enumerate(range(FAULT_EVERY // 2, len(frame), FAULT_EVERY)):
        columns[names[number % len(names)]][start : start + FAULT_LENGTH] += 4.0
    return frame.with_columns(pl.Series(name, column) for name, column in columns.items())


@contextmanager
def measured(part: str, seconds: dict[str, float]) -> Iterator[None]:
    print(f"{part} ...", file=sys.stderr, flush=True)
    begun = time.perf_counter()
    yield
    seconds[part] = time.perf_counter() - begun
    print(f"{part}: {seconds[part]:.1f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

"""Fixtures of the command line tests: small readings with times, a network that trains in a second, and a deadline."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import numpy as np
import polars as pl

NETWORK = [
    *("--detector", "network"),
    *("--set", "window=32", "--set", "patch_sizes=[2,4]", "--set", "patch_strides=[1,2]"),
    *("--set", "codebook_size=16", "--set", "dim=16", "--set", "core_dim=8", "--steps", "10"),
]


def table_of_readings(rows: int, seed: int) -> pl.DataFrame:
    """One reading a minute of three variables."""
    rng = np.random.default_rng(seed)
    wave = np.sin(np.arange(rows) / 5)
    columns = {"flow": wave, "level": np.cos(np.arange(rows) / 5), "valve": wave**2}
    return pl.DataFrame(
        {"time": [datetime(2024, 3, 1) + timedelta(minutes=i) for i in range(rows)]}
        | {name: column + 0.1 * rng.normal(size=rows) for name, column in columns.items()}
    )


@contextmanager
def deadline(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in a block that waits for a signal or a process for too long."""

    def expire(number, frame):
        raise TimeoutError(f"Not finished after {seconds} s.")

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)

"""Fleets for tests: small tables of machines, and tasks that end their worker."""

import os
import signal
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl


def machine_rows(rows: int, seed: int) -> dict[str, np.ndarray]:
    """Readings of two variables of one machine."""
    rng, steps = np.random.default_rng(seed), np.arange(rows)
    return {
        "flow": np.sin(steps / 5) + 0.1 * rng.normal(size=rows),
        "level": np.cos(steps / 7) + 0.1 * rng.normal(size=rows),
    }


def machines(count: int, rows: int = 300, seed: int = 0) -> pl.DataFrame:
    """A table of machines 000, 001, ..., one reading a minute of each, mixed as a logger writes them."""
    frames = []
    for number in range(count):
        times = [datetime(2026, 3, 1) + timedelta(minutes=step) for step in range(rows)]
        columns = {"time": times, "machine": [f"{number:03}"] * rows, **machine_rows(rows, 1000 * seed + number)}
        frames.append(pl.DataFrame(columns))
    return pl.concat(frames).sort("time", maintain_order=True)


def die_at(task: tuple[str, str]) -> str:
    """Kill this worker the first time, and answer the second time; `task` is a word and a file to remember it in."""
    word, memory = task
    if word == "deadly" or (word == "fragile" and not Path(memory).exists()):
        Path(memory).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return word.upper()


def worker_id(task: object) -> int:
    """The process that works on a task."""
    return os.getpid()

"""What workers do for `bench/scripts/fleet.py`; a module of its own, so that they can import it."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from cometad.data.tables import ReadOptions
from cometad.fleet.entities import entities_of
from cometad.fleet.jobs import FitAnswer, FitTask, fit_entity


class Sizes(NamedTuple):
    """The size of a fleet."""

    entities: int
    readings: int
    variables: int


def readings_of(number: int, sizes: Sizes) -> pl.DataFrame:
    """The readings of an entity: cycles of different lengths that move together, and noise."""
    rng = np.random.default_rng(number)
    steps = np.arange(sizes.readings)[:, None]
    periods = 20 + 80 * rng.random(3)
    cycles = np.sin(2 * np.pi * steps / periods + rng.random(3))
    values = cycles @ rng.normal(size=(3, sizes.variables)) + 0.2 * rng.normal(size=(sizes.readings, sizes.variables))
    return pl.DataFrame(values, schema=[f"v{i}" for i in range(sizes.variables)])


def named(number: int) -> str:
    """The name of an entity."""
    return f"machine-{number:06}"


def write_history(folder: Path, sizes: Sizes, group: int = 100) -> Path:
    """A partitioned folder of Parquet files, each with the readings of up to `group` entities."""
    data = folder / "history"
    data.mkdir()
    for first in range(0, sizes.entities, group):
        numbers = range(first, min(first + group, sizes.entities))
        parts = [readings_of(number, sizes).with_columns(machine=pl.lit(named(number))) for number in numbers]
        pl.concat(parts).write_parquet(data / f"part-{first:06}.parquet")
    return data


def fit_and_measure(task: FitTask) -> tuple[FitAnswer, float]:
    """Fit an entity, and say how much memory the worker has, in MiB."""
    return fit_entity(task), memory()


def memory(field: str = "VmRSS") -> float:
    """The memory of this process in MiB; VmHWM is its peak."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    return float("nan")


def split(data: str) -> None:
    """Split a table by machine, and print the peak of memory."""
    with entities_of(data, "machine", ReadOptions()):
        print(memory("VmHWM"))

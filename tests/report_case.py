"""A detector and data with two planted faults, for the tests of the report."""

from datetime import datetime, timedelta

import numpy as np
import polars as pl

from cometad import NetworkComet
from cometad.network import OneCycle
from fitted import fitted

NAMES = ("flow_1", "pressure_2", "level_3", "valve_4")
BEGIN = datetime(2026, 3, 1, 12, 10)
ROWS = 4000
FAULTS = {"pressure_2": (1200, 1260), "valve_4": (2800, 2840)}  # half-open
SMALL = {"window": 64, "dim": 16, "core_dim": 8, "codebook_size": 64, "schedule": OneCycle(60)}


def readings(rows: int = ROWS, seed: int = 0) -> np.ndarray:
    """Normal readings (time, variable)."""
    steps = np.arange(rows)
    waves = [np.sin(steps / (9 + 4 * k)) * (k + 1) + 10 * k for k in range(len(NAMES))]
    return np.stack(waves, axis=1) + 0.1 * np.random.default_rng(seed).normal(size=(rows, len(NAMES)))


def faulty(rows: int = ROWS, seed: int = 1) -> np.ndarray:
    """Readings with both faults."""
    values = readings(rows, seed)
    for name, (start, stop) in FAULTS.items():
        values[start:stop, NAMES.index(name)] += 9.0
    return values


def timed(values: np.ndarray) -> pl.DataFrame:
    """The readings as a frame, one per minute."""
    times = [BEGIN + timedelta(minutes=i) for i in range(len(values))]
    return pl.DataFrame({"time": times} | {name: values[:, i] for i, name in enumerate(NAMES)})


def network(**changes: object) -> NetworkComet:
    """A small network fitted on normal readings."""
    return fitted(NetworkComet(**{**SMALL, **changes}), timed(readings()))

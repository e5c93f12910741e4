"""Summaries of drift results: the values that its tables and figures show."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from cometad_bench.summaries import Spread, spread

Measured = Mapping[str, Any]  # a result: `setting`, `seed`, and the figures of `measure`, `adapting` and `fixed`
Read = Callable[[Measured], float | None]


def of_phase(arm: str, phase: str, figure: str) -> Read:
    """Return a function that reads one figure of `measure` from a result."""
    return lambda result: result[arm]["phases"][phase][figure]


def over_seeds(results: Iterable[Measured], read: Read) -> Spread | None:
    """Return mean and sample deviation over seeds of the mean over entities; None if no result has the figure."""
    by_seed: dict[int, list[float]] = {}
    for result in results:
        value = read(result)
        if value is not None:
            by_seed.setdefault(result["seed"], []).append(value)
    means = [float(np.mean(values)) for values in by_seed.values()]
    return spread(means) if means else None


def group_name(result: Measured) -> str:
    """Return the group that a result belongs to: its dataset; the long stream is a group of its own."""
    return f"{result['dataset']}, a long stream" if result["entity"] == "long" else str(result["dataset"])

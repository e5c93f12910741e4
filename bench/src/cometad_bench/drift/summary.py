"""Summaries of drift results: the values that its tables and figures show."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from cometad_bench.summaries import Spread, spread

Measured = Mapping[str, Any]  # a result: `setting`, `seed`, and the figures of `measure`, `adapting` and `fixed`
Read = Callable[[Measured], float | None]


def of_phase(arm: str, phase: str, figure: str) -> Read:
    """Return a function that reads one figure of `measure` from a result.

    >>> from cometad_bench.drift.summary import of_phase
    >>> of_phase("fixed", "after", "auc_roc")({"fixed": {"phases": {"after": {"auc_roc": 0.9}}}})
    0.9
    """
    return lambda result: result[arm]["phases"][phase][figure]


def over_seeds(results: Iterable[Measured], read: Read) -> Spread | None:
    """Return mean and sample deviation over seeds of the mean over entities; None if no result has the figure.

    >>> from cometad_bench.drift.summary import over_seeds
    >>> results = [{"seed": 0, "x": 0.25}, {"seed": 0, "x": 0.75}, {"seed": 1, "x": 1.0}, {"seed": 2, "x": None}]
    >>> over_seeds(results, lambda result: result["x"])
    Spread(mean=0.75, deviation=0.3535533905932738)
    """
    by_seed: dict[int, list[float]] = {}
    for result in results:
        value = read(result)
        if value is not None:
            by_seed.setdefault(result["seed"], []).append(value)
    means = [float(np.mean(values)) for values in by_seed.values()]
    return spread(means) if means else None


def group_name(result: Measured) -> str:
    """Return the group that a result belongs to: its dataset; the long stream is a group of its own.

    >>> from cometad_bench.drift.summary import group_name
    >>> group_name({"dataset": "plant", "entity": "long"}), group_name({"dataset": "SMD", "entity": "machine-1-6"})
    ('plant, a long stream', 'SMD')
    """
    return f"{result['dataset']}, a long stream" if result["entity"] == "long" else str(result["dataset"])

"""What several outcomes of the drift experiment say together: the figures that its tables and pictures show."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from cometad.bench.summaries import Spread

Outcome = Mapping[str, Any]
Read = Callable[[Outcome], float | None]


def of_phase(arm: str, phase: str, figure: str) -> Read:
    """Reads one figure of `measure` from an outcome.

    >>> from cometad.bench.drift_summary import of_phase
    >>> of_phase("fixed", "after", "auc_roc")({"fixed": {"phases": {"after": {"auc_roc": 0.9}}}})
    0.9
    """
    return lambda outcome: outcome[arm]["phases"][phase][figure]


def over_seeds(outcomes: Iterable[Outcome], read: Read) -> Spread | None:
    """The mean over entities under each seed, then mean and deviation over seeds; None where nothing is known.

    >>> from cometad.bench.drift_summary import over_seeds
    >>> outcomes = [{"seed": 0, "x": 0.25}, {"seed": 0, "x": 0.75}, {"seed": 1, "x": 1.0}, {"seed": 2, "x": None}]
    >>> over_seeds(outcomes, lambda outcome: outcome["x"])
    Spread(mean=0.75, deviation=0.25)
    """
    by_seed: dict[int, list[float]] = {}
    for outcome in outcomes:
        value = read(outcome)
        if value is not None:
            by_seed.setdefault(outcome["seed"], []).append(value)
    means = [float(np.mean(values)) for values in by_seed.values()]
    if not means:
        return None
    return Spread(float(np.mean(means)), float(np.std(means)) if len(means) > 1 else None)


def place(outcome: Outcome) -> str:
    """The dataset; a long stream stands by itself.

    >>> from cometad.bench.drift_summary import place
    >>> place({"dataset": "plant", "entity": "long"}), place({"dataset": "SMD", "entity": "machine-1-6"})
    ('plant, a long stream', 'SMD')
    """
    return f"{outcome['dataset']}, a long stream" if outcome["entity"] == "long" else str(outcome["dataset"])

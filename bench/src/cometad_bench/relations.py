"""Plants in which only relations break: each variable keeps its values, its spectrum and its level."""

from collections.abc import Iterable

import numpy as np
from scipy.signal import lfilter

from cometad.arrays import Floats
from cometad.datasets.dataset import Cause, Dataset

RELATIONS = "relations"
CHOSEN_ON, JUDGED_ON = range(3), range(3, 6)  # seeds
WIDTHS = (12, 60)
ROWS = 8_000  # of each part
FAULTS = 12
LENGTHS = (60, 240)  # steps of a fault
NOISE, OWN = 0.3, 0.5  # of each variable on its own, relative to the factors, and how much of it stays for a step
TURN = 8  # steps in which a relation breaks, and in which it returns
RUN_IN = 1_000  # steps
BASE_RATE = 0.2


def relation_family(seeds: Iterable[int] = CHOSEN_ON) -> list[Dataset]:
    """For each seed and width, one plant whose faults are of a group, and one whose faults are of one variable."""
    return [relation_plant(width, single, seed) for seed in seeds for width in WIDTHS for single in (False, True)]


def relation_plant(width: int, single: bool, seed: int) -> Dataset:
    """A plant driven by three common factors. In a fault, variables follow an independent copy of the factors.

    They turn to it as cos and sin of an angle that goes from 0 to a right one, which keeps the variance at each step.
    Those are the second half of the variables, or a `single` one of that half.
    """
    rng = np.random.default_rng([seed, width, single])
    loadings = rng.normal(size=(3, width))
    loadings /= np.linalg.norm(loadings, axis=0)
    own, other = factors(2 * ROWS, rng) @ loadings, factors(2 * ROWS, rng) @ loadings
    noise = np.column_stack([autoregressive(2 * ROWS, (OWN,), rng) for _ in range(width)])
    angle, labels = np.zeros((2 * ROWS, width)), np.zeros(2 * ROWS, bool)
    causes: list[Cause] = []
    for start, stop in _faults(rng):
        broken = (int(rng.integers(width // 2, width)),) if single else tuple(range(width // 2, width))
        into = np.minimum(np.arange(1, stop - start + 1) / TURN, 1.0)
        angle[start:stop, broken] = (np.pi / 2 * np.minimum(into, into[::-1]))[:, None]
        labels[start:stop] = True
        causes.append(((start - ROWS, stop - ROWS), broken))
    values = np.cos(angle) * own + np.sin(angle) * other + NOISE * noise
    entity, names = f"{width}{'s' if single else ''}-seed-{seed}", tuple(f"v{i}" for i in range(width))
    return Dataset(RELATIONS, entity, values[:ROWS], values[ROWS:], labels[ROWS:], names, causes=tuple(causes))


def factors(rows: int, rng: np.random.Generator) -> Floats:
    """Two oscillations, with periods of about 40 and 90 steps, and one slow wandering: (time, factor)."""
    damping = 0.98
    waves = [(2 * damping * np.cos(2 * np.pi / period), -(damping**2)) for period in (40, 90)]
    return np.column_stack([autoregressive(rows, weights, rng) for weights in (*waves, (0.95,))])


def autoregressive(rows: int, weights: tuple[float, ...], rng: np.random.Generator) -> Floats:
    """A stationary series (time,) of unit deviation that follows its last values with these weights."""
    series = lfilter([1.0], [1.0, *(-weight for weight in weights)], rng.normal(size=rows + RUN_IN))[RUN_IN:]
    return np.asarray(series / series.std())


def _faults(rng: np.random.Generator) -> list[tuple[int, int]]:
    """Where faults start and stop in the second half of the rows: one in each of equal parts."""
    part = ROWS // FAULTS
    lengths = rng.integers(*LENGTHS, FAULTS, endpoint=True)
    lengths = np.clip(np.round(lengths * BASE_RATE * ROWS / lengths.sum()).astype(int), *LENGTHS)
    starts = [ROWS + k * part + int(rng.integers(part - length)) for k, length in enumerate(lengths)]
    return [(start, start + int(length)) for start, length in zip(starts, lengths, strict=True)]

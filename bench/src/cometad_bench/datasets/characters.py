"""Plants of five characters: periodic, noisy, with modes, random walks or counters, each with seven kinds of faults.

Every character moves in its own way, and what is a large change in one is ordinary in another. The size of a fault is
therefore a multiple of its variable's own movement. Normal readings and faults each have their own random number
stream: a plant without faults has the same normal readings as one with them.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from cometad.arrays import Floats
from cometad.datasets.synthetic import MIN_SLOT, QUIET_START, Fault, Plant, fault_labels, place_fault
from cometad.errors import ParameterError

DAY = 1440  # readings, at one a minute
HORIZON = 60  # readings over which the movement of a variable is measured
TRIES = 16  # places and variables that a stuck sensor is chosen from


def plant_of(
    character: str, *, rows: int = 10_000, variables: int = 12, faults_per_kind: int = 2, seed: int = 0
) -> Plant:
    """Simulate a plant of one character: a normal training part, and a test part that runs on from it with faults.

    Faults (`CHARACTER_FAULTS`) affect one to three variables, never overlap, and start after the first 5 % of the test
    part. Those of a counter change its increments, so that it still only grows and keeps the difference afterwards.

    >>> from cometad_bench.datasets.characters import CHARACTERS, plant_of
    >>> list(CHARACTERS)
    ['periodic', 'noisy', 'modes', 'walks', 'counters']
    >>> plant = plant_of("counters", rows=1000, seed=3)
    >>> plant.test.shape, plant.names[:3], len(plant.faults)
    ((1000, 12), ('id', 'steady_2', 'metered_3'), 14)
    """
    _check(character, rows, variables, faults_per_kind)
    stream = list(CHARACTERS).index(character)
    course = CHARACTERS[character](2 * rows, variables, np.random.default_rng([seed, stream, 0]))
    movements = course.movements(rows)
    train = course.readings(course.moves)[:rows]
    part = _TestPart(course, rows, course.moves[rows:].copy(), movements, np.random.default_rng([seed, stream, 1]))
    faults = _plant_faults(part, faults_per_kind)
    test = course.readings(np.concatenate([course.moves[:rows], part.test]))[rows:]
    return Plant(train, test, fault_labels(faults, rows), course.names, faults)


def _check(character: str, rows: int, variables: int, faults_per_kind: int) -> None:
    if character not in CHARACTERS:
        raise ParameterError(f"Unknown character {character!r}; choose from {', '.join(CHARACTERS)}.")
    if variables < 4:
        raise ParameterError(f"A plant of one character needs at least 4 variables. Got {variables} instead.")
    if faults_per_kind < 0:
        raise ParameterError(f"'faults_per_kind' must not be negative. Got {faults_per_kind} instead.")
    needed = int(np.ceil(MIN_SLOT * len(CHARACTER_FAULTS) * max(1, faults_per_kind) / (1 - QUIET_START))) + 1
    if rows < needed:
        raise ParameterError(
            f"{rows} rows are too few for {faults_per_kind} faults of each kind. Use at least {needed}."
        )


# --- normal readings --------------------------------------------------------------------------------------------------


class _Moves(NamedTuple):
    moves: Floats  # (time, variable)  readings; of a counter, its increments
    names: tuple[str, ...]
    counts: NDArray[np.bool_]  # (variable,)  which variables are counters
    wanders: bool = False  # whether readings of another time may be at any level

    def readings(self, moves: Floats) -> Floats:
        """The readings (time, variable): counters show the whole part of the sum of their increments."""
        # The small number keeps a sum that should be whole from falling below it by rounding.
        return np.where(self.counts, np.floor(np.cumsum(moves, axis=0) + 1e-6), moves)

    def movements(self, rows: int) -> Floats:
        """The size (variable,) of usual changes within an hour, or of a counter's rate if that is larger."""
        train = self.moves[:rows]
        changes: Floats = (train[HORIZON:] - train[:-HORIZON]).std(axis=0) / np.sqrt(2)
        return np.where(self.counts, np.maximum(changes, 0.5 * train.mean(axis=0)), changes)


def _periodic(rows: int, variables: int, rng: np.random.Generator) -> _Moves:
    """Sums of three sinusoids that all variables share, each with its own weights and lags, and hardly any noise."""
    periods = np.array([rng.uniform(25, 60), rng.uniform(120, 300), DAY])
    turns = np.arange(rows)[:, None] / periods + rng.random(3)  # (time, oscillation)
    weights, lags = rng.uniform(0.3, 1.0, size=(3, variables)), 0.15 * rng.random((3, variables))
    waves = np.sin(2 * np.pi * (turns[:, :, None] - lags))  # (time, oscillation, variable)
    values = np.einsum("tov,ov->tv", waves, weights) + 0.03 * rng.standard_normal((rows, variables))
    return _sensors("wave", values, rng)


def _noisy(rows: int, variables: int, rng: np.random.Generator) -> _Moves:
    """Autoregressive noise, of which a part comes from three factors that all variables share."""
    factors = _autoregressive(rows, rng.uniform(0.7, 0.95, size=3), rng)
    own = _autoregressive(rows, rng.uniform(0.0, 0.8, size=variables), rng)
    weights = rng.normal(size=(3, variables))
    shared = factors @ (weights / np.linalg.norm(weights, axis=0))
    return _sensors("noise", 0.7 * shared + 0.7 * own, rng)


def _modes(rows: int, variables: int, rng: np.random.Generator) -> _Moves:
    """Units that switch between two to four levels at random times; some variables are on or off, others ramp."""
    units = max(1, variables // 4)
    values = np.empty((rows, variables))
    for unit in range(units):
        own = range(unit, variables, units)
        modes = _switching(rows, int(rng.integers(2, 5)), rng)  # (time,)
        for k, i in enumerate(own):
            levels = rng.permutation(np.linspace(-1, 1, modes.max() + 1)) + 0.1 * rng.standard_normal(modes.max() + 1)
            values[:, i] = (modes > 0) if k == 0 else _ramped(levels[modes], int(rng.integers(5, 40)))
            values[:, i] += 0.0 if k == 0 else rng.uniform(0.02, 0.08) * rng.standard_normal(rows)
    return _sensors("mode", values, rng)


def _walks(rows: int, variables: int, rng: np.random.Generator) -> _Moves:
    """Random walks, partly shared, with a daily cycle; every other variable also has observation noise."""
    shared, own = (np.cumsum(0.03 * rng.standard_normal((rows, count)), axis=0) for count in (3, variables))
    weights = rng.normal(size=(3, variables))
    day = np.sin(2 * np.pi * (np.arange(rows)[:, None] / DAY + rng.random() + 0.1 * rng.random(variables)))
    noise = rng.standard_normal((rows, variables)) * np.where(np.arange(variables) % 2, 0.1, 0.0)
    alone = np.where(np.arange(variables) % 3, 0.3, 1.0)  # every third walks mostly on its own
    values = shared @ weights * (1.2 - alone) + own * alone + day * rng.uniform(0.3, 1.2, size=variables) + noise
    return _sensors("walk", values, rng)._replace(wanders=True)


def _counters(rows: int, variables: int, rng: np.random.Generator) -> _Moves:
    """An id that grows by one, counters of constant rate, and counters and sensors that follow a load."""
    day = np.sin(2 * np.pi * (np.arange(rows) / DAY + rng.random()))
    load = np.clip(0.5 + 0.25 * day + 0.15 * _autoregressive(rows, np.array([0.98]), rng)[:, 0], 0.02, None)
    moves, names = np.ones((rows, variables)), ["id"]
    for i in range(1, variables):
        kind = ("steady", "metered", "sensor")[(i - 1) % 3]
        noise, size = rng.standard_normal(rows), rng.uniform(2, 40)
        if kind == "steady":
            moves[:, i] = size
        elif kind == "metered":
            moves[:, i] = size * np.maximum(load + 0.05 * noise, 0.0)
        else:
            moves[:, i] = rng.uniform(-50, 50) + size * (_ramped(load, int(rng.integers(1, 20))) + 0.03 * noise)
        names.append(f"{kind}_{i + 1}")
    return _Moves(moves, tuple(names), np.array([not name.startswith("sensor") for name in names]))


CHARACTERS: dict[str, Callable[[int, int, np.random.Generator], _Moves]] = {
    "periodic": _periodic,
    "noisy": _noisy,
    "modes": _modes,
    "walks": _walks,
    "counters": _counters,
}


def _sensors(name: str, values: Floats, rng: np.random.Generator) -> _Moves:
    variables = values.shape[1]
    scaled = rng.uniform(-50, 50, size=variables) + values * 10 ** rng.uniform(-1, 2, size=variables)
    return _Moves(scaled, tuple(f"{name}_{i + 1}" for i in range(variables)), np.zeros(variables, np.bool_))


def _autoregressive(rows: int, memory: Floats, rng: np.random.Generator) -> Floats:
    """Noise (time, variable) with mean 0 and variance 1, whose neighbors are correlated by `memory` (variable,)."""
    drawn = rng.standard_normal((rows + 500, len(memory))) * np.sqrt(1 - memory**2)
    return np.column_stack([lfilter([1.0], [1.0, -kept], one)[500:] for kept, one in zip(memory, drawn.T, strict=True)])


def _switching(rows: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Modes (time,), each held for 60 to 600 readings and never followed by itself."""
    durations = rng.integers(60, 601, size=rows // 60 + 1)
    steps = rng.integers(1, count, size=len(durations))
    modes: NDArray[np.int64] = np.repeat(np.cumsum(steps) % count, durations)[:rows]
    return modes


def _ramped(signal: Floats, width: int) -> Floats:
    padded = np.concatenate([np.full(width - 1, signal[0]), signal])
    return np.convolve(padded, np.full(width, 1 / width), mode="valid")


# --- faults -----------------------------------------------------------------------------------------------------------


class _TestPart(NamedTuple):
    """The input of faults; they modify `test`."""

    course: _Moves
    rows: int  # of each part
    test: Floats  # (time, variable)  moves
    movements: Floats  # (variable,)
    rng: np.random.Generator

    def sizes(self, low: float, high: float, variables: list[int]) -> Floats:
        """Changes (variable,) of `low` to `high` movements, up or down."""
        signs = self.rng.choice([-1.0, 1.0], size=len(variables))
        signs[self.course.counts[variables]] = 1.0  # most decreases would stop a counter, which is another kind
        return np.asarray(signs * self.rng.uniform(low, high, size=len(variables)) * self.movements[variables])

    def elsewhere(self, at: slice, variables: list[int], *, unlike: float) -> Floats:
        """Training moves of these variables from a time that is the most (`unlike` 0) to least (1) similar."""
        normal, length = self.test[at, variables], at.stop - at.start
        starts = self.rng.integers(0, self.rows - length, size=200)
        found = self.course.moves[starts[:, None] + np.arange(length)][:, :, variables]  # (candidate, time, variable)
        if self.course.wanders:
            found = found - found[:, :1] + normal[:1]
        distance = (np.abs(found - normal) / self.movements[variables]).mean(axis=(1, 2))
        return np.asarray(found[np.argsort(distance)[int(unlike * (len(starts) - 1))]])


class _CharacterFault(NamedTuple):
    lengths: tuple[int, int]  # minimum and maximum time steps
    sizes: tuple[float, float] = (0.0, 0.0)  # of what is added, in movements; those of noise have no sign
    # What is added (time, variable), from its shape, or something that can be broadcast to it.
    course: Callable[[int, int, np.random.Generator], Floats] | None = None


CHARACTER_FAULTS: dict[str, _CharacterFault] = {
    "spike": _CharacterFault((1, 3), (5.0, 8.0), lambda steps, variables, rng: np.ones((1, 1))),
    "level": _CharacterFault((60, 200), (2.0, 3.5), lambda steps, variables, rng: np.ones((1, 1))),
    "stuck": _CharacterFault((100, 200)),  # the last reading is repeated: a counter stops
    "noise": _CharacterFault(
        (60, 150), (1.5, 2.5), lambda steps, variables, rng: rng.standard_normal((steps, variables))
    ),
    "shape": _CharacterFault(  # an oscillation faster than any normal one
        (60, 120),
        (1.2, 2.0),
        lambda steps, variables, rng: np.cos(2 * np.pi * np.arange(steps)[:, None] / rng.uniform(5, 9) + 0.1),
    ),
    # Readings from another time: normal on their own, but out of sync with the other variables.
    "correlation": _CharacterFault((100, 200)),
    # A slow departure, until the sensor is repaired.
    "ramp": _CharacterFault((200, 320), (3.0, 5.0), lambda steps, variables, rng: np.linspace(0, 1, steps)[:, None]),
}


def _faulty(kind: str, part: _TestPart, at: slice, variables: list[int]) -> Floats:
    """The moves (time, variable) that replace normal ones."""
    fault = CHARACTER_FAULTS[kind]
    if fault.course is None:
        return _stuck(part, at, variables) if kind == "stuck" else part.elsewhere(at, variables, unlike=0.8)
    course = fault.course(at.stop - at.start, len(variables), part.rng)
    sizes = part.sizes(*fault.sizes, variables)
    return np.asarray(part.test[at, variables] + course * (np.abs(sizes) if kind == "noise" else sizes))


def _stuck(part: _TestPart, at: slice, variables: list[int]) -> Floats:
    last = np.where(part.course.counts[variables], 0.0, part.test[at.start - 1, variables])
    return np.tile(last, (at.stop - at.start, 1))


def _plant_faults(part: _TestPart, faults_per_kind: int) -> tuple[Fault, ...]:
    """Plant one fault per slot of equal width in the test part, in place, and return the faults."""
    kinds = part.rng.permutation(np.repeat(list(CHARACTER_FAULTS), faults_per_kind))
    borders = np.linspace(np.ceil(QUIET_START * part.rows), part.rows, len(kinds) + 1).astype(int)
    faults = []
    for kind, first, last in zip(kinds, borders[:-1], borders[1:], strict=True):
        at, variables = _choose(str(kind), int(first), int(last), part)
        moves = _faulty(str(kind), part, at, variables)
        part.test[at, variables] = np.where(part.course.counts[variables], np.maximum(moves, 0.0), moves)
        faults.append(Fault(str(kind), at.start, at.stop, tuple(variables)))
    return tuple(faults)


def _choose(kind: str, first: int, last: int, part: _TestPart) -> tuple[slice, list[int]]:
    rng, lengths = part.rng, CHARACTER_FAULTS[kind].lengths
    candidates = np.arange(len(part.course.names))
    if kind == "correlation":  # a counter of constant rate is in sync at any time
        candidates = candidates[np.ptp(part.course.moves[: part.rows], axis=0) > 0]
    drawn = [
        (place_fault(lengths, first, last, rng), sorted(rng.choice(candidates, size=count, replace=False).tolist()))
        for count in np.minimum(rng.integers(1, 4, size=TRIES), len(candidates))
    ]
    if kind != "stuck":
        return drawn[0]
    # A sensor that would not have moved anyway is not faulty.
    return max(drawn, key=lambda one: _least_change(part, *one))


def _least_change(part: _TestPart, at: slice, variables: list[int]) -> float:
    """The mean change that sticking makes to the variable it changes least, in movements."""
    change = np.abs(part.test[at, variables] - _stuck(part, at, variables)).mean(axis=0)
    return float((change / part.movements[variables]).min())

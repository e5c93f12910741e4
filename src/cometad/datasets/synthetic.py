"""A synthetic plant: process units under switching loads, sensors that drift, and planted faults of five kinds.

What is normal is drawn first, then the drift, then the faults, each from its own stream of random numbers: a plant
without faults or without drift has the same normal course as one with them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cometad.arrays import Floats
from cometad.datasets.dataset import Dataset
from cometad.errors import ParameterError

SENSORS = ("flow", "pressure", "temperature", "level", "valve", "vibration")  # of each unit, in this order
PLANT_WIDE = ("plant_voltage", "plant_standby")  # near-constant; binary
LEVELS = (0.15, 0.4, 0.7, 1.0)  # the loads that a unit is run at
QUIET_START = 0.05  # the share of the test part before the first fault
LEAST_SLOT = 24  # time steps that a fault and the quiet around it take at least


@dataclass(frozen=True)
class Fault:
    """One planted fault: what kind, over which half-open interval of the test part, and in which variables.

    >>> from cometad.datasets.synthetic import synthetic_plant
    >>> plant = synthetic_plant(train_rows=500, test_rows=500, faults_per_kind=1)
    >>> sorted(fault.kind for fault in plant.faults)
    ['context', 'correlation', 'shape', 'spike', 'stuck']
    """

    kind: str
    start: int
    stop: int
    variables: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Plant:
    """The readings of a synthetic plant, and the truth about them.

    >>> from cometad.datasets.synthetic import synthetic_plant
    >>> plant = synthetic_plant(train_rows=500, test_rows=500, faults_per_kind=1)
    >>> plant.as_dataset().test.shape, plant.names[:2]
    ((500, 24), ('unit1_flow', 'unit1_pressure'))
    """

    train: Floats  # (time, variable)
    test: Floats  # (time, variable)
    labels: NDArray[np.bool_]  # (time,) of the test part
    names: tuple[str, ...]
    faults: tuple[Fault, ...]  # in the order of time

    def as_dataset(self) -> Dataset:
        """The plant as a dataset whose reasons are its faults."""
        reasons = tuple(((fault.start, fault.stop), fault.variables) for fault in self.faults)
        return Dataset("synthetic", "plant", self.train, self.test, self.labels, self.names, reasons=reasons)


def synthetic_plant(
    *,
    train_rows: int = 12_000,
    test_rows: int = 12_000,
    variables: int = 24,
    faults_per_kind: int = 2,
    drift: float = 1.0,
    seed: int = 0,
) -> Plant:
    """A plant of several units: a normal training part, and a test part with slow drift and planted faults.

    Units run at switching loads with smooth ramps; they share a plant-wide load, a cycle and a daily course, and each
    wanders in a way that all its sensors see. In the test part a third of the sensors wander slowly in gain and offset;
    `drift` scales it, and drift is normal. Faults (`FAULTS`) lie apart, after the first 5 % of the test part.

    >>> from cometad.datasets.synthetic import synthetic_plant
    >>> plant = synthetic_plant(train_rows=600, test_rows=600, faults_per_kind=1, seed=7)
    >>> plant.train.shape, len(plant.faults), bool(plant.labels[:30].any())
    ((600, 24), 5, False)
    """
    _check_sizes(train_rows, test_rows, variables, faults_per_kind, drift)
    names = _names(variables)
    course = _normal_course(train_rows + test_rows, names, np.random.default_rng([seed, 0]))
    drifting = _drift(test_rows, course.values[:train_rows], names, drift, np.random.default_rng([seed, 1]))
    test = drifting(course.values[train_rows:], slice(None))
    bench = _Bench(course, train_rows, test, drifting, names, np.random.default_rng([seed, 2]))
    faults = _plant_faults(bench, faults_per_kind)
    return Plant(course.values[:train_rows].copy(), test, _labels(faults, test_rows), names, faults)


def _check_sizes(train_rows: int, test_rows: int, variables: int, faults_per_kind: int, drift: float) -> None:
    least_variables = len(SENSORS) + len(PLANT_WIDE)
    if variables < least_variables:
        raise ParameterError(
            f"A plant needs at least {least_variables} variables; these are {variables}. Ask for more."
        )
    if faults_per_kind < 0 or not 0 <= drift < np.inf:
        raise ParameterError(
            f"faults_per_kind={faults_per_kind} and drift={drift} must be finite and not negative. Pass 0 for none."
        )
    least_rows = int(np.ceil(LEAST_SLOT * len(FAULTS) * max(1, faults_per_kind) / (1 - QUIET_START))) + 1
    if min(train_rows, test_rows) < max(200, least_rows):
        raise ParameterError(
            f"{train_rows} training and {test_rows} test rows are too few for {faults_per_kind} faults of each kind; "
            f"ask for at least {max(200, least_rows)} of both."
        )


def _names(variables: int) -> tuple[str, ...]:
    count = variables - len(PLANT_WIDE)
    return (*(f"unit{i // len(SENSORS) + 1}_{SENSORS[i % len(SENSORS)]}" for i in range(count)), *PLANT_WIDE)


# --- the normal course ------------------------------------------------------------------------------------------------


class _Course(NamedTuple):
    values: Floats  # (time, variable)
    loads: Floats  # (time, variable) the load of the unit that the variable belongs to


class _Shared(NamedTuple):
    """What drives all units, each of the shape (time,)."""

    load: Floats
    turns: Floats  # how often the plant's cycle has gone round
    day: Floats


class _Unit(NamedTuple):
    """What drives the sensors of one unit, each of the shape (time,)."""

    load: Floats
    wave: Floats  # the plant's cycle as this unit sees it, stronger under load
    late_wave: Floats  # the same, a quarter of a cycle later
    wander: Floats
    day: Floats


# Each sensor answers to its unit in its own way; all of them move within 16 time steps.
_RESPONSES: dict[str, Callable[[_Unit], Floats]] = {
    "flow": lambda unit: unit.load + 0.45 * unit.wave + 0.05 * unit.wander,
    "pressure": lambda unit: 0.9 * unit.load**2 + 0.40 * unit.wave + 0.05 * unit.wander,
    "temperature": lambda unit: _lagged(unit.load, 40) + 0.30 * unit.late_wave + 0.05 * unit.wander + 0.1 * unit.day,
    "level": lambda unit: 1.0 - 0.8 * unit.load + 0.45 * unit.late_wave - 0.05 * unit.wander,
    "valve": lambda unit: np.tanh(1.5 * unit.load + 0.1 * unit.wander) + 0.30 * unit.wave,
    "vibration": lambda unit: 0.4 * unit.load + 0.20 * unit.wave,
}
_NOISE = {"flow": 0.03, "pressure": 0.03, "temperature": 0.02, "level": 0.025, "valve": 0.03, "vibration": 0.04}
_SCALE = {  # offset and span in engineering units
    "flow": (5.0, 40.0),
    "pressure": (1.0, 6.0),
    "temperature": (20.0, 60.0),
    "level": (0.5, 4.0),
    "valve": (10.0, 80.0),
    "vibration": (0.5, 3.0),
}


def _normal_course(rows: int, names: tuple[str, ...], rng: np.random.Generator) -> _Course:
    shared = _shared(rows, rng)
    unit_count = -(-(len(names) - len(PLANT_WIDE)) // len(SENSORS))
    units = {f"unit{i + 1}": _unit(shared, rng) for i in range(unit_count)}
    values, loads = np.empty((rows, len(names))), np.empty((rows, len(names)))
    for i, name in enumerate(names[: -len(PLANT_WIDE)]):
        unit, sensor = name.split("_")
        values[:, i], loads[:, i] = _sensor(sensor, units[unit], rng), units[unit].load
    values[:, -2] = 230.0 + 0.05 * rng.standard_normal(rows)
    values[:, -1] = shared.load < 0.3
    loads[:, -2:] = shared.load[:, None]
    return _Course(values, loads)


def _shared(rows: int, rng: np.random.Generator) -> _Shared:
    # The period of about 30 time steps varies a little, so that no two stretches are the same.
    turns = np.cumsum((1 + 0.1 * _smooth_noise(rows, 200, rng)) / 30)
    day = np.sin(2 * np.pi * (np.arange(rows) / 1440 + rng.random()))
    return _Shared(_regimes(rows, rng), turns, day)


def _unit(shared: _Shared, rng: np.random.Generator) -> _Unit:
    rows = len(shared.load)
    load = 0.9 * shared.load + 0.1 * _regimes(rows, rng)
    turns = shared.turns + rng.random()
    wave, late_wave = ((0.6 + 0.6 * load) * np.sin(2 * np.pi * (turns - late)) for late in (0.0, 0.25))
    return _Unit(load, wave, late_wave, _smooth_noise(rows, 24, rng), shared.day)


def _sensor(sensor: str, unit: _Unit, rng: np.random.Generator) -> Floats:
    offset, span = _SCALE[sensor]
    clean = _RESPONSES[sensor](unit)
    return offset + span * (clean * rng.uniform(0.8, 1.2) + _NOISE[sensor] * rng.standard_normal(len(clean)))


def _regimes(rows: int, rng: np.random.Generator) -> Floats:
    """Loads held for 80 to 300 time steps, with smooth ramps of 40 between them."""
    ramp = np.hanning(42)[1:-1]
    durations = rng.integers(80, 300, size=(rows + len(ramp)) // 80 + 1)
    held = np.repeat(rng.choice(LEVELS, size=len(durations)), durations)[: rows + len(ramp) - 1]
    return np.convolve(held, ramp / ramp.sum(), mode="valid")


def _smooth_noise(rows: int, width: int, rng: np.random.Generator) -> Floats:
    """Noise of mean 0 and variance 1 that forgets itself within `width` time steps."""
    kernel = np.hanning(width + 2)[1:-1]
    return np.convolve(rng.standard_normal(rows + width - 1), kernel / np.linalg.norm(kernel), mode="valid")


def _lagged(signal: Floats, steps: int) -> Floats:
    kernel = np.exp(-np.arange(3 * steps) / steps)
    padded = np.concatenate([np.full(len(kernel) - 1, signal[0]), signal])
    return np.convolve(padded, kernel / kernel.sum(), mode="valid")


# --- drift ------------------------------------------------------------------------------------------------------------

_Drifting = Callable[[Floats, slice], Floats]  # normal readings, the rows of the test part they stand in -> as drifted


def _drift(rows: int, train: Floats, names: tuple[str, ...], amount: float, rng: np.random.Generator) -> _Drifting:
    """Gains and offsets that leave 1 and 0 at the start of the test part and wander slowly."""
    count = len(names) - len(PLANT_WIDE)
    chosen = np.zeros(len(names))
    chosen[rng.choice(count, size=max(1, count // 3), replace=False)] = amount
    mean, spread = train.mean(axis=0), train.std(axis=0)
    gain = 1 + 0.05 * chosen * _slow_paths(rows, len(names), rng)
    offset = 0.4 * chosen * spread * _slow_paths(rows, len(names), rng)
    return lambda values, at: mean + (values - mean) * gain[at] + offset[at]


def _slow_paths(rows: int, count: int, rng: np.random.Generator) -> Floats:
    """Paths from 0 to about 1 or -1 in the shape (time, path), with one slow swing on the way."""
    progress = np.linspace(0, 1, rows)[:, None]
    trend = rng.choice([-1.0, 1.0], size=count) * rng.uniform(0.6, 1.0, size=count)
    swing = 0.3 * rng.uniform(-1, 1, size=count)
    return progress * trend + swing * np.sin(2 * np.pi * progress * rng.uniform(0.5, 1.5, size=count))


# --- faults -----------------------------------------------------------------------------------------------------------


class _Bench(NamedTuple):
    """All that a fault may look at; `test` is what it changes."""

    course: _Course
    train_rows: int
    test: Floats
    drifting: _Drifting
    names: tuple[str, ...]
    rng: np.random.Generator

    def course_elsewhere(self, at: slice, variables: list[int], *, unlike: float) -> Floats:
        """What these variables did elsewhere in the training part; of all places that one, from most alike (0) to 1."""
        length = at.stop - at.start
        load = self.course.loads[self.train_rows + at.start : self.train_rows + at.stop, variables[0]]
        starts = self.rng.integers(0, self.train_rows - length, size=200)
        loads = self.course.loads[starts[:, None] + np.arange(length), variables[0]]  # (candidate, time)
        distance = np.abs(loads - load).mean(axis=1)
        start = starts[np.argsort(distance)[int(unlike * (len(starts) - 1))]]
        readings = np.zeros((length, len(self.names)))
        readings[:, variables] = self.course.values[start : start + length, variables]
        return self.drifting(readings, at)[:, variables]


def _spike(bench: _Bench, at: slice, variables: list[int]) -> Floats:
    """Up to three readings far outside the usual."""
    size = bench.rng.uniform(4.5, 7.0, size=len(variables)) * bench.rng.choice([-1.0, 1.0], size=len(variables))
    return np.asarray(bench.test[at, variables] + size * _spread(bench, variables))


def _context(bench: _Bench, at: slice, variables: list[int]) -> Floats:
    """Readings that are usual under another load than the present one."""
    return bench.course_elsewhere(at, variables, unlike=1.0)


def _shape(bench: _Bench, at: slice, variables: list[int]) -> Floats:
    """A fast oscillation inside the usual range."""
    train = bench.course.values[: bench.train_rows, variables]
    steps = np.arange(at.stop - at.start)[:, None]
    swing = 1.3 * _spread(bench, variables) * np.cos(2 * np.pi * steps / bench.rng.uniform(4, 6) + 0.1)
    return np.asarray(np.clip(bench.test[at, variables] + swing, train.min(axis=0), train.max(axis=0)))


def _correlation(bench: _Bench, at: slice, variables: list[int]) -> Floats:
    """The course of some other time: usual alone, no longer in step with the unit."""
    return bench.course_elsewhere(at, variables, unlike=0.8)


def _stuck(bench: _Bench, at: slice, variables: list[int]) -> Floats:
    """The last reading, again and again."""
    return np.tile(bench.test[at.start - 1, variables], (at.stop - at.start, 1))


def _spread(bench: _Bench, variables: list[int]) -> Floats:
    return np.asarray(bench.course.values[: bench.train_rows, variables].std(axis=0))


class _Kind(NamedTuple):
    readings: Callable[[_Bench, slice, list[int]], Floats]  # of the shape (time, variable), in place of the normal ones
    lengths: tuple[int, int]  # least and most time steps
    sensors: tuple[str, ...]  # that may have it
    most_variables: int  # of one unit at once


FAULTS: dict[str, _Kind] = {
    "spike": _Kind(_spike, (1, 3), ("flow", "pressure", "temperature", "level", "valve"), 2),
    "context": _Kind(_context, (40, 80), ("flow", "pressure", "level", "valve"), 1),
    "shape": _Kind(_shape, (60, 120), ("flow", "pressure", "temperature", "level"), 2),
    "correlation": _Kind(_correlation, (100, 200), ("flow", "pressure", "level"), 2),
    "stuck": _Kind(_stuck, (100, 200), ("flow", "level"), 2),
}


def _plant_faults(bench: _Bench, faults_per_kind: int) -> tuple[Fault, ...]:
    """Change the test part, one fault per slot of equal width, and say what was changed."""
    kinds = bench.rng.permutation(np.repeat(list(FAULTS), faults_per_kind))
    rows = len(bench.test)
    borders = np.linspace(np.ceil(QUIET_START * rows), rows, len(kinds) + 1).astype(int)
    faults = []
    for kind, first, last in zip(kinds, borders[:-1], borders[1:], strict=True):
        at = _place(FAULTS[kind].lengths, int(first), int(last), bench.rng)
        variables = _choose_variables(FAULTS[kind], bench)
        bench.test[at, variables] = FAULTS[kind].readings(bench, at, variables)
        faults.append(Fault(str(kind), at.start, at.stop, tuple(variables)))
    return tuple(faults)


def _place(lengths: tuple[int, int], first: int, last: int, rng: np.random.Generator) -> slice:
    """An interval inside a slot that leaves a quarter of it free at either end."""
    quarter = (last - first) // 4
    length = min(int(rng.integers(lengths[0], lengths[1] + 1)), 2 * quarter)
    start = int(rng.integers(first + quarter, last - quarter - length + 1))
    return slice(start, start + length)


def _choose_variables(kind: _Kind, bench: _Bench) -> list[int]:
    able = [i for i, name in enumerate(bench.names) if name.split("_")[1] in kind.sensors]
    unit = bench.names[bench.rng.choice(able)].split("_")[0]
    able = [i for i in able if bench.names[i].split("_")[0] == unit]
    count = min(len(able), int(bench.rng.integers(1, kind.most_variables + 1)))
    return sorted(int(i) for i in bench.rng.choice(able, size=count, replace=False))


def _labels(faults: tuple[Fault, ...], rows: int) -> NDArray[np.bool_]:
    labels = np.zeros(rows, dtype=np.bool_)
    for fault in faults:
        labels[fault.start : fault.stop] = True
    return labels

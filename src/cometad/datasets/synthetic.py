"""A synthetic plant: process units under switching loads, drifting sensors, and five kinds of planted faults.

Normal readings, drift and faults each have their own random number stream: a plant without faults or without drift has
the same normal readings as one with them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cometad.arrays import Floats
from cometad.datasets.dataset import Dataset
from cometad.errors import ParameterError

if TYPE_CHECKING:
    import polars as pl  # imported where a frame is made, because arrays do not need it

PLANT_WIDE = ("plant_voltage", "plant_standby")  # near-constant; binary
LEVELS = (0.15, 0.4, 0.7, 1.0)  # the loads a unit may run at
QUIET_START = 0.05  # share of the test part before the first fault
MIN_SLOT = 24  # time steps for a fault and the normal readings around it


@dataclass(frozen=True)
class Fault:
    """A planted fault: its kind, its half-open interval of the test part, and its variables.

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
    """The readings of a synthetic plant, with labels and faults.

    >>> from cometad.datasets.synthetic import synthetic_plant
    >>> plant = synthetic_plant(train_rows=500, test_rows=500, faults_per_kind=1)
    >>> plant.as_dataset().test.shape, plant.names[:2]
    ((500, 24), ('unit1_flow', 'unit1_pressure'))
    """

    train: Floats  # (time, variable)
    test: Floats  # (time, variable)
    labels: NDArray[np.bool_]  # (time,) of the test part
    names: tuple[str, ...]
    faults: tuple[Fault, ...]  # in time order

    def as_dataset(self) -> Dataset:
        """The plant as a dataset, with its faults as causes."""
        causes = tuple(((fault.start, fault.stop), fault.variables) for fault in self.faults)
        return Dataset("synthetic", "plant", self.train, self.test, self.labels, self.names, causes=causes)

    def frames(self) -> "tuple[pl.DataFrame, pl.DataFrame]":
        """The training and test parts as polars frames with named columns.

        >>> from cometad.datasets.synthetic import synthetic_plant
        >>> normal, today = synthetic_plant(train_rows=500, test_rows=500, faults_per_kind=1).frames()
        >>> today.shape, today.columns[:2]
        ((500, 24), ['unit1_flow', 'unit1_pressure'])
        """
        import polars as pl

        return pl.DataFrame(self.train, self.names), pl.DataFrame(self.test, self.names)


def synthetic_plant(
    *,
    train_rows: int = 12_000,
    test_rows: int = 12_000,
    variables: int = 24,
    faults_per_kind: int = 2,
    drift: float = 1.0,
    seed: int = 0,
) -> Plant:
    """Simulate a plant of several units: a normal training part, and a test part with slow drift and planted faults.

    Units switch between loads with smooth ramps. They share a plant-wide load, a process cycle and a daily cycle, and
    each has smooth noise of its own that affects all its sensors except vibration. In the test part, the gain and
    offset of a third of the sensors drift slowly; `drift` scales this, and drift counts as normal. Faults
    (`PLANT_FAULTS`) never overlap and start after the first 5 % of the test part.

    >>> from cometad.datasets.synthetic import synthetic_plant
    >>> plant = synthetic_plant(train_rows=600, test_rows=600, faults_per_kind=1, seed=7)
    >>> plant.train.shape, len(plant.faults), bool(plant.labels[:30].any())
    ((600, 24), 5, False)
    """
    _check_sizes(train_rows, test_rows, variables, faults_per_kind, drift)
    names = _names(variables)
    normal = _normal_course(train_rows + test_rows, names, np.random.default_rng([seed, 0]))
    drifting = _drift(test_rows, normal.values[:train_rows], names, drift, np.random.default_rng([seed, 1]))
    test = drifting(normal.values[train_rows:], slice(None))
    workspace = _Workspace(normal, train_rows, test, drifting, names, np.random.default_rng([seed, 2]))
    faults = _plant_faults(workspace, faults_per_kind)
    return Plant(normal.values[:train_rows].copy(), test, fault_labels(faults, test_rows), names, faults)


def _check_sizes(train_rows: int, test_rows: int, variables: int, faults_per_kind: int, drift: float) -> None:
    min_variables = len(SENSORS) + len(PLANT_WIDE)
    if variables < min_variables:
        raise ParameterError(f"A plant needs at least {min_variables} variables. Got {variables} instead.")
    if faults_per_kind < 0 or not 0 <= drift < np.inf:
        raise ParameterError(
            f"'faults_per_kind' and 'drift' must be finite and not negative. Got {faults_per_kind} and {drift} instead."
        )
    room = np.ceil(MIN_SLOT * len(PLANT_FAULTS) * max(1, faults_per_kind) / (1 - QUIET_START))
    needed = max(200, int(room) + 1)
    if min(train_rows, test_rows) < needed:
        raise ParameterError(
            f"{train_rows} training and {test_rows} test rows are too few for {faults_per_kind} faults of each kind. "
            f"Use at least {needed} of each."
        )


def _names(variables: int) -> tuple[str, ...]:
    count = variables - len(PLANT_WIDE)
    sensors = tuple(SENSORS)
    return (*(f"unit{i // len(sensors) + 1}_{sensors[i % len(sensors)]}" for i in range(count)), *PLANT_WIDE)


# --- normal readings --------------------------------------------------------------------------------------------------


class _Course(NamedTuple):
    values: Floats  # (time, variable)
    loads: Floats  # (time, variable) load of the variable's unit


class _Unit(NamedTuple):
    """The signals that drive the sensors of one unit, each (time,)."""

    load: Floats
    wave: Floats  # the process cycle in this unit, stronger under load
    late_wave: Floats  # the same, a quarter of a cycle later
    wander: Floats
    day: Floats


class _Sensor(NamedTuple):
    offset: float  # in engineering units, as the span
    span: float
    noise: float
    response: Callable[[_Unit], Floats]


# The sensors of each unit, in this order. All follow the process cycle, so each of them changes within 16 time steps.
SENSORS = {
    "flow": _Sensor(5.0, 40.0, 0.03, lambda unit: unit.load + 0.45 * unit.wave + 0.05 * unit.wander),
    "pressure": _Sensor(1.0, 6.0, 0.03, lambda unit: 0.9 * unit.load**2 + 0.40 * unit.wave + 0.05 * unit.wander),
    "temperature": _Sensor(
        20.0,
        60.0,
        0.02,
        lambda unit: _lagged(unit.load, 40) + 0.30 * unit.late_wave + 0.05 * unit.wander + 0.1 * unit.day,
    ),
    "level": _Sensor(0.5, 4.0, 0.025, lambda unit: 1.0 - 0.8 * unit.load + 0.45 * unit.late_wave - 0.05 * unit.wander),
    "valve": _Sensor(10.0, 80.0, 0.03, lambda unit: np.tanh(1.5 * unit.load + 0.1 * unit.wander) + 0.30 * unit.wave),
    "vibration": _Sensor(0.5, 3.0, 0.04, lambda unit: 0.4 * unit.load + 0.20 * unit.wave),
}


def _normal_course(rows: int, names: tuple[str, ...], rng: np.random.Generator) -> _Course:
    # The period of about 30 time steps varies slightly, so that no two stretches are equal.
    turns = np.cumsum((1 + 0.1 * _smooth_noise(rows, 200, rng)) / 30)  # completed process cycles
    day = np.sin(2 * np.pi * (np.arange(rows) / 1440 + rng.random()))
    load = _regimes(rows, rng)
    units = [_unit(load, turns, day, rng) for _ in range(-(-(len(names) - len(PLANT_WIDE)) // len(SENSORS)))]
    values, loads = np.empty((rows, len(names))), np.empty((rows, len(names)))
    for i, name in enumerate(names[: -len(PLANT_WIDE)]):
        unit, sensor = units[i // len(SENSORS)], SENSORS[name.split("_")[1]]
        clean = sensor.response(unit) * rng.uniform(0.8, 1.2) + sensor.noise * rng.standard_normal(rows)
        values[:, i], loads[:, i] = sensor.offset + sensor.span * clean, unit.load
    values[:, -2] = 230.0 + 0.05 * rng.standard_normal(rows)
    values[:, -1] = load < 0.3
    loads[:, -2:] = load[:, None]
    return _Course(values, loads)


def _unit(plant_load: Floats, turns: Floats, day: Floats, rng: np.random.Generator) -> _Unit:
    rows = len(plant_load)
    load = 0.9 * plant_load + 0.1 * _regimes(rows, rng)
    own_turns = turns + rng.random()  # a phase; pinned plants depend on the order of draws
    wave, late_wave = ((0.6 + 0.6 * load) * np.sin(2 * np.pi * (own_turns - late)) for late in (0.0, 0.25))
    return _Unit(load, wave, late_wave, _smooth_noise(rows, 24, rng), day)


def _regimes(rows: int, rng: np.random.Generator) -> Floats:
    """Loads held for 80 to 300 time steps, with smooth ramps of 40 between them."""
    ramp = np.hanning(42)[1:-1]
    durations = rng.integers(80, 300, size=(rows + len(ramp)) // 80 + 1)
    held = np.repeat(rng.choice(LEVELS, size=len(durations)), durations)[: rows + len(ramp) - 1]
    return np.convolve(held, ramp / ramp.sum(), mode="valid")


def _smooth_noise(rows: int, width: int, rng: np.random.Generator) -> Floats:
    """Noise with mean 0 and variance 1 whose autocorrelation vanishes after `width` time steps."""
    kernel = np.hanning(width + 2)[1:-1]
    return np.convolve(rng.standard_normal(rows + width - 1), kernel / np.linalg.norm(kernel), mode="valid")


def _lagged(signal: Floats, steps: int) -> Floats:
    kernel = np.exp(-np.arange(3 * steps) / steps)
    padded = np.concatenate([np.full(len(kernel) - 1, signal[0]), signal])
    return np.convolve(padded, kernel / kernel.sum(), mode="valid")


# --- drift ------------------------------------------------------------------------------------------------------------

_Drifting = Callable[[Floats, slice], Floats]  # normal readings and their rows in the test part -> drifted readings


def _drift(rows: int, train: Floats, names: tuple[str, ...], amount: float, rng: np.random.Generator) -> _Drifting:
    """Gains and offsets that start at 1 and 0 in the test part and change slowly."""
    count = len(names) - len(PLANT_WIDE)
    chosen = np.zeros(len(names))
    chosen[rng.choice(count, size=max(1, count // 3), replace=False)] = amount
    mean, spread = train.mean(axis=0), train.std(axis=0)
    gain = 1 + 0.05 * chosen * _slow_paths(rows, len(names), rng)
    offset = 0.4 * chosen * spread * _slow_paths(rows, len(names), rng)
    return lambda values, at: mean + (values - mean) * gain[at] + offset[at]


def _slow_paths(rows: int, count: int, rng: np.random.Generator) -> Floats:
    """Paths (time, path) from 0 to about 1 or -1, with one slow swing along the way."""
    progress = np.linspace(0, 1, rows)[:, None]
    trend = rng.choice([-1.0, 1.0], size=count) * rng.uniform(0.6, 1.0, size=count)
    swing = 0.3 * rng.uniform(-1, 1, size=count)
    return progress * trend + swing * np.sin(2 * np.pi * progress * rng.uniform(0.5, 1.5, size=count))


# --- faults -----------------------------------------------------------------------------------------------------------


class _Workspace(NamedTuple):
    """The input of faults; they modify `test`."""

    course: _Course
    train_rows: int
    test: Floats
    drifting: _Drifting
    names: tuple[str, ...]
    rng: np.random.Generator

    def elsewhere(self, at: slice, variables: list[int], *, unlike: float) -> Floats:
        """Training readings of these variables from a time whose load is the most (`unlike` 0) to least (1) similar."""
        length = at.stop - at.start
        load = self.course.loads[self.train_rows + at.start : self.train_rows + at.stop, variables[0]]
        starts = self.rng.integers(0, self.train_rows - length, size=200)
        loads = self.course.loads[starts[:, None] + np.arange(length), variables[0]]  # (candidate, time)
        distance = np.abs(loads - load).mean(axis=1)
        start = starts[np.argsort(distance)[int(unlike * (len(starts) - 1))]]
        readings = np.zeros((length, len(self.names)))
        readings[:, variables] = self.course.values[start : start + length, variables]
        return self.drifting(readings, at)[:, variables]


def _spike(workspace: _Workspace, at: slice, variables: list[int]) -> Floats:
    """Up to three readings far outside the normal range."""
    size = workspace.rng.uniform(4.5, 7.0, size=len(variables)) * workspace.rng.choice([-1.0, 1.0], size=len(variables))
    return np.asarray(workspace.test[at, variables] + size * _spread(workspace, variables))


def _shape(workspace: _Workspace, at: slice, variables: list[int]) -> Floats:
    """A fast oscillation within the normal range."""
    train = workspace.course.values[: workspace.train_rows, variables]
    steps = np.arange(at.stop - at.start)[:, None]
    swing = 1.3 * _spread(workspace, variables) * np.cos(2 * np.pi * steps / workspace.rng.uniform(4, 6) + 0.1)
    return np.asarray(np.clip(workspace.test[at, variables] + swing, train.min(axis=0), train.max(axis=0)))


def _stuck(workspace: _Workspace, at: slice, variables: list[int]) -> Floats:
    """The last reading is repeated."""
    return np.tile(workspace.test[at.start - 1, variables], (at.stop - at.start, 1))


def _spread(workspace: _Workspace, variables: list[int]) -> Floats:
    return np.asarray(workspace.course.values[: workspace.train_rows, variables].std(axis=0))


class _Kind(NamedTuple):
    readings: Callable[[_Workspace, slice, list[int]], Floats]  # replaces normal readings (time, variable)
    lengths: tuple[int, int]  # minimum and maximum time steps
    sensors: tuple[str, ...]  # sensors that may be affected
    most_variables: int  # in one unit


# Of readings from another time, those of "context" were normal under a different load, and those of "correlation" are
# normal on their own, but out of sync with the unit.
PLANT_FAULTS: dict[str, _Kind] = {
    "spike": _Kind(_spike, (1, 3), ("flow", "pressure", "temperature", "level", "valve"), 2),
    "context": _Kind(partial(_Workspace.elsewhere, unlike=1.0), (40, 80), ("flow", "pressure", "level", "valve"), 1),
    "shape": _Kind(_shape, (60, 120), ("flow", "pressure", "temperature", "level"), 2),
    "correlation": _Kind(partial(_Workspace.elsewhere, unlike=0.8), (100, 200), ("flow", "pressure", "level"), 2),
    "stuck": _Kind(_stuck, (100, 200), ("flow", "level"), 2),
}


def _plant_faults(workspace: _Workspace, faults_per_kind: int) -> tuple[Fault, ...]:
    """Plant one fault per slot of equal width in the test part, in place, and return the faults."""
    kinds = workspace.rng.permutation(np.repeat(list(PLANT_FAULTS), faults_per_kind))
    rows = len(workspace.test)
    borders = np.linspace(np.ceil(QUIET_START * rows), rows, len(kinds) + 1).astype(int)
    faults = []
    for kind, first, last in zip(kinds, borders[:-1], borders[1:], strict=True):
        at = place_fault(PLANT_FAULTS[kind].lengths, int(first), int(last), workspace.rng)
        variables = _choose_variables(PLANT_FAULTS[kind], workspace)
        workspace.test[at, variables] = PLANT_FAULTS[kind].readings(workspace, at, variables)
        faults.append(Fault(str(kind), at.start, at.stop, tuple(variables)))
    return tuple(faults)


def place_fault(lengths: tuple[int, int], first: int, last: int, rng: np.random.Generator) -> slice:
    """An interval of a fault within a slot (first, last); it leaves a quarter of the slot free at either end."""
    quarter = (last - first) // 4
    length = min(int(rng.integers(lengths[0], lengths[1] + 1)), 2 * quarter)
    start = int(rng.integers(first + quarter, last - quarter - length + 1))
    return slice(start, start + length)


def _choose_variables(kind: _Kind, workspace: _Workspace) -> list[int]:
    candidates = [i for i, name in enumerate(workspace.names) if name.split("_")[1] in kind.sensors]
    unit = workspace.names[workspace.rng.choice(candidates)].split("_")[0]
    candidates = [i for i in candidates if workspace.names[i].split("_")[0] == unit]
    count = min(len(candidates), int(workspace.rng.integers(1, kind.most_variables + 1)))
    return sorted(int(i) for i in workspace.rng.choice(candidates, size=count, replace=False))


def fault_labels(faults: Iterable[Fault], rows: int) -> NDArray[np.bool_]:
    """Labels (time,) that are true during the faults."""
    labels = np.zeros(rows, dtype=np.bool_)
    for fault in faults:
        labels[fault.start : fault.stop] = True
    return labels

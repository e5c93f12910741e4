"""Controlled drift and faults in any normal series, to compare a detector before, during and after a shift.

A controlled series has three phases of equal length. `before` is normal, `during` continues it while the drift sets in,
and `after` repeats the normal readings of `before` under full drift. A fault planted in `before` is planted again in
`after` on the same underlying readings. Such a pair is a probe: its two scores differ only by the drift and by what the
detector has learned in between. This has two costs: there is a seam where `after` starts, and a detector that learns
from every reading has already seen these readings, and the probe, once.

Sizes are in units of each variable's standard deviation in a reference, the part the detector is fitted on. Variables
that are constant there never change. The choice of variables, the drift, the probes and the contamination each have
their own random number stream: changing the drift does not change the faults, and vice versa.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from cometad.arrays import Floats
from cometad.datasets.synthetic import Fault, fault_labels
from cometad.errors import InputError, ParameterError, unknown

PHASES = ("before", "during", "after")
DRIFTING = 0.3  # share of the varying variables that drift, similar to the synthetic plant
FAULTY = 0.1  # share of the varying variables that one fault affects
MIN_PHASE = 400  # readings, enough for the probes and normal readings around them
MAX_CONTAMINATION = 0.4  # beyond this, faults would touch each other

Interval = tuple[int, int]  # half-open, in time steps


@dataclasses.dataclass(frozen=True, eq=False)
class Controlled:
    """A series with a known drift and known faults.

    >>> import numpy as np
    >>> from cometad_bench.datasets.drift import controlled_series
    >>> normal = np.random.default_rng(0).normal(size=(1600, 4))
    >>> series = controlled_series(normal[:800], normal[800:], drift="offset")
    >>> series.phases
    {'before': (0, 400), 'during': (400, 800), 'after': (800, 1200)}
    >>> [fault.start - probe.start for probe, fault in series.probes]
    [800, 800, 800, 800]
    """

    values: Floats  # (time, variable)
    labels: NDArray[np.bool_]  # (time,)
    phases: dict[str, Interval]
    drifting: tuple[int, ...]  # the variables that drift
    faults: tuple[Fault, ...]  # all faults including probes, in time order
    probes: tuple[tuple[Fault, Fault], ...]  # the same fault in `before` and in `after`


def split_normal(series: Floats, most: int = 8_000) -> tuple[Floats, Floats]:
    """Split a normal series into its first half, to fit on, and at most `most` readings of the rest, to build from."""
    half = len(series) // 2
    return series[:half], series[half : half + most]


def controlled_series(
    reference: Floats,
    base: Floats,
    *,
    drift: str = "none",
    strength: float = 1.0,
    contamination: float = 0.0,
    share: float = DRIFTING,
    align: int = 1,
    seed: int = 0,
) -> Controlled:
    """A normal series (time, variable) with one of `DRIFTS`, probes, and a share of faulty readings `during` it.

    `reference` sets the mean and standard deviation of each variable and is not part of the series. The first half of
    `base` becomes `before` and `after`, the second half `during`. A `share` of the varying variables drifts, at least
    one. The length of a phase is a multiple of `align`: pass the window of a detector to align its windows in `before`
    and `after`, so that without drift and adaptation equal readings get equal scores.

    >>> import numpy as np
    >>> from cometad_bench.datasets.drift import controlled_series
    >>> normal = np.random.default_rng(0).normal(size=(1600, 4))
    >>> series = controlled_series(normal[:800], normal[800:], drift="gain", contamination=0.1)
    >>> series.values.shape, int(series.labels[400:800].sum())
    ((1200, 4), 40)
    """
    _check(drift, strength, contamination, share)
    units = _units(reference, base)
    rows = _phase_rows(base, align)
    rngs = [np.random.default_rng([seed, stream]) for stream in range(4)]
    values = np.concatenate([base[: 2 * rows], base[:rows]]).astype(np.float64)
    drifting = () if drift == "none" else _sample(units.varying, share, rngs[0])
    values[rows:] = _drifted(values[rows:], DRIFTS[drift], strength, drifting, units, rngs[1])
    probes = _laid_out(_one_of_each(rngs[2]), (0, rows), units.varying, rngs[2])
    others = _laid_out(_filling(round(contamination * rows), rngs[3]), (rows, 2 * rows), units.varying, rngs[3])
    repeats = [dataclasses.replace(fault, start=fault.start + 2 * rows, stop=fault.stop + 2 * rows) for fault in probes]
    for stream, faults in ((4, probes), (5, others), (4, repeats)):  # the same stream gives the same shapes
        values = planted(values, faults, units.spread, [seed, stream])
    return Controlled(
        values=values,
        labels=fault_labels([*probes, *others, *repeats], len(values)),
        phases={name: (k * rows, (k + 1) * rows) for k, name in enumerate(PHASES)},
        drifting=drifting,
        faults=(*probes, *others, *repeats),
        probes=tuple(zip(probes, repeats, strict=True)),
    )


class _Units(NamedTuple):
    mean: Floats  # (variable,)
    spread: Floats  # (variable,) standard deviation
    varying: NDArray[np.int64]  # indices of the variables that are not constant


def _check(drift: str, strength: float, contamination: float, share: float) -> None:
    if drift not in DRIFTS:
        raise unknown("drift", drift, DRIFTS)
    if not 0 <= strength < np.inf:
        raise ParameterError(f"The strength of a drift must be finite and not negative. Got {strength} instead.")
    if not 0 <= contamination <= MAX_CONTAMINATION:
        raise ParameterError(
            f"The 'contamination' parameter must be a share from 0 to {MAX_CONTAMINATION}. Got {contamination} instead."
        )
    if not 0 < share <= 1:
        raise ParameterError(f"The share of variables that drift must be above 0 and at most 1. Got {share} instead.")


def _phase_rows(base: Floats, align: int) -> int:
    if align < 1:
        raise ParameterError(f"The 'align' parameter must be at least 1. Got {align} instead.")
    rows = len(base) // 2 // align * align
    if rows < MIN_PHASE:
        raise InputError(
            f"A controlled series needs phases of at least {MIN_PHASE} readings, but {len(base)} normal readings give "
            f"phases of {rows}. Pass a longer series."
        )
    return rows


def _units(reference: Floats, base: Floats) -> _Units:
    if reference.ndim != 2 or reference.shape[1:] != base.shape[1:] or not len(reference):
        raise InputError(
            f"The reference has shape {reference.shape} and the base {base.shape}. Pass two parts of the same series."
        )
    varying = np.flatnonzero(np.ptp(reference, axis=0) > 0)
    if not len(varying):
        raise InputError("Every variable of the reference is constant, so drift cannot be scaled. Pass another series.")
    return _Units(reference.mean(axis=0), reference.std(axis=0), varying)


def _sample(variables: NDArray[np.int64], share: float, rng: Generator) -> tuple[int, ...]:
    """A random share of the variables, at least one, in ascending order."""
    chosen = rng.choice(variables, size=max(1, round(share * len(variables))), replace=False)
    return tuple(int(variable) for variable in np.sort(chosen))


# --- drift ------------------------------------------------------------------------------------------------------------


class Drift(NamedTuple):
    """A kind of drift: how readings change, ramping in over a phase or all at once."""

    # Standardized readings (time, variable) and current strength (time, 1) -> the change, in standard deviations
    change: Callable[[Floats, Floats, Generator], Floats]
    at_once: bool = False


def _offset(readings: Floats, strength: Floats, rng: Generator) -> Floats:
    """Levels shift by `strength` standard deviations, some up and some down."""
    return np.asarray(strength * rng.choice([-1.0, 1.0], size=readings.shape[1]))


def _gain(readings: Floats, strength: Floats, rng: Generator) -> Floats:
    """Deviations from the mean are multiplied by 1 + `strength` for some variables and divided by it for others."""
    grows = rng.random(readings.shape[1]) < 0.5
    return np.asarray(readings * (np.where(grows, 1 + strength, 1 / (1 + strength)) - 1))


def _variance(readings: Floats, strength: Floats, rng: Generator) -> Floats:
    """White noise with a standard deviation of `strength` is added."""
    return strength * rng.standard_normal(readings.shape)


def _regime(readings: Floats, strength: Floats, rng: Generator) -> Floats:
    """The variables partly follow a common driver, and their own course correspondingly less.

    The driver is the mean of these variables, shifted by half the length of the series. Each variable roughly keeps its
    standard deviation; the correlations change, both within the group and with all other variables.
    """
    course = np.roll(readings.mean(axis=1), len(readings) // 2)
    driver = (course - course.mean()) / (course.std() or 1.0)
    signs = rng.choice([-1.0, 1.0], size=readings.shape[1])
    own = 1 / np.sqrt(1 + strength**2)  # own^2 + driven^2 = 1, and driven / own = strength
    return np.asarray((own - 1) * readings + own * strength * driver[:, None] * signs)


def _replacement(readings: Floats, strength: Floats, rng: Generator) -> Floats:
    """A replaced sensor: a different offset, gain and noise at once."""
    return np.asarray(np.sum([change(readings, strength, rng) for change in (_offset, _gain, _variance)], axis=0))


DRIFTS: dict[str, Drift] = {
    "none": Drift(lambda readings, strength, rng: np.zeros_like(readings)),
    "offset": Drift(_offset),
    "gain": Drift(_gain),
    "variance": Drift(_variance),
    "regime": Drift(_regime, at_once=True),
    "replacement": Drift(_replacement, at_once=True),
}


def _drifted(
    values: Floats, drift: Drift, strength: float, drifting: Sequence[int], units: _Units, rng: Generator
) -> Floats:
    rows = len(values) // 2
    progress = np.minimum(np.arange(1, len(values) + 1) / rows, 1.0)[:, None]
    columns = list(drifting)
    readings = (values[:, columns] - units.mean[columns]) / units.spread[columns]
    drifted = values.copy()
    current = strength * (np.ones_like(progress) if drift.at_once else progress)
    drifted[:, columns] += units.spread[columns] * drift.change(readings, current, rng)
    return drifted


# --- faults -----------------------------------------------------------------------------------------------------------


class FaultKind(NamedTuple):
    """A kind of fault: how it replaces readings, and how long it lasts."""

    # Readings (time, variable), starting with the last normal one, and standard deviations (variable,)
    # -> replacement (time, variable)
    readings: Callable[[Floats, Floats, Generator], Floats]
    length: int  # time steps


def _off_by(size: float) -> Callable[[Floats, Floats, Generator], Floats]:
    """Readings are off by some standard deviations, up or down."""
    return lambda readings, spread, rng: readings + size * spread * rng.choice([-1.0, 1.0], size=len(spread))


def _stuck(readings: Floats, spread: Floats, rng: Generator) -> Floats:
    """The last normal reading is repeated."""
    return np.tile(readings[0], (len(readings), 1))


def _noise(readings: Floats, spread: Floats, rng: Generator) -> Floats:
    """White noise of 2 standard deviations is added."""
    return readings + 2 * spread * rng.standard_normal(readings.shape)


FAULTS: dict[str, FaultKind] = {
    "spike": FaultKind(_off_by(6), 2),
    "stuck": FaultKind(_stuck, 40),
    "level": FaultKind(_off_by(3), 30),
    "noise": FaultKind(_noise, 30),
}


def planted(values: Floats, faults: Iterable[Fault], spread: Floats, seed: int | Sequence[int] = 0) -> Floats:
    """A copy of readings (time, variable) with faults of `FAULTS` planted; seed and index determine each fault's shape.

    >>> import numpy as np
    >>> from cometad_bench.datasets.drift import planted
    >>> from cometad.datasets.synthetic import Fault
    >>> ramp = np.arange(6.0)[:, None]
    >>> planted(ramp, [Fault("stuck", 3, 5, (0,))], np.ones(1)).T
    array([[0., 1., 2., 2., 2., 5.]])
    """
    faulty = values.copy()
    for k, fault in enumerate(faults):
        columns = list(fault.variables)
        readings = values[max(0, fault.start - 1) : fault.stop, columns]
        rng = np.random.default_rng([*np.atleast_1d(seed), k])
        changed = FAULTS[fault.kind].readings(readings, spread[columns], rng)
        faulty[fault.start : fault.stop, columns] = changed[fault.start - fault.stop :]
    return faulty


_Piece = tuple[str, int]  # a fault to place: kind, time steps


def _one_of_each(rng: Generator) -> list[_Piece]:
    return [(str(kind), FAULTS[kind].length) for kind in rng.permutation(list(FAULTS))]


def _filling(rows: int, rng: Generator) -> list[_Piece]:
    """Faults that cycle through all kinds and add up to `rows` time steps; the last one is cut short."""
    pieces: list[_Piece] = []
    while rows:
        for kind, length in _one_of_each(rng):
            used = min(length, rows)
            pieces += [(kind, used)] if used else []
            rows -= used
    return pieces


def _laid_out(pieces: Sequence[_Piece], phase: Interval, varying: NDArray[np.int64], rng: Generator) -> list[Fault]:
    """One fault per slot of equal width, with at least one normal reading before it."""
    borders = np.linspace(*phase, len(pieces) + 1).astype(int)
    faults = []
    for (kind, length), first, last in zip(pieces, borders[:-1], borders[1:], strict=True):
        start = int(rng.integers(first + 1, last - length, endpoint=True))
        faults.append(Fault(kind, start, start + length, _sample(varying, FAULTY, rng)))
    return faults

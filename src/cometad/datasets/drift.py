"""Controlled drift and controlled faults in any normal series: what a detector sees before, during and after a shift.

A controlled series has three phases of equal length. `before` is normal, `during` goes on from it while the drift sets
in, and `after` repeats the normal readings of `before` under the full drift. So a fault planted in `before` is planted
once more in `after` on the same underlying readings: a probe, whose two scores differ by the drift and by what a
detector has learned in between. The price is one seam, where `after` begins; and a detector that learns from all it
reads has read these readings, and the probe, once before.

Sizes are in units of each variable's spread in a reference, the part a detector is fitted on. Variables that are
constant there are never touched. What drifts, how, the probes and the contamination are each drawn from their own
stream of random numbers: another drift leaves the faults as they were, and other faults the drift.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cometad.arrays import Floats
from cometad.datasets.synthetic import Fault
from cometad.errors import InputError, ParameterError, unknown

PHASES = ("before", "during", "after")
DRIFTING = 0.3  # the share of the varying variables that drift, about that of the synthetic plant
FAULTY = 0.1  # the share of the varying variables that one fault hits
LEAST_PHASE = 400  # readings: room for the probes with quiet around them
MOST_CONTAMINATION = 0.4  # above it, faults would touch each other

Interval = tuple[int, int]  # half-open, in time steps
Chance = np.random.Generator


@dataclasses.dataclass(frozen=True, eq=False)
class Controlled:
    """A series in which the drift and every fault are known.

    >>> import numpy as np
    >>> from cometad.datasets.drift import controlled_series
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
    faults: tuple[Fault, ...]  # all of them, probes too, in the order of time
    probes: tuple[tuple[Fault, Fault], ...]  # the same fault in `before` and in `after`


def split_normal(series: Floats, most: int = 8_000) -> tuple[Floats, Floats]:
    """The first half of a normal series, to fit on, and as much of the rest as `most` allows, to build from.

    >>> import numpy as np
    >>> from cometad.datasets.drift import split_normal
    >>> reference, base = split_normal(np.zeros((3000, 2)), most=1000)
    >>> reference.shape, base.shape
    ((1500, 2), (1000, 2))
    """
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

    `reference` gives each variable's mean and spread and is not part of the series; the first half of `base` becomes
    `before` and `after`, the second half `during`. `share` of the varying variables drift, at least one.
    Phases are whole multiples of `align` long: with a detector's window, its windows cut `after` as they cut `before`,
    and without drift and adaptation equal readings get equal scores.

    >>> import numpy as np
    >>> from cometad.datasets.drift import controlled_series
    >>> normal = np.random.default_rng(0).normal(size=(1600, 4))
    >>> series = controlled_series(normal[:800], normal[800:], drift="gain", contamination=0.1)
    >>> series.values.shape, int(series.labels[400:800].sum())
    ((1200, 4), 40)
    """
    _check(drift, strength, contamination, share)
    units = _units(reference, base)
    rows = _phase_rows(base, align)
    chance = [np.random.default_rng([seed, stream]) for stream in range(4)]
    values = np.concatenate([base[: 2 * rows], base[:rows]]).astype(np.float64)
    drifting = () if drift == "none" else _some(units.varying, share, chance[0])
    values[rows:] = _drifted(values[rows:], DRIFTS[drift], strength, drifting, units, chance[1])
    probes = _laid_out(_one_of_each(chance[2]), (0, rows), units.varying, chance[2])
    others = _laid_out(_filling(round(contamination * rows), chance[3]), (rows, 2 * rows), units.varying, chance[3])
    again = [dataclasses.replace(fault, start=fault.start + 2 * rows, stop=fault.stop + 2 * rows) for fault in probes]
    for stream, faults in ((4, probes), (5, others), (4, again)):  # the same stream: the same shapes
        values = planted(values, faults, units.spread, [seed, stream])
    return Controlled(
        values=values,
        labels=_labels([*probes, *others, *again], len(values)),
        phases={name: (k * rows, (k + 1) * rows) for k, name in enumerate(PHASES)},
        drifting=drifting,
        faults=(*probes, *others, *again),
        probes=tuple(zip(probes, again, strict=True)),
    )


class _Units(NamedTuple):
    """What is usual for each variable, each of the shape (variable,)."""

    mean: Floats
    spread: Floats
    varying: NDArray[np.int64]  # the indices of those that are not constant


def _check(drift: str, strength: float, contamination: float, share: float) -> None:
    if drift not in DRIFTS:
        raise unknown("drift", drift, DRIFTS)
    if not 0 <= strength < np.inf:
        raise ParameterError(
            f"The strength of a drift must be finite and not negative, not {strength}. Pass 0 or more."
        )
    if not 0 <= contamination <= MOST_CONTAMINATION:
        raise ParameterError(
            f"The contamination must be a share of at most {MOST_CONTAMINATION}, not {contamination}. Ask for less."
        )
    if not 0 < share <= 1:
        raise ParameterError(
            f"The share of variables that drift must be above 0 and at most 1, not {share}. Ask for 0.3."
        )


def _phase_rows(base: Floats, align: int) -> int:
    if align < 1:
        raise ParameterError(
            f"The phases cannot be multiples of {align} readings. Pass the window of a detector, or 1."
        )
    rows = len(base) // 2 // align * align
    if rows < LEAST_PHASE:
        raise InputError(
            f"A controlled series has phases of at least {LEAST_PHASE} readings; {len(base)} normal readings give "
            f"phases of {rows}. Take a longer series."
        )
    return rows


def _units(reference: Floats, base: Floats) -> _Units:
    if reference.ndim != 2 or reference.shape[1:] != base.shape[1:] or not len(reference):
        raise InputError(
            f"The reference has the shape {reference.shape} and the base {base.shape}. Pass parts of the same series."
        )
    varying = np.flatnonzero(np.ptp(reference, axis=0) > 0)
    if not len(varying):
        raise InputError("Every variable of the reference is constant, so a drift has no unit. Take another series.")
    return _Units(reference.mean(axis=0), reference.std(axis=0), varying)


def _some(variables: NDArray[np.int64], share: float, chance: Chance) -> tuple[int, ...]:
    """That share of the variables, at least one, in their order."""
    chosen = chance.choice(variables, size=max(1, round(share * len(variables))), replace=False)
    return tuple(int(variable) for variable in np.sort(chosen))


# --- drift ------------------------------------------------------------------------------------------------------------


class Drift(NamedTuple):
    """How readings change: by `change`, which ramps in over a phase or is there at once.

    >>> import numpy as np
    >>> from cometad.datasets.drift import DRIFTS
    >>> readings, strength = np.array([[1.0], [3.0]]), np.array([[0.0], [1.0]])
    >>> np.abs(DRIFTS["offset"].change(readings, strength, np.random.default_rng(0))).T
    array([[0., 1.]])
    """

    # Readings (time, variable) in spreads from the mean, the strength reached (time, 1) -> what is added, in spreads.
    change: Callable[[Floats, Floats, Chance], Floats]
    at_once: bool = False


def _none(readings: Floats, strength: Floats, chance: Chance) -> Floats:
    """Nothing drifts."""
    return np.zeros_like(readings)


def _offset(readings: Floats, strength: Floats, chance: Chance) -> Floats:
    """Levels move by `strength` spreads, some up and some down."""
    return np.asarray(strength * chance.choice([-1.0, 1.0], size=readings.shape[1]))


def _gain(readings: Floats, strength: Floats, chance: Chance) -> Floats:
    """Deviations from the mean are multiplied by 1 + `strength` in some variables, divided by it in others."""
    grows = chance.random(readings.shape[1]) < 0.5
    return np.asarray(readings * (np.where(grows, 1 + strength, 1 / (1 + strength)) - 1))


def _variance(readings: Floats, strength: Floats, chance: Chance) -> Floats:
    """White noise of `strength` spreads is added."""
    return strength * chance.standard_normal(readings.shape)


def _regime(readings: Floats, strength: Floats, chance: Chance) -> Floats:
    """The variables follow a common driver, in part, and each its own course so much less.

    The driver is of the series' own kind: the mean course of these variables, half the stretch away. Each variable
    keeps its spread, about; what changes is how they move together, with each other and with all the rest.
    """
    course = np.roll(readings.mean(axis=1), len(readings) // 2)
    driver = (course - course.mean()) / (course.std() or 1.0)
    sides = chance.choice([-1.0, 1.0], size=readings.shape[1])
    own = 1 / np.sqrt(1 + strength**2)  # own^2 + driven^2 = 1, and driven / own = strength
    return np.asarray((own - 1) * readings + own * strength * driver[:, None] * sides)


def _replacement(readings: Floats, strength: Floats, chance: Chance) -> Floats:
    """Another sensor: other offset, other gain and other noise, all at once."""
    return np.asarray(np.sum([change(readings, strength, chance) for change in (_offset, _gain, _variance)], axis=0))


DRIFTS: dict[str, Drift] = {
    "none": Drift(_none),
    "offset": Drift(_offset),
    "gain": Drift(_gain),
    "variance": Drift(_variance),
    "regime": Drift(_regime, at_once=True),
    "replacement": Drift(_replacement, at_once=True),
}


def _drifted(
    values: Floats, drift: Drift, strength: float, drifting: Sequence[int], units: _Units, chance: Chance
) -> Floats:
    """The values of the two phases since the drift began."""
    rows = len(values) // 2
    progress = np.minimum(np.arange(1, len(values) + 1) / rows, 1.0)[:, None]
    columns = list(drifting)
    readings = (values[:, columns] - units.mean[columns]) / units.spread[columns]
    drifted = values.copy()
    reached = strength * (np.ones_like(progress) if drift.at_once else progress)
    drifted[:, columns] += units.spread[columns] * drift.change(readings, reached, chance)
    return drifted


# --- faults -----------------------------------------------------------------------------------------------------------


class FaultKind(NamedTuple):
    """How a fault replaces readings, and how long it lasts.

    >>> import numpy as np
    >>> from cometad.datasets.drift import FAULTS
    >>> FAULTS["stuck"].readings(np.array([[7.0], [8.0], [9.0]]), np.ones(1), np.random.default_rng(0)).T
    array([[7., 7., 7.]])
    """

    # Readings (time, variable) of which the first is the last sound one, the spreads (variable,)
    # -> what stands in their place (time, variable).
    readings: Callable[[Floats, Floats, Chance], Floats]
    length: int  # time steps


def _spike(readings: Floats, spread: Floats, chance: Chance) -> Floats:
    """Readings 6 spreads away."""
    return np.asarray(readings + 6 * spread * chance.choice([-1.0, 1.0], size=len(spread)))


def _stuck(readings: Floats, spread: Floats, chance: Chance) -> Floats:
    """The last sound reading, again and again."""
    return np.tile(readings[0], (len(readings), 1))


def _level(readings: Floats, spread: Floats, chance: Chance) -> Floats:
    """All readings 3 spreads away."""
    return np.asarray(readings + 3 * spread * chance.choice([-1.0, 1.0], size=len(spread)))


def _noise(readings: Floats, spread: Floats, chance: Chance) -> Floats:
    """White noise of 2 spreads."""
    return readings + 2 * spread * chance.standard_normal(readings.shape)


FAULTS: dict[str, FaultKind] = {
    "spike": FaultKind(_spike, 2),
    "stuck": FaultKind(_stuck, 40),
    "level": FaultKind(_level, 30),
    "noise": FaultKind(_noise, 30),
}


def planted(values: Floats, faults: Iterable[Fault], spread: Floats, seed: int | Sequence[int] = 0) -> Floats:
    """Readings (time, variable) with faults of `FAULTS` in them; the k-th fault has the shape that seed and k give.

    >>> import numpy as np
    >>> from cometad.datasets.drift import planted
    >>> from cometad.datasets.synthetic import Fault
    >>> ramp = np.arange(6.0)[:, None]
    >>> planted(ramp, [Fault("stuck", 3, 5, (0,))], np.ones(1)).T
    array([[0., 1., 2., 2., 2., 5.]])
    """
    faulty = values.copy()
    for k, fault in enumerate(faults):
        columns = list(fault.variables)
        readings = values[max(0, fault.start - 1) : fault.stop, columns]
        chance = np.random.default_rng([*np.atleast_1d(seed), k])
        changed = FAULTS[fault.kind].readings(readings, spread[columns], chance)
        faulty[fault.start : fault.stop, columns] = changed[fault.start - fault.stop :]
    return faulty


_Piece = tuple[str, int]  # a fault to be placed: kind, time steps


def _one_of_each(chance: Chance) -> list[_Piece]:
    return [(str(kind), FAULTS[kind].length) for kind in chance.permutation(list(FAULTS))]


def _filling(rows: int, chance: Chance) -> list[_Piece]:
    """Faults of all kinds in turn that take this many time steps together; the last is cut short."""
    pieces: list[_Piece] = []
    while rows:
        for kind, length in _one_of_each(chance):
            taken = min(length, rows)
            pieces += [(kind, taken)] if taken else []
            rows -= taken
    return pieces


def _laid_out(pieces: Sequence[_Piece], phase: Interval, varying: NDArray[np.int64], chance: Chance) -> list[Fault]:
    """One fault per slot of equal width, with at least one sound reading before it."""
    borders = np.linspace(*phase, len(pieces) + 1).astype(int)
    faults = []
    for (kind, length), first, last in zip(pieces, borders[:-1], borders[1:], strict=True):
        start = int(chance.integers(first + 1, last - length, endpoint=True))
        faults.append(Fault(kind, start, start + length, _some(varying, FAULTY, chance)))
    return faults


def _labels(faults: Iterable[Fault], rows: int) -> NDArray[np.bool_]:
    labels = np.zeros(rows, dtype=np.bool_)
    for fault in faults:
        labels[fault.start : fault.stop] = True
    return labels

"""Pooling: an entity with too little history borrows readings from others with the same variables.

The rule, for an entity with n readings, means c and standard deviations s, and donors d with c_d and s_d:

1. Donors are the entities with enough readings whose variables correlate most like its own: those with the smallest
   mean absolute difference between the correlation matrices.
2. Its unit is its own standard deviation, stabilized by those of the donors while it has few readings:
   u^2 = (n s^2 + K median_d(s_d^2)) / (n + K).
3. A reading x of a donor becomes c + u (x - c_d) / s_d: the donor's movement, in the units of the entity.
4. A detector is fitted on these readings followed by its own. So views, codes, tails and threshold come from all of
   them.

The result is an ordinary detector. Nothing is trimmed (`trim=False`), because its own few readings would be trimmed
first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from cometad.arrays import Array, Floats
from cometad.data.quality import Statistics
from cometad.detector import Detector
from cometad.series import Series

POOL = 2_000  # readings; an entity with fewer borrows
DONORS = 4  # per entity
DONATED = 1_500  # last readings of each donor
CANDIDATES = 64  # donors to choose from, for entities with the same variables
STEADY = 100  # readings of its own at which an entity's unit counts as much as the donors' (K above)


class Donation(NamedTuple):
    """The last readings of an entity in its own units, to lend to others."""

    name: str
    scaled: Floats  # (time, variable)
    deviations: Floats  # (variable,)
    correlations: Floats  # (variable, variable)


def donation(name: str, series: Series) -> Donation:
    centers, deviations = _moments(series.values)
    scaled = (series.values[-DONATED:] - centers) / np.where(deviations > 0, deviations, 1.0)
    return Donation(name, scaled, deviations, correlations(series.values))


def correlations(values: Floats) -> Floats:
    """The correlations (variable, variable) of a series (time, variable), 0 for a constant variable."""
    centers, deviations = _moments(values)
    scaled = np.nan_to_num((values - centers) / np.where(deviations > 0, deviations, 1.0))
    return np.asarray(scaled.T @ scaled / len(values))


def _moments(values: Floats) -> tuple[Floats, Floats]:
    """The mean and standard deviation of each variable, ignoring missing readings; 0 and 0 if it has none."""
    known = ~np.isnan(values)
    count = np.maximum(known.sum(axis=0), 1)
    centers = np.where(known, values, 0.0).sum(axis=0) / count
    squares = np.where(known, values - centers, 0.0) ** 2
    return centers, np.sqrt(squares.sum(axis=0) / count)


def candidates(readings: Mapping[str, int], least: int) -> list[str]:
    """The candidate donors among entities with the same variables: those with enough readings, ordered by hash."""
    able = (name for name, count in readings.items() if count >= least)
    return sorted(able, key=lambda name: sha256(name.encode()).hexdigest())[:CANDIDATES]


def nearest(own: Floats, donations: Sequence[Donation]) -> tuple[Donation, ...]:
    """The donors whose correlations are closest to an entity's own."""
    return tuple(
        sorted(donations, key=lambda each: (float(np.abs(each.correlations - own).mean()), each.name))[:DONORS]
    )


def pooled_series(series: Series, donations: Sequence[Donation]) -> Series:
    """The readings of donors in the units of an entity, followed by its own; the formula is above."""
    centers, deviations = _moments(series.values)
    theirs = np.median([each.deviations**2 for each in donations], axis=0)
    rows = len(series)
    units = np.sqrt((rows * deviations**2 + STEADY * theirs) / (rows + STEADY))
    borrowed = np.concatenate([each.scaled for each in donations]) * units + centers
    values = np.concatenate([borrowed, series.values])
    return replace(series, values=values, times=_times_before(series, len(borrowed)))


def _times_before(series: Series, count: int) -> Array | None:
    """Times for borrowed readings: before the entity's own, with the same period."""
    period = Statistics.fit(series).period
    if series.times is None or np.isnan(period):
        return None
    own = series.times.astype("datetime64[us]")
    step = max(round(period * 1e6), 1)
    before = own[0] - (np.arange(count, 0, -1) * step).astype("timedelta64[us]")
    return np.concatenate([before, own])


def pooled(detector: Detector, series: Series, donations: Sequence[Donation]) -> Detector:
    """A detector fitted on an entity's readings and, if it has too few, on borrowed ones."""
    parameters = detector.get_params(deep=False)  # a copy: in one process, several entities share a task's detector
    if donations:
        series = pooled_series(series, donations)
        unfit = {"trim": False, "season": "none"}  # borrowed readings are of another day
        parameters |= {name: value for name, value in unfit.items() if name in parameters}
    return type(detector)(**parameters).fit(series)

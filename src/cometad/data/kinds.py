"""What kinds of variables there are: counters, states, those that wander, clocks, and ordinary sensors."""

from collections.abc import Mapping

import numpy as np

from cometad.arrays import Array, Flags, Floats
from cometad.data.quality import Finding
from cometad.errors import InputError, unknown
from cometad.series import Series

COUNTER, STATE, SENSOR, WANDERS, CLOCK = "counter", "state", "sensor", "wanders", "clock"
DECLARED = (COUNTER, STATE, SENSOR)  # kinds that a user may declare

# -- variables by their readings ---------------------------------------------------------------------------------------

LEAST_STEPS = 20  # changes that show the course of a variable
FEWER_STEPS, EQUAL_STEPS = 8, 5  # that make a counter of one that never turns back, and if all are of one size
REST = 2 / 3  # of the readings in a row without a step, at most, if there are fewer than 20
ALIKE = 1e-6  # of the largest step: a smaller difference is rounding
PER_RESTART = 8  # increases of a counter, at least, for each time it starts anew
NEAR_ZERO = 0.1  # of its highest reading: where a counter starts anew
HELD = 32  # readings, on average, that a state holds a value
FEW_VALUES, MOST_VALUES = 8, 64  # of a state, and of a declared one
FINE = 0.1  # of its largest value: the steps of a measurement that is rounded
MEANS = 128  # stretches of the training series whose means tell whether a variable wanders
LEAST_READINGS = 16 * MEANS  # of training: with fewer, the means of ordinary noise wander too
BLOCKS = 4  # quarters of the training series
STRAYS = 0.08  # share of the means that no other quarter reaches: noise has 0.02, a random walk 0.05 to 0.4
JUMP = 20.0  # times the 99 % quantile of the changes: a variable with larger ones switches, it does not wander
LEAST_MOVES = 0.05  # share of the readings that differ from the one before


def kind_of(known: Floats, strayed: bool, cuts: int = 0) -> str:
    """The kind of a variable with these readings (time,), by the rules in `Trends.fit`; it may jump at `cuts`."""
    steps = np.diff(known)
    sizes, moved = np.abs(steps), int(np.count_nonzero(steps))
    if _counts(known, steps):
        return COUNTER
    values = np.unique(known) if HELD * moved <= len(known) else known[:0]
    if 1 < len(values) <= FEW_VALUES:
        evenly = sizes.max() <= min((1 + ALIKE) * np.diff(values).min(), FINE * np.abs(values).max())
        return SENSOR if evenly and len(values) > 2 else STATE  # a rounded temperature moves from value to value, too
    often = len(known) >= LEAST_READINGS and moved >= LEAST_MOVES * len(steps)
    if not (strayed and often):
        return SENSOR
    return WANDERS if np.sort(sizes)[max(len(sizes) - 1 - cuts, 0)] <= JUMP * np.quantile(sizes, 0.99) else SENSOR


def _counts(known: Floats, steps: Floats) -> bool:
    up, down = int(np.count_nonzero(steps > 0)), int(np.count_nonzero(steps < 0))
    if up and down:
        near_zero = known.min() >= 0 and known[1:][steps < 0].max() <= NEAR_ZERO * known.max()
        return bool(near_zero and up >= max(LEAST_STEPS, PER_RESTART * down))
    if not EQUAL_STEPS <= up + down < LEAST_STEPS:
        return up + down >= LEAST_STEPS
    sizes = np.abs(steps[steps != 0])
    rest = np.diff(np.flatnonzero(steps), prepend=0, append=len(steps)).max()
    return bool(rest <= REST * len(steps) and (len(sizes) >= FEWER_STEPS or np.ptp(sizes) <= ALIKE * sizes.max()))


def restarts_at(known: Floats) -> float:
    """The highest reading at which a counter with these readings (time,) starts anew; -inf if it never turns back."""
    steps = np.diff(known)
    landed = known[1:][steps < 0]
    return float(landed.max() + steps.max()) if len(landed) and steps.max() > 0 else -np.inf


def strays(values: Floats) -> Flags:
    """Which variables (variable,) have too many means of stretches that are outside of those of the other quarters."""
    if len(values) < LEAST_READINGS:
        return np.zeros(values.shape[1], np.bool_)
    edges = np.linspace(0, len(values), MEANS + 1).astype(np.int64)
    means = np.add.reduceat(values, edges[:-1], axis=0) / np.diff(edges)[:, None]
    quarters = means.reshape(BLOCKS, -1, values.shape[1])
    outside = np.zeros(values.shape[1])
    for k, quarter in enumerate(quarters):
        others = np.delete(quarters, k, axis=0)
        outside += ((quarter < others.min(axis=(0, 1))) | (quarter > others.max(axis=(0, 1)))).sum(axis=0)
    return np.asarray(outside > STRAYS * MEANS)


# -- columns that are no measurements ----------------------------------------------------------------------------------

INDEX = {"", "index", "idx", "id", "row", "rowid", "rowindex", "rowno", "rownr", "rownumber", "no", "nr", "unnamed"}
LABELS = {"label", "labels", "anomaly", "isanomaly", "anomalous", "outlier", "isoutlier", "attack", "target", "class"}
DATE = {part: part for part in ("year", "quarter", "month", "week", "weekday", "day", "hour", "minute", "second")}
DATE |= {"dayofweek": "weekday", "dayofyear": "ordinal_day"}  # as polars calls it
ZONES = range(-12, 15)  # hours that a clock may be ahead of UTC
DOUBTFUL = {"index": "only counts the readings.", CLOCK: "only counts the readings or tells the time."}
DOUBTFUL |= {"calendar": "looks like a part of the date.", "label": "looks like a label, not like a measurement."}


def questions(series: Series) -> list[Finding]:
    """Columns of a training series that are probably not measurements; a clock matches its name and every reading."""
    found = []
    for name, values in zip(series.names, series.values.T, strict=True):
        plain, kind = "".join(filter(str.isalpha, name.lower())), ""
        if len(values) > 1 and values[1] - values[0] == 1 and (np.diff(values) == 1).all():
            kind = CLOCK if plain in INDEX else "index"
        elif plain in LABELS and np.isin(values, (0, 1)).all():
            kind = "label"
        elif plain in DATE and (values % 1 == 0).all():
            certain = series.times is not None and any(_tells(DATE[plain], values, series.times, z) for z in ZONES)
            kind = CLOCK if certain else "calendar"
        if kind:
            found.append(Finding(kind, name, 0, len(series), f"Variable {name!r} {DOUBTFUL[kind]}"))
    return found


def _tells(part: str, values: Floats, times: Array, zone: int) -> bool:
    """Whether values (time,) are this part of the local time of a zone (hours ahead of UTC), summer time included."""
    import polars

    local = [polars.Series(times.astype("M8[us]") + np.timedelta64(hours, "h")).dt for hours in (zone, zone + 1)]
    ahead = np.array([values - getattr(own, part)().to_numpy() for own in local])
    firsts = [(ahead - first) % 7 for first in (-1, 0, 1)] if part == "weekday" else [ahead]  # of Monday, or of Sunday
    return any((first == 0).any(axis=0).all() for first in firsts)


def certain_kinds(series: Series, declared: Mapping[str, str], search: bool) -> dict[int, str]:
    """Kinds of variables by index: declared ones and clocks; without a `search`, all others are sensors."""
    for name, kind in declared.items():
        if name not in series.names:
            raise unknown("variable", name, series.names)
        own = series.values[:, series.names.index(name)]
        values = len(np.unique(own[~np.isnan(own)]))
        if kind == STATE and values > MOST_VALUES:
            raise InputError(f"Variable {name!r} is no state: it has {values:,} values, more than {MOST_VALUES}.")
    clocks = {str(finding.variable): CLOCK for finding in questions(series) if finding.kind == CLOCK}
    found = {**(clocks if search else dict.fromkeys(series.names, SENSOR)), **declared}
    return {series.names.index(name): kind for name, kind in found.items()}

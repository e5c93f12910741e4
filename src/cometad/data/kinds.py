"""What kinds of variables there are: counters, states, those that wander, clocks, and ordinary sensors."""

from collections.abc import Mapping

import numpy as np

from cometad.arrays import Array, Flags, Floats
from cometad.data.quality import Finding
from cometad.errors import InputError, unknown
from cometad.series import Series

COUNTER, STATE, SENSOR, WANDERS, CLOCK = "counter", "state", "sensor", "wanders", "clock"
DECLARED = (COUNTER, STATE, SENSOR)  # kinds that a user may declare

# -- counters and states -----------------------------------------------------------------------------------------------

LEAST_STEPS = 20  # changes that show the course of a variable
FEWER_STEPS, EQUAL_STEPS = 8, 5  # that make a counter of one that never turns back, and if all are of one size
REST = 2 / 3  # of the readings in a row without a step, at most, if there are fewer than 20
ALIKE = 1e-6  # of the largest step: a smaller difference is rounding
PER_RESTART = 8  # increases of a counter, at least, for each time it starts anew
NEAR_ZERO = 0.1  # of its highest reading: where a counter starts anew
LEAST_HELD = 32  # readings in a row with a value of a state: as long as the windows of views
MOST_VALUES = 64  # of a declared state


def kind_of(known: Floats, strayed: bool) -> str:
    """The kind of a variable with these readings (time,), by the rules in `Trends.fit`."""
    steps = np.diff(known)
    if _counts(known, steps):
        return COUNTER
    if np.count_nonzero(steps) < LEAST_STEPS and len(values_of(STATE, known)) > 1:
        return STATE
    return WANDERS if strayed and len(known) >= LEAST_READINGS and _moves(np.abs(steps)) else SENSOR


def values_of(kind: str, known: Floats, least: int = LEAST_HELD) -> Floats:
    """The row `known` (value,) in `Trends` of a variable with these readings (time,); a state held its values long."""
    if kind == STATE:
        begins = np.flatnonzero(np.append(True, known[1:] != known[:-1]))
        return np.unique(known[begins[np.diff(begins, append=len(known)) >= least]])
    steps = np.diff(known)
    turns = kind == COUNTER and (steps > 0).any() and (steps < 0).any()
    start = known[1:][steps < 0].max() + steps.max() if turns else -np.inf
    return np.array({COUNTER: [start], CLOCK: [np.inf]}.get(kind, []))


def _counts(known: Floats, steps: Floats) -> bool:
    up, down = int(np.count_nonzero(steps > 0)), int(np.count_nonzero(steps < 0))
    if up and down:
        often = up >= max(LEAST_STEPS, PER_RESTART * down)
        return bool(often and known.min() >= 0 and known[1:][steps < 0].max() <= NEAR_ZERO * known.max())
    moves, sizes = np.flatnonzero(steps), np.abs(steps[steps != 0])
    if not EQUAL_STEPS <= len(moves) < LEAST_STEPS:
        return len(moves) >= LEAST_STEPS
    regular = np.diff(moves, prepend=0, append=len(steps)).max() <= REST * len(steps)
    return bool(regular and (len(moves) >= FEWER_STEPS or np.ptp(sizes) <= ALIKE * sizes.max()))


# -- variables that wander ---------------------------------------------------------------------------------------------

MEANS = 128  # stretches of the training series whose means tell whether a variable wanders
LEAST_READINGS = 16 * MEANS  # of training: with fewer, the means of ordinary noise wander too
BLOCKS = 4  # quarters of the training series
STRAYS = 0.08  # share of the means that no other quarter reaches: noise has 0.02, a random walk 0.05 to 0.4
JUMP = 20.0  # times the 99 % quantile of the changes: a variable with larger ones switches, it does not wander
LEAST_MOVES = 0.05  # share of the readings that differ from the one before


def _moves(sizes: Floats) -> bool:
    """Whether a variable with changes of these sizes (time,) moves often and never jumps."""
    often = np.count_nonzero(sizes) >= LEAST_MOVES * len(sizes)
    return bool(often and sizes.max() <= JUMP * np.quantile(sizes, 0.99))


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
    found: Flags = outside > STRAYS * MEANS
    return found


# -- columns that are no measurements ----------------------------------------------------------------------------------

INDEX = {"", "index", "idx", "id", "row", "rowid", "rowindex", "rowno", "rownr", "rownumber", "no", "nr", "unnamed"}
LABELS = {"label", "labels", "anomaly", "isanomaly", "anomalous", "outlier", "isoutlier", "attack", "target", "class"}
DATE = {part: part for part in ("year", "quarter", "month", "week", "weekday", "day", "hour", "minute", "second")}
DATE |= {"dayofweek": "weekday", "dayofyear": "ordinal_day"}  # as polars calls it
ZONES = range(-12, 15)  # hours that a clock may be ahead of UTC
DOUBTFUL = {
    "index": "only counts the readings.",
    "calendar": "looks like a part of the date, not like a measurement.",
    "label": "looks like a label, not like a measurement.",
    CLOCK: "only counts the readings or tells the time.",
}


def questions(series: Series) -> list[Finding]:
    """A finding for each variable of a training series that is probably no measurement.

    It is a *clock* if this is certain: by its name, and by each of its readings.
    """
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
    """Whether values (time,) are this part of times that are so many hours ahead, or one more in summer."""
    import polars

    local = [polars.Series(times + np.timedelta64(hours, "h")).dt for hours in (zone, zone + 1)]
    ahead = [values - getattr(own, part)().to_numpy() for own in local]
    if part != "weekday":
        return bool(((ahead[0] == 0) | (ahead[1] == 0)).all())
    firsts = (-1, 0, 1)  # Monday is 0 or 1, or Sunday is
    return any(((ahead[0] % 7 == first % 7) | (ahead[1] % 7 == first % 7)).all() for first in firsts)


def certain_kinds(series: Series, declared: Mapping[str, str], search: bool) -> dict[int, str]:
    """Kinds of variables, by index: those that a user declared by name, and clocks; all others if none is searched."""
    for name, kind in declared.items():
        if name not in series.names:
            raise unknown("variable", name, series.names)
        values = len(np.unique(series.values[:, series.names.index(name)]))
        if kind == STATE and values > MOST_VALUES:
            raise InputError(
                f"Variable {name!r} cannot be a state: it has {values:,} values, not {MOST_VALUES} at most."
            )
    clocks = {str(finding.variable): CLOCK for finding in questions(series) if finding.kind == CLOCK}
    found = {**(clocks if search else dict.fromkeys(series.names, SENSOR)), **declared}
    return {series.names.index(name): kind for name, kind in found.items()}

"""Complete readings, made ready for the views: trends removed, variables scaled, placeholders replaced.

*Trends*: the readings of a variable that only grows or wanders do not come back, so there is nothing to compare them
with. How it changes from one reading to the next does come back. So a counter is replaced by its increments, and a
variable that wanders by its distance from a level that follows it; a state moves away if it has an unknown value.

*Scaling*: fitted on the training part, applied to every reading.

*Likely readings*: what a missing variable probably shows, given the others. A placeholder that does not fit the other
variables would make views that mix them blame the others.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cometad.arrays import Flags, Floats, Floats32, Integers
from cometad.compute import in_tasks, jit, serial_products
from cometad.data.cells import LARGEST, MOST_NAMES
from cometad.data.kinds import ALIKE, CLOCK, COUNTER, SENSOR, STATE, WANDERS, kind_of, restarts_at, strays
from cometad.errors import InputError
from cometad.saving import Saved, Table, array, require_state

EXACT = 2.0**53  # no float below it is a rounded integer

# -- trends ------------------------------------------------------------------------------------------------------------

MEMORY = 64  # readings that the level of a wandering variable looks back on
SLOW = 32  # readings per step, on average: the pace of a slower counter shows only over several steps
STEADY = 1e-5  # of a counter's usual increment: a smaller spread is rounding
APART = 16  # times its range: how far from a state's nearest value one as far as the next value is scored
FAR = 50.0  # standard deviations: the level follows movements beyond it no faster
LASTING = 512  # readings in a row beyond it, after which the level starts anew

NOTHING = np.zeros((0, 0), np.bool_)  # is imputed

WORDS = {
    COUNTER: "only grow{s} or only fall{s}: {its} increments are scored instead of {its} readings.",
    STATE: "hold{s} few values: any other reading counts as far from them.",
    WANDERS: "wander{s}: {its} distance{many} from {its} recent level{many} {are} scored instead of {its} readings.",
    CLOCK: "only count{s} readings or tell{s} the time: {it} not learned.",
}
# Of one variable, and of several.
FORMS = {"s": ("s", ""), "many": ("", "s"), "are": ("is", "are"), "its": ("its", "their"), "it": ("it is", "they are")}


@dataclass(frozen=True)
class Trends:
    """What is scored of each variable: its reading, its increment, or its distance from a level that follows it.

    With the gain g of a variable, its usual movement u, and its level l, the movement that is scored for a reading x is

        m = x - l,  then  l += g m

    so g = 1 gives increments, and g = 1 / 64 the distance from an exponential mean. At the start, after a gap and where
    a counter starts anew, the level is where the movement is the usual one. A broken sensor must not carry the level of
    a wandering variable away: a movement farther than `far` from the usual one counts as that far, and after 512 of
    them in a row, or one of a counter, the level starts anew. A reading of a state is scored as `far` times as far from
    the nearest value that it is `known` to hold, or not far at all if it is imputed; a clock is never far from its one.
    """

    gain: Floats  # (variable,)  0 if its readings are scored as they are, or if it is a state
    usual: Floats  # (variable,)  median movement in training
    far: Floats  # (variable,)  largest distance from the usual movement that the level follows in full
    # (value, variable)  of a state, NaN after the last; of a counter, the highest reading where it starts anew, or -inf
    known: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    @classmethod
    def none(cls, variables: int) -> "Trends":
        """Readings are scored as they are."""
        return cls(*np.zeros((3, variables)))

    def check_state(self) -> None:
        fits = bool(((self.gain >= 0) & (self.gain <= 1) & (self.far >= 0)).all())
        require_state(fits, "its trends are not gains from 0 to 1 and positive distances")

    @classmethod
    def fit(cls, values: Floats, imputed: Flags | None = None, kinds: Mapping[int, str] | None = None) -> "Trends":
        """Find the kinds of the variables of a training series (time, variable), besides the `kinds` that are certain.

        Readings that are `imputed` or excluded do not count.

        * A *counter* never turns back, and changes at least 20 times. It may do with 8, or 5 of equal size, if it never
          rests for more than two thirds of the series. Or it starts anew near zero after 8 increases, on average. If it
          moves with fewer than one reading in 32, its movement is its distance from the mean since its last step or so.
        * A *state* has two to eight values, and holds one for 32 readings on average. What only moves to the next of
          three or more, by at most a tenth of the largest, is a sensor that rounds.
        * One *wanders* if more than 8 % of the means of 128 stretches are outside of the range of the means in the
          other three quarters of the series, it moves in at least 5 % of the readings, and it never jumps by more than
          20 times the 99 % quantile of its changes: such a variable switches. At least 2,048 readings are needed. If
          most variables wander, all sensors do: what they share wanders.
        """
        count, certain, cuts, strayed = values.shape[1], kinds or {}, 0, strays(values)
        if imputed is not None and (whole := imputed.all(axis=1)).any():
            cuts, strayed = int(np.count_nonzero(np.diff(whole))), strays(values[~whole])
        (gain, usual, far), found, known = np.zeros((3, count)), [SENSOR] * count, [np.zeros(0)] * count

        def look_at(i: int) -> None:
            own = values[:, i] if imputed is None else values[~imputed[:, i], i]
            found[i] = (certain.get(i) or kind_of(own, strayed[i], cuts)) if len(own) else SENSOR
            if found[i] == STATE:
                known[i] = np.unique(own)
                far[i] = APART / max(min(np.diff(known[i]) / np.ptp(own), default=1.0), ALIKE)
            elif found[i] == COUNTER:
                known[i] = np.array([restarts_at(own)])
                pause = len(own) / max(1, int(np.count_nonzero(np.diff(own))))
                gain[i] = 1.0 if pause < SLOW else 1 / max(MEMORY, pause)
            elif found[i] == CLOCK:
                known[i] = own[:1]

        in_tasks(look_at, count)
        table = np.array(list(zip_longest(*known, fillvalue=np.nan))).reshape(-1, count)
        wanders = np.array(found) == WANDERS
        ordinary = np.array([i not in certain and not len(known[i]) and np.ptp(values[:, i]) > 0 for i in range(count)])
        gain[ordinary if wanders.sum() > ordinary.sum() / 2 else wanders] = 1 / MEMORY
        moved = cls(gain, usual, np.full(count, np.inf), table)(values, imputed)
        for i in np.flatnonzero(gain).tolist():
            own = moved[1:, i] if imputed is None else moved[1:, i][~imputed[1:, i]]
            usual[i], far[i] = (np.median(own), FAR * own.std()) if len(own) else (0.0, 0.0)
        return cls(gain, usual, far, table)

    @cached_property
    def any(self) -> bool:
        return bool((self.gain > 0).any()) or len(self.known) > 0

    @property
    def kinds(self) -> dict[int, str]:
        """The kind of each variable whose readings are not scored as they are."""
        first = self.known[0] if len(self.known) else np.full(len(self.gain), np.nan)
        moves, known = self.gain > 0, ~np.isnan(first)
        rules = {
            COUNTER: (self.gain == 1) | (moves & known),
            WANDERS: moves,
            STATE: known & (self.far > 0),
            CLOCK: known,
        }
        return {i: str(kind) for i, kind in enumerate(np.select([*rules.values()], [*rules], "")) if kind}

    @property
    def trending(self) -> list[int]:
        """The variables that leave their training range."""
        return [i for i, kind in self.kinds.items() if kind != STATE]

    def sentences(self, names: Sequence[str]) -> list[str]:
        """Which variables have trends, and what is scored of them.

        >>> import numpy as np
        >>> from cometad.data.prepare import Trends
        >>> Trends(gain=np.array([0, 1, 1]), usual=np.zeros(3), far=np.zeros(3)).sentences(["flow", "id", "energy"])
        ["'id' and 'energy' only grow or only fall: their increments are scored instead of their readings."]
        """
        return sentences_of(self.kinds, WORDS, names)

    def __call__(self, values: Floats, imputed: Flags | None = None) -> Floats:
        """The movements (time, variable) of a whole series."""
        return TrendRun(self).push(values, imputed) if self.any else values


class TrendRun(Saved):
    saved: ClassVar[Table] = {
        "level": array("_level", "variable", unknown=True),
        "away": array("_away", "variable", dtype=np.int64),
    }

    def __init__(self, trends: Trends) -> None:
        known = trends.known.reshape(-1, len(trends.gain))
        self._rules = np.vstack([trends.gain, trends.usual, trends.far, known])
        self._level = np.full(len(trends.gain), np.nan)
        self._away = np.zeros(len(trends.gain), np.int64)  # readings in a row that were too far to follow

    def push(self, values: Floats, imputed: Flags | None = None) -> Floats:
        """Add readings (time, variable), with a mask of `imputed` cells; returns their movements."""
        moved, mask = np.array(values, np.float64, order="C"), NOTHING if imputed is None else imputed
        _follow(moved, mask, self._rules, self._level, self._away)
        return moved

    def sizes(self) -> dict[str, int]:
        return {"variable": len(self._level)}


@jit
def _follow(readings: Floats, imputed: Flags, rules: Floats, level: Floats, away: Integers) -> None:
    """Replace readings (time, variable) by movements, and update the levels and how many in a row were too far."""
    gain, usual, far, known = rules[0], rules[1], rules[2], rules[3:]
    for t in range(len(readings)):
        for i in range(len(gain)):
            near = known[0, i] if len(known) > 0 else np.nan
            if gain[i] == 0.0 and near != near:
                continue
            reading = readings[t, i]
            missing = len(imputed) > 0 and imputed[t, i]
            if gain[i] == 0.0:
                for value in known[1:, i]:
                    near = value if abs(reading - value) < abs(reading - near) else near
                readings[t, i] = near if missing else near + far[i] * (reading - near)
            elif missing:
                readings[t, i] = usual[i]
                level[i], away[i] = np.nan, 0
            elif level[i] != level[i] or away[i] >= LASTING or (reading <= near and reading < level[i]):
                readings[t, i] = usual[i]
                level[i], away[i] = reading - (1 - gain[i]) * usual[i], 0
            else:
                moved = min(max(reading - level[i], -LARGEST), LARGEST)
                readings[t, i] = moved
                if gain[i] == 1.0 or abs(moved - usual[i]) <= far[i]:
                    level[i], away[i] = reading - (1 - gain[i]) * moved, 0
                elif near == near:
                    level[i] = reading - (1 - gain[i]) * usual[i]
                else:
                    level[i] += gain[i] * (usual[i] + math.copysign(far[i], moved - usual[i]))
                    away[i] += 1


def sentences_of(kinds: Mapping[int, Any], words: Mapping[Any, str], names: Sequence[str]) -> list[str]:
    """What is special about variables, given the kind of each and its words, with places for the `FORMS`."""
    found = []
    for kind, template in words.items():
        own = [names[i] for i, named in kinds.items() if named == kind]
        if own:
            said = template.format(**{name: forms[len(own) > 1] for name, forms in FORMS.items()})
            found.append(f"{_listed(own)} {said}")
    return found


def _listed(names: Sequence[str]) -> str:
    """The first names, in quotes, and how many more there are."""
    shown = [repr(name) for name in names]
    if len(names) > MOST_NAMES + 1:
        shown[MOST_NAMES:] = [f"{len(names) - MOST_NAMES} more variables"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


# -- scaling -----------------------------------------------------------------------------------------------------------

# A broken sensor may send 1e30. Readings are clipped at this many units, which keeps float32 finite.
LIMIT = 1e6


class Scaling(NamedTuple):
    """A fitted scaler; each field has the shape (variable,)."""

    center: Floats
    unit: Floats

    def __call__(self, values: Floats) -> Floats32:
        """Scale readings (time, variable) to float32."""
        scaled = np.empty(values.shape, np.float32)
        _scale(values, self.center, self.unit, scaled)
        return scaled

    def check_state(self) -> None:
        require_state(bool((self.unit > 0).all()), "its array 'scaling.unit' is not positive")

    def back(self, scaled: Floats) -> Floats:
        """Convert scaled readings (..., variable) back to the sensors' units."""
        return scaled * self.unit + self.center


@jit
def all_exact(values: Floats) -> bool:
    """Whether all values (variable,) are known, and none may be a rounded integer."""
    exact = True
    for value in values:
        exact &= abs(value) < EXACT
    return exact


@jit
def _scale(values: Floats, center: Floats, unit: Floats, scaled: Floats32) -> None:
    for t in range(len(values)):
        for i in range(len(center)):  # only selections, no branches, so that it becomes vector instructions
            value = (values[t, i] - center[i]) / unit[i]
            value = LIMIT if value > LIMIT else value
            scaled[t, i] = -LIMIT if value < -LIMIT else value


def fit_scaling(kind: str, values: Floats) -> Scaling:
    """Fit a scaler on a training part (time, variable), ignoring NaN; constant variables get the unit 1."""
    if max(np.nanmax(values), -np.nanmin(values)) > LARGEST:
        raise InputError(f"The series has readings beyond {LARGEST:g}, too large to be scaled. Use other units.")
    return SCALERS[kind](values)


def _standard(values: Floats) -> Scaling:
    """Mean and standard deviation, to the last bit as scikit-learn's StandardScaler computes them."""
    if values.flags.c_contiguous and values.shape[1] > 1:  # numpy adds these row by row; so do we, without copies
        count, summed, squared = np.empty((3, values.shape[1]))
        _add(values, np.zeros(values.shape[1]), count, summed, squared)
        mean = summed / count
        _add(values, mean, count, summed, squared)
    else:
        missing = np.isnan(values)
        total = np.nansum if missing.any() else np.sum
        count = len(values) - missing.sum(axis=0)
        mean = total(values, axis=0) / count
        apart = values - mean
        summed, squared = total(apart, axis=0), total(apart**2, axis=0)
    variance = (squared - summed**2 / count) / count  # the second term corrects for the rounding of the mean
    rounding = np.finfo(np.float64).eps
    constant = variance <= count * rounding * variance + (count * mean * rounding) ** 2
    return Scaling(mean, np.where(constant, 1.0, np.sqrt(variance)))


@jit
def _add(values: Floats, center: Floats, count: Floats, summed: Floats, squared: Floats) -> None:
    """Count the known ones of readings (time, variable), and add up their distances from a center and the squares."""
    count[:] = summed[:] = squared[:] = 0.0
    for t in range(len(values)):
        for i in range(len(center)):
            known = values[t, i] == values[t, i]
            apart = values[t, i] - center[i] if known else 0.0
            count[i] += 1.0 if known else 0.0
            summed[i] += apart
            squared[i] += apart * apart


def _min_max(values: Floats) -> Scaling:
    """Minimum and range, to the last bit as scikit-learn's MinMaxScaler computes them."""
    low = np.nanmin(values, axis=0)
    extent = np.nanmax(values, axis=0) - low
    extent = np.where(extent < 10 * np.finfo(np.float64).eps, 1.0, extent)
    return Scaling(low, 1 / (1 / extent))


SCALERS = {"standard": _standard, "min-max": _min_max}


# -- likely readings ---------------------------------------------------------------------------------------------------

SAMPLE = 100_000  # readings, at most: more change nothing
RIDGE = 1e-3  # of the mean variance: keeps variables apart that are copies of each other


class Likely(NamedTuple):
    """The mean of scaled readings, and the inverse of their covariance."""

    center: Floats  # (variable,)
    precision: Floats  # (variable, variable)

    @classmethod
    def fit(cls, scaled: Floats32, usable: Flags) -> "Likely":
        """Fit on the `usable` (time,) ones of scaled readings (time, variable)."""
        steps = np.flatnonzero(usable)
        known = scaled[steps[:: -(-len(steps) // SAMPLE)]].astype(np.float64)
        center = known.mean(axis=0)
        known -= center
        with serial_products():  # so that the result does not depend on the number of threads
            covariance = known.T @ known / len(known)
            ridge = RIDGE * covariance.trace() / len(center) or 1.0
            precision = np.linalg.inv(covariance + ridge * np.eye(len(center)))
        return cls(center, (precision + precision.T) / 2)

    def check_state(self) -> None:
        symmetric = np.array_equal(self.precision, self.precision.T)
        require_state(symmetric and _is_positive(self.precision), "its 'likely.precision' is no inverse covariance")

    def __call__(self, scaled: Floats32, doubtful: Flags | None) -> Floats32:
        """Replace `doubtful` cells of scaled readings (time, variable) by their conditional mean, given the others."""
        if doubtful is None or not doubtful.any():
            return scaled
        filled = scaled.copy()
        _fill(filled, doubtful, self.center, self.precision)
        return filled


def _is_positive(matrix: Floats) -> bool:
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


@jit
def _fill(scaled: Floats32, doubtful: Flags, center: Floats, precision: Floats) -> None:
    """`Likely`, in place: missing readings m solve P_mm (m - center_m) = -P_mo (o - center_o), given the others o."""
    width = len(center)
    missing = np.empty(width, np.int64)
    factor, right = np.empty((width, width)), np.empty(width)
    for t in range(len(scaled)):
        count = 0
        for i in range(width):
            if doubtful[t, i]:
                missing[count] = i
                count += 1
        if count == 0:
            continue
        for a in range(count):
            row = precision[missing[a]]
            right[a] = 0.0
            for i in range(width):
                if not doubtful[t, i]:
                    right[a] -= row[i] * (scaled[t, i] - center[i])
            for b in range(a + 1):  # Cholesky: P_mm = L L'
                total = row[missing[b]]
                for k in range(b):
                    total -= factor[a, k] * factor[b, k]
                factor[a, b] = np.sqrt(total) if a == b else total / factor[b, b]
        for a in range(count):
            for k in range(a):
                right[a] -= factor[a, k] * right[k]
            right[a] /= factor[a, a]
        for a in range(count - 1, -1, -1):
            for k in range(a + 1, count):
                right[a] -= factor[k, a] * right[k]
            right[a] /= factor[a, a]
        for a in range(count):
            scaled[t, missing[a]] = center[missing[a]] + right[a]

"""Data quality: findings about readings before they are scored, each explained in a sentence.

`Statistics` summarizes the training series that new readings are compared with; an `Inspection` checks readings that
arrive in chunks. Nothing here changes or removes readings.
"""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cometad.arrays import Array, Flags, Floats, Integers
from cometad.compute import in_tasks
from cometad.series import Series, check_like, unchecked_series, with_all_columns

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
SAMPLE = 4096  # maximum readings, evenly spread, kept to compute quantiles
LEAST_DEAD, DEAD_FACTOR = 30, 5  # dead: stuck for at least this many readings, and this factor longer than in training
LEAST_OUTSIDE, OUTSIDE_SHARE = 20, 0.05  # out of range: at least this many readings, and this share of all
FEW = 3  # different quantiles: those of a variable with few values
QUIET = 20  # a spread this many times smaller than in training may be a unit change
TOLERANCE = 0.3  # quantiles closer than this share of the known spread count as equal
IRREGULAR = 0.1  # an interval is irregular if it differs from the usual one by more than this share


@dataclass(frozen=True)
class Statistics:
    """Summary of a training series, to compare new readings with.

    >>> import numpy as np
    >>> from cometad.data.quality import Statistics
    >>> known = Statistics.fit(np.array([[1.0], [2.0], [2.0], [np.nan], [5.0]]))
    >>> known.low, known.center, known.high, known.longest
    (array([1.]), array([2.]), array([5.]), array([2]))
    """

    names: tuple[str, ...]
    quantiles: Floats  # (quantile, variable)  of measured readings; NaN if there are none
    longest: Integers  # (variable,)  longest run of equal readings
    period: float  # median seconds between readings; NaN without times

    @classmethod
    def fit(cls, readings: object) -> "Statistics":
        """Compute the statistics of a series, which may have missing readings."""
        series = unchecked_series(readings)
        quantiles = np.full((len(QUANTILES), len(series.names)), np.nan)
        longest = np.zeros(len(series.names), np.int64)

        def of_variable(i: int) -> None:
            column = series.values[:, i]
            measured = column[~np.isnan(column)]
            if len(measured):
                longest[i] = np.diff(_run_starts(measured), append=len(measured)).max()
                quantiles[:, i] = np.quantile(measured, QUANTILES, overwrite_input=True)

        in_tasks(of_variable, len(series.names))
        steps = np.empty(0) if series.times is None else _intervals(series.times)
        steps = steps[steps > 0]
        return cls(series.names, quantiles, longest, float(np.median(steps)) if len(steps) else math.nan)

    @property
    def low(self) -> Floats:
        """The lowest reading of each variable."""
        return self._of(0.0)

    @property
    def center(self) -> Floats:
        """The median of each variable."""
        return self._of(0.5)

    @property
    def high(self) -> Floats:
        """The highest reading of each variable."""
        return self._of(1.0)

    @property
    def usual(self) -> tuple[Floats, Floats]:
        """The 5 % and 95 % quantiles of each variable."""
        return self._of(0.05), self._of(0.95)

    def _of(self, quantile: float) -> Floats:
        row: Floats = self.quantiles[QUANTILES.index(quantile)]
        return row


@dataclass(frozen=True)
class Finding:
    """A possible problem with readings, of one of these kinds:

    * index, calendar, label: a variable of a training series that is probably no measurement
    * constant: a variable that was constant in training
    * missing: a variable without any reading
    * gaps: missing readings of a variable
    * dead: a variable stuck at one value much longer than ever in training
    * unit: a variable that would match its training readings in another unit
    * range: a variable far outside its training range
    * duplicate: timestamps that appear more than once
    * unsorted: timestamps earlier than the one before
    * irregular: intervals between readings that differ from the usual one
    * period: a usual interval between readings that differs from training

    >>> import numpy as np
    >>> from cometad.data.quality import Statistics, findings
    >>> normal = np.random.default_rng(0).normal(size=(1000, 2))
    >>> fresh = np.random.default_rng(1).normal(size=(1000, 2))
    >>> fresh[300:700, 1] = 0.25
    >>> for finding in findings(fresh, Statistics.fit(normal)):
    ...     print(finding.kind, finding.start, finding.stop, finding.sentence)
    dead 300 700 Variable 'v1' is stuck at 0.25 for 400 readings from time step 300, but never for more than 1 in
    training. Check the sensor.
    """

    kind: str
    variable: str | None  # None if it concerns all variables
    start: int  # the time steps concerned, half-open
    stop: int
    sentence: str


class Inspection:
    """Checks readings that arrive in chunks of any size, in bounded memory.

    Of the variables in `trending`, by index, it is normal to leave the training range.
    """

    def __init__(self, statistics: Statistics, trending: Collection[int] = ()) -> None:
        self._known = statistics
        self._variables = [
            _VariableChecks(statistics, variable, leaves_range=variable in trending)
            for variable in range(len(statistics.names))
        ]
        self._times = _TimeChecks(statistics.period)
        self._sample = _Sample(np.empty((0, len(statistics.names))))
        self._seen = 0

    def push(self, readings: object) -> None:
        """Check readings: a series, an array or a frame, which may lack cells or columns."""
        series = with_all_columns(unchecked_series(readings, self._known.names), self._known.names)
        check_like(series, self._known.names, named=True)
        for variable, values in zip(self._variables, series.values.T, strict=True):
            variable.push(values, self._seen)
        self._times.push(series, self._seen)
        self._sample.take(series.values)
        self._seen += len(series)

    def findings(self) -> list[Finding]:
        """The findings so far: about times, then variable by variable."""
        found = self._times.findings(self._seen)
        for variable, values in zip(self._variables, self._sample.kept.T, strict=True):
            found += variable.findings(self._seen, self._sample.steps, values)
        return found


def findings(readings: object, statistics: Statistics, trending: Collection[int] = ()) -> list[Finding]:
    """Findings about a whole series, compared with the statistics of a training series; see `Inspection`.

    >>> import numpy as np
    >>> from cometad.data.quality import Statistics, findings
    >>> still = np.array([[1.0], [1.0], [np.nan]])
    >>> for finding in findings(still, Statistics.fit(still)):
    ...     print(finding.kind, "|", finding.sentence)
    constant | Variable 'v0' is always 1 in training, so there is no other value to compare with.
    gaps | Variable 'v0' is missing in 1 of 3 readings; the longest gap, from time step 2, has length 1.
    """
    inspection = Inspection(statistics, trending)
    inspection.push(readings)
    return inspection.findings()


class _Sample:
    """An evenly spread sample of rows, the same for any chunks."""

    def __init__(self, kept: Floats) -> None:
        self.kept, self.seen, self._stride = kept, 0, 1

    @property
    def steps(self) -> Integers:
        return np.arange(len(self.kept)) * self._stride

    def take(self, rows: Floats) -> None:
        self.kept = np.concatenate([self.kept, rows[-self.seen % self._stride :: self._stride]])
        self.seen += len(rows)
        while len(self.kept) > SAMPLE:
            self.kept, self._stride = self.kept[::2].copy(), 2 * self._stride


class _EqualRun(NamedTuple):
    start: int  # the time steps concerned, half-open
    stop: int
    length: int
    value: float


class _Runs:
    """The longest run of equal values so far, the first one on a tie."""

    def __init__(self) -> None:
        self.longest = self._last = _EqualRun(0, 0, 0, math.nan)

    def push(self, values: Array, steps: Integers) -> None:
        begins = _run_starts(values)
        lengths = np.diff(begins, append=len(values))
        starts, stops = steps[begins], steps[begins + lengths - 1] + 1
        if values[0] == self._last.value:  # continues from the previous chunk
            lengths[0] += self._last.length
            starts[0] = self._last.start
        best, self._last = (
            _EqualRun(int(starts[i]), int(stops[i]), int(lengths[i]), float(values[begins[i]]))
            for i in (int(lengths.argmax()), -1)
        )
        if best.length > self.longest.length:
            self.longest = best


class _VariableChecks:
    def __init__(self, statistics: Statistics, variable: int, leaves_range: bool) -> None:
        self._name, self._leaves_range = statistics.names[variable], leaves_range
        self._known = statistics.quantiles[:, variable]
        self._held = int(statistics.longest[variable])
        width = self._known[-1] - self._known[0]
        self._bounds = self._known[0] - width, self._known[-1] + width
        self._missing, self._outside = _Count(), _Count()
        self._gaps, self._same = _Runs(), _Runs()
        self._low, self._high = math.inf, -math.inf

    def push(self, values: Floats, first: int) -> None:
        missing, steps = np.isnan(values), np.arange(first, first + len(values))
        gaps = steps[missing]
        if len(gaps):  # readings of the same gap have as many measured readings before them
            self._gaps.push(gaps - np.arange(self._missing.count, self._missing.count + len(gaps)), gaps)
        self._missing.take(missing, first)
        measured = values[~missing]
        if len(measured):
            self._same.push(measured, steps[~missing])  # missing readings in between do not break a run
            self._low, self._high = min(self._low, float(measured.min())), max(self._high, float(measured.max()))
            self._outside.take((values < self._bounds[0]) | (values > self._bounds[1]), first)

    def findings(self, seen: int, steps: Integers, sample: Floats) -> list[Finding]:
        found = self._found(seen, steps, sample)
        return [Finding(kind, self._name, *where, f"Variable {self._name!r} {text}") for kind, where, text in found]

    def _found(self, seen: int, steps: Integers, sample: Floats) -> Iterator[tuple[str, tuple[int, int], str]]:
        """The findings: kind, time steps, and what completes the sentence."""
        whole, low, high, missing = (0, seen), self._known[0], self._known[-1], self._missing.count
        if missing == seen:
            yield "missing", whole, "has no readings at all. Check its column, or fit without it."
            return
        if low == high:
            text = f"is always {low:.6g} in training, so there is no other value to compare with."
            moves = f" Here it ranges from {self._low:.6g} to {self._high:.6g}."
            yield "constant", whole, text if (self._low, self._high) == (low, high) else text + moves
        if missing:
            gap = self._gaps.longest
            text = f"is missing in {missing:,} of {seen:,} readings; the longest gap, from time step {gap.start:,}, "
            yield "gaps", gap[:2], f"{text}has length {gap.length:,}."
        run = self._same.longest
        if low != high and run.length >= max(LEAST_DEAD, DEAD_FACTOR * self._held):
            text = f"is stuck at {run.value:.6g} for {run.length:,} readings from time step {run.start:,}, "
            yield "dead", run[:2], f"{text}but never for more than {self._held:,} in training. Check the sensor."
        if low != high and not self._leaves_range:
            yield from self._off_range(seen, steps, sample)

    def _off_range(self, seen: int, steps: Integers, sample: Floats) -> Iterator[tuple[str, tuple[int, int], str]]:
        """A unit change if one explains the readings, else readings far out of range."""
        outside = self._outside
        out = outside.count >= max(LEAST_OUTSIDE, OUTSIDE_SHARE * (seen - self._missing.count))
        start, stop = (outside.first, outside.last + 1) if out else (0, seen)
        part = sample[(steps >= start) & (steps < stop)]
        part = part[~np.isnan(part)]
        quantiles = np.quantile(part, QUANTILES[1:-1]) if len(part) else np.full(len(QUANTILES) - 2, np.nan)
        quiet = (quantiles[-1] - quantiles[0]) * QUIET < self._known[-2] - self._known[1]
        varied = len(set(self._known)) > FEW  # a unit changes the readings of a sensor, not the number of a state
        conversion = likely_conversion(quantiles, self._known[1:-1]) if varied and (out or quiet) else None
        usual = f"{self._known[0]:.6g} to {self._known[-1]:.6g}"
        if conversion is not None:
            text = (
                f"is around {quantiles[len(quantiles) // 2]:.6g} from time step {start:,}, but was {usual} in "
                f"training; a change from {conversion} would explain it. Check its unit."
            )
            yield "unit", (start, stop), text
        elif out:
            text = (
                f"is far outside its training range, {usual}, in {outside.count:,} readings from time step {start:,}. "
                "Check the sensor and its unit, or fit on readings where this is normal."
            )
            yield "range", (start, stop), text


class _TimeChecks:
    def __init__(self, period: float) -> None:
        self._period = period
        self._last: np.datetime64 | None = None
        self._twice, self._back, self._odd = _Count(), _Count(), _Count()
        self._longest, self._longest_at = 0.0, 0
        self._sample = _Sample(np.empty(0))

    def push(self, series: Series, first: int) -> None:
        if series.times is None:
            return
        times = series.times.astype("datetime64[us]")
        at = first + (self._last is None)  # the reading after the first interval
        intervals = _intervals(times if self._last is None else np.concatenate([[self._last], times]))
        self._last = times[-1]
        self._twice.take(intervals == 0, at)
        self._back.take(intervals < 0, at)
        self._odd.take(np.abs(intervals - self._period) > IRREGULAR * self._period, at)
        if len(intervals) and intervals.max() > self._longest:
            self._longest, self._longest_at = float(intervals.max()), at + int(intervals.argmax())
        self._sample.take(intervals)

    def findings(self, seen: int) -> list[Finding]:
        found = []
        for kind, count, what, advice in (
            ("duplicate", self._twice, "Repeated timestamps", "Keep one reading for each"),
            ("unsorted", self._back, "Timestamps out of order", "Sort the readings by time"),
        ):
            if count.count:
                text = f"{what}: {count.count:,}, the first at time step {count.first:,}. {advice}."
                found.append(Finding(kind, None, count.first, count.last + 1, text))
        rising = self._sample.kept[self._sample.kept > 0]
        if math.isnan(self._period) or not len(rising):
            return found
        usual = float(np.median(rising))
        if abs(usual - self._period) > IRREGULAR * self._period:
            text = f"Readings are {usual:.6g} s apart, but {self._period:.6g} s in training. Resample to that period."
            found.append(Finding("period", None, 0, seen, text))
        elif self._odd.count:
            text = (
                f"Readings are irregular: {self._odd.count:,} of {self._sample.seen:,} intervals differ from the usual "
                f"{self._period:.6g} s; the longest, {self._longest:.6g} s, ends at time step {self._longest_at:,}. "
                "Resample to that period."
            )
            found.append(Finding("irregular", None, self._odd.first, self._odd.last + 1, text))
        return found


@dataclass
class _Count:
    """How often something occurred, and where first and last."""

    count: int = 0
    first: int = 0
    last: int = 0

    def take(self, flags: Flags, at: int) -> None:
        places = np.flatnonzero(flags) + at
        if len(places):
            self.first = self.first if self.count else int(places[0])
            self.last = int(places[-1])
            self.count += len(places)


def _run_starts(values: Array) -> Integers:
    return np.flatnonzero(np.append(True, values[1:] != values[:-1]))


def _intervals(times: Array) -> Floats:
    return np.diff(times).astype("timedelta64[us]").astype(np.float64) / 1e6


# -- units ------------------------------------------------------------------------------------------------------------


class Conversion(NamedTuple):
    name: str
    factor: float  # new = factor * old + offset
    offset: float = 0.0

    def __str__(self) -> str:
        ways = []
        if self.factor != 1:
            ways.append(f"times {self.factor:.6g}" if self.factor > 1 else f"divided by {1 / self.factor:.6g}")
        if self.offset:
            ways.append(f"{'plus' if self.offset > 0 else 'minus'} {abs(self.offset):.6g}")
        return f"{self.name} ({', '.join(ways)})"

    @property
    def inverse(self) -> "Conversion":
        old, _, new = self.name.partition(" to ")
        return Conversion(f"{new} to {old}", 1 / self.factor, -self.offset / self.factor)


_ONE_WAY = (
    Conversion("kilo-units to units", 1e3),
    Conversion("mega-units to units", 1e6),
    Conversion("fractions to percent", 100.0),
    Conversion("cm to mm", 10.0),
    Conversion("minutes to seconds", 60.0),
    Conversion("hours to seconds", 3600.0),
    Conversion("°C to °F", 1.8, 32.0),
    Conversion("°C to K", 1.0, 273.15),
    Conversion("bar to psi", 14.503774),
    Conversion("m/s to km/h", 3.6),
    Conversion("m to ft", 3.280840),
    Conversion("in to mm", 25.4),
    Conversion("gal to l", 3.785412),
    Conversion("kg to lb", 2.204623),
)
CONVERSIONS = (*_ONE_WAY, *(conversion.inverse for conversion in _ONE_WAY))


def likely_conversion(quantiles: Floats, known: Floats) -> Conversion | None:
    """The conversion that best maps known quantiles (quantile,) to new ones, or None if none fits."""
    spread = known[-1] - known[0]
    if not spread or not quantiles[-1] > quantiles[0]:  # also NaN; constant readings reveal no factor
        return None
    errors = [np.abs((quantiles - c.offset) / c.factor - known).max() / spread for c in CONVERSIONS]
    best = int(np.argmin(errors))
    return CONVERSIONS[best] if errors[best] <= TOLERANCE else None

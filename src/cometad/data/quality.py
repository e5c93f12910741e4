"""Data quality: findings about readings before they are scored, each explained in a sentence.

`Statistics` summarizes the training series that new readings are compared with; an `Inspection` checks readings that
arrive in chunks. Nothing here changes or removes readings.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cometad.arrays import Floats
from cometad.compute import in_tasks
from cometad.data.units import likely_conversion
from cometad.series import Series, check_like, unchecked_series, with_all_columns

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
SAMPLE = 4096  # maximum readings, evenly spread, kept to compute quantiles
LEAST_DEAD, DEAD_FACTOR = 30, 5  # dead: stuck for at least this many readings, and this factor longer than in training
LEAST_OUTSIDE, OUTSIDE_SHARE = 20, 0.05  # out of range: at least this many readings, and this share of all
QUIET = 20  # a spread this many times smaller than in training may be a unit change
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
    longest: NDArray[np.int64]  # (variable,)  longest run of equal readings
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
        steps = np.empty(0) if series.times is None else _seconds(np.diff(series.times))
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
    """A possible problem with readings.

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

    kind: str  # one of KINDS
    variable: str | None  # None if it concerns all variables
    start: int  # the time steps concerned, half-open
    stop: int
    sentence: str


KINDS = {
    "constant": "a variable that was constant in training",
    "missing": "a variable without any reading",
    "gaps": "missing readings of a variable",
    "dead": "a variable stuck at one value much longer than ever in training",
    "unit": "a variable that would match its training readings in another unit",
    "range": "a variable far outside its training range",
    "duplicate": "timestamps that appear more than once",
    "unsorted": "timestamps earlier than the one before",
    "irregular": "intervals between readings that differ from the usual one",
    "period": "a usual interval between readings that differs from training",
}


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
    def steps(self) -> NDArray[np.int64]:
        return np.arange(len(self.kept)) * self._stride

    def take(self, rows: Floats) -> None:
        self.kept = np.concatenate([self.kept, rows[-self.seen % self._stride :: self._stride]])
        self.seen += len(rows)
        while len(self.kept) > SAMPLE:
            self.kept, self._stride = self.kept[::2].copy(), 2 * self._stride


@dataclass
class _Longest:
    """The longest run of readings so far, the first one on a tie."""

    start: int = 0
    stop: int = 0
    length: int = 0
    value: float = math.nan

    def take(self, starts: Any, stops: Any, lengths: Any, values: Any) -> None:
        best = int(np.argmax(lengths))
        if lengths[best] > self.length:
            self.start, self.stop, self.length = int(starts[best]), int(stops[best]), int(lengths[best])
            self.value = float(values[best])


class _VariableChecks:
    def __init__(self, statistics: Statistics, variable: int, leaves_range: bool) -> None:
        self._name, self._leaves_range = statistics.names[variable], leaves_range
        self._known = statistics.quantiles[:, variable]
        self._longest = int(statistics.longest[variable])
        width = self._known[-1] - self._known[0]
        self._bounds = self._known[0] - width, self._known[-1] + width
        self._missing, self._gap = 0, _Longest()
        self._open_gap = 0  # length of the gap that is still open
        self._same = _Longest()
        self._value, self._run, self._run_start = math.nan, 0, 0  # the current run of equal readings
        self._low, self._high = math.inf, -math.inf
        self._outside, self._first_outside, self._last_outside = 0, 0, 0

    def push(self, values: Floats, first: int) -> None:
        missing = np.isnan(values)
        self._push_gaps(missing, first)
        steps = np.flatnonzero(~missing)
        if not len(steps):
            return
        measured = values[steps]
        self._push_runs(measured, steps + first)
        self._low, self._high = min(self._low, float(measured.min())), max(self._high, float(measured.max()))
        outside = steps[(measured < self._bounds[0]) | (measured > self._bounds[1])] + first
        if len(outside):
            self._first_outside = self._first_outside if self._outside else int(outside[0])
            self._last_outside = int(outside[-1])
            self._outside += len(outside)

    def _push_gaps(self, missing: NDArray[np.bool_], first: int) -> None:
        self._missing += int(missing.sum())
        edges = np.flatnonzero(np.diff(missing, prepend=False, append=False))
        starts, stops = edges[::2] + first, edges[1::2] + first
        if len(starts):
            starts[0] -= self._open_gap if starts[0] == first else 0  # continues from the previous chunk
            self._gap.take(starts, stops, stops - starts, starts)
        self._open_gap = int(stops[-1] - starts[-1]) if missing[-1] else 0

    def _push_runs(self, measured: Floats, steps: NDArray[np.int64]) -> None:
        """Update the runs of equal values; missing readings in between do not break a run."""
        begins = _run_starts(measured)
        lengths = np.diff(begins, append=len(measured))
        starts, stops = steps[begins], steps[begins + lengths - 1] + 1
        if measured[0] == self._value:
            lengths[0] += self._run
            starts[0] = self._run_start
        self._same.take(starts, stops, lengths, measured[begins])
        self._value, self._run, self._run_start = float(measured[-1]), int(lengths[-1]), int(starts[-1])

    def findings(self, seen: int, steps: NDArray[np.int64], sample: Floats) -> list[Finding]:
        if self._missing == seen:
            return [self._finding("missing", 0, seen, "has no readings at all. Check its column, or fit without it.")]
        found = [self._constant(seen), self._gaps(seen), self._dead(), self._off_range(seen, steps, sample)]
        return [finding for finding in found if finding is not None]

    def _constant(self, seen: int) -> Finding | None:
        low, high = self._known[0], self._known[-1]
        if low != high:
            return None
        text = f"is always {low:.6g} in training, so there is no other value to compare with."
        if (self._low, self._high) != (low, high):
            text += f" Here it ranges from {self._low:.6g} to {self._high:.6g}."
        return self._finding("constant", 0, seen, text)

    def _gaps(self, seen: int) -> Finding | None:
        if not self._missing:
            return None
        gap = self._gap
        text = (
            f"is missing in {self._missing:,} of {seen:,} readings; the longest gap, from time step {gap.start:,}, "
            f"has length {gap.length:,}."
        )
        return self._finding("gaps", gap.start, gap.stop, text)

    def _dead(self) -> Finding | None:
        run = self._same
        if self._known[0] == self._known[-1] or run.length < max(LEAST_DEAD, DEAD_FACTOR * self._longest):
            return None
        text = (
            f"is stuck at {run.value:.6g} for {run.length:,} readings from time step {run.start:,}, but never for more "
            f"than {self._longest:,} in training. Check the sensor."
        )
        return self._finding("dead", run.start, run.stop, text)

    def _off_range(self, seen: int, steps: NDArray[np.int64], sample: Floats) -> Finding | None:
        """A unit change if one explains the readings, else readings far out of range."""
        if self._leaves_range or self._known[0] == self._known[-1]:
            return None
        out = self._outside >= max(LEAST_OUTSIDE, OUTSIDE_SHARE * (seen - self._missing))
        start, stop = (self._first_outside, self._last_outside + 1) if out else (0, seen)
        part = sample[(steps >= start) & (steps < stop)]
        part = part[~np.isnan(part)]
        quantiles = np.quantile(part, QUANTILES[1:-1]) if len(part) else np.full(len(QUANTILES) - 2, np.nan)
        quiet = (quantiles[-1] - quantiles[0]) * QUIET < self._known[-2] - self._known[1]
        conversion = likely_conversion(quantiles, self._known[1:-1]) if out or quiet else None
        usual = f"{self._known[0]:.6g} to {self._known[-1]:.6g}"
        if conversion is not None:
            text = (
                f"is around {quantiles[len(quantiles) // 2]:.6g} from time step {start:,}, but was {usual} in "
                f"training; a change from {conversion} would explain it. Check its unit."
            )
            return self._finding("unit", start, stop, text)
        if out:
            text = (
                f"is far outside its training range, {usual}, in {self._outside:,} readings from time step {start:,}. "
                "Check the sensor and its unit, or fit on readings where this is normal."
            )
            return self._finding("range", start, stop, text)
        return None

    def _finding(self, kind: str, start: int, stop: int, text: str) -> Finding:
        return Finding(kind, self._name, start, stop, f"Variable {self._name!r} {text}")


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
        before = 0 if self._last is None else 1
        intervals = _seconds(np.diff(times if self._last is None else np.concatenate([[self._last], times])))
        self._last = times[-1]
        at = first + 1 - before  # the reading after the first interval
        self._twice.take(intervals == 0, at)
        self._back.take(intervals < 0, at)
        self._odd.take(np.abs(intervals - self._period) > IRREGULAR * self._period, at)
        if len(intervals) and intervals.max() > self._longest:
            self._longest, self._longest_at = float(intervals.max()), at + int(intervals.argmax())
        self._sample.take(intervals)

    def findings(self, seen: int) -> list[Finding]:
        found = []
        if self._twice.count:
            found.append(self._twice.finding("duplicate", "Repeated timestamps", "Keep one reading for each"))
        if self._back.count:
            found.append(self._back.finding("unsorted", "Timestamps out of order", "Sort the readings by time"))
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

    def take(self, flags: NDArray[np.bool_], at: int) -> None:
        places = np.flatnonzero(flags) + at
        if len(places):
            self.first = self.first if self.count else int(places[0])
            self.last = int(places[-1])
            self.count += len(places)

    def finding(self, kind: str, what: str, advice: str) -> Finding:
        text = f"{what}: {self.count:,}, the first at time step {self.first:,}. {advice}."
        return Finding(kind, None, self.first, self.last + 1, text)


def _run_starts(values: Floats) -> NDArray[np.int64]:
    return np.flatnonzero(np.append(True, values[1:] != values[:-1]))


def _seconds(steps: NDArray[np.timedelta64]) -> Floats:
    return steps.astype("timedelta64[us]").astype(np.float64) / 1e6

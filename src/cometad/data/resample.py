"""Resampling of irregular readings to a regular grid.

A bin is half-open, [edge, edge + period), and labeled by its left edge; edges are whole multiples of the period since
1970-01-01 00:00 UTC. A rule reduces the readings of each variable in a bin to one and ignores missing ones. An empty
bin is a gap: its readings are missing (NaN).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar

import numpy as np

from cometad.arrays import Floats, Integers
from cometad.errors import InputError, ParameterError, unknown
from cometad.parameters import split
from cometad.saving import Saved, Table, array, integers, require_state
from cometad.series import Order, Series, numbered_names, together, unchecked_series

UNITS = {"ms": 10**3, "s": 10**6, "min": 60 * 10**6, "h": 3600 * 10**6, "d": 86_400 * 10**6}  # microseconds
MOST_EMPTY = 1_000_000  # empty bins in a row; more suggest a wrong timestamp


def parse_period(period: object) -> int:
    """Convert a period to microseconds: a number with a unit (ms, s, min, h, d), or a timedelta."""
    microseconds = 0.0
    if isinstance(period, timedelta):
        microseconds = period.total_seconds() * 1e6
    elif isinstance(period, np.timedelta64):
        microseconds = float(period.astype("timedelta64[us]").astype(np.int64))
    elif isinstance(period, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(ms|s|min|h|d)\s*", period)
        microseconds = float(match[1]) * UNITS[match[2]] if match else 0.0
    if not 1 <= microseconds < 2**62:
        raise ParameterError(
            f"Cannot read the period {period!r}. Pass a number above 0 with a unit, such as 60s. "
            f"Units: {', '.join(UNITS)}."
        )
    return round(microseconds)


@dataclass(frozen=True)
class Resampling:
    """A regular grid, and the rule that reduces the readings of a bin to one; snapshots of streams hold its `repr`.

    >>> import polars as pl
    >>> from datetime import datetime
    >>> from cometad.data.resample import Resampling
    >>> noon = [datetime(2024, 3, 1, 12, 0, second) for second in (1, 7, 31)]
    >>> run = Resampling("10s", "mean").start()
    >>> run.push(pl.DataFrame({"time": noon, "flow": [1.0, 2.0, 9.0]})).values[:, 0]  # the last bin is still open
    array([1.5, nan, nan])
    >>> run.finish().values[:, 0], run.bins, run.empty, run.several
    (array([9.]), 4, 2, 1)
    """

    period: str | timedelta | np.timedelta64
    rule: str = "last"

    def __post_init__(self) -> None:
        parse_period(self.period)
        if self.rule not in RULES:
            raise unknown("resampling rule", self.rule, RULES)

    def start(self, late: str = "refuse") -> "ResampleRun":
        """Start a run over readings that arrive in time order; late ones are refused or dropped."""
        return ResampleRun(self, late)


def parse_resampling(text: str) -> Resampling:
    """Parse PERIOD, which keeps the last reading of a bin, or PERIOD:RULE."""
    period, rule = split(text)
    return Resampling(period) if rule is None else Resampling(period, rule)


class ResampleRun(Saved):
    """Resamples readings that arrive in chunks of any size; keeps only those of the open bin.

    Readings of a chunk or of the open bin may be in any order; of readings with equal times, the last to arrive comes
    last. A reading is late if its bin is already complete.
    """

    saved: ClassVar[Table] = {
        "times": array("_times", "time?", dtype=np.int64),
        "rows": array("_rows", "time?", "variable?", unknown=True),
        "counts": integers("bins", "empty", "several"),
    }

    def __init__(self, resampling: Resampling, late: str = "refuse") -> None:
        self._period, self._rule = parse_period(resampling.period), RULES[resampling.rule]
        self.order = Order(late)  # readings before the open bin are late
        self._like: Series | None = None  # the last series pushed, for its names
        self._keep(np.empty(0, np.int64), np.empty((0, 0)))
        self.bins = 0  # returned so far
        self.empty = 0  # of these, without readings
        self.several = 0  # of these, with more than one reading

    def _keep(self, times: Integers, rows: Floats) -> None:
        """Hold the readings of the open bin, in time order."""
        self._times, self._rows = times, rows
        before = (times[-1:] // self._period * self._period - 1).astype("datetime64[us]")
        self.order.last = before[0] if len(before) else None

    def push(self, readings: object) -> Series:
        """Add readings, a frame or series with times; returns the bins that are now complete."""
        given = unchecked_series(readings)
        if given.times is None:
            raise InputError("Resampling needs times, and these readings have none.", advice="no times")
        given = replace(given, times=given.times.astype("datetime64[us]"))
        series = self.order.on_time(given, increasing=False)
        self._like = series
        times = np.concatenate([self._times, series.times.astype(np.int64)])  # type: ignore[union-attr]
        rows = np.concatenate([self._rows if len(self._rows) else series.values[:0], series.values])
        order = np.argsort(times, kind="stable")
        times, rows = times[order], rows[order]
        _check_jumps(times, self._period)
        following = int(times[-1] // self._period)
        opened = int(np.searchsorted(times, following * self._period))
        bins = self._bins(times[:opened], rows[:opened], following)
        self._keep(times[opened:], rows[opened:])
        self.order.dropped += len(given) - len(series)
        return bins

    def finish(self) -> Series:
        """End the readings; returns the bin that was still open."""
        bins = self._bins(self._times, self._rows, int(self._times[-1] // self._period) + 1 if len(self._times) else 0)
        self._keep(self._times[:0], self._rows[:0])
        return bins

    def check_state(self) -> None:
        """Refuse times out of order; the names of variables come with the next readings."""
        require_state(bool((np.diff(self._times) >= 0).all()), "its array 'times' is not in time order")
        self._keep(self._times, self._rows)

    def _bins(self, times: Integers, rows: Floats, stop: int) -> Series:
        """The bins of rows in time order up to the bin `stop`, with the empty ones."""
        numbers = times // self._period
        starts = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 1))
        places = numbers[starts]
        first = int(places[0]) if len(places) else stop
        values = np.full((stop - first, rows.shape[1]), np.nan)
        if len(places):
            values[places - first] = self._rule(rows, starts)
        edges = (np.arange(first, stop) * self._period).astype("datetime64[us]")
        names = numbered_names(rows.shape[1]) if self._like is None else self._like.names
        bins = Series(values, names, edges, self._like is not None and self._like.named, self.bins)
        self.bins += len(values)
        self.empty += len(values) - len(places)
        self.several += int((np.diff(starts, append=len(times)) > 1).sum())
        return bins


def resample(readings: object, period: str | timedelta | np.timedelta64, rule: str = "last") -> Series:
    """Resample a whole frame or series with times to a regular grid.

    Readings may be in any order. If bins are empty, fit and score the result with a gap rule.

    >>> import polars as pl
    >>> from datetime import datetime
    >>> from cometad.data.resample import resample
    >>> times = [datetime(2024, 3, 1, 12, minute) for minute in (2, 0, 3, 3)]
    >>> regular = resample(pl.DataFrame({"time": times, "flow": [3.0, 1.0, 4.0, 5.0]}), "1min", "max")
    >>> regular.values[:, 0], regular.when(1)
    (array([ 1., nan,  3.,  5.]), 'time step 1 (2024-03-01T12:01:00.000000)')
    """
    run = Resampling(period, rule).start()
    return together([run.push(readings), run.finish()])


def summary(run: ResampleRun) -> str:
    return f"Resampled to {run.bins:,} readings: {run.empty:,} are empty, {run.several:,} combine several."


# --- rules ------------------------------------------------------------------------------------------------------------
# Each takes rows (time, variable) and the row where each bin starts, and returns (bin, variable).


def _mean(rows: Floats, starts: Integers) -> Floats:
    missing = np.isnan(rows)
    total = np.add.reduceat(np.where(missing, 0.0, rows), starts)
    count = np.add.reduceat(~missing, starts, dtype=np.int64)
    means: Floats = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return means


def _at_end(rows: Floats, starts: Integers, end: np.ufunc, none: int) -> Floats:
    """The reading at one end of each bin; NaN if all are missing."""
    steps = end.reduceat(np.where(np.isnan(rows), none, np.arange(len(rows))[:, None]), starts)
    return np.where(steps == none, np.nan, rows[np.where(steps == none, 0, steps), np.arange(rows.shape[1])])


RULES: dict[str, Callable[[Floats, Integers], Floats]] = {
    "last": lambda rows, starts: _at_end(rows, starts, np.maximum, -1),
    "first": lambda rows, starts: _at_end(rows, starts, np.minimum, len(rows)),
    "mean": _mean,
    "min": lambda rows, starts: np.fmin.reduceat(rows, starts),
    "max": lambda rows, starts: np.fmax.reduceat(rows, starts),
}


def _check_jumps(times: Integers, period: int) -> None:
    jumps = np.diff(times) // period
    if len(jumps) and jumps.max() > MOST_EMPTY:
        step = int(jumps.argmax())
        before, after = times[step : step + 2].astype("datetime64[us]").astype("datetime64[s]")
        raise InputError(
            f"There are no readings between {before} and {after}, which is {jumps.max():,} periods. "
            "Correct the times or choose a longer period."
        )

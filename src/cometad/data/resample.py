"""Readings at any times, resampled to a regular grid.

The rule is stated once, here: a bin is half-open, [edge, edge + period), and labeled by its left edge; edges are whole
multiples of the period since 1970-01-01 00:00 UTC. Each variable's readings in a bin become one by the rule chosen;
missing ones do not count. A bin without any is a gap: its readings are missing (NaN).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cometad.arrays import Floats
from cometad.errors import InputError, ParameterError, unknown
from cometad.series import Series, together, unchecked_series

UNITS = {"ms": 10**3, "s": 10**6, "min": 60 * 10**6, "h": 3600 * 10**6, "d": 86_400 * 10**6}  # microseconds
MOST_EMPTY = 1_000_000  # empty bins in a row: more are taken for a wrong time

Starts = NDArray[np.int64]  # (bin,)  the first row of each bin that has rows


def parse_period(period: object) -> int:
    """A period in microseconds: a number with a unit (ms, s, min, h, d), or a timedelta.

    >>> from cometad.data.resample import parse_period
    >>> parse_period("5min"), parse_period("0.5s")
    (300000000, 500000)
    """
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
            f"The period {period!r} is not one. Pass a number above 0 with a unit, such as 60s; units are "
            f"{', '.join(UNITS)}."
        )
    return round(microseconds)


@dataclass(frozen=True)
class Resampling:
    """A regular grid and the rule by which the readings of a bin become one.

    >>> import polars as pl
    >>> from datetime import datetime
    >>> from cometad.data.resample import Resampling
    >>> noon = [datetime(2024, 3, 1, 12, 0, second) for second in (1, 7, 31)]
    >>> run = Resampling("10s", "mean").start()
    >>> run.push(pl.DataFrame({"time": noon, "flow": [1.0, 2.0, 9.0]})).values[:, 0]  # the last bin may get more
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

    def start(self) -> "ResampleRun":
        """A run over readings that arrive in the order of time."""
        return ResampleRun(self)


def parse_resampling(text: str) -> Resampling:
    """The grid of a period, with a rule where another one than the last reading is wanted.

    >>> from cometad.data.resample import parse_resampling
    >>> parse_resampling("60s"), parse_resampling("5min:mean")
    (Resampling(period='60s', rule='last'), Resampling(period='5min', rule='mean'))
    """
    period, colon, rule = text.partition(":")
    return Resampling(period, rule) if colon else Resampling(period)


class ResampleRun:
    """Resamples readings that arrive in chunks of any size; holds only those of the bin that is still open.

    Inside a chunk readings may stand in any order, and so may those of the open bin; of equal times the one that came
    later is the later one. A reading for a bin that has been given is refused.

    >>> import numpy as np, polars as pl
    >>> from cometad.data.resample import Resampling
    >>> times = np.array([0, 70_000, 65_000], "datetime64[ms]")
    >>> run = Resampling("1min").start()
    >>> run.push(pl.DataFrame({"time": times, "flow": [1.0, 7.0, 5.0]})).values.tolist(), run.finish().values.tolist()
    ([[1.0]], [[7.0]])
    """

    def __init__(self, resampling: Resampling) -> None:
        self._period, self._rule = parse_period(resampling.period), RULES[resampling.rule]
        self._like: Series | None = None  # whose names the bins have
        self._times, self._rows = np.empty(0, np.int64), np.empty((0, 0))  # of the open bin, in the order of time
        self.bins = 0  # given so far
        self.empty = 0  # of these, without any reading
        self.several = 0  # of these, with more than one

    @property
    def edge(self) -> np.datetime64 | None:
        """The left edge of the open bin: what is earlier comes too late."""
        return None if not len(self._times) else _datetime(self._times[-1] // self._period * self._period)

    def push(self, readings: object) -> Series:
        """The bins that are complete with these readings: a frame with times, or a series that has some."""
        series = unchecked_series(readings)
        times = _microseconds(series)
        if self.edge is not None:
            late = times < self.edge.astype(np.int64)
            if late.any():
                raise InputError(
                    f"The reading at {series.when(int(late.argmax()))} comes late: its bin was given already. "
                    "Sort the readings by time first, or drop late ones."
                )
        self._like = series
        if not len(self._rows):
            self._rows = np.empty((0, len(series.names)))
        times, rows = np.concatenate([self._times, times]), np.concatenate([self._rows, series.values])
        order = np.argsort(times, kind="stable")
        times, rows = times[order], rows[order]
        opened = int(np.searchsorted(times, times[-1] // self._period * self._period))
        _check_jumps(times, self._period)
        following = int(times[-1] // self._period)
        given = self._bins(times[:opened], rows[:opened], following if opened else None)
        self._times, self._rows = times[opened:], rows[opened:]
        return given

    def finish(self) -> Series:
        """The bin that was still open."""
        given = self._bins(self._times, self._rows, None)
        self._times, self._rows = self._times[:0], self._rows[:0]
        return given

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that a later `restore` needs, by name."""
        counts = np.array([self.bins, self.empty, self.several], np.int64)
        return {"times": self._times.copy(), "rows": self._rows.copy(), "counts": counts}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Become the run whose state it is; it resamples alike. The variables' names come with the next readings."""
        self._times, self._rows = state["times"].copy(), state["rows"].copy()
        self.bins, self.empty, self.several = (int(count) for count in state["counts"])

    def _bins(self, times: Starts, rows: Floats, following: int | None) -> Series:
        """The bins of rows in the order of time, and the empty ones up to the bin that follows."""
        numbers = times // self._period
        starts = np.flatnonzero(np.append(len(times) > 0, np.diff(numbers) > 0)[: len(times)])
        places = numbers[starts]
        first = int(places[0]) if len(places) else 0
        stop = following if following is not None else (int(places[-1]) + 1 if len(places) else 0)
        values = np.full((stop - first, rows.shape[1]), np.nan)
        if len(places):
            values[places - first] = self._rule(rows, starts)
        edges = _datetime(np.arange(first, stop) * self._period)
        names = tuple(f"v{i}" for i in range(rows.shape[1])) if self._like is None else self._like.names
        given = Series(values, names, edges, self._like is not None and self._like.named, self.bins)
        self.bins += len(values)
        self.empty += len(values) - len(places)
        self.several += int((np.diff(starts, append=len(times)) > 1).sum())
        return given


def resample(readings: object, period: str | timedelta | np.timedelta64, rule: str = "last") -> Series:
    """A whole frame with times, or a series that has some, on a regular grid: a run taken to its end.

    Readings may stand in any order. Fit and score what comes out with a rule for gaps, or without empty bins as it is.

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


def told(run: ResampleRun) -> str:
    """What a run did, as a sentence.

    >>> from cometad.data.resample import Resampling, told
    >>> told(Resampling("60s").start())
    'Resampled to 0 readings: 0 of them are empty, 0 were made of several.'
    """
    return f"Resampled to {run.bins:,} readings: {run.empty:,} of them are empty, {run.several:,} were made of several."


# --- rules ------------------------------------------------------------------------------------------------------------
# Each takes rows (time, variable) and where bins start among them, and gives (bin, variable).


def _mean(rows: Floats, starts: Starts) -> Floats:
    missing = np.isnan(rows)
    total = np.add.reduceat(np.where(missing, 0.0, rows), starts)
    count = np.add.reduceat(~missing, starts, dtype=np.int64)
    means: Floats = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return means


def _first(rows: Floats, starts: Starts) -> Floats:
    steps = np.arange(len(rows))[:, None]
    return _taken(rows, np.minimum.reduceat(np.where(np.isnan(rows), len(rows), steps), starts))


def _last(rows: Floats, starts: Starts) -> Floats:
    steps = np.arange(len(rows))[:, None]
    return _taken(rows, np.maximum.reduceat(np.where(np.isnan(rows), -1, steps), starts))


def _taken(rows: Floats, chosen: Starts) -> Floats:
    """The chosen row (bin, variable) of each variable; NaN where the row does not exist."""
    exists = (chosen >= 0) & (chosen < len(rows))
    return np.where(exists, rows[np.where(exists, chosen, 0), np.arange(rows.shape[1])], np.nan)


RULES: dict[str, Callable[[Floats, Starts], Floats]] = {
    "last": _last,
    "first": _first,
    "mean": _mean,
    "min": lambda rows, starts: np.fmin.reduceat(rows, starts),
    "max": lambda rows, starts: np.fmax.reduceat(rows, starts),
}


# --- times ------------------------------------------------------------------------------------------------------------


def _microseconds(series: Series) -> Starts:
    if series.times is None:
        raise InputError("Resampling needs times; these readings have none. Pass a frame with a column of dates.")
    missing = np.isnat(series.times)
    if missing.any():
        raise InputError(f"The time of reading {int(missing.argmax())} is missing. Fill or drop that reading first.")
    return series.times.astype("datetime64[us]").astype(np.int64)


def _datetime(microseconds: Any) -> Any:
    return np.asarray(microseconds, np.int64).astype("datetime64[us]")[()]


def _check_jumps(times: Starts, period: int) -> None:
    jumps = np.diff(times) // period
    if len(jumps) and jumps.max() > MOST_EMPTY:
        step = int(jumps.argmax())
        before, after = (_datetime(times[i]).astype("datetime64[s]") for i in (step, step + 1))
        raise InputError(
            f"Between {before} and {after} there is no reading for {jumps.max():,} periods. "
            "Correct the times, or choose a longer period."
        )

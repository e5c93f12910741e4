"""A checked series: values, names, times and what is missing; and the one policy for late readings.

Conventions used everywhere: a series has the shape (time, variable); a higher score is more anomalous; a label or flag
of 1 (`True`) means anomalous; intervals are half-open.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

import numpy as np

from cometad.arrays import Array, Flags, Floats, Integers
from cometad.errors import InputError, unknown
from cometad.frames import as_frame, from_array, from_frame, row_of_a_frame

TIME = (str, date, np.datetime64)  # types of times that people give
LATE = ("refuse", "drop")  # what to do with a late reading


@dataclass(frozen=True)
class Series:
    """Readings with the names of their variables and, if known, their times.

    Missing readings, where allowed, are NaN until a gap rule fills them. After that all values are finite, and
    `imputed` and `doubtful` mark those that were not measured.
    """

    values: Floats  # (time, variable)
    names: tuple[str, ...]
    times: Array | None  # (time,)  strictly increasing, once checked
    named: bool  # the names came with the data, so they can be compared
    first: int = 0  # the number of the first time step
    imputed: Flags | None = None  # (time, variable)  None if nothing is imputed
    doubtful: Flags | None = None  # (time, variable)  imputed with a placeholder: never learned from
    where: Callable[[int], str] | None = None  # the place of a reading in a file, in words

    def __len__(self) -> int:
        return len(self.values)

    @property
    def micros(self) -> Integers | None:
        """The times (time,) in microseconds since 1970, if they are known."""
        return None if self.times is None else self.times.astype("datetime64[us]").astype(np.int64)

    def located(self, when: object) -> Any:
        """Time steps for times: one, or a pair (start, stop); anything else as it is.

        A time is a text such as "2026-11-18T09:30Z" or a datetime; without a zone it is in UTC, like the series. It is
        that of the reading at or before it. The reading at a stop is included, as in an event's times.
        """
        if isinstance(when, tuple | list) and len(when) == 2:
            start, stop = when
            return self.located(start), self.located(stop) + 1 if isinstance(stop, TIME) else stop
        return self._step_at(when) if isinstance(when, TIME) else when

    def _step_at(self, when: Any) -> int:
        if self.times is None:
            raise InputError(f"The series has no times, so {str(when)!r} cannot be found. Pass a time step.")
        try:
            moment = datetime.fromisoformat(when) if isinstance(when, str) else when
            if isinstance(moment, datetime) and moment.tzinfo is not None:
                moment = moment.astimezone(UTC).replace(tzinfo=None)
            found = np.datetime64(moment).astype("datetime64[us]")
        except ValueError as error:
            raise InputError(f"Cannot read the time {when!r}. Write it like 2026-11-18T09:30Z.") from error
        first, last = self.times[0], self.times[-1]
        if not first <= found <= last:
            known = " to ".join(f"{np.datetime_as_string(time, unit='s')}Z" for time in (first, last))
            raise InputError(f"The time {when} is outside the series, which is from {known}.")
        return int(np.searchsorted(self.times, found, side="right")) - 1

    def when(self, step: int) -> str:
        """A time step for messages, with its place in a file and its time if known."""
        number = f"time step {self.first + step}"
        known = [] if self.where is None else [number]
        known += [] if self.times is None else [str(self.times[step])]
        return (self.where(step) if self.where else number) + (f" ({', '.join(known)})" if known else "")


def as_series(X: object, names: Sequence[str] = (), first: int = 0, missing: bool = False) -> Series:
    """Check an array or a pandas or polars frame and return it as a series; `missing` allows missing readings.

    In a frame, one column of dates (or a pandas datetime index) is the time; all other columns must hold numbers or
    booleans. Constant variables are accepted. `names` are the variables of an array, and `first` is the number of the
    first time step, for messages about a part of a longer series.

    >>> import polars as pl
    >>> from datetime import datetime
    >>> from cometad.series import as_series
    >>> frame = pl.DataFrame({"time": [datetime(2024, 3, 1), datetime(2024, 3, 2)], "flow": [1.0, 2.0]})
    >>> as_series(frame).names, as_series(frame).when(1)
    (('flow',), 'time step 1 (2024-03-02T00:00:00.000000)')
    """
    series = X if isinstance(X, Series) else unchecked_series(X, names, first)
    Order().on_time(series)
    _check_numbers(series, missing)
    return series


def unchecked_series(
    X: object, names: Sequence[str] = (), first: int = 0, where: Callable[[int], str] | None = None
) -> Series:
    """Return an array or a frame as a series without checks: readings may be missing, times may repeat or go back.

    `where` returns the place of a row of the frame, for messages, if it comes from a file.
    """
    if isinstance(X, Series):
        return X
    frame = as_frame(X)
    if frame is None:
        values, own_names, times = from_array(X, first), None, None
    else:
        values, own_names, times = from_frame(X, frame, first, where or row_of_a_frame(first))
    if len(values) == 0:
        raise InputError(f"The series is empty: it has the shape {values.shape}. Pass at least one reading.")
    if values.shape[1] == 0:
        raise InputError("The series is empty: it has no variables.", advice="no variables", shape=values.shape)
    named = own_names is not None
    if own_names is None:
        own_names = tuple(names) if len(names) == values.shape[1] else numbered_names(values.shape[1])
    return Series(values, own_names, times, named, first, where=where)


def numbered_names(count: int) -> tuple[str, ...]:
    return tuple(f"v{number}" for number in range(count))


def check_like(series: Series, names: tuple[str, ...], named: bool, detector: str = "it") -> None:
    """Refuse a series whose variables are not those the detector was fitted on; `detector` names it in the message."""
    given, fitted = series.values.shape[1], len(names)
    if given != fitted:
        difference = _difference(series, names) if named and series.named else ""
        raise InputError(
            f"The detector was fitted on {fitted} variables, but this series has {given}{difference}.",
            advice="other variables",
            detector=detector,
            given=given,
            fitted=fitted,
        )
    if named and series.named and series.names != names:
        theirs, ours = next((a, b) for a, b in zip(series.names, names, strict=True) if a != b)
        raise InputError(
            f"The detector was fitted on a variable {ours!r} where this series has {theirs!r}. "
            "Pass the same columns in the same order as at fit."
        )


def _difference(series: Series, names: tuple[str, ...]) -> str:
    extra = [repr(name) for name in series.names if name not in names]
    lacking = [repr(name) for name in names if name not in series.names]
    parts = [
        f"{word}: {', '.join(own[:2])}{', ...' if len(own) > 2 else ''}"
        for word, own in (("extra", extra), ("missing", lacking))
        if own
    ]
    return f" ({'; '.join(parts)})" if parts else ""


def with_all_columns(series: Series, names: tuple[str, ...]) -> Series:
    """Add a column of missing readings for each variable the series lacks.

    Only if its own columns are named and in the order of `names`; otherwise the series is returned as it is.
    """
    places = [names.index(name) for name in series.names if name in names]
    if not series.named or len(places) != len(series.names) or places != sorted(places) or len(places) == len(names):
        return series
    values = np.full((len(series), len(names)), np.nan)
    values[:, places] = series.values
    return replace(series, values=values, names=names)


def together(parts: Sequence[Series]) -> Series:
    times = [part.times for part in parts if part.times is not None]
    values = np.concatenate([part.values for part in parts])
    return replace(parts[0], values=values, times=np.concatenate(times) if times else None, where=None)


def check_length(rows: int, least: int, what: str) -> None:
    if rows < least:
        readings = "1 reading" if rows == 1 else f"{rows} readings"
        raise InputError(f"The series has {readings}, fewer than {what} ({least}).", advice="too short", rows=rows)


def check_late(late: str) -> None:
    if late not in LATE:
        raise unknown("rule for late readings", late, LATE)


@dataclass
class Order:
    """The policy for late readings: those not after the `last` time are refused, or dropped and counted.

    Its owner moves the last time, and counts.
    """

    late: str = "refuse"
    last: Any = None  # a number or a datetime64; readings up to it are late
    dropped: int = 0

    def __post_init__(self) -> None:
        check_late(self.late)

    def on_time(self, series: Series, increasing: bool = True) -> Series:
        """The readings after the last time and, if `increasing`, after all before them; a missing time is refused."""
        if series.times is None:
            return series
        if np.isnat(series.times).any():
            step = series.first + int(np.argmax(np.isnat(series.times)))
            raise InputError(f"The time of reading {step} is missing. Fill or drop that reading first.")
        late = np.zeros(len(series), bool) if self.last is None else series.times <= self.last
        if increasing:
            late[1:] |= series.times[1:] <= np.maximum.accumulate(series.times)[:-1]
        if not late.any():
            return series
        if self.late == "refuse":
            step = int(late.argmax())
            problem = "belongs to a bin that is already complete"
            if increasing:
                before = series.times[step - 1] if step else self.last
                problem = "appears twice" if series.times[step] == before else "is earlier than the one before it"
                time = series.times[step]
                if time == before and time.dtype == "datetime64[us]" and time.astype("datetime64[ms]") != time:
                    problem += " (times are kept in microseconds)"  # it may have been finer before
            raise InputError(
                f"The timestamp of {series.when(step)} {problem}. Sort the readings by time and drop duplicates first."
            )
        return replace(series, values=series.values[~late], times=series.times[~late], where=None)


def _check_numbers(series: Series, missing: bool) -> None:
    """Refuse infinite values and, unless readings may be missing, NaN."""
    wrong = np.isinf(series.values) if missing else ~np.isfinite(series.values)
    if not wrong.any():
        return
    step, variable = (int(i) for i in np.argwhere(wrong)[0])
    value = series.values[step, variable]
    place = f"{'in' if series.where else 'at'} {series.when(step)}"
    problem = f"Variable {series.names[variable]!r} is {value} {place}."
    if np.isnan(value):
        raise InputError(problem, advice="gaps")
    raise InputError(f"{problem} Correct or drop that reading first, or mark it as missing (NaN).")

"""A checked series: values, names, times, and what is missing.

Conventions, said once: a series has the shape (time, variable); a higher score is more anomalous; a label or flag of 1
(`True`) is anomalous; intervals are half-open.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np

from cometad.arrays import Array, Flags, Floats
from cometad.errors import InputError


@dataclass(frozen=True)
class Series:
    """A checked series: numbers with the names of their variables and, where given, their times.

    Missing readings are NaN, where they are allowed, until a gap rule has filled them: then all numbers are finite, and
    `imputed` and `doubtful` say which of them nobody measured.

    >>> import numpy as np
    >>> from cometad.series import as_series
    >>> series = as_series(np.zeros((3, 2)))
    >>> series.names, series.times
    (('v0', 'v1'), None)
    """

    values: Floats  # (time, variable)
    names: tuple[str, ...]
    times: Array | None  # (time,) strictly increasing
    named: bool  # the names came with the data: they can be compared with others
    first: int = 0  # the number of the first time step
    imputed: Flags | None = None  # (time, variable)  filled in; None where nothing is
    doubtful: Flags | None = None  # (time, variable)  filled in, and not to be learned from

    def __len__(self) -> int:
        return len(self.values)

    def when(self, step: int) -> str:
        """The time step, with its time where there is one."""
        number = self.first + step
        return f"time step {number}" if self.times is None else f"time step {number} ({self.times[step]})"


def as_series(X: object, names: Sequence[str] = (), first: int = 0, missing: bool = False) -> Series:
    """The checked series behind an array or a pandas or polars frame; whether readings may be `missing` is said.

    In a frame, one column of dates (or, in pandas, a datetime index) is taken as the time; all other columns must be
    numbers or booleans. Constant variables are accepted. `names` are for an array, which has none of its own, and
    `first` is the number of the first time step, for what is said of a series that is a part of a longer one.

    >>> import polars as pl
    >>> from datetime import datetime
    >>> from cometad.series import as_series
    >>> frame = pl.DataFrame({"time": [datetime(2024, 3, 1), datetime(2024, 3, 2)], "flow": [1.0, 2.0]})
    >>> as_series(frame).names, as_series(frame).when(1)
    (('flow',), 'time step 1 (2024-03-02T00:00:00.000000)')
    """
    series = X if isinstance(X, Series) else unchecked_series(X, names, first)
    _check_times(series)
    _check_numbers(series, missing)
    return series


def unchecked_series(X: object, names: Sequence[str] = (), first: int = 0) -> Series:
    """The series behind an array or a frame as it is: readings may be missing, times may stand twice or fall.

    >>> import numpy as np
    >>> from cometad.series import unchecked_series
    >>> unchecked_series(np.array([[1.0, np.nan]])).values
    array([[ 1., nan]])
    """
    if isinstance(X, Series):
        return X
    frame = _frame(X)
    if isinstance(frame, nw.DataFrame):
        values, own_names, times = _from_frame(X, frame)
    else:
        values, own_names, times = _from_array(X), None, None
    if len(values) == 0 or values.shape[1] == 0:
        raise InputError(f"The series is empty: it has the shape {values.shape}. Pass at least one reading.")
    named = own_names is not None
    if own_names is None:
        numbered = tuple(f"v{i}" for i in range(values.shape[1]))
        own_names = tuple(names) if len(names) == values.shape[1] else numbered
    return Series(values, own_names, times, named, first)


def check_like(series: Series, names: tuple[str, ...], named: bool) -> None:
    """Refuse a series whose variables are not those that the detector was fitted on."""
    if series.values.shape[1] != len(names):
        raise InputError(
            f"The detector was fitted on {len(names)} variables; this series has {series.values.shape[1]}. "
            "Pass the same variables as at fit."
        )
    if named and series.named and series.names != names:
        theirs, ours = next((a, b) for a, b in zip(series.names, names, strict=True) if a != b)
        raise InputError(
            f"The detector was fitted on a variable {ours!r} where this series has {theirs!r}. "
            "Pass the same columns in the same order as at fit."
        )


def with_all_columns(series: Series, names: tuple[str, ...]) -> Series:
    """The series with a column of missing readings for each variable that it has no column of.

    Only where the columns that are there are named, and stand in the order of the names; else the series as it is.

    >>> import polars as pl
    >>> from cometad.series import unchecked_series, with_all_columns
    >>> with_all_columns(unchecked_series(pl.DataFrame({"level": [1.0]})), ("flow", "level")).values
    array([[nan,  1.]])
    """
    there = [names.index(name) for name in series.names if name in names]
    if not series.named or len(there) != len(series.names) or there != sorted(there) or len(there) == len(names):
        return series
    values = np.full((len(series), len(names)), np.nan)
    values[:, there] = series.values
    return replace(series, values=values, names=names)


def together(parts: Sequence[Series]) -> Series:
    """The parts of a series, in order and one at least, as a whole.

    >>> import numpy as np
    >>> from cometad.series import as_series, together
    >>> len(together([as_series(np.zeros((2, 1))), as_series(np.ones((3, 1)))]))
    5
    """
    times = [part.times for part in parts if part.times is not None]
    values = np.concatenate([part.values for part in parts])
    return replace(parts[0], values=values, times=np.concatenate(times) if times else None)


def check_length(rows: int, least: int, what: str) -> None:
    """Refuse a series too short to be looked at even once."""
    if rows < least:
        raise InputError(
            f"The series has {rows} readings, fewer than {what} ({least}). Pass a longer series or a shorter window."
        )


def on_time(series: Series, last: np.datetime64 | None) -> Flags:
    """Which readings (time,) come after all that were before them, and after a last time; all of them without times.

    >>> import numpy as np
    >>> from cometad.series import Series, on_time
    >>> times = np.array(["2024-03-01", "2024-03-03", "2024-03-02", "2024-03-03"], "datetime64[us]")
    >>> on_time(Series(np.zeros((4, 1)), ("flow",), times, named=True), np.datetime64("2024-02-29", "us"))
    array([ True,  True, False, False])
    """
    if series.times is None:
        return np.ones(len(series), bool)
    first = np.datetime64(-(2**63) + 1, "us") if last is None else last.astype("datetime64[us]")
    times = series.times.astype("datetime64[us]")
    latest = np.maximum.accumulate(np.concatenate([[first], times[:-1]]))
    late: Flags = times <= latest  # a time that is missing is not late: it is refused
    return ~late


def check_after(series: Series, last: np.datetime64) -> None:
    """Refuse a series that does not go on after the last time of the one before it."""
    if series.times is not None and series.times[0] <= last:
        raise _backward(series, 0, last)


def _frame(X: object) -> object:
    try:
        return nw.from_native(X, pass_through=True, eager_only=True)
    except nw.exceptions.DuplicateError as error:
        names = [str(name) for name in X.columns]  # type: ignore[attr-defined]
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"The frame has two columns named {twice!r}. Rename or drop one of them.") from error


def _from_array(X: object) -> Floats:
    if np.ma.isMaskedArray(X):
        X = np.ma.filled(np.ma.asarray(X, dtype=np.float64), np.nan)  # a masked reading is a missing one
    try:
        values = np.asarray(X)
        if values.dtype.kind not in "biuf":
            raise TypeError
        values = values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"A series needs numbers in the shape (time, variable); this is a {type(X).__name__} that does not "
            "turn into an array of numbers. Pass a numpy array or a pandas or polars frame."
        ) from error
    if values.ndim != 2:
        hint = "For a single variable pass series[:, None]." if values.ndim == 1 else "Pass one series at a time."
        raise InputError(f"A series needs the shape (time, variable); this one has the shape {values.shape}. {hint}")
    return values


def _from_frame(X: object, frame: nw.DataFrame[Any]) -> tuple[Floats, tuple[str, ...], Array | None]:
    times = None
    if nw.dependencies.is_pandas_dataframe(X) and X.index.dtype.kind == "M":
        times = _naive_utc(X.index).to_numpy()
    dates = [name for name, dtype in frame.schema.items() if isinstance(dtype, nw.Datetime | nw.Date)]
    if len(dates) + (times is not None) > 1:
        raise InputError(
            f"The frame has more than one time: {', '.join(dates)}. Keep one column of dates or a datetime index."
        )
    if dates:
        column = frame.get_column(dates[0])
        if column.null_count():
            raise InputError(f"The time column {dates[0]!r} has empty cells. Fill or drop those readings first.")
        times = _datetimes(column)
    numbers = frame.drop(dates)
    for name, dtype in numbers.schema.items():
        if not (dtype.is_numeric() or dtype == nw.Boolean):
            raise InputError(f"Column {name!r} is not numeric (it is {dtype}). Drop it or turn it into numbers.")
    names = tuple(str(name) for name in numbers.columns)
    columns = [column.cast(nw.Float64).to_numpy() for column in numbers.iter_columns()]
    values = np.column_stack(columns).astype(np.float64) if columns else np.empty((len(frame), 0))
    return np.ascontiguousarray(values), names, times


def _naive_utc(index: Any) -> Any:
    return index if index.tz is None else index.tz_convert("UTC").tz_localize(None)


def _datetimes(column: nw.Series[Any]) -> Array:
    if isinstance(column.dtype, nw.Datetime) and column.dtype.time_zone is not None:
        column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    return column.to_numpy().astype("datetime64[us]")


def _check_times(series: Series) -> None:
    if series.times is None:
        return
    if np.isnat(series.times).any():
        step = int(np.argmax(np.isnat(series.times)))
        raise InputError(f"The time of reading {step} is missing. Fill or drop that reading first.")
    backward = np.diff(series.times) <= np.timedelta64(0)
    if backward.any():
        step = int(np.argmax(backward)) + 1
        raise _backward(series, step, series.times[step - 1])


def _backward(series: Series, step: int, before: np.datetime64) -> InputError:
    problem = "stands twice" if series.times is not None and series.times[step] == before else "comes after a later one"
    return InputError(
        f"The times must increase from reading to reading; at {series.when(step)} one {problem}. "
        "Sort the readings by time and drop duplicates first."
    )


def _check_numbers(series: Series, missing: bool) -> None:
    """Refuse what is infinite and, unless readings may be missing, what is not a number."""
    if np.isfinite(series.values).all():
        return
    wrong = np.isinf(series.values) if missing else ~np.isfinite(series.values)
    if not wrong.any():
        return
    step, variable = (int(i) for i in np.argwhere(wrong)[0])
    value = series.values[step, variable]
    advice = (
        "Fill or drop missing readings first, or choose a rule such as gaps=ForwardFill(limit=5)."
        if np.isnan(value)
        else "Correct or drop that reading first, or mark it as missing (NaN)."
    )
    raise InputError(f"Variable {series.names[variable]!r} is {value} at {series.when(step)}. {advice}")

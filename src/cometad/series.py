"""A checked series: values, names, times and what is missing; and the one policy for late readings.

Conventions used everywhere: a series has the shape (time, variable); a higher score is more anomalous; a label or flag
of 1 (`True`) means anomalous; intervals are half-open.
"""

import reprlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from cometad.arrays import Array, Flags, Floats, Integers
from cometad.errors import CellError, InputError, unknown
from cometad.parameters import is_number

if TYPE_CHECKING:
    import narwhals as nw

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
    frame = _as_frame(X)
    if frame is None:
        values, own_names, times = _from_array(X, first), None, None
    else:
        values, own_names, times = _from_frame(X, frame, first, where or _row_of_a_frame(first))
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


# -- arrays and frames ------------------------------------------------------------------------------------------------


def _as_frame(X: object) -> "nw.DataFrame[Any] | None":
    """A pandas or polars frame as one of narwhals; None for anything else."""
    if isinstance(X, np.ndarray | list | tuple):  # no need to import narwhals
        return None
    import narwhals as nw

    try:
        frame = nw.from_native(X, pass_through=True, eager_only=True)
        return frame if isinstance(frame, nw.DataFrame) else None
    except nw.exceptions.DuplicateError as error:
        names = [str(name) for name in X.columns]  # type: ignore[attr-defined]
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"The frame has two columns named {twice!r}. Rename or drop one of them.") from error


def _from_array(X: object, first: int) -> Floats:
    """The numbers (time, variable) of an array, or of lists."""
    if isinstance(X, list | tuple) and any(map(np.ma.isMaskedArray, X)) and len({np.shape(row) for row in X}) == 1:
        X = np.ma.array(X)
    if np.ma.isMaskedArray(X):
        _check_exact(np.ma.filled(X, 0), "The array", first)
        X = np.ma.filled(np.ma.asarray(X, dtype=np.float64), np.nan)  # a masked reading is a missing one
    if hasattr(X, "toarray"):
        raise InputError("A series is dense, not sparse. Pass X.toarray().")
    try:
        values = np.asarray(X)
        if values.dtype.kind == "c":
            raise InputError("Complex data not supported. Pass real numbers, such as the real and imaginary parts.")
        if values.ndim == 2 and _is_rounded(X, values):
            values = np.array(X, object)
        if values.dtype.kind == "O" and values.ndim == 2:
            values = _from_objects(values, first)
        if values.dtype.kind not in "biuf":
            raise TypeError
    except InputError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"Expected an array of numbers of shape (time, variable), got a {type(X).__name__}. "
            "Pass a numpy array of numbers or a pandas or polars frame."
        ) from error
    _check_exact(values, "The array", first)
    values = values.astype(np.float64)
    if values.ndim != 2:
        single = "Reshape your data: for a single variable pass series[:, None]."
        hint = single if values.ndim == 1 else "Pass one series at a time."
        raise InputError(f"Expected an array of shape (time, variable), got {values.shape}. {hint}")
    return values


def _is_rounded(X: object, values: Array) -> bool:
    """Whether these numbers may come from integers that numpy rounded, because others in the list are not integers."""
    return isinstance(X, list | tuple) and values.dtype.kind == "f" and bool((np.abs(values) >= 2**53).any())


def _from_objects(cells: Array, first: int) -> Floats:
    """The numbers of an array of objects (time, variable); None is a missing reading."""
    values = np.full(cells.shape, np.nan)
    for (step, variable), cell in np.ndenumerate(cells):
        if cell is None:
            continue
        if not isinstance(cell, Real | Decimal | np.bool_):
            raise CellError(
                f"The array has {reprlib.repr(cell)} at time step {first + step}, column {variable}. The argument must "
                "be free of strings and other objects: pass numbers, or NaN where a reading is missing."
            )
        if isinstance(cell, Integral):
            _check_exact_integer(int(cell), "The array", first + step)
        values[step, variable] = cell
    return values


def _from_frame(
    X: object, frame: "nw.DataFrame[Any]", first: int, where: Callable[[int], str]
) -> tuple[Floats, tuple[str, ...], Array | None]:
    """The numbers (time, variable), names and times, if there are any, of a frame."""
    import narwhals as nw

    times = _times_of_index(X.index) if nw.dependencies.is_pandas_dataframe(X) else None
    dates = [name for name, dtype in frame.schema.items() if isinstance(dtype, nw.Datetime | nw.Date)]
    if len(dates) + (times is not None) > 1:
        found = [*([] if times is None else ["the index"]), *dates]
        raise InputError(f"There is more than one time column: {', '.join(found)}.", advice="two times")
    if dates:
        column = frame.get_column(dates[0])
        if column.null_count():
            place = where(column.is_null().to_list().index(True))
            raise InputError(
                f"The time column {dates[0]!r} has empty cells, the first in {place}. Fill or drop these readings."
            )
        times = _datetimes(column)
    numbers, columns = frame.drop(dates), []
    for name, dtype in numbers.schema.items():
        if dtype == nw.String:
            cells = frame.get_column(name).to_list()
            refuse_text(str(name), cells, where)
            for row, cell in enumerate(cells):
                if isinstance(cell, str):  # all are numbers, written as text
                    problem = f"Column {name!r} is not numeric: it has the text {cell!r} in {where(row)}."
                    raise InputError(problem, advice="text", name=name)
        if not (dtype.is_numeric() or dtype == nw.Boolean):
            raise InputError(f"Column {name!r} is not numeric (it is {dtype}).", advice="text", name=name)
        column = numbers.get_column(name)
        columns.append(column.cast(nw.Float64).to_numpy())
        for row in np.flatnonzero(np.abs(columns[-1]) >= 2**53).tolist() if not dtype.is_float() else ():
            if column[row] == int(column[row]):  # a decimal may be none
                _check_exact_integer(int(column[row]), f"Column {name!r}", first + row)
    names = tuple(str(name) for name in numbers.columns)
    if len(set(names)) < len(names):  # pandas has numbers as names, too
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"The frame has two columns named {twice!r}. Rename or drop one of them.")
    values = np.column_stack(columns).astype(np.float64) if columns else np.empty((len(frame), 0))
    return np.ascontiguousarray(values), names, times


def _check_exact(values: Array, which: str, first: int) -> None:
    if values.dtype.kind not in "iu" or values.dtype.itemsize < 8:
        return
    large = np.flatnonzero((values > 2**53) | (values < -(2**53)))
    for place in large.tolist():
        step = first + place // (values.shape[1] if values.ndim > 1 else 1)
        _check_exact_integer(int(values.flat[place]), which, step)


def _check_exact_integer(value: int, which: str, step: int) -> None:
    if not is_exact(value):
        shown = reprlib.repr(value)
        raise InputError(f"{which} has {shown} at time step {step}, an integer too large to be exact.", "too large")


def is_exact(value: int) -> bool:
    """Whether a float holds an integer without rounding it."""
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def refuse_text(name: str, cells: Iterable[object], where: Callable[[int], str], decimal: str | None = None) -> None:
    """Refuse a column with text, and name the first cell that is not a number with the `decimal` mark.

    `where` returns the place of a row.
    """
    places = [(row, cell) for row, cell in enumerate(cells) if isinstance(cell, str)]
    bad = next((place for place in places if not is_number(place[1].replace(",", ".", 1))), None)
    if bad is not None:
        raise InputError(
            f"Column {name!r} is not numeric: it has {bad[1]!r} in {where(bad[0])}.",
            advice="bad cell",
            name=name,
            value=bad[1],
        )
    mark, word = (".", "point") if decimal == "," else (",", "comma")
    foreign = next((place for place in places if mark in place[1]), None)
    if foreign is not None:
        raise InputError(
            f"Column {name!r} is not numeric: it has {foreign[1]!r} in {where(foreign[0])}, whose {word} may be a "
            "decimal mark or separate thousands.",
            advice="decimal",
        )


def _row_of_a_frame(first: int) -> Callable[[int], str]:
    def where(row: int) -> str:
        step = f"; time step {first + row}" if first else ""
        return f"row {row} of the frame (counted from 0{step})"

    return where


def _times_of_index(index: Any) -> Array | None:
    """The times in the index of a pandas frame, in UTC; those of a period are its start."""
    if hasattr(index, "levels"):
        if any(level.dtype.kind == "M" for level in index.levels):
            raise InputError("The frame has an index of several levels with times. Pass one series with a plain index.")
        return None
    if index.dtype.kind == "m":
        raise InputError("The index holds durations, not times. Add their start, or drop the index (reset_index).")
    index = index.to_timestamp() if hasattr(index, "to_timestamp") else index
    if index.dtype.kind != "M":
        return None
    times: Array = (index if index.tz is None else index.tz_convert("UTC").tz_localize(None)).to_numpy()
    return times


def _datetimes(column: "nw.Series[Any]") -> Array:
    import narwhals as nw

    if isinstance(column.dtype, nw.Datetime) and column.dtype.time_zone is not None:
        column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    return column.to_numpy().astype("datetime64[us]")

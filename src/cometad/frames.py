"""The numbers of an array, and the numbers, names and times of a pandas or polars frame."""

import reprlib
from collections.abc import Callable, Iterable
from decimal import Decimal
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from cometad.arrays import Array, Floats
from cometad.errors import CellError, InputError
from cometad.parameters import is_number

if TYPE_CHECKING:
    import narwhals as nw


def as_frame(X: object) -> "nw.DataFrame[Any] | None":
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


def from_array(X: object, first: int) -> Floats:
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
    """Whether these numbers may come from integers that numpy rounded, because others in the list are no integers."""
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


def from_frame(
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


def row_of_a_frame(first: int) -> Callable[[int], str]:
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

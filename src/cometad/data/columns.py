"""The columns of a table: which of them hold times and how these are written, and the rest as numbers."""

import itertools
import logging
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from typing import Any

import polars as pl

from cometad.data.cells import EPOCH_UNITS, LARGEST, epoch_unit, named_like_time
from cometad.data.dialect import Dialect
from cometad.data.joined import Part, Tables, check_column
from cometad.data.times import YEAR_FIRST, find_order, fitting_orders, parse_date
from cometad.errors import InputError
from cometad.series import is_exact

_log = logging.getLogger("cometad")


def some_zones(which: str) -> InputError:
    """The error for times with a zone in some rows only."""
    return InputError(f"The times in {which!r} have a time zone in some rows only. Write it in all rows or in none.")


class Columns:
    """Which columns hold times and how they are written, decided by the first block, and the rest as numbers."""

    def __init__(
        self,
        shown: str,
        given: str | None,
        dialect: Dialect,
        counters: bool = False,
        variables: Collection[str] = (),
    ) -> None:
        self._shown, self._given, self._dialect, self._counters = shown, given, dialect, counters
        self._variables = variables  # columns that hold no times, whatever their names
        self._names: list[str] | None = None
        self._orders: dict[str, str] = {}  # of day, month and year

    def apply(self, block: Part, blocks: Callable[[], Iterable[Part]]) -> pl.DataFrame:
        """The block's own rows with times and numbers; `blocks` rereads the table, for checks that need all of it."""
        frame = block.frame
        if self._names is None:
            if frame.height == 0:
                raise InputError(f"'{self._shown}' has a header but no readings. Pass a file with at least one.")
            names = self._candidates(frame)
            made = frame.with_columns(self._times(frame[name], block, blocks) for name in names)
            # The time columns of the first block are those of the whole table.
            self._names = [name for name in names if made[name].dtype.is_temporal()]
        else:
            made = frame.with_columns(self._times(frame[name], block, blocks) for name in self._names)
        return _with_numbers(block._replace(frame=made))

    def put_in_order(self, tables: Tables) -> None:
        """Sort several files by their first time, if there are times; files without readings are left out."""
        if len(tables.tables) == 1:
            return
        blocks = list(tables.starts())
        known = [place for place, block in enumerate(blocks) if len(block.frame)] or [0]
        starts: dict[int, Any] = {}
        for place in known:
            frame = self.apply(blocks[place], lambda: tables.blocks(rows=2**12))
            times = next((column for column in frame if column.dtype.is_temporal()), None)
            starts[place] = None if times is None else times[0]
        if None not in starts.values():
            try:
                known = sorted(known, key=starts.__getitem__)
            except TypeError as error:  # only some have a time zone
                raise some_zones(self._shown) from error
        tables.tables = [tables.tables[place] for place in known]
        if None in starts.values() and len(known) > 1:
            first, last = tables.tables[0].file.path.name, tables.tables[-1].file.path.name
            _log.info(
                "The files of '%s' are in order of their names, because they have no times: '%s' is the first, '%s' "
                "the last.",
                *(self._shown, first, last),
            )

    def _candidates(self, frame: pl.DataFrame) -> list[str]:
        """The names of the columns that may hold times."""
        if self._given is not None:
            check_column(frame, self._given, self._shown)
            return [self._given]
        if any(dtype.is_temporal() for dtype in frame.dtypes):  # in another file, they may be text
            return [name for name, dtype in frame.schema.items() if dtype in (pl.Datetime, pl.Date)]
        # Includes a pandas index that was written without a name.
        return [column.name for column in frame if column.name not in self._variables and self._may_be_time(column)]

    def _may_be_time(self, column: pl.Series) -> bool:
        if column.null_count() == len(column):
            return False
        if column.dtype != pl.String:
            return named_like_time(column.name) and not (self._counters and column.dtype == pl.Boolean)
        return named_like_time(column.name) or fitting_orders(column.drop_nulls()[0]) != []

    def _times(self, column: pl.Series, block: Part, blocks: Callable[[], Iterable[Part]]) -> pl.Series:
        """A column as datetimes; unchanged if it is only named like a time and holds other numbers."""
        decided = self._given is not None or self._names is not None
        if column.dtype == pl.String:
            return _from_text(column, block, self._order(column, blocks))
        if not column.dtype.is_numeric():
            if decided and column.dtype not in (pl.Datetime, pl.Date):
                raise InputError(
                    f"The time column {column.name!r} holds no dates (it is {column.dtype}).", advice="no dates"
                )
            return column
        seconds = _from_epoch(column)
        if seconds is not None:
            return seconds
        if self._counters and not decided:
            return column
        if decided or _is_counter(block.own[column.name] for block in blocks()):
            raise InputError(
                f"The time column {column.name!r} holds numbers that are not dates (the first is {column[0]}).",
                advice="bad dates",
                name=column.name,
            )
        return column

    def _order(self, column: pl.Series, blocks: Callable[[], Iterable[Part]]) -> str:
        """The order of day, month and year in a column of text."""
        name = column.name
        if name not in self._orders:
            # Only the end of a long file may tell days from months.
            rest = (text for block in blocks() for text in block.own[name].cast(pl.String))
            order = find_order(itertools.chain(column, rest))
            if self._dialect.date_order is not None and order != YEAR_FIRST:
                order = self._dialect.date_order
            if order is None:
                raise InputError(
                    f"The dates in the time column {name!r} can be read with the day or with the month first "
                    f"(such as {column.drop_nulls()[0]!r}).",
                    advice="day or month",
                )
            self._orders[name] = order
        return self._orders[name]


def _with_numbers(block: Part) -> pl.DataFrame:
    """The rows of a block with numbers and booleans as floats and empty cells as NaN."""
    frame = block.frame
    if "" in frame.columns and not frame[""].dtype.is_temporal():
        if len(frame[""]) > frame[""].null_count():
            raise InputError(
                "A column has no name. Name it or, if it only counts the readings, write the file without it "
                "(pandas: to_csv(..., index=False))."
            )
        frame = frame.drop("")  # rows that end with a separator
    for column in frame:
        if column.dtype in (pl.Datetime, pl.Date):
            _check_calendar(column, block)
        if column.dtype.is_integer() or column.dtype.is_decimal():
            _check_exact(column, block)
    frame = frame.with_columns(
        pl.col(name).cast(pl.Float64).fill_null(float("nan"))
        for name, dtype in frame.schema.items()
        if dtype.is_numeric() or dtype in (pl.Boolean, pl.Null)
    )
    for column in frame:
        if column.dtype.is_float():
            _check_size(column, block)
    return frame[1:] if block.repeats else frame


def _check_calendar(column: pl.Series, block: Part) -> None:
    """Refuse times before the year 1 or after 9999, which Python cannot show; Parquet can hold them."""
    unit = 1 / 86_400 if column.dtype == pl.Date else EPOCH_UNITS[column.dtype.time_unit]  # type: ignore[attr-defined]
    outside = (column.to_physical() / unit).is_between(_FIRST, _LAST).not_().fill_null(False)
    if outside.any():
        raise InputError(
            f"The time column {column.name!r} has a time outside the years 1 to 9999 in "
            f"{block.place(outside.arg_max() or 0)}. Correct it."
        )


# In seconds since 1970, without the first and the last day: a time zone may shift those into another year.
_FIRST = datetime(1, 1, 2, tzinfo=UTC).timestamp()
_LAST = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


def _check_size(column: pl.Series, block: Part) -> None:
    """Refuse numbers whose squares overflow; infinities are left to the checks of a series."""
    huge = column.is_finite() & (column.abs() > LARGEST)
    if huge.any():
        row = huge.arg_max() or 0
        raise InputError(
            f"Column {column.name!r} has {column[row]} in {block.place(row)}, too large to compute with.",
            advice="bad cell",
            name=column.name,
            value=column[row],
        )


def _check_exact(column: pl.Series, block: Part) -> None:
    """Refuse integers that a float would round."""
    # As floats, because polars cannot compare a narrow or unsigned integer with a wide one; 2**53 + 1 becomes 2**53.
    large = (column.cast(pl.Float64).abs() >= 2**53).fill_null(False)
    for row in large.arg_true():
        value = column[row]
        if value == int(value) and not is_exact(int(value)):
            raise InputError(
                f"Column {column.name!r} has {int(value)} in {block.place(row)}, an integer too large to be exact.",
                advice="too large",
                name=column.name,
            )


def _is_counter(parts: Iterable[pl.Series]) -> bool:
    """Whether a column increases from row to row."""
    rows, last = 0, None
    for part in parts:
        if not len(part):
            continue
        if not (part.dtype.is_numeric() and part.is_sorted() and part.n_unique() == len(part)):
            return False
        if last is not None and (part[0] is None or part[0] <= last):
            return False
        rows, last = rows + len(part), part[-1]
    return rows > 1


def _from_text(column: pl.Series, block: Part, order: str) -> pl.Series:
    times: list[datetime | None] = []
    for row, text in enumerate(column):
        try:
            times.append(None if text is None else parse_date(text, order))
        except (ValueError, OverflowError) as error:
            raise InputError(
                f"The time column {column.name!r} has {text!r} in {block.place(row)}.",
                advice="bad dates",
                name=column.name,
            ) from error
    zoned = {time.tzinfo is not None for time in times if time is not None}
    if len(zoned) > 1:
        raise InputError(
            f"The time column {column.name!r} has a time zone in some rows only. Write it in all rows or in none."
        )
    if zoned == {True}:
        try:
            utc = [None if time is None else time.astimezone(UTC) for time in times]
        except OverflowError as error:
            raise InputError(f"The time column {column.name!r} has dates out of range. Correct them.") from error
        return pl.Series(column.name, utc, dtype=pl.Datetime("us", "UTC"))
    return pl.Series(column.name, times, dtype=pl.Datetime("us"))


def _from_epoch(column: pl.Series) -> pl.Series | None:
    numbers = column.cast(pl.Float64)
    least, most = (float(edge) if isinstance(edge, float) else 0.0 for edge in (numbers.min(), numbers.max()))
    unit = epoch_unit(least, most)
    if unit is None:
        return None
    if column.dtype.is_integer():  # exact, also for nanoseconds
        integers = column.cast(pl.Int64)
        microseconds = integers // round(unit / 1e6) if unit > 1e6 else integers * round(1e6 / unit)
    else:
        microseconds = (numbers * (1e6 / unit)).round().cast(pl.Int64)
    return microseconds.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")

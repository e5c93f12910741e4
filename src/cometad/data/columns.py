"""The columns of a table: its numbers, which of them hold times and how these are written, and those of a detector."""

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

import polars as pl

from cometad.data.cells import (
    COMMA,
    EPOCH_UNITS,
    LARGEST,
    WORDS,
    YEAR_FIRST,
    epoch_unit,
    find_order,
    fitting_orders,
    ignored,
    listed,
    missing_numbers,
    missing_texts,
    named_like_time,
    parse_date,
)
from cometad.data.dialect import Dialect
from cometad.errors import InputError
from cometad.series import is_exact

_COMMA = f"^{COMMA.pattern}$"
_EITHER = r"^[+-]?[1-9][0-9]{0,2},[0-9]{3}$"  # 1,234 may be 1.234 or a thousand
_INTEGER = r"^\s*[+-]?[0-9]+\s*$"


class Part(NamedTuple):
    """Consecutive rows of a table.

    A block may repeat the first row of its file on top, so that a change of type or time zone shows as it would in the
    whole file.
    """

    frame: pl.DataFrame
    where: Callable[[int], str]  # the place of a row with such a number, in words
    repeats: bool = False
    first: int = 0  # number of the first row that is not repeated

    @property
    def own(self) -> pl.DataFrame:
        """The rows, each once."""
        return self.frame[1:] if self.repeats else self.frame

    def place(self, row: int) -> str:
        """The file that a row of the frame comes from, and its number there, in words."""
        return self.where(0 if self.repeats and row == 0 else self.first + row - self.repeats)

    def own_place(self, row: int) -> str:
        """The same for a row of `own`."""
        return self.where(self.first + row)


def check_column(frame: pl.DataFrame, name: str, shown: str) -> None:
    if name not in frame.columns:
        raise InputError(f"'{shown}' has no column {name!r}. Available: {', '.join(frame.columns)}.")


# -- numbers ---


def without_marked(column: pl.Series, dialect: Dialect) -> pl.Series:
    """A column of numbers without those that mean a missing reading."""
    marked = missing_numbers(dialect)
    if not marked or not column.dtype.is_numeric():
        return column
    dtype = pl.Float32() if column.dtype == pl.Float32 else pl.Float64()  # -99.9 is another number in 32 bits
    return column.set(column.cast(dtype).is_in(pl.Series(marked, dtype=dtype)), None)


@dataclass
class TextNumbers:
    """Turns columns of text into numbers; the decimal mark is one for the whole file.

    A comma is the decimal mark if it was given, or if a number such as 0,5 leaves no doubt. Then a point in another
    number is refused; it may separate thousands.
    """

    dialect: Dialect
    shown: str  # the file
    comma: tuple[str, str] | None = None  # the first number that shows a comma, and its column
    point: tuple[str, str] | None = None

    @property
    def decided(self) -> bool:
        return self.dialect.decimal is not None or self.comma is not None or self.point is not None

    def converted(
        self, frame: pl.DataFrame, place: Callable[[int], str], ahead: Callable[[], None] = lambda: None
    ) -> pl.DataFrame:
        """The frame without missing markers, with numbers in the columns of text that hold nothing else.

        `place` is the place of a row, in words. `ahead` looks for the decimal mark in the rest of the file.
        """
        texts = [column for column in frame if column.dtype == pl.String]
        # Most cells are plain numbers, and their columns tell the decimal mark of the others.
        made = {text.name: self._from_plain(text, place) for text in texts}
        others = [self._without_missing(text) for text in texts if made[text.name] is None]
        for text in others:
            self._see_comma(text)
        made |= {text.name: self._from_text(text, place, ahead) for text in others}
        if self.dialect.decimal is None and self.comma is not None and self.point is not None:
            raise InputError(
                f"'{self.shown}' has numbers with a decimal point and with a decimal comma: {self.point[0]!r} in "
                f"column {self.point[1]!r} and {self.comma[0]!r} in column {self.comma[1]!r}.",
                advice="decimal",
            )
        return frame.with_columns(column for column in made.values() if column is not None)

    def _without_missing(self, column: pl.Series) -> pl.Series:
        text = column.str.strip_chars()
        return text.set(text.str.to_lowercase().is_in(list(missing_texts(self.dialect))), None)

    def _from_plain(self, text: pl.Series, place: Callable[[int], str]) -> pl.Series | None:
        """A column of text as numbers, if all its cells are."""
        missing = text.null_count()
        integers = text.cast(pl.Int64, strict=False)
        if missing < len(text) and integers.null_count() == missing:
            return without_marked(integers, self.dialect)
        if self.dialect.decimal == ",":  # then 1.234 is no number
            return None
        numbers = text.cast(pl.Float64, strict=False)
        if numbers.null_count() > missing:
            return None
        if self.point is None:
            self._see_point(text)
        return self._checked(numbers, text, place)

    def _checked(self, numbers: pl.Series, text: pl.Series, place: Callable[[int], str]) -> pl.Series:
        """Numbers without those that mean a missing reading; refuses integers that a float would round."""
        numbers = without_marked(numbers.fill_nan(None), self.dialect)
        large = _large(numbers)
        suspects = large & text.str.contains(_INTEGER).fill_null(False) if large.any() else large
        for row in suspects.arg_true():
            if not is_exact(int(text[row])):
                raise _not_exact(text.name, text[row].strip(), place(row))
        return numbers

    def _from_text(self, text: pl.Series, place: Callable[[int], str], ahead: Callable[[], None]) -> pl.Series:
        """The same for a column that was stripped; numbers may have a decimal comma, and words mean booleans."""
        plain = self._from_plain(text, place)
        if plain is not None:
            return plain
        numbers = _with_point(text).cast(pl.Float64, strict=False)
        if self.dialect.decimal != "." and numbers.null_count() == text.null_count():
            if not self.decided:
                ahead()
            if self.dialect.decimal is not None or self.comma is not None:
                return self._checked(numbers, text, place)
        words = text.str.to_lowercase()
        return words == "true" if words.drop_nulls().is_in(list(WORDS)).all() else text

    def _see_comma(self, text: pl.Series) -> None:
        if self.comma is None and _with_point(text).cast(pl.Float64, strict=False).null_count() == text.null_count():
            known = text.drop_nulls()
            sure = known.filter(known.str.contains(_COMMA) & ~known.str.contains(_EITHER))
            self.comma = (sure[0], text.name) if len(sure) else None

    def _see_point(self, text: pl.Series) -> None:
        points = text.filter(text.str.contains(".", literal=True))
        self.point = (points[0].strip(), text.name) if len(points) else None


def _with_point(text: pl.Series) -> pl.Series:
    """Numbers with a decimal comma, written with a point; a number with a point is null."""
    fits = text.str.contains(_COMMA).fill_null(False)
    points = text.str.contains(".", literal=True).fill_null(False)
    return text.str.replace(",", ".", literal=True).zip_with(fits, text.set(points, None))


def _large(numbers: pl.Series) -> pl.Series:
    return (numbers.abs() >= 2**53).fill_null(False)  # 2**53 + 1 was rounded to 2**53


def _not_exact(name: str, number: object, place: str) -> InputError:
    return InputError(
        f"Column {name!r} has {number} in {place}, an integer too large to be exact.", advice="too large", name=name
    )


# -- times ---


def some_zones(which: str) -> InputError:
    return InputError(f"The times in {which!r} have a time zone in some rows only. Write it in all rows or in none.")


@dataclass
class Columns:
    """Which columns hold times and how they are written, decided by the first block, and the rest as numbers."""

    shown: str  # the table
    given: str | None  # the column that has the times
    dialect: Dialect
    counters: bool = False  # whether a column named like a time may just count
    variables: Collection[str] = ()  # columns that hold no times, whatever their names
    _names: list[str] | None = None  # of the columns with times
    _orders: dict[str, str] = field(default_factory=dict)  # of day, month and year

    def apply(self, block: Part, blocks: Callable[[], Iterable[Part]]) -> pl.DataFrame:
        """The block's own rows with times and numbers; `blocks` rereads the table, for checks that need all of it."""
        frame = block.frame
        names = self._candidates(frame) if self._names is None else self._names
        frame = frame.with_columns(self._times(frame[name], block, blocks) for name in names)
        if self._names is None:  # the time columns of the first block are those of the whole table
            self._names = [name for name in names if frame[name].dtype.is_temporal()]
        return _with_numbers(block._replace(frame=frame))

    def _candidates(self, frame: pl.DataFrame) -> list[str]:
        if frame.height == 0:
            raise InputError(f"'{self.shown}' has a header but no readings. Pass a file with at least one.")
        if self.given is not None:
            check_column(frame, self.given, self.shown)
            return [self.given]
        if any(dtype.is_temporal() for dtype in frame.dtypes):  # in another file, they may be text
            return [name for name, dtype in frame.schema.items() if dtype in (pl.Datetime, pl.Date)]
        # Includes a pandas index that was written without a name.
        return [column.name for column in frame if column.name not in self.variables and self._may_be_time(column)]

    def _may_be_time(self, column: pl.Series) -> bool:
        if column.null_count() == len(column):
            return False
        if column.dtype != pl.String:
            return named_like_time(column.name) and not (self.counters and column.dtype == pl.Boolean)
        return named_like_time(column.name) or fitting_orders(column.drop_nulls()[0]) != []

    def _times(self, column: pl.Series, block: Part, blocks: Callable[[], Iterable[Part]]) -> pl.Series:
        """A column as datetimes; unchanged if it is only named like a time and holds other numbers."""
        decided = self.given is not None or self._names is not None
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
        if self.counters and not decided:
            return column
        if decided or _is_counter(block.own[column.name] for block in blocks()):
            raise InputError(
                f"The time column {column.name!r} holds numbers that are not dates (the first is {column[0]}).",
                advice="bad dates",
                name=column.name,
            )
        return column

    def _order(self, column: pl.Series, blocks: Callable[[], Iterable[Part]]) -> str:
        name = column.name
        if name in self._orders:
            return self._orders[name]
        # Only the end of a long file may tell days from months.
        rest = (text for block in blocks() for text in block.own[name].cast(pl.String))
        order = find_order(itertools.chain(column, rest))
        if self.dialect.date_order is not None and order != YEAR_FIRST:
            order = self.dialect.date_order
        if order is None:
            raise InputError(
                f"The dates in the time column {name!r} can be read with the day or with the month first "
                f"(such as {column.drop_nulls()[0]!r}).",
                advice="day or month",
            )
        return self._orders.setdefault(name, order)


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
    # As floats, because polars cannot compare a narrow or unsigned integer with a wide one.
    for row in _large(column.cast(pl.Float64)).arg_true():
        value = column[row]
        if value == int(value) and not is_exact(int(value)):
            raise _not_exact(column.name, int(value), block.place(row))


def _is_counter(parts: Iterable[pl.Series]) -> bool:
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
    times = list[datetime | None]()
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


# -- the columns of a detector ---


class Matching(NamedTuple):
    """Selects the columns that a detector was fitted on, in its order."""

    names: Sequence[str]
    gaps: bool  # whether some may be missing

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The table with its times and the detector's columns; refuses one that lacks too many."""
        columns = set(frame.columns)
        found = [name for name in self.names if name in columns]
        lacking = [name for name in self.names if name not in columns]
        if lacking and not (self.gaps and found):
            extra = self._extra(frame)
            hint = f" (the file also has {listed(extra)})" if extra else ""
            problem = f"The detector was fitted on {listed(lacking)}, which the file lacks{hint}."
            if not found:  # no rule can replace all of them
                raise InputError(f"{problem} Pass the same variables as at fit.")
            raise InputError(problem, advice="lacking")
        times = [name for name in _times(frame) if name not in found]
        return frame.select(*times, *found)

    def note(self, frame: pl.DataFrame) -> str | None:
        extra = self._extra(frame)
        return ignored(extra) if extra else None

    def _extra(self, frame: pl.DataFrame) -> list[str]:
        known = {*self.names, *_times(frame)}
        return [name for name in frame.columns if name not in known]


def _times(frame: pl.DataFrame) -> list[str]:
    return [name for name, dtype in frame.schema.items() if dtype.is_temporal()]

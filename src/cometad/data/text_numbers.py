"""The numbers in the cells of one text table: missing markers, the decimal mark of the file, and exact integers."""

from collections.abc import Callable
from typing import NamedTuple

import polars as pl

from cometad.data.cells import COMMA, MISSING, WORDS, marked_numbers
from cometad.data.dialect import Dialect
from cometad.errors import InputError
from cometad.series import is_exact


def without_marked(column: pl.Series, dialect: Dialect) -> pl.Series:
    """A column of numbers without those that mean a missing reading."""
    marked = marked_numbers(dialect.missing)
    if not marked or not column.dtype.is_numeric():
        return column
    dtype = pl.Float32() if column.dtype == pl.Float32 else pl.Float64()  # -99.9 is another number in 32 bits
    return column.set(column.cast(dtype).is_in(pl.Series(marked, dtype=dtype)), None)


_COMMA = f"^{COMMA.pattern}$"
_EITHER = r"^[+-]?[1-9][0-9]{0,2},[0-9]{3}$"  # 1,234 may be 1.234 or a thousand
_INTEGER = r"^\s*[+-]?[0-9]+\s*$"


class Seen(NamedTuple):
    """A number that shows a decimal mark."""

    column: str
    cell: str


class TextNumbers:
    """Turns columns of text into numbers; the decimal mark is one for the whole file.

    A comma is the decimal mark if it was given, or if a number such as 0,5 leaves no doubt. Then a point in another
    number is refused; it may separate thousands.
    """

    def __init__(self, dialect: Dialect, shown: str) -> None:
        self._dialect, self._shown = dialect, shown
        self.comma: Seen | None = None
        self.point: Seen | None = None

    @property
    def decided(self) -> bool:
        """Whether the decimal mark is known."""
        return self._dialect.decimal is not None or self.comma is not None or self.point is not None

    def converted(
        self,
        frame: pl.DataFrame,
        raw: Callable[[str], pl.Series],
        place: Callable[[int], str],
        ahead: Callable[[], None],
    ) -> pl.DataFrame:
        """The frame without missing markers, with numbers in the columns that hold nothing else.

        `raw` returns the text of a column that polars took for numbers, `place` the place of a row, in words. `ahead`
        looks for the decimal mark in the rest of the file.
        """
        if any(marker.strip().lower() in WORDS for marker in self._dialect.missing):
            frame = frame.with_columns(raw(column.name) for column in frame if column.dtype == pl.Boolean)
        texts = {column.name: self._without_missing(column) for column in frame if column.dtype == pl.String}
        for name, text in texts.items():
            self._see_comma(name, text)
        for column in frame:
            if column.dtype.is_float() and self.point is None:
                self._see_point(column.name, raw(column.name))
        made = []
        for column in frame:
            if column.name in texts:
                made.append(self._from_text(texts[column.name], place, ahead))
            else:
                made.append(self._from_numbers(column, raw, place))
        if self._dialect.decimal is None and self.comma is not None and self.point is not None:
            raise InputError(
                f"'{self._shown}' has numbers with a decimal point and with a decimal comma: {self.point.cell!r} in "
                f"column {self.point.column!r} and {self.comma.cell!r} in column {self.comma.column!r}.",
                advice="decimal",
            )
        return frame.with_columns(made)

    def _without_missing(self, column: pl.Series) -> pl.Series:
        text = column.str.strip_chars()
        markers = [*MISSING, *(marker.strip().lower() for marker in self._dialect.missing)]
        return text.set(text.str.to_lowercase().is_in(markers), None)

    def _from_numbers(
        self, column: pl.Series, raw: Callable[[str], pl.Series], place: Callable[[int], str]
    ) -> pl.Series:
        column = without_marked(column, self._dialect)
        if column.dtype.is_float() and _large(column).any():
            _check_text_exact(column, raw(column.name), place)
        return column

    def _from_text(self, text: pl.Series, place: Callable[[int], str], ahead: Callable[[], None]) -> pl.Series:
        """A column of text as numbers, if all its cells are; polars leaves " 1.5" and "nan" as text."""
        known = text.drop_nulls()
        integers = text.cast(pl.Int64, strict=False)
        if len(known) and integers.null_count() == text.null_count():
            return without_marked(integers, self._dialect)
        for mark in (".", ",") if self._dialect.decimal is None else (self._dialect.decimal,):
            numbers = (_with_point(text) if mark == "," else text).cast(pl.Float64, strict=False)
            if numbers.null_count() > text.null_count():
                continue
            if mark == "," and not self._is_decimal(known, ahead):
                break
            if mark == "." and self.point is None:
                self._see_point(text.name, known)
            _check_text_exact(numbers, text, place)
            return without_marked(numbers, self._dialect)
        words = known.str.to_lowercase()
        if len(known) and words.is_in(list(WORDS)).all():
            return (text.str.to_lowercase() == "true").alias(text.name)
        return text

    def _is_decimal(self, known: pl.Series, ahead: Callable[[], None]) -> bool:
        """Whether the commas in a column of numbers are decimal marks."""
        if self._dialect.decimal is not None or not known.str.contains(",", literal=True).any():
            return True
        if not self.decided:
            ahead()
        return self.comma is not None

    def _see_comma(self, name: str, text: pl.Series) -> None:
        if self.comma is None and _with_point(text).cast(pl.Float64, strict=False).null_count() == text.null_count():
            known = text.drop_nulls()
            sure = known.filter(known.str.contains(_COMMA) & ~known.str.contains(_EITHER))
            self.comma = Seen(name, sure[0]) if len(sure) else None

    def _see_point(self, name: str, text: pl.Series) -> None:
        points = text.drop_nulls()
        points = points.filter(points.str.contains(".", literal=True))
        self.point = Seen(name, points[0].strip()) if len(points) else None


def _with_point(text: pl.Series) -> pl.Series:
    """Numbers with a decimal comma, written with a point; a number with a point is null."""
    fits = text.str.contains(_COMMA).fill_null(False)
    points = text.str.contains(".", literal=True).fill_null(False)
    return text.str.replace(",", ".", literal=True).zip_with(fits, text.set(points, None))


def _large(numbers: pl.Series) -> pl.Series:
    return (numbers.abs() >= 2**53).fill_null(False)  # 2**53 + 1 was rounded to 2**53


def _check_text_exact(numbers: pl.Series, text: pl.Series, place: Callable[[int], str]) -> None:
    """Refuse integers that a float would round; `text` is how the numbers are written."""
    suspects = _large(numbers) & text.str.contains(_INTEGER).fill_null(False)
    for row in suspects.arg_true():
        if not is_exact(int(text[row])):
            raise InputError(
                f"Column {text.name!r} has {text[row].strip()} in {place(row)}, an integer too large to be exact.",
                advice="too large",
                name=text.name,
            )

"""What a cell means: a number, a time, or a missing value. Files, streams, bodies and followed folders share the rules.

A table reads whole columns at once (`data/columns.py`), everything else cell by cell with a `StreamNumbers` and a
`StreamDates`, which remember what earlier cells decided.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, ClassVar

from cometad.data.dialect import DATE_ORDERS, Dialect
from cometad.errors import InputError
from cometad.saving import Saved, Table, fact, one_of

CORRECT = "Correct that reading and send it again."

# -- numbers --------------------------------------------------------------------------------------------------------

WORDS = {"true": 1.0, "false": 0.0}  # booleans, in any case
MISSING = ("", "na", "n/a", "nan", "null", "none")  # how tables write an empty cell, in any case
LARGEST = 1e150  # its square still fits a float64
COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+([eE][+-]?[0-9]+)?")  # a number with a decimal comma

_INTEGER = re.compile(r"\s*([+-]?)0*([0-9]+)\s*")
MARKS = {".": "point", ",": "comma"}


def number_or_none(cell: Any) -> float | None:
    """The number in a cell, or NaN if it is missing; None for anything else."""
    if isinstance(cell, str):
        cell = cell.strip()
        if cell.lower() in MISSING:
            return math.nan
        if "_" in cell or not cell.isascii():  # float() accepts 1_000 and other digits, but no table reader does
            return None
    try:
        return math.nan if cell is None else float(cell)
    except (TypeError, ValueError, OverflowError):
        return None


def missing_texts(dialect: Dialect) -> set[str]:
    return {*MISSING, *(marker.strip().lower() for marker in dialect.missing)}


def missing_numbers(dialect: Dialect) -> list[float]:
    """The numbers among the markers of missing cells, which mean all cells with that value: -999 also means -999.0."""
    markers = map(str.strip, dialect.missing)
    numbers = [number_or_none(one.replace(",", ".") if COMMA.fullmatch(one) else one) for one in markers]
    return [number for number in numbers if number is not None and not math.isnan(number)]


class StreamNumbers:
    """Reads cells one by one; those seen first decide the decimal mark of all, and which variables are TRUE or FALSE.

    With `gaps`, values may be missing; they become NaN. `mark` is the decimal mark that a stream had before.
    """

    def __init__(self, dialect: Dialect = Dialect(), gaps: bool = False, mark: str | None = None) -> None:
        self.mark = dialect.decimal or mark
        self._given = dialect.decimal is not None
        self._missing, self._marked = missing_texts(dialect), missing_numbers(dialect)
        self._gaps = gaps
        self._words: dict[str, bool] = {}  # whether a variable is a boolean, written as a word

    def is_missing(self, cell: object) -> bool:
        if isinstance(cell, str):
            return cell.strip().lower() in self._missing
        return cell is None or (not isinstance(cell, bool) and cell in self._marked)

    def value(self, name: str, cell: Any, where: str, comma: bool = False) -> float:
        """The number in a cell of a variable; `comma` if a text may have a decimal comma, `where` names its place."""
        value = math.nan if self.is_missing(cell) else self._number(name, cell, where, comma)
        if math.isnan(value):
            if self._gaps:
                return value
            raise _refused(where, name, "missing.", advice="missing value")
        if abs(value) > LARGEST:
            problem = "not a finite number" if math.isinf(value) else "too large to compute with"
            raise _refused(where, name, f"{value}, {problem}. {CORRECT}")
        if _is_rounded(cell, value):
            raise _refused(where, name, f"{cell}, an integer too large to be exact. {CORRECT}")
        return value

    def _number(self, name: str, cell: Any, where: str, comma: bool) -> float:
        if not isinstance(cell, str):
            number = number_or_none(cell)
        else:
            word = WORDS.get(cell.strip().lower())
            if self._words.setdefault(name, word is not None) != (word is not None):
                other = "not a number" if word is not None else "but was TRUE or FALSE before"
                raise _refused(where, name, f"{cell!r}, {other}. {CORRECT}")
            if word is not None:
                return word
            cell = self._with_point(name, cell, where) if comma else cell
            number = number_or_none(cell)
            number = math.nan if number in self._marked else number
        if number is None:
            raise _refused(where, name, f"{cell!r}, not a number. {CORRECT}")
        return number

    def _with_point(self, name: str, cell: str, where: str) -> str:
        """A number with a decimal point instead of a comma; refuses one with another mark than the stream has."""
        text = cell.strip()
        found = "," if COMMA.fullmatch(text) else "." if "." in text and "," not in text else None
        if found is None:
            return cell
        self.mark = self.mark or found
        if found != self.mark:
            problem = f"{cell!r}, with a decimal {MARKS[found]}, but"
            if self._given:
                raise _refused(where, name, f"{problem} the decimal mark is a {MARKS[self.mark]}. {CORRECT}")
            problem = f"{problem} numbers before it have a decimal {MARKS[self.mark]}."
            raise _refused(where, name, problem, advice="decimal")
        return text.replace(",", ".")


def _refused(where: str, name: str, problem: str, advice: Any = None) -> InputError:
    return InputError(f"{where}: variable {name!r} is {problem}", advice=advice)


def _is_rounded(cell: object, value: float) -> bool:
    if abs(value) < 2**53:
        return False
    if isinstance(cell, str):
        found = _INTEGER.fullmatch(cell)  # without zeros in front: int() refuses thousands of digits
        return found is not None and int(found[1] + found[2]) != int(value)
    return isinstance(cell, int) and int(value) != cell


# -- times ----------------------------------------------------------------------------------------------------------

EPOCH_UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
EPOCH_SECONDS = (1e9, 1e10)  # 2001 to 2286: in this range no unit can be mistaken for another
YEAR_FIRST, DAY_FIRST, MONTH_FIRST = "year-first", "day-first", "month-first"
NUMBER, PLAIN, ZONED = "a number", "a date without a time zone", "a date with a time zone"  # kinds of times

_TIME_NAME = re.compile(r"(date|time|datetime|timestamp)([^a-z].*)?", re.IGNORECASE)
_DATE = re.compile(
    r"(?P<a>\d{1,4})(?P<mark>[-/.])(?P<b>\d{1,2})(?P=mark)(?P<c>\d{1,4})"
    r"(?:(?:T|,?\s+)(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<part>\d{1,9}))?)?"
    r"\s*(?P<half>[AP])?(?:(?<=[AP])\.?M\.?)?\s*(?P<zone>Z|UTC|GMT|[+-]\d{2}:?\d{2})?)?",
    re.IGNORECASE,
)


def named_like_time(name: str) -> bool:
    return _TIME_NAME.fullmatch(name) is not None


def epoch_unit(lowest: float, highest: float) -> float | None:
    """Units per second, if numbers in this range can only be times since 1970 in that unit; else None."""
    low, high = EPOCH_SECONDS
    return next((unit for unit in EPOCH_UNITS.values() if low * unit <= lowest and highest < high * unit), None)


def parse_date(text: str, order: str) -> datetime:
    """The time in a text, with its date in this order; raises ValueError for anything else."""
    if order == YEAR_FIRST:
        with suppress(ValueError):  # perhaps 2026.12.31, or 2026-1-5
            return datetime.fromisoformat(text.strip().replace("/", "-"))
    match = _DATE.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    first, second, third = match["a"], match["b"], match["c"]
    year, month, day = {
        YEAR_FIRST: (first, second, third),
        DAY_FIRST: (third, second, first),
        MONTH_FIRST: (third, first, second),
    }[order]
    hour, half, zone = int(match["hour"] or 0), (match["half"] or "").upper(), match["zone"] or ""
    if len(year) != 4 or hour > 23 or (half and not 1 <= hour <= 12):
        raise ValueError(text)
    if half:
        hour = hour % 12 + (12 if half == "P" else 0)
    minute, second, part = int(match["minute"] or 0), int(match["second"] or 0), (match["part"] or "")[:6]
    date, zone = f"{int(year):04}-{int(month):02}-{int(day):02}", zone if zone[:1] in "+-" else "Z"
    return datetime.fromisoformat(f"{date}T{hour:02}:{minute:02}:{second:02}.{part:0<6}{zone}")


def fitting_orders(text: str) -> list[str]:
    """The orders of year, month and day in which a text is a date; a dot means that the day is before the month."""
    found = []
    for order in (YEAR_FIRST, DAY_FIRST, MONTH_FIRST):
        if order == MONTH_FIRST and "." in text[:10]:
            continue
        with suppress(ValueError, OverflowError):
            parse_date(text, order)
            found.append(order)
    return found


def find_order(texts: Iterable[str | None]) -> str | None:
    """The order of year, month and day in a column; None if each of its dates can be read with either first.

    It looks only as far as it needs to. Texts that are no dates are skipped.
    """
    matters = False
    for text in texts:
        fits = [] if text is None else fitting_orders(text)
        if len(fits) == 1:
            return fits[0]
        if fits and text is not None and not matters:
            matters = parse_date(text, fits[0]) != parse_date(text, fits[1])
    return None if matters else DAY_FIRST


class StreamDates(Saved):
    """Reads times one by one; the first ones decide how all are written, and others are refused.

    Times are numbers, dates, or dates with a time zone. Numbers are since 1970 in a unit that their size tells, or else
    count anything. `order` is that of dates with the year last; else the first date that tells decides.
    """

    saved: ClassVar[Table] = {  # facts
        "date_order": fact("order", one_of(DATE_ORDERS, "one"), optional=True),
        "times_are": fact("_kind", one_of((NUMBER, PLAIN, ZONED), "one of its kinds"), optional=True),
        "time_unit": fact("_unit", one_of(EPOCH_UNITS.values(), "one"), optional=True),
    }

    def __init__(self, order: str | None = None) -> None:
        self.order = self._given = order
        self._kind: str | None = None  # NUMBER, PLAIN or ZONED
        self._unit: float | None = None  # of numbers, per second

    @property
    def known(self) -> bool:
        return self._kind is not None

    def dated(self, seconds: float) -> bool:
        """Whether a time is a date: a number may count anything, unless it can only be since 1970."""
        return self._kind != NUMBER or epoch_unit(seconds, seconds) is not None

    def seconds(self, time: str | float | None, line: int) -> float | None:
        """A time as a number: of seconds since 1970 (UTC if it has no zone), unless it counts something else."""
        if time is None:
            return None
        known = self._like_before(time)
        if known is not None:
            return known
        number = number_or_none(time)
        if number is not None and math.isfinite(number):
            self._take(NUMBER, time, line)
            self._unit = self._unit or epoch_unit(number, number) or 1.0
            return number / self._unit
        moment = self._date(str(time), line)
        self._take(_kind(moment), time, line)
        return _seconds(moment)

    def _like_before(self, time: str | float) -> float | None:
        """The seconds of a time that is written like the one before, in ISO 8601; None for any other.

        Most times are, and need no look at every way to write one.
        """
        if isinstance(time, float):
            return time / self._unit if self._kind == NUMBER and self._unit and math.isfinite(time) else None
        if not isinstance(time, str) or len(time) < 19 or not (time[4] == time[7] == "-" and time[13] == ":"):
            return None
        try:
            moment = datetime.fromisoformat(time)
        except ValueError:
            return None
        return _seconds(moment) if _kind(moment) == self._kind else None

    def _take(self, kind: str, time: object, line: int) -> None:
        if self._kind not in (None, kind):
            raise InputError(
                f"Line {line}: the time {time} is {kind}, but the one before is {self._kind}. Write all times alike."
            )
        self._kind = kind

    def _date(self, time: str, line: int) -> datetime:
        fits = fitting_orders(time)
        if not fits:
            raise InputError(f"Line {line}: {time!r} is not a time.", advice="bad time")
        if YEAR_FIRST in fits:
            return parse_date(time, YEAR_FIRST)
        if self.order is None and len(fits) == 1:
            self.order = fits[0]
        if self.order is None and parse_date(time, DAY_FIRST) != parse_date(time, MONTH_FIRST):
            raise InputError(
                f"Line {line}: the time {time!r} can be read with the day or with the month first.",
                advice="day or month",
            )
        try:
            return parse_date(time, self.order or DAY_FIRST)
        except ValueError as error:
            which = "day" if self.order == DAY_FIRST else "month"
            raise InputError(
                f"Line {line}: the time {time!r} is not a date with the {which} first. {CORRECT}"
            ) from error

    def check_state(self) -> None:
        self.order = self._given or self.order


def _kind(moment: datetime) -> str:
    return PLAIN if moment.tzinfo is None else ZONED


def _seconds(moment: datetime) -> float:
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


class TimeFields:
    """Finds the field with the times among those of a reading.

    `where` names a reading in errors, by its number.
    """

    def __init__(
        self,
        names: Sequence[str],
        given: str | None,
        numbers: StreamNumbers,
        where: Callable[[int], str] = "Line {}".format,
    ) -> None:
        self._names, self._numbers, self._where = names, numbers, where
        self._known = given

    def field(self, fields: Mapping[str, Any], line: int) -> str | None:
        """The one given or found before, else one with a date or named like a time."""
        if self._known is None or self._known not in fields:
            found = [name for name in fields if name not in self._names and _may_be_time(name, fields[name])]
            if len(found) > 1:  # a number may just be named like a time
                found = [name for name in found if _is_time(fields[name])] or found
            if len(found) > 1:
                several = ", ".join(map(repr, found))
                raise InputError(f"{self._where(line)} has more than one time: {several}.", advice="two time fields")
            self._known = found[0] if found else self._known
        return self._known if self._known in fields else None

    def sent(self, time: Any, field: str, line: int) -> str | float | None:
        """A time as it was sent; None if it is missing."""
        if self._numbers.is_missing(time):
            return None
        if isinstance(time, bool) or not isinstance(time, str | int | float):
            raise InputError(f"{self._where(line)}: the time {field!r} is neither text nor a number. {CORRECT}")
        return time.strip() if isinstance(time, str) else time


def _may_be_time(name: str, value: Any) -> bool:
    if named_like_time(name):
        return True
    return isinstance(value, str) and number_or_none(value) is None and fitting_orders(value) != []


def _is_time(value: Any) -> bool:
    """Whether a value may be a time if another field may be one, too: no small number, and not missing."""
    number = number_or_none(value)
    return number is None or epoch_unit(number, number) is not None


# -- names ---------------------------------------------------------------------------------------------------------

MOST_NAMES = 5  # listed in a sentence


def lacks(where: str, name: str) -> str:
    return f"{where}: there is no value for variable {name!r}. Send every variable the detector was fitted on."


def repeated(names: Sequence[str]) -> str | None:
    counts = Counter(names)
    return next((name for name in names if counts[name] > 1), None)


def listed(names: Sequence[str], most: int = MOST_NAMES, shown: Callable[[str], str] = repr) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(shown, names[:most])) + more


def ignored(extra: Sequence[str]) -> str:
    columns = "column" if len(extra) == 1 else "columns"
    return f"Ignored {len(extra)} {columns} the detector was not fitted on: {listed(extra)}."

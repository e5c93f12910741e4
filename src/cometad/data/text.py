"""Text becomes cells and readings: CSV files by blocks of rows, lines of CSV or JSON one by one."""

import codecs
import csv
import itertools
import json
import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import StringIO
from typing import Any, NamedTuple

from cometad.data.cells import CORRECT, StreamNumbers, TimeFields, ignored, lacks, named_like_time, repeated
from cometad.data.dialect import Dialect
from cometad.data.gaps import warn_lacking
from cometad.errors import InputError, unknown
from cometad.parameters import is_number
from cometad.series import numbered_names

RECOGNIZED = (",", ";", "\t", "|")  # separators; a space also occurs in names and times, so it has to be given

_HINT = re.compile(r'\s*"?sep=(.)"?\s*', re.IGNORECASE)  # the first line of some spreadsheets

_log = logging.getLogger("cometad")


def _cell_count(cells: Sequence[str]) -> str:
    return f"{len(cells)} cell{'' if len(cells) == 1 else 's'}"


_A_TIME = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ,].*)?$|\d{1,2}:\d{2}(:\d{2})?([.,]\d+)?$")


def clean_header(cells: Sequence[str], where: str, time_column: str | None = None) -> list[str]:
    """The column names in a header, stripped of spaces; refuses numbers, times and repeated names.

    Sensors may have numbers as names if another column is `time_column` or named like a time: then the row cannot be a
    reading. `where` names the header in errors.
    """
    names = [cell.strip() for cell in cells]
    if not any(named_like_time(name) or name == time_column for name in names):
        for name in names:
            is_a_number = is_number(name.replace(",", ".", 1))  # also with a decimal comma
            if is_a_number or _A_TIME.match(name):
                kind = "number" if is_a_number else "time"
                raise InputError(f"{where} holds {name!r}, which is a {kind}, not a name.", advice="no header")
    twice = repeated(names)
    if twice is not None:
        raise InputError(f"{where} has two columns named {twice!r}. Give each column its own name.")
    return names


def separator_hint(line: str) -> str | None:
    """The separator that a first line such as sep=; declares, if any."""
    match = _HINT.fullmatch(line)
    return match[1] if match else None


def split_cells(line: str, separator: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=separator), [])
    except csv.Error:
        return [line]


def to_utf_8(block: bytes) -> bytes:
    r"""A block of text as UTF-8; Windows-1252 is converted."""
    try:
        block.decode()
    except UnicodeDecodeError:
        return block.decode("cp1252", errors="cometad-latin-1").encode()
    return block


def _as_latin_1(error: UnicodeError) -> tuple[str, int]:
    """Decode the five bytes that Windows-1252 does not define."""
    assert isinstance(error, UnicodeDecodeError)
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error("cometad-latin-1", _as_latin_1)


# -- rows of a file -------------------------------------------------------------------------------------------------


class Rows(NamedTuple):
    text: bytes  # UTF-8, with a line break at the end of each row
    length: int


class TextRows:
    r"""Takes rows from lines, checks their quotes and the number of their cells, and counts lines for messages.

    Blank lines are skipped. A row has as many cells as the first one; one empty cell more is a separator at its end.
    """

    def __init__(self, lines: Iterator[bytes], separator: str, shown: str) -> None:
        self._lines, self._held = lines, deque[bytes]()  # lines to come, and those that come before them
        self._taken = 0  # lines
        self._separator, self._shown = separator, shown
        self._width = 0  # cells of a row
        self.start = 0  # the line on which the last row starts, counted from 1

    def skip(self) -> None:
        while (line := self._next()) is not None and self._is_blank(line):
            pass

    def first(self, keep: bool = False) -> list[str] | None:
        """The cells of the first row, which says how many cells the others have; `keep` leaves it to `take`."""
        used = list[bytes]()
        cells = self._cells(used)
        if keep:
            self._held.extendleft(reversed(used))
            self._taken -= len(used)
        self._width = len(cells or ())
        return cells

    def take(self, count: int | None) -> Rows:
        """The next `count` rows, or all."""
        texts, total = [], 0
        while count is None or total < count:
            wanted = None if count is None else count - total
            lines = [*itertools.islice(self._held, wanted)]
            for _ in lines:
                self._held.popleft()
            lines += itertools.islice(self._lines, None if wanted is None else wanted - len(lines))
            if not lines:
                break
            rows = self._rows(lines)
            texts.append(rows.text)
            total += rows.length
        return Rows(b"".join(texts), total)

    def _rows(self, lines: list[bytes]) -> Rows:
        """The rows that start in these lines."""
        separator, inner = self._separator.encode(), self._width - 1
        kept = [line for line in lines if not self._is_blank(line)]
        text = b"".join(kept)
        plain = b'"' not in text and text.count(b"\r") == text.count(b"\r\n")
        if not plain or any(line.count(separator) != inner for line in kept):
            return self._parsed(lines)
        for back, line in enumerate(reversed(lines)):
            if not self._is_blank(line):
                self.start = self._taken + len(lines) - back
                break
        self._taken += len(lines)
        return Rows(to_utf_8(text if not kept or text.endswith(b"\n") else text + b"\n"), len(kept))

    def _parsed(self, lines: list[bytes]) -> Rows:
        """The same, cell by cell: for quoted cells, and for rows with too few or too many."""
        written, count, end = StringIO(newline=""), 0, self._taken + len(lines)
        writer = csv.writer(written, delimiter=self._separator, lineterminator="\n")
        self._held.extend(lines)
        while self._taken < end and (cells := self._cells([])) is not None:
            if len(cells) == self._width + 1 and not cells[-1].strip():
                del cells[-1]
            if len(cells) != self._width:
                shown = self._separator.join(cells)[:60]
                raise InputError(
                    f"{self._place} has {_cell_count(cells)}, but the header has {self._width} ({shown!r}). "
                    "Correct that row."
                )
            writer.writerow(cells)
            count += 1
        return Rows(written.getvalue().encode(), count)

    def _cells(self, used: list[bytes]) -> list[str] | None:
        """The cells of the next row, unquoted; `used` collects its lines."""
        while (line := self._next()) is not None:
            if not self._is_blank(line):
                break
        else:
            return None
        self.start = self._taken
        used.append(line)
        try:
            return next(csv.reader(self._texts(line, used), delimiter=self._separator, strict=True))
        except csv.Error as error:
            raise self._malformed(str(error)) from error

    def _texts(self, line: bytes | None, used: list[bytes]) -> Iterator[str]:
        """The lines of a row, one at a time, so that the parser takes no line of the next row."""
        while line is not None:
            yield to_utf_8(line).decode()
            line = self._next()
            if line is not None:
                used.append(line)

    def _next(self) -> bytes | None:
        line = self._held.popleft() if self._held else next(self._lines, None)
        self._taken += line is not None
        return line

    @staticmethod
    def _is_blank(line: bytes) -> bool:
        return not line.strip(b" \r\n")  # tabs may be empty cells

    @property
    def _place(self) -> str:
        return f"Row {self.start} of '{self._shown}'"

    def _malformed(self, reason: str) -> InputError:
        if "expected after" in reason:
            return InputError(
                f"{self._place} has text after a closing quotation mark. Write a quotation mark within a quoted cell "
                'twice (""), not with a backslash.'
            )
        if "new-line" in reason:
            return InputError(f"{self._place} has a carriage return within a cell. Remove it, or quote the cell.")
        return InputError(f"{self._place} has a quotation mark that is never closed. Close or remove it.")


# -- readings, one by one -------------------------------------------------------------------------------------------


class Reading(NamedTuple):
    line: int  # for error messages
    values: list[float]  # (variable,) in the detector's order
    time: str | float | None  # as it was sent
    at: float | None = None  # in seconds since 1970, if it is a date


class Layout(NamedTuple):
    names: Sequence[str]  # the detector's variables
    named: bool  # whether these names came with the training data
    time_column: str | None = None
    gaps: bool = False  # whether values may be missing; they become NaN
    dialect: Dialect = Dialect()


class _Plan(NamedTuple):
    """Where the parts of a reading are, for all readings with the same fields in the same order."""

    keys: Sequence[str]
    time_field: str | None
    time: int  # its place
    values: Sequence[int | None]  # (variable,) their places; None if there is no such field
    may_lack: bool  # whether some may have no place
    lasts: bool  # False if a later reading with these fields may have a time in one of them


class Fields:
    """Turns fields into readings, and notes once which are ignored; `where` names a reading in errors."""

    def __init__(self, layout: Layout, numbers: StreamNumbers, where: Callable[[int], str] = "Line {}".format) -> None:
        self.layout, self.where = layout, where
        self._numbers, self.times = numbers, TimeFields(layout.names, layout.time_column, numbers, where)
        self._noted = False
        self._plan: _Plan | None = None  # of the reading before

    def check_given(self, names: Iterable[str], line: int) -> None:
        """Refuse fields without the time column that was given."""
        given = self.layout.time_column
        if given is not None and given not in names:
            raise InputError(f"{self.where(line)} has no time column {given!r}. Available: {', '.join(names)}.")

    def reading(self, keys: Sequence[str], cells: Sequence[Any], line: int, comma: bool = False) -> Reading:
        plan = self._plan
        if plan is None or not plan.lasts or plan.keys != keys:
            self._plan = plan = self._planned(keys, dict(zip(keys, cells, strict=True)), line)
        where, numbers, values = self.where(line), self._numbers, []
        for name, place in zip(self.layout.names, plan.values, strict=True):
            if place is None and not plan.may_lack:
                raise InputError(lacks(where, name))
            values.append(numbers.value(name, None if place is None else cells[place], where, comma))
        field = plan.time_field
        return Reading(line, values, None if field is None else self.times.sent(cells[plan.time], field, line))

    def _planned(self, keys: Sequence[str], fields: Mapping[str, Any], line: int) -> _Plan:
        """The plan for readings like this one; notes once which fields are ignored."""
        names, time_field = self.layout.names, self.times.field(fields, line)
        extra = [key for key in keys if key and key != time_field and key not in names]
        if extra and not self._noted:
            self._noted = True
            _log.info("%s", ignored(extra))
        places = {key: place for place, key in enumerate(keys)}
        values = [places.get(name) for name in names]
        may_lack = self.layout.gaps and any(place is not None for place in values)
        lasts = time_field is not None or fields.keys() <= set(names)
        return _Plan(keys, time_field, places.get(time_field or "", 0), values, may_lack, lasts)


class CsvLines:
    """Parses lines of CSV one by one, after the header that it takes from the first of them.

    Columns are matched by name, in any order, or by position if the detector was fitted without names.
    """

    def __init__(self, lines: Iterator[tuple[int, str]], fields: Fields) -> None:
        self._fields, layout = fields, fields.layout
        dialect = layout.dialect
        number, text = next(lines)
        hint = separator_hint(text)
        if hint is not None:
            number, text = next(lines, (number + 1, ""))
        self._separator = dialect.separator or hint or _separator(text, layout.names)
        self._comma = self._separator != "," if dialect.decimal is None else dialect.decimal == ","
        header = split_cells(text, self._separator)
        if dialect.header:
            header = clean_header(header, f"Line {number}", layout.time_column)
        else:
            header = list(numbered_names(len(header)))
        fields.check_given(header, number)
        self._header = header
        self._names: list[str] | None = None  # of the detector, as far as columns are matched
        self.held = None if dialect.header else (number, text)  # a reading, if there is no header

    def reading(self, text: str, number: int) -> Reading:
        cells, header = split_cells(text, self._separator), self._header
        if len(cells) == len(header) + 1 and not cells[-1].strip():
            del cells[-1]  # rows that end with a separator
        if len(cells) != len(header):
            raise InputError(f"Line {number} has {_cell_count(cells)}, but the header has {len(header)}. {CORRECT}")
        if self._names is None:
            self._names = self._matched(self._fields.times.field(dict(zip(header, cells, strict=True)), number))
        return self._fields.reading(self._names, cells, number, self._comma)

    def _matched(self, time_field: str | None) -> list[str]:
        """The names of the columns; for a detector that was fitted on an array they are matched by position."""
        header, layout = self._header, self._fields.layout
        if not layout.named and not set(layout.names) <= set(header):
            names = iter(layout.names)
            header = [name if name == time_field else next(names, name) for name in header]
        lacking = [name for name in layout.names if name not in header]
        if layout.gaps and 0 < len(lacking) < len(layout.names):
            warn_lacking(lacking)
        return header


def _separator(header: str, names: Sequence[str]) -> str:
    """The separator that finds the most variables in a header, or else the most cells."""

    def found(separator: str) -> tuple[int, int]:
        cells = [cell.strip() for cell in split_cells(header, separator)]
        return len(set(cells).intersection(names)), len(cells)

    return max(RECOGNIZED, key=found)


def _from_json(text: str, number: int, fields: Fields) -> Reading:
    """The reading in a line of JSON: an object, or a list of values in the detector's order."""
    names = fields.layout.names

    def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        own = dict(pairs)
        if len(own) < len(pairs):
            twice = repeated([name for name, _ in pairs])
            raise InputError(f"Line {number} has the field {twice!r} twice. {CORRECT}")
        return own

    try:
        found = json.loads(text, object_pairs_hook=each_once)
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"Line {number} is not JSON.", advice="not json") from error
    if isinstance(found, list) and len(found) == len(names):
        found = dict(zip(names, found, strict=True))
    if not isinstance(found, dict):
        raise InputError(f"Line {number} is neither a JSON object nor a list of {len(names)} numbers. {CORRECT}")
    fields.check_given(found, number)
    return fields.reading(tuple(found), tuple(found.values()), number)


FORMS = ("auto", "csv", "jsonl")


def check_form(form: str) -> None:
    if form not in FORMS:
        raise unknown("format", form, FORMS)


def readings(
    lines: Iterable[str], form: str, layout: Layout, numbers: StreamNumbers | None = None
) -> Iterator[Reading]:
    """Parse lines into readings as they arrive; blank lines are skipped.

    Fields are matched by name, in any order, and unknown fields are ignored with a note. `numbers` reads the values; by
    default, those of a new stream. JSON lists, and CSV for a detector fitted without names, are matched by position. If
    gaps are allowed, some values or fields may be missing, but not all.
    """
    check_form(form)
    numbered = ((number, text) for number, line in enumerate(lines, 1) if (text := line.strip("\r\n")).strip(" "))
    fields = Fields(layout, numbers or StreamNumbers(layout.dialect, layout.gaps))
    first = next(numbered, None)
    if first is None:
        return
    rest = itertools.chain([first], numbered)
    if form == "jsonl" or (form == "auto" and first[1].lstrip().startswith(("{", "["))):
        for number, text in rest:
            yield _from_json(text, number, fields)
        return
    parser = CsvLines(rest, fields)
    if parser.held is not None:
        rest = itertools.chain([parser.held], rest)
    for number, text in rest:
        yield parser.reading(text, number)

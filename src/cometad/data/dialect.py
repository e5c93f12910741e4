"""How a text table is written: separator, decimal mark, encoding, header and missing markers, given or recognized."""

import codecs
import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass

from cometad.errors import ParameterError, unknown

SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "space": " "}
RECOGNIZED = (",", ";", "\t", "|")  # a space also occurs in names and times, so it has to be given
DATE_ORDERS = ("day-first", "month-first")
UTF_8 = "utf-8"  # recognized: a block that is not UTF-8 is read as Windows-1252
SAMPLE_ROWS = 50

_MARKS = {codecs.BOM_UTF8: UTF_8, codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_HINT = re.compile(r'\s*"?sep=(.)"?\s*', re.IGNORECASE)  # the first line of some spreadsheets


@dataclass(frozen=True)
class Dialect:
    r"""How a text table is written; None means that it is recognized."""

    separator: str | None = None  # one character or a name in SEPARATORS
    decimal: str | None = None  # "." or ","
    encoding: str | None = None  # a name that Python knows, such as latin-1
    header: bool = True  # without one, the columns are v0, v1, ...
    missing: tuple[str, ...] = ()  # cells that mean a missing reading, besides empty ones, NA, null, ...
    date_order: str | None = None  # of dates with the year last: one of DATE_ORDERS

    def __post_init__(self) -> None:
        object.__setattr__(self, "missing", tuple(self.missing))
        if self.separator is not None:
            object.__setattr__(self, "separator", _separator(self.separator))
        if self.decimal not in (None, ".", ","):
            raise ParameterError(f"The decimal mark must be . or a comma, got {self.decimal!r}.")
        if self.separator is not None and self.separator == self.decimal:
            raise ParameterError(
                f"The separator and the decimal mark cannot both be {self.decimal!r}. Choose another separator."
            )
        if self.encoding is not None:
            _check_encoding(self.encoding)
        if self.date_order is not None and self.date_order not in DATE_ORDERS:
            raise unknown("date order", self.date_order, DATE_ORDERS)


def _separator(text: str) -> str:
    character = SEPARATORS.get(text.lower(), "\t" if text == "\\t" else text)
    if len(character) != 1 or not character.isascii() or character.isalnum() or character in "\"'\r\n.+-\0":
        raise ParameterError(
            f"Cannot separate cells with {text!r}. Pass one character, or one of {', '.join(SEPARATORS)}."
        )
    return character


def _check_encoding(name: str) -> None:
    try:
        "".encode(name)
    except (LookupError, ValueError):
        raise ParameterError(f"Unknown encoding {name!r}. Use one such as utf-8, utf-16, latin-1 or cp1252.") from None


def recognize_encoding(sample: bytes) -> str:
    r"""The encoding of a text that starts with this sample."""
    for mark, encoding in _MARKS.items():
        if sample.startswith(mark):
            return encoding
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if odd > len(sample) / 4 and not even:
        return "utf-16-le"
    if even > len(sample) / 4 and not odd:
        return "utf-16-be"
    return UTF_8


def recognize_separator(lines: Sequence[str]) -> str:
    """The separator of a table that starts with these lines: the one that splits most rows like the header."""
    best, chosen = (0.0, 1), ","
    for separator in RECOGNIZED:
        header, *rows = [split_cells(line, separator) for line in lines if line.strip()][:SAMPLE_ROWS] or [[""]]
        alike = sum(len(row) == len(header) for row in rows) / len(rows) if rows else 1.0
        if len(header) > 1 and (alike, len(header)) > best:
            best, chosen = (alike, len(header)), separator
    if best == (0.0, 1) and lines:  # no row is like the header: trust the header
        chosen = max(RECOGNIZED, key=lambda separator: len(split_cells(lines[0], separator)))
    return chosen


def separator_hint(line: str) -> str | None:
    """The separator that a first line such as sep=; declares, if any."""
    match = _HINT.fullmatch(line)
    return match[1] if match else None


def split_cells(line: str, separator: str) -> list[str]:
    """The cells of one line, unquoted."""
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

"""How a text table is written: separator, decimal mark, encoding, header and missing markers, given or recognized."""

import codecs
from dataclasses import dataclass

from cometad.errors import ParameterError, unknown

SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "space": " "}
DATE_ORDERS = ("day-first", "month-first")
UTF_8 = "utf-8"  # recognized: a block that is not UTF-8 is read as Windows-1252

_MARKS = {codecs.BOM_UTF8: UTF_8, codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


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
        try:
            "".encode(UTF_8 if self.encoding is None else self.encoding)
        except (LookupError, ValueError):
            raise ParameterError(
                f"Unknown encoding {self.encoding!r}. Use one such as utf-8, utf-16, latin-1 or cp1252."
            ) from None
        if self.date_order is not None and self.date_order not in DATE_ORDERS:
            raise unknown("date order", self.date_order, DATE_ORDERS)


def _separator(text: str) -> str:
    character = SEPARATORS.get(text.lower(), "\t" if text == "\\t" else text)
    if len(character) != 1 or not character.isascii() or character.isalnum() or character in "\"'\r\n.+-\0":
        raise ParameterError(
            f"Cannot separate cells with {text!r}. Pass one character, or one of {', '.join(SEPARATORS)}."
        )
    return character


def recognize_encoding(sample: bytes) -> str:
    for mark, encoding in _MARKS.items():
        if sample.startswith(mark):
            return encoding
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if odd > len(sample) / 4 and not even:
        return "utf-16-le"
    if even > len(sample) / 4 and not odd:
        return "utf-16-be"
    return UTF_8

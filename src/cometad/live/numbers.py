"""The values of a stream as numbers, read as in a file but without looking ahead."""

import math
import re
from typing import Any

from cometad.data.cells import COMMA, LARGEST, MISSING, WORDS, marked_numbers, parse_number
from cometad.data.dialect import Dialect
from cometad.errors import InputError
from cometad.saving import require_state

CORRECT = "Correct that reading and send it again."
_MARKS = {".": "point", ",": "comma"}
_INTEGER = re.compile(r"\s*([+-]?)0*([0-9]+)\s*")


class StreamNumbers:
    """Reads cells; those seen first decide the decimal mark of all, and which variables are TRUE or FALSE.

    With `gaps`, values may be missing; they become NaN. `mark` is the decimal mark that a stream had before.
    """

    def __init__(self, dialect: Dialect = Dialect(), gaps: bool = False, mark: str | None = None) -> None:
        self.mark = dialect.decimal or mark
        self._given = dialect.decimal is not None
        self._missing = {*MISSING, *(marker.strip().lower() for marker in dialect.missing)}
        self._marked = marked_numbers(dialect.missing)
        self._gaps = gaps
        self._words: dict[str, bool] = {}  # whether a variable is a boolean, written as a word

    def is_missing(self, cell: object) -> bool:
        """Whether a cell means a missing value."""
        if isinstance(cell, str):
            return cell.strip().lower() in self._missing
        return cell is None or (not isinstance(cell, bool) and cell in self._marked)

    def value(self, name: str, cell: Any, where: str, comma: bool = False) -> float:
        """The number in a cell of a variable; `comma` if a text may have a decimal comma."""
        which = f"{where}: variable {name!r} is"
        value = math.nan if self.is_missing(cell) else self._number(name, cell, which, comma)
        if math.isnan(value):
            if not self._gaps:
                raise InputError(f"{which} missing.", advice="missing value")
            return value
        if math.isinf(value):
            raise InputError(f"{which} {value}, not a finite number. {CORRECT}")
        if abs(value) > LARGEST:
            raise InputError(f"{which} {value}, too large to compute with. {CORRECT}")
        if _is_rounded(cell, value):
            raise InputError(f"{which} {cell}, an integer too large to be exact. {CORRECT}")
        return value

    def _number(self, name: str, cell: Any, which: str, comma: bool) -> float:
        if isinstance(cell, str):
            word = WORDS.get(cell.strip().lower())
            if self._words.setdefault(name, word is not None) != (word is not None):
                other = "not a number" if word is not None else "but was TRUE or FALSE before"
                raise InputError(f"{which} {cell!r}, {other}. {CORRECT}")
            if word is not None:
                return word
            cell = self._with_point(cell, which) if comma else cell
        try:
            number = parse_number(cell)
        except ValueError as error:
            raise InputError(f"{which} {cell!r}, not a number. {CORRECT}") from error
        return math.nan if isinstance(cell, str) and number in self._marked else number

    def _with_point(self, cell: str, which: str) -> str:
        """A number with a decimal point instead of a comma; refuses one with another mark than the stream has."""
        text = cell.strip()
        found = "," if COMMA.fullmatch(text) else "." if "." in text and "," not in text else None
        if found is None:
            return cell
        self.mark = self.mark or found
        if found != self.mark:
            problem = f"{which} {cell!r}, with a decimal {_MARKS[found]}, but "
            if self._given:
                raise InputError(f"{problem}the decimal mark is a {_MARKS[self.mark]}. {CORRECT}")
            raise InputError(f"{problem}numbers before it have a decimal {_MARKS[self.mark]}.", advice="decimal")
        return text.replace(",", ".")


def checked_mark(mark: object) -> str | None:
    """A saved decimal mark, or None if it was not known."""
    require_state(mark is None or mark in (".", ","), "its 'decimal' is not a decimal mark")
    return mark  # type: ignore[return-value]


def _is_rounded(cell: object, value: float) -> bool:
    """Whether a cell is an integer that its float rounds."""
    if isinstance(cell, str):
        found = _INTEGER.fullmatch(cell)  # without zeros in front: int() refuses thousands of digits
        return found is not None and int(found[1] + found[2]) != int(value)
    return isinstance(cell, int) and int(value) != cell

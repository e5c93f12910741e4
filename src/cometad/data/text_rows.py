"""The rows of a text table: its lines without blank ones, joined where a quoted cell continues on the next line."""

import csv
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import NamedTuple

from cometad.data.dialect import to_utf_8
from cometad.errors import InputError


class Rows(NamedTuple):
    """Consecutive rows as CSV."""

    text: bytes  # UTF-8, with a line break at the end of each row
    length: int


def cell_count(cells: Sequence[str]) -> str:
    """How many cells a row has, in words."""
    return f"{len(cells)} cell{'' if len(cells) == 1 else 's'}"


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
        """Skip the first line that is not blank."""
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
                    f"{self._place} has {cell_count(cells)}, but the header has {self._width} ({shown!r}). "
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

"""The position in the input of a stream, so that the same input, sent again from its start, continues where it was."""

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from cometad.errors import InputError
from cometad.live.readings import Reading
from cometad.restored import counted, of_type, texts

_log = logging.getLogger("cometad")

FIRST = 16  # lines by which an input is recognized


class InputFeed:
    """Counts the lines of an input as they are used, and skips those used before.

    It is the same input if its first lines are the same, up to 16; then it must not differ before the position. Any
    other input is new.
    """

    def __init__(self, position: Mapping[str, Any] | None = None) -> None:
        self._before = None if position is None else _checked(position)  # of an input that this one may repeat
        self._hash, self._first = hashlib.sha256(), list[str]()
        self._read: list[str] = []  # lines of the reading in progress
        self.arrived = 0  # lines, used or not
        self.lines = 0  # used so far
        self.timed = False  # whether readings have times

    @property
    def skipped(self) -> int:
        """Number of lines to skip, because they were used before."""
        lines: int = 0 if self._before is None else self._before["lines"]
        return lines

    @property
    def behind(self) -> bool:
        """Whether lines to skip are still missing."""
        return self.lines < self.skipped

    def position(self) -> dict[str, Any]:
        """The state to save as JSON."""
        return {"lines": self.lines, "sha256": self._hash.hexdigest(), "first": self._first.copy()}

    def play(self, lines: Iterable[str]) -> Iterator[str]:
        """Pass lines through; the first ones show whether the input is the one before."""
        source, held = iter(lines), list[str]()
        first = [] if self._before is None else self._before["first"]
        for digest, line in zip(first, source, strict=False):  # takes no line after the last digest
            held.append(line)
            if _digest(line) != digest:
                self._before = None
                break
        if held and self._before is not None:
            _log.info("The input begins like the one before: its first %s lines are skipped.", f"{self.skipped:,}")
        for line in chain(held, source):
            self.arrived += 1
            self._read.append(line)
            yield line

    def new(self, readings: Iterable[Reading]) -> Iterator[Reading]:
        """The readings that were not used before; call `use` after each of them."""
        for reading in readings:
            self.timed = self.timed or reading.time is not None
            if reading.line > self.skipped:
                if self.behind:
                    raise self._differs()
                yield reading
            else:
                self.use()

    def use(self) -> None:
        """Count the lines of a reading as used."""
        for line in self._read:
            self.lines += 1
            self._hash.update(line.encode(errors="replace") + b"\n")
            if self.lines <= FIRST:
                self._first.append(_digest(line))
        self._read.clear()
        if self._before is not None and self.lines == self.skipped and self._hash.hexdigest() != self._before["sha256"]:
            raise self._differs()

    def _differs(self) -> InputError:
        return InputError(
            f"The input begins like the one before, but differs from it within the first {self.skipped:,} lines, "
            "which were scored already. Send the same input again, or only the readings that follow."
        )


def _checked(position: object) -> Mapping[str, Any]:
    saved: Mapping[str, Any] = of_type(position, dict, "position in the input")
    counted(saved.get("lines"), "lines")
    texts(saved.get("first"), "first")
    of_type(saved.get("sha256"), str, "sha256")
    return saved


def _digest(line: str) -> str:
    return hashlib.sha256(line.encode(errors="replace")).hexdigest()[:16]

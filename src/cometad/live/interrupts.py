"""Ctrl-C and SIGTERM treated as the end of the input."""

import select
import signal
from collections.abc import Iterator
from types import FrameType
from typing import BinaryIO, Self

CHUNK = 1 << 16  # bytes; more than Python's own buffer, whose content select does not see


class Interrupts:
    """Turns Ctrl-C and SIGTERM into the end of the input, so that no step is interrupted halfway."""

    def __init__(self) -> None:
        self.stopped = False
        self._waiting = False

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def lines(self, source: BinaryIO) -> Iterator[str]:
        """Yield the lines of the input as they arrive, until it ends or a signal asks to stop.

        Complete lines that were already read are still yielded, because they cannot be read again.
        """
        encoding, partial = "utf-8-sig", b""
        while self._wait(source):
            chunk = source.read1(CHUNK)  # type: ignore[attr-defined]
            *lines, partial = (partial + chunk).split(b"\n")
            if not chunk and partial:
                lines, partial = [partial], b""
            for line in lines:
                yield line.decode(encoding, errors="replace")
                encoding = "utf-8"
            if not chunk:
                return

    def _wait(self, source: BinaryIO) -> bool:
        """Wait for input; False if a signal asked to stop."""
        try:
            self._waiting = True  # before the check: a signal in between must not be missed
            if not self.stopped:
                select.select([source], [], [])  # a signal during read1 would lose what it had read
            self._waiting = False
        except KeyboardInterrupt:
            return False
        except OSError:  # an in-memory file, which never blocks
            self._waiting = False
        return not self.stopped

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.stopped = True
        if self._waiting:  # no step is in progress
            self._waiting = False
            raise KeyboardInterrupt

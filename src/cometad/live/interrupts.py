"""Ctrl-C and SIGTERM as the end of the input."""

import select
import signal
from collections.abc import Iterator
from types import FrameType
from typing import BinaryIO, Self

CHUNK = 1 << 16  # bytes: more than Python keeps in its own buffer, which select does not see


class Interrupts:
    """Ctrl-C and a request to terminate, turned into the end of the input, never into half a step."""

    def __init__(self) -> None:
        self.asked = False
        self._waiting = False

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def lines(self, source: BinaryIO) -> Iterator[str]:
        """The lines of the input, each as soon as it is there, until its end or until an end is asked for.

        What has been read from the input by then is still given out: nobody else could read it again.
        """
        encoding, begun = "utf-8-sig", b""
        while self._wait(source):
            chunk = source.read1(CHUNK)  # type: ignore[attr-defined]
            *lines, begun = (begun + chunk).split(b"\n")
            if not chunk and begun:
                lines, begun = [begun], b""
            for line in lines:
                yield line.decode(encoding, errors="replace")
                encoding = "utf-8"
            if not chunk:
                return

    def _wait(self, source: BinaryIO) -> bool:
        """Whether there is something to read; False where an end was asked for meanwhile."""
        try:
            self._waiting = True  # before the question: a signal in between must not be missed
            if not self.asked:
                select.select([source], [], [])  # not the read itself: what it had read would be lost with a signal
            self._waiting = False
        except KeyboardInterrupt:
            return False
        except OSError:  # a file in memory: there is nothing to wait for
            self._waiting = False
        return not self.asked

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        if self._waiting:  # only then is nothing half done
            self._waiting = False
            raise KeyboardInterrupt

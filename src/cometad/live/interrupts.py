"""Ctrl-C and SIGTERM treated as the end of the input."""

import codecs
import select
import signal
from collections.abc import Iterator
from types import FrameType
from typing import BinaryIO, Self

from cometad.data.dialect import UTF_8, recognize_encoding, to_utf_8
from cometad.errors import InputError

CHUNK = 1 << 16  # bytes; more than Python's own buffer, whose content select does not see


class Interrupts:
    """Turns Ctrl-C and SIGTERM into the end of the input, so that no step is interrupted halfway."""

    def __init__(self) -> None:
        self.stopped = False
        self.cut: int | None = None  # the last line, counted from 1, if it has no line break and may be incomplete
        self._waiting = False

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def lines(self, source: BinaryIO, encoding: str | None = None) -> Iterator[str]:
        """Yield the lines of the input as they arrive, until it ends or a signal asks to stop.

        Complete lines that were already read are still yielded, because they cannot be read again. Without an
        `encoding`, UTF-8, UTF-16 and Windows-1252 are recognized.
        """
        decoder, partial, same, count = None, b"", False, 0
        while self._wait(source):
            chunk = source.read1(CHUNK)  # type: ignore[attr-defined]
            ended = not chunk
            if decoder is None:
                chosen = encoding or recognize_encoding(chunk)
                same = encoding is None and chosen == UTF_8
                decoder = codecs.getincrementaldecoder("latin-1" if same else chosen)(errors="replace")
                chunk = chunk.removeprefix(codecs.BOM_UTF8) if same or chosen == UTF_8 else chunk
            if not same:
                chunk = _decoded(decoder, chunk, ended, encoding).encode(errors="replace")
            *lines, partial = (partial + chunk).split(b"\n")
            if ended and partial:
                complete = partial.rstrip().endswith((b"}", b"]"))  # JSON
                self.cut = None if complete else count + 1
                lines, partial = [partial], b""
            count += len(lines)
            for line in lines:
                yield to_utf_8(line).decode().removeprefix("\ufeff")
            if ended:
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


def _decoded(decoder: codecs.IncrementalDecoder, chunk: bytes, ended: bool, encoding: str | None) -> str:
    try:
        return decoder.decode(chunk, final=ended)
    except UnicodeError as error:  # not a wrong character, which is replaced: there is no byte order mark
        raise InputError(f"Standard input is not text in {encoding}.", advice="encoding") from error

"""A session on the lines of an input: text, positions, snapshots, and interrupts that lose none."""

import codecs
import hashlib
import json
import logging
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, nullcontext, suppress
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, NamedTuple, Self

from cometad.alerting.alerts import Alerts
from cometad.alerting.watch import Promise
from cometad.checkpoint import restoring
from cometad.data.cells import MARKS, StreamNumbers
from cometad.data.dialect import UTF_8, recognize_encoding
from cometad.data.text import Layout, Reading, readings, to_utf_8
from cometad.detector import Detector
from cometad.errors import InputError, OutputError
from cometad.live.output import OutputFile, checked_position
from cometad.live.session import KIND, Answer, Ordered, Session
from cometad.saving import counted, of_type, one_of, texts

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


_mark = one_of(MARKS, "a decimal mark")


class SnapshotFile(NamedTuple):
    """Where to save a session, and how often."""

    path: Path
    every: int | None  # readings
    seconds: float


class LineRun:
    """Answers the readings of an input, and saves the session with its positions in the input and in the output.

    If the file of the `snapshot` exists, the session in it is resumed.
    """

    def __init__(
        self,
        detector: Detector,
        gate: Ordered,
        alerts: Alerts,
        layout: Layout,
        interrupts: Interrupts,
        *,
        snapshot: SnapshotFile | None = None,
        only_events: bool = False,
    ) -> None:
        self._layout, self._interrupts, self._snapshot, self._only_events = layout, interrupts, snapshot, only_events
        if snapshot is not None and snapshot.path.exists():
            self.resumed, self._session = True, Session.resume(snapshot.path, detector, gate, alerts)
        else:
            self.resumed, self._session = False, Session(detector, gate, alerts)
        position = self._session.position
        with restoring(KIND, f"'{snapshot.path}'" if snapshot else "The snapshot"):
            self._feed = InputFeed(position.get("input"))
            self._written = checked_position(position.get("output"))
            self._numbers = StreamNumbers(layout.dialect, layout.gaps, _mark(position.get("decimal"), "decimal"))
            self.only_events_before = of_type(position.get("only_events", only_events), bool, "only_events")
        self._readings, self._saved_at = 0, time.monotonic()  # since the last time
        self._cut = False  # whether it was saved for the last time, before a line that may be incomplete

    def answer(
        self, source: BinaryIO | None, form: str, output: Path | None, show: Callable[[str], None]
    ) -> InputError | None:
        """Answer all readings, then finish the stream or save it; returns the error of a bad reading, which ends it.

        Each answer is a JSON line, written at once to the file `output`, or else given to `show`.
        """
        if output is None:
            self._write, self._output = show, None
            return self._answer_all(source, form)
        with closing(OutputFile(output, self._written, overwrite=not self.resumed)) as file:
            self._write, self._output = file.write, file
            if self._written is not None and self._written["bytes"] and not file.continues:
                _log.info(
                    "'%s' was missing or empty: it starts at step %s, without the lines before.",
                    *(output, f"{self._session.answered:,}"),
                )
            if self._snapshot is not None and not self.resumed:
                self._save()  # if it is killed before the first regular one
            return self._answer_all(source, form)

    def _answer_all(self, source: BinaryIO | None, form: str) -> InputError | None:
        try:
            problem = self._take_all(source, form)
            ended = problem is None and not self._interrupts.stopped
            if self._snapshot is None:
                with nullcontext() if ended else suppress(InputError):  # too few readings to score the rest
                    self._answer(self._session.finish())
        except BrokenPipeError:
            if self._snapshot is None:
                raise
            raise OutputError(
                f"The output was closed, so the snapshot '{self._snapshot.path}' was not updated. "
                "Send the readings since then again."
            ) from None
        feed = self._feed
        if self._snapshot is not None and ended and feed.arrived and feed.behind:
            return InputError(
                f"The input has only {feed.arrived:,} of the {feed.skipped:,} lines that were scored already. Send all "
                "of it again, or only the readings that follow."
            )
        self._finish(ended)
        return problem

    def _take_all(self, source: BinaryIO | None, form: str) -> InputError | None:
        """Answer the readings of the input; returns the error of the first bad one."""
        promise: Promise | None = Promise(self._session.detector.threshold.rate)
        try:
            for reading in self._new_readings(source, form):
                if reading.line == self._interrupts.cut:
                    self._save_before_cut()
                answers = self._session.take(reading)
                self._answer(answers)
                self._feed.use()
                self._tick()
                if promise is not None and _broken(promise, answers):
                    promise = None  # one warning is enough
        except InputError as error:
            return error
        return None

    def _new_readings(self, source: BinaryIO | None, form: str) -> Iterator[Reading]:
        if source is None:
            raise InputError("Standard input is closed.", advice="no readings")
        lines = self._interrupts.lines(source, self._layout.dialect.encoding)
        return self._feed.new(readings(self._feed.play(lines), form, self._layout, self._numbers))

    def _answer(self, answers: Iterable[Answer]) -> None:
        for answer in answers:
            if "events" in answer or not self._only_events:
                self._write(json.dumps(answer, allow_nan=False) + "\n")

    def _tick(self) -> None:
        """Count a reading, and save if it is time."""
        self._readings += 1
        if self._snapshot is None or self._cut:
            return
        if self._readings == self._snapshot.every or time.monotonic() - self._saved_at >= self._snapshot.seconds:
            self._save()

    def _save_before_cut(self) -> None:
        """Save for the last time: the line that follows may be incomplete, and comes again."""
        if self._snapshot is None:
            return
        self._finish(ended=False)
        self._cut = True
        _log.info(
            "The last line has no line break and may be incomplete: it is scored, but '%s' ends before it. Send the "
            "whole line with the next readings.",
            self._snapshot.path,
        )

    def _finish(self, ended: bool) -> None:
        """Save at the end, unless there was nothing new; `ended` if the input was read to its end."""
        if self._snapshot is None or self._cut:
            return
        if self._feed.lines > self._feed.skipped or not self._snapshot.path.exists():
            # Equal readings without times may well be new ones.
            self._save(quiet=False, whole=ended and not self._feed.timed)

    def _save(self, *, quiet: bool = True, whole: bool = False) -> None:
        """Save now; with `whole` the next input is a new one, whatever it begins with."""
        assert self._snapshot is not None
        position = {
            "input": None if whole else self._feed.position(),
            "output": None if self._output is None else self._output.position(),
            "decimal": self._numbers.mark,
            "only_events": self._only_events,
        }
        self._session.save(self._snapshot.path, position, quiet=quiet)
        self._readings, self._saved_at = 0, time.monotonic()


def _broken(promise: Promise, answers: Iterable[Answer]) -> bool:
    """Count answers, and warn if the promise of the threshold is broken."""
    for answer in answers:
        if "anomaly" in answer and not answer.get("imputed"):
            promise.push(1, [next(iter(answer["variables"]), "")] if answer["anomaly"] else [])
    warning = promise.warning()
    if warning is not None:
        _log.warning("%s", warning)
    return warning is not None

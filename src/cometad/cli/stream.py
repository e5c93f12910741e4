"""`cometad stream`."""

import dataclasses
import json
import select
import signal
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Self

import typer

from cometad.cli import options
from cometad.cli.exits import say, write_output

if TYPE_CHECKING:
    from cometad.cli.grid import Grid
    from cometad.cli.readings import Clock, Reading
    from cometad.comet import Comet
    from cometad.decision.alerts import Alerts, Change
    from cometad.decision.watch import Threshold
    from cometad.stream import Scored

KIND = "stream snapshot"
CHUNK = 1 << 16  # bytes: more than Python keeps in its own buffer, which select does not see
TOP = 3  # variables named with each score


def stream(
    model: options.Model,
    form: Annotated[
        str, typer.Option("--format", help="csv (with a header), jsonl, or auto: by the first line.")
    ] = "auto",
    snapshot: Annotated[
        Path | None,
        typer.Option(
            help="Go on from this file if it exists, and write the stream's state to it at the end, so that a later "
            "call can go on. Readings whose scores are not final yet then wait in it."
        ),
    ] = None,
    threshold: options.Threshold = None,
    min_length: options.MinLength = 1,
    merge_gap: options.MergeGap = 0,
    hold_off: options.HoldOff = 0,
    only_events: Annotated[
        bool,
        typer.Option("--only-events", help="Only the lines of readings with which something happened to an event."),
    ] = False,
    resample: options.Resample = None,
    late: Annotated[
        str,
        typer.Option(
            metavar="RULE",
            help="What happens to a reading whose time is not after that of the one before: refuse, or drop.",
        ),
    ] = "refuse",
    time_column: Annotated[
        str | None, typer.Option(help="The field of times. Without it: one named time, timestamp, datetime or date.")
    ] = None,
) -> None:
    """Score readings as they come: CSV or JSON lines on standard input, JSON lines on standard output.

    Each scored reading is one line with step, time (as it came), score, anomaly (0 or 1) and the variables with the
    highest scores of their own. A line comes as soon as its score is final, a few readings late.

    Flagged readings that belong together are an event. The line of the reading with which one opened, rose to a new
    peak or closed has the field events: each event opens and closes exactly once, also across snapshots.

    With --resample each line is a bin, with the time of its left edge; a bin ends with the first reading after it.

    With a detector that was fitted with a rule for gaps, values may be missing. A line then has the field imputed, 1
    where nothing can be said of the reading, since it was filled in (then anomaly is 0), and where some variables count
    as normal for that reason, the field left_out with their names.

    End of input and Ctrl-C both end the stream: the readings that still wait for later ones are scored then, or with
    --snapshot kept for the next call. A bad reading ends it too, with its line number and exit code 2; send it again,
    corrected, with what follows it.
    """
    from cometad.cli.grid import Grid
    from cometad.cli.paths import check_readable, check_writable
    from cometad.cli.readings import Clock, Layout, check_form, readings
    from cometad.data.resample import parse_resampling
    from cometad.decision.alerts import Alerts
    from cometad.decision.threshold import parse_threshold
    from cometad.errors import InputError, OutputError, unknown
    from cometad.stream import LATE

    check_form(form)
    if late not in LATE:
        raise unknown("rule for late readings", late, LATE)
    check_readable(model)
    rule = None if threshold is None else parse_threshold(threshold)
    resampling = None if resample is None else parse_resampling(resample)
    alerts = Alerts(min_length=min_length, merge_gap=merge_gap, hold_off=hold_off)
    if snapshot is not None:
        check_writable(snapshot)
    problem: InputError | None = None
    with Interrupts() as interrupts:
        detector = _loaded(model, rule)
        gate = Clock(late=late) if resampling is None else Grid(resampling, detector.names_, late)
        if resampling is not None and not detector.gaps.allowed:
            raise InputError(
                "A bin without readings is a gap, and this detector was fitted without a rule for gaps. "
                "Fit it with --gaps, such as --gaps forward-fill:5, or leave out --resample."
            )
        session = _opened(detector, snapshot, alerts, only_events, gate)
        layout = Layout(detector.names_, detector.named_, time_column, detector.gaps.allowed)
        try:
            try:
                for reading in readings(interrupts.lines(sys.stdin.buffer), form, layout):
                    for admitted in gate.admit(reading):
                        write_output(session.take(admitted))
            except InputError as error:
                problem = error
            if snapshot is None:
                write_output(session.rest(strict=problem is None and not interrupts.asked))
        except BrokenPipeError:
            if snapshot is None:
                raise
            raise OutputError(
                f"The output was closed, so the snapshot '{snapshot}' is as it was before. "
                "Send the readings since then again."
            ) from None
        if snapshot is not None:
            session.save(snapshot)
        for sentence in gate.told():
            say(sentence)
    if problem is not None:
        raise problem


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


class Session:
    """A stream with the times of the readings that wait in it."""

    def __init__(
        self,
        detector: "Comet",
        alerts: "Alerts",
        only_events: bool,
        gate: "Clock | Grid",
        state: bytes | None = None,
        times: Any = (),
    ) -> None:
        self.detector = detector
        self._gate = gate
        self._stream = detector.stream(state, alerts=alerts)
        self._only_events = only_events
        self._times = deque(times)

    def take(self, reading: "Reading") -> str:
        """The lines that become final with one reading."""
        scored = self._stream.update(reading.values)
        self._times.append(reading.time)
        return self._lines(scored)

    def rest(self, strict: bool) -> str:
        """The lines of the readings that still wait; where there are too few to score them, an error if `strict`."""
        from cometad.errors import InputError

        if strict and self._gate.admitted == 0:
            raise InputError("No reading came. Send CSV with a header line, or JSON lines, to standard input.")
        try:
            return "".join(map(self.take, self._gate.finish())) + self._lines(self._stream.finish())
        except InputError:
            if strict:
                raise
            return ""

    def save(self, path: Path) -> None:
        """Write the snapshot, whole or not at all."""
        import torch

        from cometad.checkpoint import Checkpoint, write

        state = torch.frombuffer(bytearray(self._stream.snapshot()), dtype=torch.uint8)
        facts = {"times": list(self._times), "gate": self._gate.facts()}
        write(path, Checkpoint(KIND, facts, {"stream": state} | self._gate.tensors()))
        say(
            f"Wrote '{path}' after {self._stream.seen:,} readings; the scores of the last {len(self._times)} come "
            "with those that follow."
        )

    def _lines(self, scored: "Scored") -> str:
        changes = deque(scored.changes)
        lines = [self._line(scored, i, changes) for i in range(len(scored))]
        if changes:  # the end of the stream closed an event, and all its readings had been given before
            lines.append({"step": changes[0].step, "events": [_change(change) for change in changes]})
        return "".join(json.dumps(line) + "\n" for line in lines if "events" in line or not self._only_events)

    def _line(self, scored: "Scored", i: int, changes: "deque[Change]") -> dict[str, Any]:
        """What is told of one reading; the changes of events that came with it are taken off `changes`."""
        own = scored.variables[i]
        left_out = [] if scored.left_out is None else scored.left_out[i].nonzero()[0].tolist()
        top = [variable for variable in (-own).argsort(kind="stable").tolist() if variable not in left_out][:TOP]
        gaps: dict[str, Any] = {"imputed": int(len(left_out) == len(own))} if self.detector.gaps.allowed else {}
        if left_out:
            gaps |= {"left_out": [self.detector.names_[variable] for variable in left_out]}
        step, time = scored.start + i, self._times.popleft()
        events = []
        while changes and changes[0].step == step:
            events.append(_change(changes.popleft()))
        return {
            "step": step,
            **({} if time is None else {"time": time}),
            "score": float(scored.scores[i]),
            "anomaly": int(scored.flags[i]),
            **gaps,
            "variables": {self.detector.names_[variable]: float(own[variable]) for variable in top},
            **({"events": events} if events else {}),
        }


def _change(change: "Change") -> dict[str, Any]:
    return {"change": change.kind, **dataclasses.asdict(change.event)}


def _loaded(model: Path, rule: "Threshold | None") -> "Comet":
    from cometad.baselines import BASELINES
    from cometad.checkpoint import kind_of
    from cometad.comet import Comet
    from cometad.errors import ModelFileError

    kind = kind_of(model)
    if kind in (known.__name__ for known in BASELINES.values()):
        raise ModelFileError(f"Only comet scores a stream; '{model}' holds a saved {kind}. Use cometad score.")
    detector = Comet.load(model)
    return detector if rule is None else detector.with_threshold(rule)


def _opened(
    detector: "Comet", snapshot: Path | None, alerts: "Alerts", only_events: bool, gate: "Clock | Grid"
) -> Session:
    from cometad.checkpoint import read
    from cometad.errors import ModelFileError

    if snapshot is None or not snapshot.exists():
        return Session(detector, alerts, only_events, gate)
    saved = read(snapshot, KIND)
    if "stream" not in saved.tensors:
        raise ModelFileError(f"'{snapshot}' is not a whole snapshot of a stream. Pass one that cometad stream wrote.")
    gate.restore(saved.facts["gate"], saved.tensors)
    return Session(detector, alerts, only_events, gate, saved.tensors["stream"].numpy().tobytes(), saved.facts["times"])

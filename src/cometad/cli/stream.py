"""`cometad stream`."""

import json
import math
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from cometad.cli import options
from cometad.cli.exits import say
from cometad.errors import InputError, OutputError, ParameterError

if TYPE_CHECKING:
    from cometad.alerting.alerts import Alerts
    from cometad.alerting.promise import Promise
    from cometad.cli.sink import OutputFile, StandardOutput
    from cometad.data.dialect import Dialect
    from cometad.data.resample import Resampling
    from cometad.detector import Detector
    from cometad.live.clock import Clock
    from cometad.live.grid import Grid
    from cometad.live.lines import InputFeed, Interrupts
    from cometad.live.numbers import StreamNumbers
    from cometad.live.readings import Reading
    from cometad.live.session import Answer, Session

    Sink = StandardOutput | OutputFile


def stream(
    model: options.Model,
    form: Annotated[
        str, typer.Option("--format", help="csv (with a header), jsonl, or auto to detect it from the first line.")
    ] = "auto",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write the lines to. Default: standard output.")
    ] = None,
    snapshot: Annotated[
        Path | None,
        typer.Option(help="Resume from this file if it exists, and save the stream's state to it regularly."),
    ] = None,
    snapshot_every: Annotated[
        str | None,
        typer.Option(
            metavar="N|PERIOD", help="How often to save the snapshot: every N readings, or a period. Default: 30s."
        ),
    ] = None,
    threshold: options.Threshold = None,
    only_events: Annotated[
        bool,
        typer.Option("--only-events", help="Print only readings at which an event opened, was updated or closed."),
    ] = False,
    resample: options.Resample = None,
    late: Annotated[
        str,
        typer.Option(
            metavar="RULE",
            help="What to do with a reading whose time is not after the one before: refuse or drop.",
        ),
    ] = "refuse",
    time_column: Annotated[
        str | None,
        typer.Option(
            help="Field with the times. Default: one with a date, or named time, timestamp, datetime or date."
        ),
    ] = None,
    gaps: options.Gaps = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Overwrite an existing file that this command did not write. An existing snapshot is resumed all the "
            "same; delete it to start anew.",
        ),
    ] = False,
    *,
    alerts: "Alerts",
    dialect: "Dialect | None" = None,
) -> None:
    """Score readings as they arrive: CSV or JSON lines on standard input, JSON lines on standard output.

    Each reading is one line, printed at once: step, time (as it was sent), alert_score, threshold, anomaly (1 if the
    alert score is above the threshold) and the variables with the highest scores. A detector with a trained network
    prints it a few readings later. The ranking score is not printed, because it needs later readings: use cometad score
    to rank readings.

    Flagged readings that belong together form an event. A line has the field events if an event opened, was updated
    (rose to a new peak) or closed there. Each event opens and closes exactly once, even across snapshots; one
    that is open at the end is closed by a last line with step and events only.

    With --resample each line is a bin, with the time of its left edge; a bin is complete at the first reading after it.

    With a detector fitted with a gap rule, values may be missing. Each line then has the field imputed: 1 if the
    reading was imputed and not judged (anomaly is then 0). If only some variables were left out, the field left_out
    names them.

    End of input and Ctrl-C both end the stream: readings that still wait for a score are scored or, with --snapshot,
    kept for the next call. A bad reading also ends it, with its line number and exit code 2; correct it and send it
    again, followed by the rest.

    After a crash, run the same command again with the same --snapshot. If the input is sent again from its start, the
    readings before the snapshot are skipped; any other input is taken as the readings that follow. With -o, the file
    then has every line once; on standard output, lines after the last snapshot are printed again.
    """
    from cometad.checkpoint import restoring
    from cometad.cli.paths import Output, check_outputs
    from cometad.cli.sink import OutputFile, StandardOutput, checked_position
    from cometad.data.dialect import Dialect
    from cometad.data.resample import parse_resampling
    from cometad.live.lines import InputFeed, Interrupts
    from cometad.live.numbers import StreamNumbers, checked_mark
    from cometad.live.readings import check_form
    from cometad.live.session import KIND
    from cometad.saving import of_type
    from cometad.series import check_late

    dialect = dialect or Dialect()
    check_form(form)
    check_late(late)
    if snapshot is None and snapshot_every is not None:
        raise ParameterError("--snapshot-every needs a file to save to: name it with --snapshot.")
    pace = _parse_pace("30s" if snapshot_every is None else snapshot_every)
    resampling = None if resample is None else parse_resampling(resample)
    check_outputs([Output(output, "answers"), Output(snapshot, "snapshot")], [model], force)
    resumed = snapshot is not None and snapshot.exists()
    if output is not None and not resumed and not force:
        _check_new(output)
    with Interrupts() as interrupts:
        detector = _opened(model, threshold, gaps)
        gate = _gate(resampling, detector, late, dialect)
        session = _begun(detector, gate, alerts, snapshot)
        with restoring(KIND, f"'{snapshot}'"):
            feed, written = InputFeed(session.position.get("input")), checked_position(session.position.get("output"))
            numbers = StreamNumbers(dialect, detector.gaps.allowed, checked_mark(session.position.get("decimal")))
            before = of_type(session.position.get("only_events", only_events), bool, "only_events")
        if output is not None and resumed and before != only_events:
            _check_new_lines(output, before)
        sink = StandardOutput() if output is None else OutputFile(output, written, overwrite=not resumed)
        if written is not None and written["bytes"] and output is not None and not output.stat().st_size:
            say(f"'{output}' was missing or empty: it starts at step {session.answered:,}, without the lines before.")
        source = _Input(form, time_column, dialect, interrupts, feed, numbers)
        saving = None if snapshot is None else _Saving(snapshot, pace, session, source, sink, only_events)
        with closing(sink):
            if saving is not None and not resumed and output is not None:
                saving.save(quiet=True)  # if it is killed before the first regular one
            problem = _run(session, source, _Writer(sink, only_events), saving)
        for sentence in session.gate.summary():
            say(sentence)
    if problem is not None:
        raise problem


def _run(session: "Session", source: "_Input", write: "_Writer", saving: "_Saving | None") -> InputError | None:
    """Answer all readings, then finish the stream or save it; returns the error of a bad reading."""
    interrupts, feed = source.interrupts, source.feed
    try:
        problem = _take_all(session, source, write, saving)
        if saving is None:
            ended_well = problem is None and not interrupts.stopped
            with nullcontext() if ended_well else suppress(InputError):  # too few readings to score the rest
                write(session.finish())
    except BrokenPipeError:
        if saving is None:
            raise
        raise OutputError(
            f"The output was closed, so the snapshot '{saving.path}' was not updated. "
            "Send the readings since then again."
        ) from None
    if saving is not None:
        ended = problem is None and not interrupts.stopped
        if ended and feed.arrived and feed.behind:
            return InputError(
                f"The input has only {feed.arrived:,} of the {feed.skipped:,} lines that were scored already. Send all "
                "of it again, or only the readings that follow."
            )
        saving.finish(ended)
    return problem


def _opened(model: Path, threshold: str | None, gaps: str | None) -> "Detector":
    """The detector, if it can score a stream."""
    from cometad.cli.opened import open_detector
    from cometad.errors import ModelFileError

    detector = open_detector(model, threshold, gaps)
    if not detector.can_stream:
        raise ModelFileError(
            f"'{model}' holds a {type(detector).__name__}, which cannot score a stream. Use cometad score."
        )
    return detector


def _gate(resampling: "Resampling | None", detector: "Detector", late: str, dialect: "Dialect") -> "Clock | Grid":
    """What readings pass before they are scored: a clock, or a grid that resamples them."""
    from cometad.live.clock import Clock
    from cometad.live.grid import Grid

    if resampling is None:
        return Clock(late=late, date_order=dialect.date_order)
    return Grid(resampling, detector.names_, late, dialect.date_order)


def _begun(detector: "Detector", gate: "Clock | Grid", alerts: "Alerts", snapshot: Path | None) -> "Session":
    """A session, resumed from the snapshot if there is one."""
    from cometad.live.session import Session

    if snapshot is not None and snapshot.exists():
        return Session.resume(snapshot, detector, gate, alerts)
    return Session(detector, gate, alerts)


def _take_all(session: "Session", source: "_Input", write: "_Writer", saving: "_Saving | None") -> InputError | None:
    """Answer the readings on standard input; return the error of the first bad one, which ends the stream."""
    from cometad.alerting.promise import Promise

    promise: Promise | None = Promise(session.detector.threshold.rate)
    try:
        for reading in source.readings(session.detector):
            if saving is not None and reading.line == source.interrupts.cut:
                saving.stop()
            answers = session.take(reading)
            write(answers)
            source.feed.use()
            if saving is not None:
                saving.tick()
            if promise is not None and _broken(promise, answers):
                promise = None  # one warning is enough
    except InputError as error:
        return error
    return None


def _broken(promise: "Promise", answers: "Iterable[Answer]") -> bool:
    """Count answers, and warn if the promise of the threshold is broken."""
    for answer in answers:
        if "anomaly" in answer and not answer.get("imputed"):
            promise.push(1, [next(iter(answer["variables"]), "")] if answer["anomaly"] else [])
    warning = promise.warning()
    if warning is not None:
        say(warning)
    return warning is not None


def _parse_pace(text: str) -> "_Pace":
    from cometad.data.resample import parse_period

    if text.isdecimal() and int(text):
        return _Pace(int(text), math.inf)
    try:
        return _Pace(None, parse_period(text) / 1e6)
    except ParameterError as error:
        raise ParameterError(
            f"Cannot read --snapshot-every {text!r}. Pass a number of readings such as 1000, or a period such as 30s."
        ) from error


def _check_new(output: Path) -> None:
    """Refuse to start a new stream in a file that has lines already."""
    if output.exists() and output.stat().st_size:
        raise OutputError(
            f"'{output}' already has the output of a stream. Continue it with its --snapshot, choose another file, or "
            "pass --force to overwrite it."
        )


def _check_new_lines(output: Path, only_events: bool) -> None:
    """Refuse to continue a file of all lines with events only, or the other way round."""
    if output.exists() and output.stat().st_size:
        raise OutputError(
            f"'{output}' was written {'with' if only_events else 'without'} --only-events. Continue it the same way, "
            "or write to another file."
        )


@dataclass(frozen=True)
class _Input:
    """Standard input: how it is written, what interrupts it, and how much of it was used."""

    form: str
    time_column: str | None
    dialect: "Dialect"
    interrupts: "Interrupts"
    feed: "InputFeed"
    numbers: "StreamNumbers"

    def readings(self, detector: "Detector") -> "Iterator[Reading]":
        """The readings that were not used before, for this detector."""
        from cometad.live.readings import Layout, readings

        layout = Layout(detector.names_, detector.named_, self.time_column, detector.gaps.allowed, self.dialect)
        if sys.stdin is None:
            raise InputError("Standard input is closed.", advice="no readings")
        lines = self.interrupts.lines(sys.stdin.buffer, self.dialect.encoding)
        return self.feed.new(readings(self.feed.play(lines), self.form, layout, self.numbers))


class _Pace(NamedTuple):
    """How often to save."""

    readings: int | None
    seconds: float


class _Saving:
    """Saves a session regularly, each time with the positions in its input and output."""

    def __init__(
        self, path: Path, pace: _Pace, session: "Session", source: "_Input", sink: "Sink", only_events: bool
    ) -> None:
        self.path, self._pace, self._only_events = path, pace, only_events
        self._session, self._source, self._sink = session, source, sink
        self._readings, self._time = 0, time.monotonic()  # since the last time
        self._stopped = False

    def tick(self) -> None:
        """Count a reading, and save if it is time."""
        self._readings += 1
        if self._stopped:
            return
        if self._readings == self._pace.readings or time.monotonic() - self._time >= self._pace.seconds:
            self.save(quiet=True)

    def stop(self) -> None:
        """Save for the last time: the line that follows may be incomplete, and comes again."""
        self.finish(ended=False)
        self._stopped = True
        say(
            f"The last line has no line break and may be incomplete: it is scored, but '{self.path}' ends before it. "
            "Send the whole line with the next readings."
        )

    def finish(self, ended: bool) -> None:
        """Save at the end, unless there was nothing new; `ended` if the input was read to its end."""
        feed = self._source.feed
        if self._stopped:
            return
        if feed.lines > feed.skipped or not self.path.exists():
            # Equal readings without times may well be new ones.
            self.save(whole=ended and not feed.timed)

    def save(self, *, quiet: bool = False, whole: bool = False) -> None:
        """Save now; with `whole` the next input is a new one, whatever it begins with."""
        position = {
            "input": None if whole else self._source.feed.position(),
            "output": self._sink.position(),
            "decimal": self._source.numbers.mark,
            "only_events": self._only_events,
        }
        self._session.save(self.path, position, quiet=quiet)
        self._readings, self._time = 0, time.monotonic()


class _Writer:
    """Writes answers as JSON lines, all or only those with events."""

    def __init__(self, sink: "Sink", only_events: bool) -> None:
        self._sink, self._only_events = sink, only_events

    def __call__(self, answers: "Iterable[Answer]") -> None:
        for answer in answers:
            if "events" in answer or not self._only_events:
                self._sink.write(json.dumps(answer, allow_nan=False) + "\n")

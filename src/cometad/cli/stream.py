"""`cometad stream`."""

import json
import sys
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cometad.cli import options
from cometad.cli.exits import say, write_output
from cometad.errors import InputError

if TYPE_CHECKING:
    from cometad.alerting.alerts import Alerts
    from cometad.alerting.promise import Promise
    from cometad.data.dialect import Dialect
    from cometad.data.resample import Resampling
    from cometad.live.interrupts import Interrupts
    from cometad.live.session import Answer, Session


def stream(
    model: options.Model,
    form: Annotated[
        str, typer.Option("--format", help="csv (with a header), jsonl, or auto to detect it from the first line.")
    ] = "auto",
    snapshot: Annotated[
        Path | None,
        typer.Option(help="Resume from this file if it exists, and save the stream's state to it at the end."),
    ] = None,
    threshold: options.Threshold = None,
    min_length: options.MinLength = 1,
    merge_gap: options.MergeGap = 0,
    hold_off: options.HoldOff = 0,
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
        str | None, typer.Option(help="Field with the times. Default: one named time, timestamp, datetime or date.")
    ] = None,
    gaps: options.Gaps = None,
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
    """
    from cometad.alerting.alerts import Alerts
    from cometad.cli.paths import check_writable
    from cometad.data.resample import parse_resampling
    from cometad.errors import OutputError
    from cometad.live.interrupts import Interrupts
    from cometad.live.readings import check_form
    from cometad.series import check_late

    check_form(form)
    check_late(late)
    resampling = None if resample is None else parse_resampling(resample)
    alerts = Alerts(min_length=min_length, merge_gap=merge_gap, hold_off=hold_off)
    if snapshot is not None:
        check_writable(snapshot)
    with Interrupts() as interrupts:
        session = _open(model, threshold, gaps, resampling, late, alerts, snapshot)
        try:
            problem = _take_all(session, interrupts, form, time_column, only_events, dialect)
            if snapshot is None:
                ended_well = problem is None and not interrupts.stopped
                with nullcontext() if ended_well else suppress(InputError):  # too few readings to score the rest
                    _print(session.finish(), only_events)
        except BrokenPipeError:
            if snapshot is None:
                raise
            raise OutputError(
                f"The output was closed, so the snapshot '{snapshot}' was not updated. "
                "Send the readings since then again."
            ) from None
        if snapshot is not None:
            session.save(snapshot)
        for sentence in session.gate.summary():
            say(sentence)
    if problem is not None:
        raise problem


def _open(
    model: Path,
    threshold: str | None,
    gaps: str | None,
    resampling: "Resampling | None",
    late: str,
    alerts: "Alerts",
    snapshot: Path | None,
) -> "Session":
    """The session of a detector, resumed from the snapshot if there is one."""
    from cometad.cli.opened import open_detector
    from cometad.errors import ModelFileError
    from cometad.live.clock import Clock
    from cometad.live.grid import Grid
    from cometad.live.session import Session

    detector = open_detector(model, threshold, gaps)
    if not detector.can_stream:
        raise ModelFileError(
            f"'{model}' holds a {type(detector).__name__}, which cannot score a stream. Use cometad score."
        )
    gate = Clock(late=late) if resampling is None else Grid(resampling, detector.names_, late)
    if snapshot is not None and snapshot.exists():
        return Session.resume(snapshot, detector, gate, alerts)
    return Session(detector, gate, alerts)


def _take_all(
    session: "Session",
    interrupts: "Interrupts",
    form: str,
    time_column: str | None,
    only_events: bool,
    dialect: "Dialect | None",
) -> InputError | None:
    """Answer the readings on standard input; return the error of the first bad one, which ends the stream."""
    from cometad.alerting.promise import Promise
    from cometad.data.dialect import Dialect
    from cometad.live.readings import Layout, readings

    detector = session.detector
    dialect = dialect or Dialect()
    layout = Layout(detector.names_, detector.named_, time_column, detector.gaps.allowed, dialect)
    promise: Promise | None = Promise(detector.threshold.rate)
    try:
        for reading in readings(interrupts.lines(sys.stdin.buffer, dialect.encoding), form, layout):
            answers = session.take(reading)
            _print(answers, only_events)
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


def _print(answers: "Iterable[Answer]", only_events: bool) -> None:
    for answer in answers:
        if "events" in answer or not only_events:
            write_output(json.dumps(answer) + "\n")

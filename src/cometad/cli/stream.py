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

if TYPE_CHECKING:
    from cometad.alerting.watch import Threshold
    from cometad.detector import Detector
    from cometad.live.session import Answer


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
    from cometad.alerting.alerts import Alerts
    from cometad.alerting.thresholds import parse_threshold
    from cometad.cli.paths import check_readable, check_writable
    from cometad.data.resample import parse_resampling
    from cometad.errors import InputError, OutputError, unknown
    from cometad.live.clock import Clock
    from cometad.live.grid import Grid
    from cometad.live.interrupts import Interrupts
    from cometad.live.readings import Layout, check_form, readings
    from cometad.live.session import Session
    from cometad.live.stream import LATE

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
        detector = _load(model, rule)
        gate = Clock(late=late) if resampling is None else Grid(resampling, detector.names_, late)
        if resampling is not None and not detector.gaps.allowed:
            raise InputError(
                "A bin without readings is a gap, and this detector was fitted without a gap rule. "
                "Fit it with --gaps, such as --gaps forward-fill:5, or leave out --resample."
            )
        if snapshot is not None and snapshot.exists():
            session = Session.resume(snapshot, detector, gate, alerts)
        else:
            session = Session(detector, gate, alerts)
        layout = Layout(detector.names_, detector.named_, time_column, detector.gaps.allowed)
        try:
            try:
                for reading in readings(interrupts.lines(sys.stdin.buffer), form, layout):
                    _print(session.take(reading), only_events)
            except InputError as error:
                problem = error
            if snapshot is None:
                ended_well = problem is None and not interrupts.asked
                with nullcontext() if ended_well else suppress(InputError):  # too few readings to score the rest
                    _print(session.finish(), only_events)
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


def _print(answers: "Iterable[Answer]", only_events: bool) -> None:
    for answer in answers:
        if "events" in answer or not only_events:
            write_output(json.dumps(answer) + "\n")


def _load(model: Path, rule: "Threshold | None") -> "Detector":
    from cometad.detectors import load
    from cometad.errors import ModelFileError

    detector = load(model)
    if not detector.can_stream:
        kind = type(detector).__name__
        raise ModelFileError(f"Only comet scores a stream; '{model}' holds a saved {kind}. Use cometad score.")
    return detector if rule is None else detector.with_threshold(rule)

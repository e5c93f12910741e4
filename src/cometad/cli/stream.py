"""`cometad stream`."""

import math
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cometad.cli.exits import say, write_output
from cometad.cli.opened import open_detector
from cometad.cli.options import DialectOptions, Model, Resample, RuleOptions, flag
from cometad.cli.paths import Output, check_outputs
from cometad.errors import ModelFileError, OutputError, ParameterError

if TYPE_CHECKING:
    from cometad.live.lines import SnapshotFile


@dataclass(frozen=True)
class ArrivingOptions:
    form: str = flag(
        "csv (with a header), jsonl, or auto to detect it from the first line.", "--format", default="auto"
    )
    resample: Resample = None
    late: str = flag(
        "What to do with a reading whose time is not after the one before: refuse or drop.",
        default="refuse",
        metavar="RULE",
    )
    time_column: str | None = flag(
        "Field with the times. Default: one with a date, or named time, timestamp, datetime or date."
    )
    dialect: DialectOptions = field(default_factory=DialectOptions)


@dataclass(frozen=True)
class LinesOptions:
    """Where the lines go, and how a later run continues them."""

    output: Path | None = flag("File to write the lines to. Default: standard output.", "--output", "-o")
    snapshot: Path | None = flag("Resume from this file if it exists, and save the stream's state to it regularly.")
    snapshot_every: str | None = flag(
        "How often to save the snapshot: every N readings, or a period. Default: 30s.", metavar="N|PERIOD"
    )
    only_events: bool = flag(
        "Print only readings at which an event opened, was updated or closed.", "--only-events", default=False
    )
    force: bool = flag(
        "Overwrite an existing file that this command did not write. An existing snapshot is resumed all the "
        "same; delete it to start anew.",
        "--force",
        default=False,
    )

    def snapshots(self) -> "SnapshotFile | None":
        from cometad.data.resample import parse_period
        from cometad.live.lines import SnapshotFile

        if self.snapshot is None and self.snapshot_every is not None:
            raise ParameterError("--snapshot-every needs a file to save to: name it with --snapshot.")
        if self.snapshot is None:
            return None
        every = "30s" if self.snapshot_every is None else self.snapshot_every
        if every.isdecimal() and int(every):
            return SnapshotFile(self.snapshot, int(every), math.inf)
        try:
            return SnapshotFile(self.snapshot, None, parse_period(every) / 1e6)
        except ParameterError as error:
            raise ParameterError(
                f"Cannot read --snapshot-every {every!r}. Pass a number of readings such as 1000, or a period such as "
                "30s."
            ) from error

    def has_lines(self) -> bool:
        return self.output is not None and self.output.exists() and self.output.stat().st_size > 0


def stream(model: Model, *, arriving: ArrivingOptions, lines: LinesOptions, rules: RuleOptions) -> None:
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
    from cometad.data.resample import parse_resampling
    from cometad.data.text import Layout, check_form
    from cometad.live.lines import Interrupts, LineRun
    from cometad.live.session import Clock, Grid
    from cometad.series import check_late

    dialect, alerts = arriving.dialect.value(), rules.alerts.value()
    check_form(arriving.form)
    check_late(arriving.late)
    saving = lines.snapshots()
    resampling = None if arriving.resample is None else parse_resampling(arriving.resample)
    check_outputs([Output(lines.output, "answers"), Output(lines.snapshot, "snapshot")], [model], lines.force)
    resumed = lines.snapshot is not None and lines.snapshot.exists()
    if lines.has_lines() and not resumed and not lines.force:
        raise OutputError(
            f"'{lines.output}' already has the output of a stream. Continue it with its --snapshot, choose another "
            "file, or pass --force to overwrite it."
        )
    with Interrupts() as interrupts:
        detector = open_detector(model, rules.threshold, rules.gaps)
        if not detector.can_stream:
            raise ModelFileError(
                f"'{model}' holds a {type(detector).__name__}, which cannot score a stream. Use cometad score."
            )
        late, order = arriving.late, dialect.date_order
        gate = (
            Clock(late=late, date_order=order) if resampling is None else Grid(resampling, detector.names_, late, order)
        )
        layout = Layout(detector.names_, detector.named_, arriving.time_column, detector.gaps.allowed, dialect)
        run = LineRun(detector, gate, alerts, layout, interrupts, snapshot=saving, only_events=lines.only_events)
        if run.resumed and lines.has_lines() and run.only_events_before != lines.only_events:
            raise OutputError(
                f"'{lines.output}' was written {'with' if run.only_events_before else 'without'} --only-events. "
                "Continue it the same way, or write to another file."
            )
        source = None if sys.stdin is None else sys.stdin.buffer
        problem = run.answer(source, arriving.form, lines.output, write_output)
        for sentence in gate.summary():
            say(sentence)
    if problem is not None:
        raise problem

"""`cometad report`."""

import hashlib
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from cometad.cli import options
from cometad.cli.exits import say


def report(
    model: options.Model,
    data: options.Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="The .html file to write.")] = Path("report.html"),
    most_events: Annotated[int, typer.Option(help="How many events to explain, the worst ones.", min=0)] = 20,
    threshold: options.Threshold = None,
    min_length: options.MinLength = 1,
    merge_gap: options.MergeGap = 0,
    hold_off: options.HoldOff = 0,
    time_column: options.TimeColumn = None,
    drop: options.Drop = None,
    resample: options.Resample = None,
) -> None:
    """Write a page that shows what a detector finds in a file, and why.

    It holds the scores with their events, for the worst events the variables behind them beside what is normal, how the
    codebook is used, how the scores drift, findings on the data, and the settings. One file, which opens offline.
    """
    from cometad.alerting.alerts import Alerts
    from cometad.alerting.thresholds import parse_threshold
    from cometad.cli.paths import check_readable, check_writable
    from cometad.data.resample import parse_resampling
    from cometad.data.tables import read_table
    from cometad.errors import ParameterError

    check_readable(model)
    if output.suffix.lower() not in (".html", ".htm"):
        raise ParameterError(f"The name '{output}' does not end in .html. Choose one that does.")
    check_writable(output)
    rule = None if threshold is None else parse_threshold(threshold)
    alerts = Alerts(min_length=min_length, merge_gap=merge_gap, hold_off=hold_off)
    grid = None if resample is None else parse_resampling(resample)
    readings: Any = read_table(data, time_column, drop or ())

    from cometad.cli.prepare import resampled
    from cometad.detectors import load
    from cometad.report.gather import gather
    from cometad.report.page import save_report
    from cometad.series import together

    detector = load(model)
    if rule is not None:
        detector = detector.with_threshold(rule)
    if grid is not None:
        readings = together(list(resampled([readings], grid)))
    options_given = {
        "--most-events": most_events,
        "--threshold": threshold,
        "--min-length": min_length,
        "--merge-gap": merge_gap,
        "--hold-off": hold_off,
        "--time-column": time_column,
        "--resample": resample,
    }
    words = [word for name, value in options_given.items() if value is not None for word in (name, str(value))]
    words += [word for name in drop or () for word in ("--drop", name)]
    command = shlex.join(["cometad", "report", str(model), str(data), "-o", str(output), *words])
    sources = {"command": command, "model": _named(model), "data": _named(data)}
    found = gather(detector, readings, alerts=alerts, most_events=most_events, sources=sources)
    save_report(output, found)
    say(f"{found.headline}. Wrote '{output}'.")


def _named(path: Path) -> str:
    """A file by its name and content."""
    with path.open("rb") as file:
        return f"{path.name} (SHA-256 {hashlib.file_digest(file, 'sha256').hexdigest()[:16]})"

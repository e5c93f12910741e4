"""`cometad report`."""

import hashlib
import shlex
from pathlib import Path

from cometad.cli.exits import say
from cometad.cli.opened import opened
from cometad.cli.options import Data, Force, Model, ReadingOptions, RuleOptions, flag
from cometad.cli.paths import Output, check_ending, check_outputs


def report(
    model: Model,
    data: Data,
    output: Path = flag("The .html file to write.", "--output", "-o", default=Path("report.html")),
    most_events: int = flag("Number of events to explain, most severe first.", default=20, min=0),
    *,
    reading: ReadingOptions,
    rules: RuleOptions,
    force: Force = False,
) -> None:
    """Write an HTML report of what a detector finds in a file, and why.

    It shows the alerts, worst first, and the notices, the variables behind them next to what was expected, the scores,
    codebook usage, score drift, data quality findings and all settings, in one file that works offline.
    """
    read, alerts = reading.value(), rules.alerts.value()
    check_ending(output, ".html", ".htm")
    check_outputs([Output(output, "report")], [model, data], force)
    detector, source = opened(model, data, read, rules.threshold, rules.gaps)

    from cometad.report.gather import gather
    from cometad.report.page import save_report

    options_given = {
        "--most-events": most_events,
        "--alerts": rules.threshold,
        **{f"--{name.replace('_', '-')}": value for name, value in vars(rules.alerts).items()},
        "--time-column": read.time_column,
        "--resample": read.resample,
        "--gaps": rules.gaps,
    }
    words = [word for name, value in options_given.items() if value is not None for word in (name, str(value))]
    words += [word for name in read.drop for word in ("--drop", name)]
    command = shlex.join(["cometad", "report", str(model), str(data), "-o", str(output), *words])
    sources = {"command": command, "model": _named(model), "data": _named(data)}
    found = gather(detector, source.whole(), alerts=alerts, most_events=most_events, sources=sources)
    save_report(output, found)
    say(f"{found.headline}. Wrote '{output}'.")


def _named(path: Path) -> str:
    """The name of a file, with a hash of its content."""
    if not path.is_file():
        return "standard input" if str(path) == "-" else str(path)
    with path.open("rb") as file:
        return f"{path.name} (SHA-256 {hashlib.file_digest(file, 'sha256').hexdigest()[:16]})"

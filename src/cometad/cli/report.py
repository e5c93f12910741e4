"""`cometad report`."""

import hashlib
import shlex
from pathlib import Path
from typing import Annotated

import typer

from cometad.cli import options
from cometad.cli.exits import say


def report(
    model: options.Model,
    data: options.Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="The .html file to write.")] = Path("report.html"),
    most_events: Annotated[int, typer.Option(help="How many events to explain, the worst ones.", min=0)] = 20,
    time_column: options.TimeColumn = None,
    drop: options.Drop = None,
) -> None:
    """Write a page that shows what a detector finds in a file, and why.

    It holds the scores with their events, for the worst events the variables behind them beside what is normal, how the
    codebook is used, how the scores drift, findings on the data, and the settings. One file, which opens offline.
    """
    from cometad.cli.paths import check_readable, check_writable
    from cometad.data.tables import read_table
    from cometad.errors import ParameterError

    check_readable(model)
    if output.suffix.lower() not in (".html", ".htm"):
        raise ParameterError(f"The name '{output}' does not end in .html. Choose one that does.")
    check_writable(output)
    frame = read_table(data, time_column, drop or ())

    from cometad.cli.detectors import load_detector
    from cometad.report.gather import gather
    from cometad.report.page import save_report

    detector = load_detector(model)
    chosen = {"--most-events": [str(most_events)], "--time-column": [time_column] if time_column else []}
    given = [
        word for name, values in (chosen | {"--drop": drop or []}).items() for value in values for word in (name, value)
    ]
    command = shlex.join(["cometad", "report", str(model), str(data), "-o", str(output), *given])
    sources = {"command": command, "model": _named(model), "data": _named(data)}
    found = gather(detector, frame, most_events=most_events, sources=sources)
    save_report(output, found)
    say(f"{found.headline}. Wrote '{output}'.")


def _named(path: Path) -> str:
    """A file by its name and content."""
    with path.open("rb") as file:
        return f"{path.name} (SHA-256 {hashlib.file_digest(file, 'sha256').hexdigest()[:16]})"

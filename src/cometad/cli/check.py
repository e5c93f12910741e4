"""`cometad check`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cometad.cli.exits import message, plain_table, print_json, say, show
from cometad.cli.opened import Source, opened, say_findings
from cometad.cli.options import Data, Gaps, ReadingOptions, flag
from cometad.cli.paths import check_outputs
from cometad.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from cometad.report.table_check import ColumnCheck, TableCheck


def check(
    data: Data,
    model: Annotated[
        Path | None, typer.Argument(metavar="[MODEL]", help="Detector that would score the readings.")
    ] = None,
    as_json: bool = flag("Print JSON instead of a table.", "--json", default=False),
    gaps: Gaps = None,
    *,
    reading: ReadingOptions,
) -> None:
    """Say what would happen to a file: its columns, times, gaps, constants and counters, and what to do about them.

    With a detector, the readings are compared with those it was fitted on. Nothing is written. The exit code is 0 if
    the readings could be fitted or, with a detector, scored; otherwise 2, with the reason.
    """
    from cometad.data.gaps import parse_gaps
    from cometad.data.kinds import DOUBTFUL
    from cometad.report.table_check import check_table

    read = reading.value()
    try:
        check_outputs([], [data] if model is None else [data, model])
        detector, source = (None, Source(data, read)) if model is None else opened(model, data, read)
        frame = source.frame()
        found = check_table(frame, detector, None if gaps is None else parse_gaps(gaps), source.where)
    except InputError as error:
        if as_json:
            print_json({"ok": False, "problem": message(error)})
        raise
    if as_json:
        problem = {} if found.problem is None else {"problem": message(found.problem)}
        print_json(found.as_json() | problem, allow_nan=False)
    else:
        show(_table(found))
        for note in found.notes:
            say(note)
        say_findings(found.findings, ("constant", *DOUBTFUL) if model is None else ())
    if found.problem is not None:
        raise found.problem
    if not as_json:
        say("These readings could be scored." if model is not None else "A detector could be fitted on these readings.")


def _table(found: "TableCheck") -> "Table":
    every = "" if found.interval is None else f", usually {found.interval:g} s apart"
    title = f"{found.readings:,} readings{every}"
    headings = ("column", "type", "use", "missing", "lowest", "highest")
    return plain_table(headings, ["missing"], map(_row, found.columns), title)


def _row(column: "ColumnCheck") -> list[str]:
    ends = (column.low, column.high)
    shown = ["" if end is None else end if isinstance(end, str) else f"{end:.6g}" for end in ends]
    return [column.name, column.kind, column.use, f"{column.missing:,}" if column.missing else "", *shown]

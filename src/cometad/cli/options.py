"""Arguments and options shared by the verbs."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

Data = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="Readings, one per row, as .csv, .csv.gz, .csv.zst, .tsv or .parquet; the header names the variables. A "
        "folder or a quoted pattern such as 'days/*.csv' is one series; - is standard input.",
    ),
]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Detector written by cometad fit.")]
TimeColumn = Annotated[
    str | None,
    typer.Option(
        help="Column with the times. Default: a column of dates, else one named time, timestamp, datetime or date."
    ),
]
Drop = Annotated[list[str] | None, typer.Option(help="Column to leave out, such as labels; repeatable.")]
Resample = Annotated[
    str | None,
    typer.Option(
        metavar="PERIOD[:RULE]",
        help="Resample the readings to a regular grid first, such as 60s or 5min:mean. Rules: last, first, mean, min, "
        "max.",
    ),
]
DataDir = Annotated[
    Path | None, typer.Option(help="Folder of the datasets. Default: $COMETAD_DATA, else ../shared/data.")
]
Threshold = Annotated[
    str | None,
    typer.Option(
        metavar="RULE[:RATE]",
        help="Threshold rule, budget, quantile, conformal, spot or drifting-spot, and the share of normal readings it "
        "may flag, such as spot:1e-4; or alerts-per-day:3. Default: the detector's own.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file that this command did not write.")]
MinLength = Annotated[int, typer.Option(help="Minimum length of an event in readings.", min=1)]
MergeGap = Annotated[int, typer.Option(help="Longest run of normal readings that does not end an event.", min=0)]
HoldOff = Annotated[int, typer.Option(help="Readings after an event during which no new one opens.", min=0)]
Gaps = Annotated[
    str | None,
    typer.Option(
        metavar="RULE",
        help="Gap rule for missing readings: refuse, forward-fill:LIMIT, interpolate:LIMIT or score-measured. "
        "Default: the detector's own.",
    ),
]

# How a text table is written. `with_dialect` adds these options to a verb.
_DIALECT: dict[str, tuple[Any, Any]] = {
    "separator": (
        Annotated[
            str | None,
            typer.Option(help="Separator of a text table: a character, or comma, semicolon, tab, pipe or space."),
        ],
        None,
    ),
    "decimal": (Annotated[str | None, typer.Option(help="Decimal mark of a text table: . or a comma.")], None),
    "encoding": (Annotated[str | None, typer.Option(help="Encoding of a text table, such as cp1252.")], None),
    "na": (
        Annotated[
            list[str] | None,
            typer.Option("--na", metavar="TEXT", help="Cell that means a missing reading, such as Bad; repeatable."),
        ],
        None,
    ),
    "no_header": (
        Annotated[bool, typer.Option("--no-header", help="The first row holds readings; columns are v0, v1, ...")],
        False,
    ),
    "date_order": (
        Annotated[
            str | None,
            typer.Option(help="day-first or month-first, for dates such as 01/02/2026. Default: recognized."),
        ],
        None,
    ),
}


def with_dialect(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb that gets its `dialect` from options of the command line.

    >>> import inspect
    >>> from cometad.cli.options import with_dialect
    >>> list(inspect.signature(with_dialect(lambda path, dialect: None)).parameters)
    ['path', 'separator', 'decimal', 'encoding', 'na', 'no_header', 'date_order']
    """

    @functools.wraps(verb)
    def run(*args: Any, **kwargs: Any) -> None:
        from cometad.data.dialect import Dialect

        given = {name: kwargs.pop(name, default) for name, (_, default) in _DIALECT.items()}
        missing, header = tuple(given.pop("na") or ()), not given.pop("no_header")
        verb(*args, **kwargs, dialect=Dialect(**given, missing=missing, header=header))

    own = [parameter for name, parameter in inspect.signature(verb).parameters.items() if name != "dialect"]
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _DIALECT.items()
    ]
    run.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in (*own, *more)}
    return run

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
        "--alerts",
        "--threshold",
        metavar="N/day|N/READINGS|RULE[:RATE]",
        help="Budget of alerts, such as 3/day or 1/1000, or another threshold rule (budget, quantile, conformal, spot, "
        "drifting-spot) and the share of normal readings it flags, such as spot:1e-4. Default: the detector's own.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file that this command did not write.")]
Gaps = Annotated[
    str | None,
    typer.Option(
        metavar="RULE",
        help="Gap rule for missing readings: refuse, forward-fill:LIMIT, interpolate:LIMIT or score-measured. "
        "Default: the detector's own.",
    ),
]

# Options that several verbs share as one argument: the name of the argument, and its options. `with_options` adds them.
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


ALERTS: dict[str, tuple[Any, Any]] = {
    "min_length": (Annotated[int, typer.Option(help="Minimum length of an event in readings.", min=1)], 1),
    "merge_gap": (
        Annotated[
            int,
            typer.Option(
                help="Longest run of normal readings that does not end an event; at least 10 under a budget.", min=0
            ),
        ],
        0,
    ),
    "hold_off": (
        Annotated[int, typer.Option(help="Readings after an event during which no new one opens.", min=0)],
        0,
    ),
    "longest": (
        Annotated[
            int,
            typer.Option(help="Readings after which an event that lasts closes as a new level.", min=1),
        ],
        64,
    ),
    "longest_hours": (
        Annotated[float, typer.Option(help="The same in hours: the shorter of both counts, but at least 8 readings.")],
        8.0,
    ),
    "alert_from": (
        Annotated[float, typer.Option(help="Severity from which an event is an alert, not a notice.", min=0, max=1)],
        0.15,
    ),
}


def _dialect(given: dict[str, Any]) -> Any:
    from cometad.data.dialect import Dialect

    missing, header = tuple(given.pop("na") or ()), not given.pop("no_header")
    return Dialect(**given, missing=missing, header=header)


def _alerts(given: dict[str, Any]) -> Any:
    from cometad.alerting.alerts import Alerts

    return Alerts(**given)


_GROUPS: dict[str, tuple[dict[str, tuple[Any, Any]], Callable[[dict[str, Any]], Any]]] = {
    "dialect": (_DIALECT, _dialect),
    "alerts": (ALERTS, _alerts),
}


def with_options(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb that gets its `dialect` and its `alerts`, if it has them, from options of the command line."""
    named = list(inspect.signature(verb).parameters.values())
    groups = [name for name in _GROUPS if any(parameter.name == name for parameter in named)]

    @functools.wraps(verb)
    def run(*args: Any, **kwargs: Any) -> None:
        for group in groups:
            options, made = _GROUPS[group]
            kwargs[group] = made({name: kwargs.pop(name, default) for name, (_, default) in options.items()})
        verb(*args, **kwargs)

    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for group in groups
        for name, (annotation, default) in _GROUPS[group][0].items()
    ]
    own = [parameter for parameter in named if parameter.name not in groups]
    run.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in (*own, *more)}
    return run

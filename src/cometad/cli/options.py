"""Arguments and options shared by the verbs, and groups of options that a verb takes as one argument."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from cometad.alerting.alerts import Alerts
    from cometad.data.dialect import Dialect
    from cometad.data.tables import ReadOptions


def flag(help: str, *names: str, default: Any = None, **more: Any) -> Any:
    """An option, as the default value of a parameter or a field; with the default `...` it is required.

    The command line fills in the fields of an options class. If you construct one yourself, pass every field: one that
    is left out holds typer's option object, not its default.
    """
    return typer.Option(default, *names, help=help, **more)


Data = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="Readings, one per row, as .csv, .csv.gz, .csv.zst, .tsv or .parquet; the header names the variables. A "
        "folder or a quoted pattern such as 'days/*.csv' is one series; - is standard input.",
    ),
]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Detector written by cometad fit.")]
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


@dataclass(frozen=True)
class DialectOptions:
    separator: str | None = flag("Separator of a text table: a character, or comma, semicolon, tab, pipe or space.")
    decimal: str | None = flag("Decimal mark of a text table: . or a comma.")
    encoding: str | None = flag("Encoding of a text table, such as cp1252.")
    na: list[str] | None = flag("Cell that means a missing reading, such as Bad; repeatable.", metavar="TEXT")
    no_header: bool = flag("The first row holds readings; columns are v0, v1, ...", "--no-header", default=False)
    date_order: str | None = flag("day-first or month-first, for dates such as 01/02/2026. Default: recognized.")

    def value(self) -> "Dialect":
        from cometad.data.dialect import Dialect

        missing = tuple(self.na or ())
        return Dialect(self.separator, self.decimal, self.encoding, not self.no_header, missing, self.date_order)


@dataclass(frozen=True)
class ReadingOptions:
    time_column: str | None = flag(
        "Column with the times. Default: a column of dates, else one named time, timestamp, datetime or date."
    )
    drop: list[str] | None = flag("Column to leave out, such as labels; repeatable.")
    resample: Resample = None
    dialect: DialectOptions = field(default_factory=DialectOptions)

    def value(self) -> "ReadOptions":
        from cometad.data.resample import parse_resampling
        from cometad.data.tables import ReadOptions

        if self.resample is not None:
            parse_resampling(self.resample)
        return ReadOptions(self.time_column, tuple(self.drop or ()), self.resample, self.dialect.value())


@dataclass(frozen=True)
class AlertOptions:
    """Which flagged readings form an event, and which events are alerts."""

    min_length: int = flag("Minimum length of an event in readings.", default=1, min=1)
    merge_gap: int = flag(
        "Longest run of normal readings that does not end an event; at least 10 under a budget.", default=0, min=0
    )
    hold_off: int = flag("Readings after an event during which no new one opens.", default=0, min=0)
    longest: int = flag("Readings after which an event that lasts closes as a new level.", default=64, min=1)
    longest_hours: float = flag("The same in hours: the shorter of both counts, but at least 8 readings.", default=8.0)
    alert_from: float = flag("Severity from which an event is an alert, not a notice.", default=0.15, min=0, max=1)

    def value(self) -> "Alerts":
        from cometad.alerting.alerts import Alerts

        return Alerts(**vars(self))


@dataclass(frozen=True)
class RuleOptions:
    """The threshold and the gap rule instead of the detector's own, and what becomes of flagged readings."""

    threshold: Threshold = None
    gaps: Gaps = None
    alerts: AlertOptions = field(default_factory=AlertOptions)


def with_options(verb: Callable[..., None], order: str = "") -> Callable[..., None]:
    """A verb whose groups of options, such as `ReadingOptions`, come one by one from the command line.

    In its help, the options named in `order` come first, then the others in the order of the signature. How a text
    table is written and what is an alert come last.
    """
    wanted, last = order.split(), list[inspect.Parameter]()
    found = _parameters(verb, last)
    found.sort(key=lambda each: wanted.index(each.name) if each.name in wanted else len(wanted))
    shown = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*found, *last)]

    @functools.wraps(verb)
    def run(**given: Any) -> None:
        _call(verb, given)

    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in shown}
    return run


def _parameters(taker: Any, last: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """The options of a verb or a group, including those of nested groups.

    Options that every help page lists at its end are appended to `last` instead.
    """
    found = list[inspect.Parameter]()
    for each in inspect.signature(taker).parameters.values():
        found += _parameters(each.annotation, last) if is_dataclass(each.annotation) else [each]
    if taker not in (DialectOptions, AlertOptions):
        return found
    last += found
    return []


def _call(taker: Any, given: dict[str, Any]) -> Any:
    """Call a verb or a group with the values `given` by name, which are taken out."""
    parameters = inspect.signature(taker).parameters.values()
    kinds = {each.name: each.annotation for each in parameters}
    return taker(
        **{name: _call(kind, given) if is_dataclass(kind) else given.pop(name) for name, kind in kinds.items()}
    )

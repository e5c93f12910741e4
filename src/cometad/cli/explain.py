"""`cometad explain`."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cometad.cli import options
from cometad.cli.exits import write_output

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.table import Table

    from cometad.arrays import Floats
    from cometad.comet import Comet
    from cometad.explain.reasons import Explanation, Reason
    from cometad.series import Series

BARS = "▁▂▃▄▅▆▇█"


def explain(
    model: options.Model,
    data: options.Data,
    step: Annotated[int | None, typer.Option(help="The time step to explain, counted from 0.")] = None,
    start: Annotated[int | None, typer.Option(help="The first time step of an event to explain.")] = None,
    stop: Annotated[int | None, typer.Option(help="The time step after its last.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many variables to show, those with the largest shares.")] = 5,
    context: Annotated[int, typer.Option(min=0, help="Time steps before and after that JSON holds too.")] = 32,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON with all numbers instead of a table.")] = False,
    time_column: options.TimeColumn = None,
    drop: options.Drop = None,
) -> None:
    """Say which variables are behind the score of a time step (--step) or of an event (--start and --stop).

    Gives for each variable its share of the score, the patch where it deviates most beside the nearest normal pattern,
    and how often that pattern came up in training. Only comet explains, with what it learned in fit: what it adapted
    to since plays no part.
    """
    from cometad.cli.paths import check_readable

    event = _event(step, start, stop)
    check_readable(model)

    from cometad.data.tables import read_table
    from cometad.series import as_series

    series = as_series(read_table(data, time_column, drop or ()))
    told = _load(model).explain(series, event, context=context)
    if as_json:
        write_output(json.dumps(_as_json(told, series, top), indent=2) + "\n")
        return

    from rich.console import Console

    Console().print(_table(told, series, top))


def _event(step: int | None, start: int | None, stop: int | None) -> int | tuple[int, int]:
    from cometad.errors import InputError

    if step is not None and start is None and stop is None:
        return step
    if step is None and start is not None and stop is not None:
        return start, stop
    raise InputError("Pass either --step, or both --start and --stop: cometad explain MODEL DATA --step 120.")


def _load(model: "Path") -> "Comet":
    from cometad.comet import Comet
    from cometad.detectors import load
    from cometad.errors import ModelFileError

    detector = load(model)
    if not isinstance(detector, Comet):
        raise ModelFileError(
            f"Only comet explains its scores; '{model}' holds a saved {type(detector).__name__}. "
            "Fit one with cometad fit --detector comet."
        )
    return detector


def _as_json(told: "Explanation", series: "Series", top: int) -> dict[str, Any]:
    plain = told.as_json()
    plain["variables"] = list(series.names)
    plain["reasons"] = plain["reasons"][:top]
    if series.times is not None:
        shown = series.times[told.begin : told.begin + len(told.observed)]
        plain["times"] = [str(time) for time in shown]
    return plain


def _table(told: "Explanation", series: "Series", top: int) -> "Table":
    from rich.table import Table
    from rich.text import Text

    last = told.stop - 1
    steps = f"Time step {_when(series, last)}"
    if last > told.start:
        steps = f"Time steps {_when(series, told.start)} to {_when(series, last)}"
    title = f"{steps}\nScore {told.score:.4g} at time step {_when(series, told.peak)}"
    table = Table(title=Text(title), title_justify="left")
    for heading in ("variable", "share", "scale", "from", "observed", "expected", "training"):
        right = heading in ("share", "scale", "from", "training")
        table.add_column(heading, justify="right" if right else "left", no_wrap=heading != "variable", overflow="fold")
    for reason in told.reasons[:top]:
        table.add_row(*(Text(cell) for cell in _row(reason)))
    return table


def _row(reason: "Reason") -> "Sequence[str]":
    low = min(reason.observed.min(), reason.expected.min())
    high = max(reason.observed.max(), reason.expected.max())
    return (
        reason.variable,
        f"{reason.share:.1%}",
        str(reason.scale),
        str(reason.start),
        f"{bars(reason.observed, low, high)}\n{_between(reason.observed)}",
        f"{bars(reason.expected, low, high)}\n{_between(reason.expected)}",
        f"{reason.frequency:.2%}",
    )


def _when(series: "Series", step: int) -> str:
    """A time step, with its time where there is one: to the second, or as finely as needed."""
    if series.times is None:
        return str(step)
    time = str(series.times[step]).replace("T", " ")
    whole, _, part = time.partition(".")
    part = part.rstrip("0")
    return f"{step} ({whole}.{part})" if part else f"{step} ({whole})"


def bars(values: "Floats", low: float, high: float) -> str:
    """Values as bars between a low and a high mark, one character each.

    >>> import numpy as np
    >>> from cometad.cli.explain import bars
    >>> bars(np.array([0.0, 5.0, 10.0]), 0.0, 10.0)
    '▁▅█'
    """
    if not high > low:
        return BARS[0] * len(values)
    places = [(value / 2 - low / 2) / (high / 2 - low / 2) for value in values]  # halves: a difference may overflow
    return "".join(BARS[min(int(place * len(BARS)), len(BARS) - 1)] for place in places)


def _between(values: "Floats") -> str:
    low, high = f"{values.min():.3g}", f"{values.max():.3g}"
    return low if low == high else f"{low} to {high}"

"""`cometad explain`."""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cometad.cli.exits import print_json, printable, show
from cometad.cli.opened import opened
from cometad.cli.options import Data, Gaps, Model, ReadingOptions, flag
from cometad.cli.paths import check_outputs
from cometad.errors import InputError, ModelFileError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.table import Table

    from cometad.arrays import Floats
    from cometad.explain.reasons import Explanation, Reason
    from cometad.series import Series

BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class EventOptions:
    step: str | None = flag("Time step to explain, counted from 0, or a time such as 2026-11-18T09:30Z.")
    start: str | None = flag("First time step of the event to explain, or its time.")
    stop: str | None = flag("Time step after the last one of the event, or the time of its last reading.")

    def value(self) -> object:
        if self.step is not None and self.start is None and self.stop is None:
            return _step(self.step)
        if self.step is None and self.start is not None and self.stop is not None:
            return _step(self.start), _step(self.stop)
        raise InputError("Pass either --step, or both --start and --stop: cometad explain MODEL DATA --step 120.")


def explain(
    model: Model,
    data: Data,
    *,
    event: EventOptions,
    top: int = flag("Number of variables to show, largest share first.", default=5, min=1),
    context: int = flag("Time steps before and after the event to include in JSON.", default=32, min=0),
    as_json: bool = flag("Print JSON with all values instead of a table.", "--json", default=False),
    reading: ReadingOptions,
    gaps: Gaps = None,
) -> None:
    """Explain the score of a time step (--step) or of an event (--start and --stop): which variables raised it.

    Shows for each variable its share, why it is unusual, and its readings next to what was expected. Only comet and
    network can explain their scores; they use the state after fit, without later adaptation. With --resample, a time
    step is a bin, as in cometad score.
    """
    read = reading.value()
    check_outputs([], [model, data])
    wanted = event.value()
    detector, source = opened(model, data, read, gaps=gaps)
    if not detector.can_explain:
        raise ModelFileError(
            f"'{model}' holds a {type(detector).__name__}, which cannot explain its scores. "
            "Fit one that can with cometad fit --detector comet."
        )
    series = source.series()
    explanation = detector.explain(series, wanted, context=context)
    if as_json:
        print_json(_as_json(explanation, series, top))
    else:
        show(_table(explanation, series, top))


def _step(text: str) -> int | str:
    if text.lstrip("-").isdecimal():
        return int(text)
    try:
        datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(
            f"Cannot read {text!r}. Pass --step 120, or a time such as --step 2026-11-18T09:30Z."
        ) from error
    return text


def _as_json(explanation: "Explanation", series: "Series", top: int) -> dict[str, Any]:
    plain = explanation.as_json()
    plain["variables"] = list(explanation.names)  # a column that is missing counts as a gap
    plain["reasons"] = plain["reasons"][:top]
    if series.times is not None:
        shown = series.times[explanation.begin : explanation.begin + len(explanation.observed)]
        plain["times"] = [str(time) for time in shown]
    return plain


def _table(explanation: "Explanation", series: "Series", top: int) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    last = explanation.stop - 1
    steps = f"Time step {_when(series, last)}"
    if last > explanation.start:
        steps = f"Time steps {_when(series, explanation.start)} to {_when(series, last)}"
    title = f"{steps}\nScore {explanation.score:.4g} at time step {_when(series, explanation.peak)}"
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("variable", "share", "why", "from", "observed", "expected"):
        right, wrap = heading in ("share", "from"), heading in ("variable", "why")
        table.add_column(heading, justify="right" if right else "left", no_wrap=not wrap, overflow="fold")
    for reason in explanation.reasons[:top]:
        table.add_row(*(Text(cell) for cell in row(reason)))
    return table


def row(reason: "Reason") -> "Sequence[str]":
    both = [value for value in (*reason.observed, *reason.expected) if value == value]
    low, high = min(both, default=0.0), max(both, default=0.0)
    unit = reason.band or high - low  # digits that show it
    expected = _between(reason.expected, unit)
    if reason.band is not None and expected:
        expected += f" ± {_between([reason.band], unit)}"
    return (
        printable(reason.variable),
        f"{reason.share:.1%}",
        printable(reason.why),
        str(reason.start),
        f"{bars(reason.observed, low, high)}\n{_between(reason.observed, unit)}",
        f"{bars(reason.expected, low, high)}\n{expected}",
    )


def _when(series: "Series", step: int) -> str:
    """A time step, with its time if known: to the second, or as precise as needed."""
    if series.times is None:
        return str(step)
    time = str(series.times[step]).replace("T", " ")
    whole, _, part = time.partition(".")
    part = part.rstrip("0")
    return f"{step} ({whole}.{part})" if part else f"{step} ({whole})"


def bars(values: "Floats", low: float, high: float) -> str:
    """Values as a bar chart between `low` and `high`, one character each; a space where a value is unknown."""
    return "".join(" " if value != value else _bar(value, low, high) for value in values)


def _bar(value: float, low: float, high: float) -> str:
    if not high > low:
        return BARS[0]
    place = (value / 2 - low / 2) / (high / 2 - low / 2)  # halves: the difference may overflow
    return BARS[min(int(place * len(BARS)), len(BARS) - 1)]


def _between(values: "Iterable[float]", unit: float) -> str:
    from cometad.explain.reasons import rounded

    known = [value for value in values if value == value]
    ends = (min(known), max(known)) if known else ()
    return " to ".join(dict.fromkeys(rounded(end, unit) for end in ends))

"""The demo: fit on a synthetic plant, score it live while it drifts, and show which faults were found and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table

from cometad.alerting.alerts import Alerts, Event
from cometad.alerting.budget import SECONDS_PER_DAY, Budget
from cometad.arrays import Floats
from cometad.comet import Comet
from cometad.datasets.synthetic import Fault, Plant, synthetic_plant
from cometad.detector import StepScores
from cometad.errors import OutputError, needs_extra
from cometad.live.stream import Scored
from cometad.report.gather import gather
from cometad.report.page import save_report
from cometad.report.plots import save_overview

ALERTS_PER_DAY, PERIOD = 3, 60.0  # one reading a minute
THRESHOLD = Budget(alerts_per_day=ALERTS_PER_DAY, period=PERIOD)
ALERTS = Alerts(merge_gap=30)  # a fault that pauses this long is still one event
AFTER = 64  # readings after a fault that a window or an event may still contain
SHOWN_VARIABLES = 6


@dataclass(frozen=True)
class FaultResult:
    """Whether one planted fault was found, how fast, and which variables were blamed."""

    fault: Fault
    found: bool
    delay: int | None  # steps from its start to the first alert
    blamed: tuple[int, ...]  # as many variables as the fault has, highest score first


class Live(NamedTuple):
    """The output of the stream for the whole test part."""

    alert_scores: Floats  # (time,)
    thresholds: Floats  # (time,)
    flags: NDArray[np.int64]  # (time,)
    variables: Floats  # (time, variable)
    scores: Floats  # (time,)  ranking scores


def run(out: Path, seed: int) -> None:
    """Fit, stream and print the results; write a picture and a report to the folder `out`."""
    needs_extra("matplotlib.figure", "viz")
    console = Console(highlight=False)
    _make_folder(out)
    plant = synthetic_plant(seed=seed)
    console.print(
        f"A synthetic plant with {len(plant.names)} variables: {len(plant.train)} normal readings to learn from, "
        f"then {len(plant.test)} readings with drifting sensors and {len(plant.faults)} planted faults."
    )
    detector = Comet(threshold=THRESHOLD, verbose=True).fit(plant.train)
    console.print(f"Fitted. The threshold begins at {detector.threshold_:.2f}. Now live, one reading at a time:\n")
    live, events = _watch(detector, plant, console)
    results = [judge(fault, live) for fault in plant.faults]
    console.print()
    console.print(_table(results, plant.names))
    console.print(_false_alerts(plant, events))
    picture = out / "demo.png"
    _draw(picture, plant, live, results)
    console.print(f"Picture: {picture}", soft_wrap=True)  # a path broken over two lines cannot be copied
    page = out / "report.html"
    _report(page, detector, plant, live)
    console.print(f"Report, to open in a browser: {page}", soft_wrap=True)


def judge(fault: Fault, live: Live) -> FaultResult:
    """Check whether an alert was raised during the fault, with what delay, and which variables it blamed."""
    during = slice(fault.start, fault.stop)
    found = bool(live.flags[during].any())
    delay = int(np.argmax(live.flags[during])) if found else None
    blamed = live.variables[during][live.flags[during] == 1] if found else live.variables[during]
    order = np.argsort(blamed.mean(axis=0))[::-1]
    return FaultResult(fault, found, delay, tuple(int(i) for i in order[: len(fault.variables)]))


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"Cannot create the folder '{out}': {error.strerror}. Choose another with --out.") from error


def _watch(detector: Comet, plant: Plant, console: Console) -> tuple[Live, list[Event]]:
    """Stream the test part; print each alert as it opens."""
    stream = detector.stream(alerts=ALERTS)
    parts: list[Scored] = []
    events: list[Event] = []
    for reading in plant.test:
        parts.append(stream.update(reading))
        _announce(parts[-1], plant, console)
        events += _closed(parts[-1])
    parts.append(stream.finish())
    events += _closed(parts[-1])
    return Live(*(np.concatenate([getattr(part, field) for part in parts]) for field in Live._fields)), events


def _announce(scored: Scored, plant: Plant, console: Console) -> None:
    for change in scored.changes:
        if change.kind == "opened":
            own = scored.variables[change.step - scored.start]
            named = ", ".join(plant.names[i] for i in np.argsort(own)[::-1][:2])
            console.print(f"  step {change.step:>6}  alert score {change.event.peak_score:>5.2f}  {named}")


def _closed(scored: Scored) -> list[Event]:
    return [change.event for change in scored.changes if change.kind == "closed"]


def _table(results: Sequence[FaultResult], names: Sequence[str]) -> Table:
    table = Table(title="Planted faults", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("fault", "steps", "found", "delay", "top variables", "true variables"):
        table.add_column(column, justify="right" if column == "delay" else "left", no_wrap="variables" in column)
    for result in results:
        fault = result.fault
        table.add_row(
            fault.kind,
            f"{fault.start}-{fault.stop}",
            "yes" if result.found else "no",
            "" if result.delay is None else str(result.delay),
            "\n".join(names[i] for i in result.blamed),
            "\n".join(names[i] for i in fault.variables),
        )
    return table


def _false_alerts(plant: Plant, events: Sequence[Event]) -> str:
    """A sentence with the number of alerts that have nothing to do with a fault."""
    false = sum(
        not any(event.start < fault.stop + AFTER and fault.start < event.stop for fault in plant.faults)
        for event in events
    )
    days = len(plant.test) * PERIOD / SECONDS_PER_DAY
    return (
        f"{len(events)} alerts in {days:.1f} days at one reading a minute, {false} of them false; "
        f"the budget of {ALERTS_PER_DAY} a day allows {ALERTS_PER_DAY * days:.0f}."
    )


def _draw(path: Path, plant: Plant, live: Live, results: Sequence[FaultResult]) -> None:
    faulty = list(dict.fromkeys(i for fault in plant.faults for i in fault.variables))[:SHOWN_VARIABLES]
    save_overview(
        path,
        plant.test[:, faulty],
        [plant.names[i] for i in faulty],
        live.alert_scores,
        live.thresholds,
        [(fault.start, fault.stop) for fault in plant.faults],
        [result.found for result in results],
    )


def _report(path: Path, detector: Comet, plant: Plant, live: Live) -> None:
    readings = pl.DataFrame(plant.test, schema=list(plant.names))
    save_report(
        path, gather(detector, readings, alerts=ALERTS, scored=StepScores(live.scores, live.alert_scores, None))
    )

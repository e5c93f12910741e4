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

from cometad.alerting.alerts import Alerts
from cometad.alerting.thresholds import Quantile
from cometad.arrays import Floats
from cometad.comet import Comet
from cometad.datasets.synthetic import Fault, Plant, synthetic_plant
from cometad.detector import StepScores
from cometad.errors import OutputError, needs_extra
from cometad.live.stream import Scored
from cometad.report.gather import gather
from cometad.report.page import save_report
from cometad.report.plots import save_overview

# One normal reading in a thousand may be flagged. At the default of one in a hundred, chance alone would flag about
# half of all faults that last 60 readings.
THRESHOLD = Quantile(rate=0.001)
ALERTS = Alerts(merge_gap=30)  # for the report: a fault that pauses this long is still one event
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
    console.print(f"Fitted. The threshold is {detector.threshold_:.2f}. Now live, one reading at a time:\n")
    live = _watch(detector, plant, console)
    results = [judge(fault, live) for fault in plant.faults]
    console.print()
    console.print(_table(results, plant.names))
    console.print(_false_alarms(detector, plant, live))
    picture = out / "demo.png"
    _draw(picture, detector, plant, live, results)
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


def _watch(detector: Comet, plant: Plant, console: Console) -> Live:
    stream = detector.stream()
    parts: list[Scored] = []
    active = False
    for reading in plant.test:
        parts.append(stream.update(reading))
        active = _announce(parts[-1], active, plant, console)
    parts.append(stream.finish())
    return Live(*(np.concatenate([getattr(part, field) for part in parts]) for field in Live._fields))


def _announce(scored: Scored, active: bool, plant: Plant, console: Console) -> bool:
    """Print each alert as it starts; return whether one is active."""
    for k, step in enumerate(scored.steps):
        if scored.flags[k] and not active:
            named = ", ".join(plant.names[i] for i in np.argsort(scored.variables[k])[::-1][:2])
            console.print(f"  step {step:>6}  alert score {scored.alert_scores[k]:>5.2f}  {named}")
        active = bool(scored.flags[k])
    return active


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


def _false_alarms(detector: Comet, plant: Plant, live: Live) -> str:
    """A sentence with the share of normal readings that were flagged."""
    flagged = 100 * live.flags[~plant.labels].mean()
    return (
        f"False alarms on normal readings: {flagged:.2f} % "
        f"(the threshold allows {100 * THRESHOLD.rate:.1f} % when nothing drifts)."
    )


def _draw(path: Path, detector: Comet, plant: Plant, live: Live, results: Sequence[FaultResult]) -> None:
    faulty = list(dict.fromkeys(i for fault in plant.faults for i in fault.variables))[:SHOWN_VARIABLES]
    save_overview(
        path,
        plant.test[:, faulty],
        [plant.names[i] for i in faulty],
        live.alert_scores,
        detector.threshold_,
        [(fault.start, fault.stop) for fault in plant.faults],
        [result.found for result in results],
    )


def _report(path: Path, detector: Comet, plant: Plant, live: Live) -> None:
    readings = pl.DataFrame(plant.test, schema=list(plant.names))
    save_report(
        path, gather(detector, readings, alerts=ALERTS, scored=StepScores(live.scores, live.alert_scores, None))
    )

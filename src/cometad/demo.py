"""The demo: fit on a synthetic plant, score it live while it drifts, and show which faults were found and why."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table

from cometad.alerting.alerts import Change, Event
from cometad.alerting.budget import SECONDS_PER_DAY, Budget
from cometad.alerting.verdicts import Verdict
from cometad.arrays import Floats
from cometad.comet import Comet
from cometad.datasets.synthetic import Fault, Plant, synthetic_plant
from cometad.errors import OutputError, needs_extra
from cometad.live.stream import Scored
from cometad.report.gather import gather
from cometad.report.page import save_report
from cometad.report.plots import Excerpt, save_overview
from cometad.scoring.scores import StepScores

PERIOD = 60.0  # one reading a minute
AFTER = 64  # readings after a fault that a window or an event may still contain
AROUND = 40  # readings shown before and after a fault
PICTURE, PAGE = "demo.png", "report.html"  # names of the files it writes
FLUSHES, FLUSH_LENGTH, FLUSH_SIZE = 4, 60, 3.0  # number, readings, standard deviations


@dataclass(frozen=True)
class FaultResult:
    fault: Fault
    found: bool
    delay: int | None  # steps from its start until the alert is raised
    blamed: tuple[int, ...]  # as many variables as the fault has, highest score first


class Alert(NamedTuple):
    raised: int
    event: Event


class Live(NamedTuple):
    alert_scores: Floats  # (time,)
    thresholds: Floats  # (time,)
    flags: NDArray[np.int64]  # (time,)
    variables: Floats  # (time, variable)
    scores: Floats  # (time,)  ranking scores


class Flushed(NamedTuple):
    """A plant with a harmless pattern that repeats: a sensor that is flushed."""

    plant: Plant
    variable: int
    starts: tuple[int, ...]  # of the flushes

    def is_flush(self, event: Event) -> bool:
        return any(event.start < start + FLUSH_LENGTH + AFTER and start < event.stop for start in self.starts)


class Watched(NamedTuple):
    live: Live
    alerts: list[Alert]
    verdict: Verdict | None


def run(out: Path, seed: int) -> None:
    """Fit, stream and print the results; write a picture and a report to the folder `out`."""
    needs_extra("matplotlib.figure", "viz")
    console = Console(highlight=False)
    make_folder(out)
    flushed = flush(synthetic_plant(seed=seed))
    plant = flushed.plant
    console.print(
        f"A synthetic plant with {len(plant.names)} variables: {len(plant.train)} normal readings to learn from, "
        f"then {len(plant.test)} readings with drifting sensors, {len(plant.faults)} planted faults, and a sensor that "
        f"is flushed {len(flushed.starts)} times, which is harmless."
    )
    detector = Comet(verbose=True).fit(plant.train)
    console.print(f"Fitted. The threshold begins at {detector.threshold_:.2f}. Now live, one reading at a time:\n")
    watched = watch(detector, flushed, lambda scored: _announce(scored, plant, console), console.print)
    results = [judge(fault, watched) for fault in plant.faults]
    console.print()
    console.print(_faults_table(results, plant.names))
    console.print(_summary(flushed, watched))
    picture = out / PICTURE
    _draw(picture, detector, flushed, watched, results)
    console.print(f"Picture: {picture}", soft_wrap=True)  # a path broken over two lines cannot be copied
    page = out / PAGE
    readings, live = pl.DataFrame(plant.test, schema=list(plant.names)), watched.live
    save_report(page, gather(detector, readings, scored=StepScores(live.scores, live.alert_scores, None)))
    console.print(f"Report, to open in a browser: {page}", soft_wrap=True)


def flush(plant: Plant) -> Flushed:
    """Raise one sensor smoothly for 60 readings, four times, halfway between faults that are far apart.

    The sensor has no fault, and its unit as few as any.
    """
    faulty = [i for fault in plant.faults for i in fault.variables]
    units = [name.split("_")[0] for name in plant.names]
    busy = [units[i] for i in faulty]
    sensors = [i for i, unit in enumerate(units) if unit.startswith("unit") and i not in faulty]
    variable = min(sensors, key=lambda i: (busy.count(units[i]), i))
    borders = [0, *(step for fault in plant.faults for step in (fault.start, fault.stop)), len(plant.test)]
    widest = sorted(zip(borders[::2], borders[1::2], strict=True), key=lambda gap: gap[0] - gap[1])[:FLUSHES]
    starts = tuple(sorted((begin + end - FLUSH_LENGTH) // 2 for begin, end in widest))
    test, rise = plant.test.copy(), FLUSH_SIZE * plant.train[:, variable].std() * np.hanning(FLUSH_LENGTH)
    for start in starts:
        test[start : start + FLUSH_LENGTH, variable] += rise
    return Flushed(replace(plant, test=test), variable, starts)


def watch(
    detector: Comet,
    flushed: Flushed,
    announce: Callable[[Scored], object] = lambda scored: None,
    say: Callable[[str], object] = lambda sentence: None,
    *,
    verdicts: bool = True,
) -> Watched:
    """Stream the test part; with `verdicts`, the first alert about a flush is called normal once it is over."""
    stream = detector.stream()
    parts: list[Scored] = []
    verdict = None
    for reading in flushed.plant.test:
        parts.append(stream.update(reading))
        announce(parts[-1])
        for change in parts[-1].changes:
            if verdicts and verdict is None and change.kind == "closed" and flushed.is_flush(change.event):
                verdict = stream.verdict(change.event, "normal")
                name = flushed.plant.names[flushed.variable]
                say(f"  step {change.step:>6}  The operator knows it: {name} was flushed. Verdict: normal.")
    parts.append(stream.finish())
    live = Live(*(np.concatenate([getattr(part, field) for part in parts]) for field in Live._fields))
    changes: list[Change] = [change for part in parts for change in part.changes]
    raised: dict[int, int] = {}
    for change in changes:
        if change.event.level == "alert":
            raised.setdefault(change.event.number, change.step)
    closed = {change.event.number: change.event for change in changes if change.kind == "closed"}
    alerts = [Alert(step, closed[number]) for number, step in raised.items()]
    return Watched(live, alerts, verdict)


def judge(fault: Fault, watched: Watched) -> FaultResult:
    """Check whether a flagged reading of the fault is in an alert, when that was raised, and what it blamed."""
    live, alerts, _ = watched
    flags = live.flags[fault.start : fault.stop] == 1
    steps = fault.start + np.flatnonzero(flags)
    raised = [
        max(alert.raised, int(step))
        for alert in alerts
        for step in steps
        if alert.event.start <= step < alert.event.stop
    ]
    delay = min(raised) - fault.start if raised else None
    blamed = live.variables[fault.start : fault.stop][flags if raised else slice(None)]
    order = np.argsort(blamed.mean(axis=0))[::-1]
    return FaultResult(fault, bool(raised), delay, tuple(int(i) for i in order[: len(fault.variables)]))


def false_alerts(flushed: Flushed, alerts: Sequence[Alert]) -> list[Alert]:
    faults = flushed.plant.faults
    return [
        alert
        for alert in alerts
        if not flushed.is_flush(alert.event)
        and not any(alert.event.start < fault.stop + AFTER and fault.start < alert.event.stop for fault in faults)
    ]


def flush_alerts(flushed: Flushed, alerts: Sequence[Alert]) -> list[Alert]:
    return [alert for alert in alerts if flushed.is_flush(alert.event)]


def make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"Cannot create the folder '{out}': {error.strerror}. Choose another with --out.") from error


def _announce(scored: Scored, plant: Plant, console: Console) -> None:
    for change in scored.changes:
        if change.kind == "opened":
            own = scored.variables[change.step - scored.start]
            named = ", ".join(plant.names[i] for i in np.argsort(own)[::-1][:2])
            console.print(f"  step {change.step:>6}  alert score {change.event.peak_score:>5.2f}  {named}")


def _faults_table(results: Sequence[FaultResult], names: Sequence[str]) -> Table:
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


def _summary(flushed: Flushed, watched: Watched) -> str:
    days = len(flushed.plant.test) * PERIOD / SECONDS_PER_DAY
    false, flushes = false_alerts(flushed, watched.alerts), flush_alerts(flushed, watched.alerts)
    told = "the first one raised an alert, which was called normal" if watched.verdict else "none raised an alert"
    return (
        f"{len(watched.alerts)} alerts in {days:.1f} days at one reading a minute, {len(false)} of them false; the "
        f"default budget of {Budget()} allows {len(flushed.plant.test) * Budget().share(PERIOD):.0f}. Of "
        f"{len(flushed.starts)} flushes {told}; {max(len(flushes) - 1, 0)} raised one after that."
    )


def _draw(path: Path, detector: Comet, flushed: Flushed, watched: Watched, results: Sequence[FaultResult]) -> None:
    """Draw one fault of each kind, found if there is one, above the scores of the whole test part."""
    plant, alerts = flushed.plant, watched.alerts
    false, flushes = false_alerts(flushed, alerts), flush_alerts(flushed, alerts)
    shown = {result.fault.kind: result for result in sorted(results, key=lambda result: result.found)}
    save_overview(
        path,
        [_excerpt(detector, plant, result) for _, result in sorted(shown.items())],
        watched.live.alert_scores,
        watched.live.thresholds,
        [(fault.start, fault.stop) for fault in plant.faults],
        [alert.raised for alert in alerts if alert not in false + flushes],
        [alert.raised for alert in false],
        [(start, start + FLUSH_LENGTH) for start in flushed.starts],
        [alert.raised for alert in flushes],
    )


def _excerpt(detector: Comet, plant: Plant, result: FaultResult) -> Excerpt:
    fault = result.fault
    variable = next((i for i in result.blamed if i in fault.variables), fault.variables[0])
    name = plant.names[variable]
    begin = max(fault.start - 2 * AROUND - detector.panel_.context, 0)
    explained = detector.explain(
        plant.test[begin : fault.stop + AROUND], (fault.start - begin, fault.stop - begin), context=AROUND
    )
    column = explained.names.index(detector.names_[variable])
    reason = next(reason for reason in explained.reasons if reason.variable == detector.names_[variable])
    return Excerpt(
        f"{fault.kind}: {name}",
        begin + explained.begin,
        explained.observed[:, column],
        explained.normal[:, column],
        reason.band,
        (fault.start, fault.stop),
        None if result.delay is None else fault.start + result.delay,
    )

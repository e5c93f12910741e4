"""Fit a fleet on any engine; finished entities are not fitted again."""

import hashlib
import json
import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from cometad.data.tables import ReadOptions
from cometad.detector import Detector
from cometad.errors import CometadError, OutputError, ParameterError
from cometad.fleet.engines import Engine, TaskOutcome
from cometad.fleet.jobs import (
    FitAnswer,
    FitTask,
    Measured,
    donate_entity,
    fit_entity,
    measure_entity,
    parameters_of,
)
from cometad.fleet.pooling import Donation, candidates, nearest
from cometad.fleet.sources import Entities, EntityReadings, data_signature, entities_of
from cometad.fleet.storage import LOCK, SCRATCH, Entry, FleetFolder, FleetWriter, writing
from cometad.progress import FleetPace, show_progress


@dataclass
class FleetRun:
    """The result of a run."""

    requested: int = 0
    fitted: int = 0
    before: int = 0  # done in an earlier run
    unchanged: int = 0  # in changed files, but with the same readings
    failed: dict[str, str] = field(default_factory=dict)
    failed_before: int = 0
    pooled: int = 0  # of the fitted ones
    absent: int = 0  # in the fleet but not in the data; they are kept

    def sentence(self) -> str:
        """The run in one sentence."""
        counts = {
            "fitted": self.fitted,
            "failed": len(self.failed),
            "done before": self.before,
            "unchanged": self.unchanged,
            "failed before": self.failed_before,
        }
        parts = [f"{count:,} {what}" for what, count in counts.items() if count] or ["nothing to do"]
        return f"{self.requested:,} entit{'y' if self.requested == 1 else 'ies'}: {', '.join(parts)}."


@dataclass(frozen=True)
class FitPlan:
    """What to fit, and how."""

    data: object
    by: str | None
    detector: Detector
    options: ReadOptions
    pool: int = 0  # entities with fewer readings borrow from others; 0 turns this off

    def about(self) -> dict[str, Any]:
        """The settings of the whole fleet, for its folder; refuses parameters that cannot be saved."""
        return {
            "by": self.by,
            "detector": type(self.detector).__name__,
            "parameters": parameters_of(self.detector),
            "options": self.options.as_json(),
            "pool": self.pool,
        }


FIXED = ("detector", "parameters", "options", "pool")  # changing any of these means refitting everything


def recipe(about: Mapping[str, Any]) -> str:
    """A hash of what must not differ within a fleet. Rows carry it, because an interrupted `refit` leaves old rows."""
    return hashlib.sha256(json.dumps({name: about[name] for name in FIXED}).encode()).hexdigest()[:16]


class Switches(NamedTuple):
    """How a run treats existing results."""

    retry: bool  # retry entities that failed before
    refit: bool  # refit everything
    verbose: bool


def fit_fleet(
    plan: FitPlan,
    folder: FleetFolder,
    engine: Engine,
    *,
    retry: bool = False,
    refit: bool = False,
    verbose: bool = False,
) -> FleetRun:
    """Fit the entities that have no detector yet, or whose readings changed.

    `retry` retries those that failed before, `refit` refits everything.
    """
    plan.detector.check_parameters()
    plan.about()  # refuses what cannot be saved
    signature = data_signature(plan.data, plan.by, plan.options)
    _check_place(folder.path, plan.data)
    absent = not folder.path.exists()
    with writing(folder) as writer:
        new = absent and not folder.is_fleet  # another process may have been faster
        try:
            return _fit(plan, folder, writer, engine, signature, Switches(retry, refit, verbose))
        except CometadError:
            writer.flush()
            if new and not writer.entries:  # a new folder, and nothing was fitted
                shutil.rmtree(folder.path, ignore_errors=True)
            raise


def _fit(
    plan: FitPlan,
    folder: FleetFolder,
    writer: FleetWriter,
    engine: Engine,
    signature: str | None,
    switches: Switches,
) -> FleetRun:
    about, known = plan.about(), folder.about if folder.is_fleet else {}
    if not switches.refit:
        _check_same(folder.path, writer, known, about)
    if not switches.refit and _is_done(known, writer, signature, switches.retry):
        return _nothing_to_do(writer)
    writer.describe(about)
    scratch = folder.path / SCRATCH
    with entities_of(plan.data, plan.by, plan.options, scratch, switches.verbose) as found:
        run = _run(plan, found, writer, engine, switches)
    writer.settle()
    writer.describe({**about, "finished": signature})
    shutil.rmtree(scratch, ignore_errors=True)
    return run


def _check_place(folder: Path, data: object) -> None:
    """Refuse a folder with other content, or one inside the data."""
    try:
        others = [file for file in folder.iterdir() if file.name not in (LOCK, SCRATCH)] if folder.exists() else []
    except OSError as error:
        raise OutputError(f"Cannot write to '{folder}': {error.strerror}. Choose another folder.") from error
    if others and not FleetFolder(folder).is_fleet:
        raise OutputError(f"'{folder}' exists and is not the folder of a fleet. Choose another folder.")
    if isinstance(data, str | os.PathLike):
        source, target = Path(os.path.realpath(data)), Path(os.path.realpath(folder))
        if target == source or source in target.parents:
            raise OutputError(f"The fleet '{folder}' would be inside its own data '{data}'. Choose another folder.")
        if target in source.parents:
            raise OutputError(f"The data '{data}' is inside the fleet '{folder}'. Choose another folder.")


def _check_same(folder: Path, writer: FleetWriter, known: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """Refuse parameters that differ from those of the fleet."""
    if not writer.entries:
        return
    for name in FIXED:
        if known.get(name) != about[name]:
            raise ParameterError(
                f"The fleet in '{folder}' was fitted with {_difference(name, known.get(name), about[name])}. Choose "
                "another folder, or refit everything with --refit (refit=True)."
            )


def _difference(name: str, known: Any, wanted: Any) -> str:
    if isinstance(known, dict) and isinstance(wanted, dict):
        for key in wanted:
            if known.get(key) != wanted[key]:
                return f"{key}={json.dumps(known.get(key))}, not {json.dumps(wanted[key])}"
    return f"{name}={json.dumps(known)}, not {json.dumps(wanted)}"


def _is_done(known: Mapping[str, Any], writer: FleetWriter, signature: str | None, retry: bool) -> bool:
    """Whether the last run finished on the same files."""
    if signature is None or known.get("finished") != signature:
        return False
    return not (retry and any(not entry.is_fitted for entry in writer.entries.values()))


def _nothing_to_do(writer: FleetWriter) -> FleetRun:
    fitted = sum(entry.is_fitted for entry in writer.entries.values())
    return FleetRun(len(writer.entries), before=fitted, failed_before=len(writer.entries) - fitted)


def _run(plan: FitPlan, found: Entities, writer: FleetWriter, engine: Engine, switches: Switches) -> FleetRun:
    run = FleetRun(len(found.readings), absent=len(writer.entries.keys() - found.readings.keys()))
    made_by = recipe(plan.about())
    source = f"{found.signature or ''}:{made_by}"
    left = _left(found, source if found.signature else None, writer, run, switches)
    donations = _donations(plan, found.readings, left, engine, switches.verbose) if plan.pool and left else {}

    def tasks() -> Iterator[FitTask]:
        for name in left:
            known = writer.entries.get(name)
            keep = known is not None and known.is_fitted and not switches.refit and _made_by(known, made_by)
            same = known.fingerprint if known is not None and keep else None
            readings = found.readings[name]
            readings = readings if engine.same_disk else readings.carried()
            yield FitTask(name, readings, plan.detector, same, donations.get(name, ()))

    kept = json.dumps(plan.about()["parameters"])
    with show_progress("entity", switches.verbose) as report:
        pace = FleetPace(len(left), report)
        for outcome in engine.run(fit_entity, tasks()):
            name = left[outcome.number]
            _keep(writer, run, name, _answer(outcome), plan, kept, source, donations.get(name, ()))
            pace.lap(f"{len(run.failed):,} failed")
    return run


def _left(found: Entities, source: str | None, writer: FleetWriter, run: FleetRun, switches: Switches) -> list[str]:
    """The entities without a result for exactly these files."""
    left = []
    for name in found.readings:
        known = writer.entries.get(name)
        current = known is not None and source is not None and known.source == source
        if switches.refit or known is None or not current or (switches.retry and not known.is_fitted):
            left.append(name)
        elif known.is_fitted:
            run.before += 1
        else:
            run.failed_before += 1
    return left


def _made_by(entry: Entry, made_by: str) -> bool:
    return (entry.source or "").endswith(f":{made_by}")


def _answer(outcome: TaskOutcome) -> FitAnswer:
    return outcome.result if outcome.error is None else FitAnswer(error=outcome.error)


def _keep(
    writer: FleetWriter,
    run: FleetRun,
    name: str,
    answer: FitAnswer,
    plan: FitPlan,
    parameters: str,
    source: str | None,
    donors: tuple[Donation, ...],
) -> None:
    if answer.unchanged:
        run.unchanged += 1
        writer.add(replace(writer.entries[name], source=source))
        return
    entry = Entry(
        name,
        "fitted" if answer.error is None else "failed",
        answer.error,
        type(plan.detector).__name__,
        parameters,
        answer.variables,
        answer.readings,
        answer.fingerprint,
        answer.threshold,
        round(answer.seconds, 4),
        tuple(each.name for each in donors),
        source,
    )
    writer.add(entry, answer.content)
    if answer.error is None:
        run.fitted += 1
        run.pooled += bool(donors)
    else:
        run.failed[name] = answer.error


def _donations(
    plan: FitPlan, readings: Mapping[str, EntityReadings], left: list[str], engine: Engine, verbose: bool
) -> dict[str, tuple[Donation, ...]]:
    """What each entity with too few readings borrows; nothing if there is no suitable donor.

    This reads everything once more, so that donors depend only on the data, never on which entities are already fitted.
    """
    measured = dict(_results(measure_entity, readings, engine, verbose, "measured"))
    alike: defaultdict[tuple[str, ...], dict[str, Measured]] = defaultdict(dict)
    for name, one in measured.items():
        alike[one.variables][name] = one
    lent: dict[str, tuple[Donation, ...]] = {}
    for group in alike.values():
        short = [name for name in left if name in group and 0 < group[name].readings < plan.pool]
        able = candidates({name: one.readings for name, one in group.items()}, plan.pool) if short else []
        tasks = {name: FitTask(name, readings[name], plan.detector) for name in able}
        donors = [given for _, given in _results(donate_entity, tasks, engine, verbose, "donor") if given is not None]
        if donors:
            lent |= {name: nearest(group[name].correlations, donors) for name in short}
    return lent


def _results(
    function: Callable[[Any], Any], tasks: Mapping[str, Any], engine: Engine, verbose: bool, title: str
) -> Iterator[tuple[str, Any]]:
    """The result for each name; a name whose workers died has none."""
    if not tasks:
        return
    names = list(tasks)

    def sent() -> Iterator[Any]:
        for task in tasks.values():
            if engine.same_disk:
                yield task
            else:
                yield replace(task, readings=task.readings.carried()) if isinstance(task, FitTask) else task.carried()

    with show_progress(title, verbose) as report:
        pace = FleetPace(len(names), report)
        for outcome in engine.run(function, sent()):
            if outcome.error is None:
                yield names[outcome.number], outcome.result
            pace.lap()

"""Fit a fleet on any engine; finished entities are not fitted again."""

import hashlib
import json
import os
import shutil
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cometad.data.tables import ReadOptions
from cometad.detector import Detector
from cometad.errors import CometadError, OutputError, ParameterError
from cometad.fleet.engines import EntityWork
from cometad.fleet.entities import EntityReadings, data_signature, entities_of
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
from cometad.fleet.storage import LOCK, SCRATCH, Entry, FleetFolder, FleetWriter, writing


@dataclass
class FleetRun:
    requested: int = 0
    fitted: int = 0
    before: int = 0  # done in an earlier run
    unchanged: int = 0  # in changed files, but with the same readings
    failed: dict[str, str] = field(default_factory=dict)
    failed_before: int = 0
    pooled: int = 0  # of the fitted ones
    absent: int = 0  # in the fleet but not in the data; they are kept

    def sentence(self) -> str:
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
    data: object
    by: str | None
    detector: Detector
    options: ReadOptions
    pool: int = 0  # entities with fewer readings borrow from others; 0 turns this off
    retry: bool = False  # retry entities that failed before
    refit: bool = False  # refit everything

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


def fit_fleet(plan: FitPlan, folder: FleetFolder, work: EntityWork) -> FleetRun:
    plan.detector.check_parameters()
    about = plan.about()  # refuses what cannot be saved
    signature = data_signature(plan.data, plan.by, plan.options)
    _check_place(folder.path, plan.data)
    absent = not folder.path.exists()
    with writing(folder) as writer:
        new = absent and not folder.is_fleet  # another process may have been faster
        known = folder.about if folder.is_fleet else {}
        try:
            if not plan.refit:
                if writer.entries:
                    _check_same(folder.path, known, about)
                failed = sum(not entry.is_fitted for entry in writer.entries.values())
                if signature is not None and signature == known.get("finished") and not (plan.retry and failed):
                    requested = len(writer.entries)
                    return FleetRun(requested, before=requested - failed, failed_before=failed)
            writer.describe(about)
            scratch = folder.path / SCRATCH
            with entities_of(plan.data, plan.by, plan.options, scratch, work.verbose) as found:
                run = _EntityFits(plan, about, found, signature, writer, work).fit()
            writer.settle()
            writer.describe({**about, "finished": signature})
            shutil.rmtree(scratch, ignore_errors=True)
            return run
        except CometadError:
            writer.flush()
            if new and not writer.entries:  # a new folder, and nothing was fitted
                shutil.rmtree(folder.path, ignore_errors=True)
            raise


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


def _check_same(folder: Path, known: Mapping[str, Any], about: Mapping[str, Any]) -> None:
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


class _EntityFits:
    """The fits of one run, each kept as soon as it is done."""

    def __init__(
        self,
        plan: FitPlan,
        about: Mapping[str, Any],
        found: Mapping[str, EntityReadings],
        signature: str | None,
        writer: FleetWriter,
        work: EntityWork,
    ) -> None:
        self._plan, self._found, self._writer, self._work = plan, found, writer, work
        self._parameters, self._recipe = json.dumps(about["parameters"]), recipe(about)
        self._signature, self._source = signature, f"{signature or ''}:{self._recipe}"
        self._run = FleetRun(len(found), absent=len(writer.entries.keys() - found.keys()))
        self._donations: dict[str, tuple[Donation, ...]] = {}

    def fit(self) -> FleetRun:
        """Fit the entities without a result for exactly these files."""
        run, left = self._run, self._left()
        if self._plan.pool and left:
            self._donations = self._borrowed(left)

        def failures() -> str:
            return f"{len(run.failed):,} failed"

        for name, answer in self._work.answers(fit_entity, left, self._task, failed=FitAnswer, note=failures):
            self._keep(name, answer)
        return run

    def _known(self, name: str) -> Entry:
        return self._writer.entries.get(name, Entry(name, "new"))

    def _left(self) -> list[str]:
        """The entities to fit; counts the others."""
        left = []
        for name in self._found:
            known = self._known(name)
            again = self._plan.refit or (self._plan.retry and not known.is_fitted)
            if again or self._signature is None or known.source != self._source:
                left.append(name)
            elif known.is_fitted:
                self._run.before += 1
            else:
                self._run.failed_before += 1
        return left

    def _task(self, name: str) -> FitTask:
        known = self._known(name)
        same_recipe = (known.source or "").endswith(f":{self._recipe}")
        keep = known.is_fitted and same_recipe and not self._plan.refit
        readings, donations = self._work.sent(self._found[name]), self._donations.get(name, ())
        return FitTask(name, readings, self._plan.detector, known.fingerprint if keep else None, donations)

    def _keep(self, name: str, answer: FitAnswer) -> None:
        run, donors = self._run, self._donations.get(name, ())
        if answer.unchanged:
            run.unchanged += 1
            self._writer.add(replace(self._writer.entries[name], source=self._source))
            return
        entry = Entry(
            name,
            "fitted" if answer.error is None else "failed",
            error=answer.error,
            detector=type(self._plan.detector).__name__,
            parameters=self._parameters,
            variables=answer.variables,
            readings=answer.readings,
            fingerprint=answer.fingerprint,
            threshold=answer.threshold,
            seconds=round(answer.seconds, 4),
            donors=tuple(each.name for each in donors),
            source=self._source,
        )
        self._writer.add(entry, answer.content)
        if answer.error is None:
            run.fitted += 1
            run.pooled += bool(donors)
        else:
            run.failed[name] = answer.error

    def _borrowed(self, left: list[str]) -> dict[str, tuple[Donation, ...]]:
        """What each entity with too few readings borrows; nothing if there is no suitable donor.

        This reads everything once more, so that donors depend only on the data, never on which entities are already
        fitted.
        """
        readings, work, pool = self._found, self._work, self._plan.pool
        alike: defaultdict[tuple[str, ...], dict[str, Measured]] = defaultdict(dict)
        measured = work.answers(measure_entity, list(readings), lambda name: work.sent(readings[name]), "measured")
        for name, one in dict(measured).items():
            alike[one.variables][name] = one
        lent: dict[str, tuple[Donation, ...]] = {}
        for group in alike.values():
            short = [name for name in left if name in group and 0 < group[name].readings < pool]
            able = candidates({name: one.readings for name, one in group.items()}, pool) if short else []
            found = work.answers(donate_entity, able, self._task, "donor") if able else ()
            donors = [given for _, given in found if given is not None]
            if donors:
                lent |= {name: nearest(group[name].correlations, donors) for name in short}
        return lent

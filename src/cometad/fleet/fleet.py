"""A fleet: a mapping from the names of entities to their detectors, in one folder."""

import json
import os
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack

import polars as pl

from cometad.alerting.alerts import Alerts
from cometad.comet import Comet
from cometad.data.dialect import Dialect
from cometad.data.tables import ReadOptions
from cometad.detector import Detector
from cometad.detectors import load_bytes
from cometad.errors import ModelFileError, unknown
from cometad.fleet.engines import Engine, EntityWork, engine_of
from cometad.fleet.entities import EntityReadings, entities_of
from cometad.fleet.fitting import FitPlan, FleetRun, fit_fleet
from cometad.fleet.jobs import SCORES, ScoreAnswer, ScoreTask, parameters_of, score_entity
from cometad.fleet.overview import Overview, line_of, write_overview
from cometad.fleet.pooling import POOL
from cometad.fleet.storage import Entry, FleetFolder, manifest_of, writing
from cometad.parameters import check_integer

OPEN = 32  # detectors kept in memory

_Found = Mapping[str, EntityReadings]  # the entities of some data


class FleetOptions(TypedDict, total=False):
    """Options that the methods of a fleet share.

    `by` is the column with the entity of each reading; `time_column`, `drop`, `resample` and `dialect` say how to read
    the data. `engine` is "local" (processes on this machine), "ray" (a cluster at `address`) or your own; `workers`
    defaults to one per core. `verbose` shows progress.
    """

    by: str | None
    time_column: str | None
    drop: Sequence[str]
    resample: str | None
    dialect: Dialect | None
    engine: str | Engine
    workers: int | None
    address: str | None
    verbose: bool


def _reading(options: FleetOptions) -> ReadOptions:
    unknown = [name for name in options if name not in FleetOptions.__annotations__]
    if unknown:
        raise TypeError(f"A fleet has no option {unknown[0]!r}. Available: {', '.join(FleetOptions.__annotations__)}.")
    time_column, drop, resample = options.get("time_column"), options.get("drop"), options.get("resample")
    return ReadOptions(time_column, tuple(drop or ()), resample, options.get("dialect") or Dialect())


def _work(options: FleetOptions) -> EntityWork:
    engine = engine_of(options.get("engine", "local"), options.get("workers"), options.get("address"))
    return EntityWork(engine, options.get("verbose", False))


class EntityScores(NamedTuple):
    name: str
    answer: ScoreAnswer


class FleetCheck(NamedTuple):
    damaged: dict[str, str]  # entities whose detectors cannot be loaded
    failed: dict[str, str]  # never fitted
    different: dict[str, str]  # whose variables differ from the majority
    unknown: list[str]  # in the data, without a detector
    silent: list[str]  # in the fleet, without readings in the data


class Fleet(Mapping[str, Detector]):
    """Detectors of many entities, by name; each is loaded from the folder on access.

    `Fleet.fit` creates a fleet, `Fleet.load` opens one. `entries` has a row for every entity, including failed ones; as
    a mapping, a fleet has only those with a detector.

    >>> import tempfile
    >>> import numpy as np
    >>> from cometad import Fleet
    >>> rng = np.random.default_rng(0)
    >>> readings = {f"pump {number}": rng.normal(size=(600, 2)) for number in range(3)} | {"new": np.zeros((1, 2))}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fleet = Fleet.fit(readings, folder=f"{folder}/pumps", engine="serial")
    ...     list(fleet), fleet.run.sentence()
    ...     scores = fleet.score({"pump 1": rng.normal(size=(100, 2))})
    (['pump 0', 'pump 1', 'pump 2'], '4 entities: 3 fitted, 1 failed.')
    >>> scores.columns[:4], len(scores)
    (['entity', 'step', 'time', 'score'], 100)
    """

    def __init__(self, folder: FleetFolder) -> None:
        self.folder, self.about = folder, folder.about
        self.run = FleetRun()  # the result of `fit`
        self.entries: dict[str, Entry] = {}
        self._open: OrderedDict[str, Detector] = OrderedDict()
        self._reread()

    @classmethod
    def fit(
        cls,
        data: object,
        *,
        folder: str | os.PathLike[str],
        detector: Detector | None = None,
        pool: bool | int = False,
        retry: bool = False,
        refit: bool = False,
        **options: Unpack[FleetOptions],
    ) -> "Fleet":
        """Fit a detector for each entity, and keep them in a folder; an interrupted run resumes where it stopped.

        `data` is a CSV or Parquet file, or a folder of them, with an entity column `by`; a folder with one file per
        entity; a frame with a column `by`; or a mapping from names to readings. An entity that fails is recorded with
        the reason. A repeated call fits only entities that are new or whose readings changed; other parameters are
        refused, unless `refit` is true. `retry` retries failed entities.

        With `pool`, entities with few readings (fewer than `pool`, or than 2,000 if it is true) borrow from others.
        The other options are those of `FleetOptions`.
        """
        check_integer("pool", int(pool), 0)
        pooled = POOL if pool is True else int(pool)
        plan = FitPlan(data, options.get("by"), detector or Comet(), _reading(options), pooled, retry, refit)
        place = FleetFolder(folder)
        run = fit_fleet(plan, place, _work(options))
        fleet = cls(place)
        fleet.run = run
        return fleet

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "Fleet":
        """Open the fleet in a folder, even after an interrupted run."""
        return cls(FleetFolder(folder))

    def _reread(self) -> None:
        self.entries = self.folder.entries()
        self._names = [name for name in sorted(self.entries) if self.entries[name].is_fitted]

    # -- a mapping --------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Detector:
        if name not in self._open:
            self._open[name] = load_bytes(self.content(name), f"The detector of {name!r}")
            if len(self._open) > OPEN:
                self._open.popitem(last=False)
        self._open.move_to_end(name)
        return self._open[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self.entries and self.entries[str(name)].is_fitted  # the inherited method would load it

    def __repr__(self) -> str:
        return f"Fleet({str(self.folder.path)!r}, {len(self):,} detectors)"

    def content(self, name: str) -> bytes:
        """The saved detector of an entity as bytes, as `Detector.save` would write them."""
        if name not in self:
            raise KeyError(name)
        try:
            return self.folder.content(self.entries[name])
        except ModelFileError:
            before = self.entries[name]
            self._reread()  # another process may have replaced or moved it
            if self.entries.get(name, before) == before:
                raise
            return self.folder.content(self.entries[name])

    @property
    def manifest(self) -> pl.DataFrame:
        """The rows of all entities, including failed ones."""
        return manifest_of(self.entries)

    # -- changes ----------------------------------------------------------------------------------------------------

    def replace(self, name: str, detector: Detector) -> None:
        """Replace or add the detector of an entity, on disk at once."""
        content, parameters = detector.to_bytes(), json.dumps(parameters_of(detector))
        own: dict[str, Any] = {"detector": type(detector).__name__, "parameters": parameters}
        own |= {"variables": detector.names_, "threshold": float(detector.threshold_)}
        with writing(self.folder) as writer:
            known = writer.entries.get(name, Entry(name, "fitted"))
            entry = replace(known, status="fitted", error=None, **own)
            writer.add(entry, content)
            writer.settle()
        self._open.pop(name, None)
        self._reread()

    def remove(self, name: str) -> None:
        """Remove an entity, such as a scrapped machine, on disk at once."""
        with writing(self.folder) as writer:
            if name not in writer.entries:
                raise unknown("entity", name, writer.entries)
            writer.remove(name)
        self._open.pop(name, None)
        self._reread()

    # -- scoring ----------------------------------------------------------------------------------------------------

    def score(self, data: object, *, alerts: Alerts | None = None, **options: Unpack[FleetOptions]) -> pl.DataFrame:
        """Score the readings of all entities: one row per reading, as in `cometad fleet score`.

        Takes the options of `score_each`. Entities that cannot be scored have no rows.
        """
        scored = (each.answer.rows for each in self.score_each(data, alerts=alerts, **options))
        parts = [rows for rows in scored if rows is not None]
        return pl.concat(parts) if parts else pl.DataFrame(schema=SCORES)

    def score_each(
        self, data: object, *, alerts: Alerts | None = None, **options: Unpack[FleetOptions]
    ) -> Iterator[EntityScores]:
        """Yield the scores of each entity in the data, keeping few of them in memory.

        How to read the data defaults to the options of the fit; the options are those of `FleetOptions`.
        """
        work = _work(options)
        with self._entities(data, options) as found:
            yield from self._scored(found, work, alerts or Alerts())

    def _entities(self, data: object, options: FleetOptions) -> AbstractContextManager[_Found]:
        """The entities of data; how to read them defaults to the options of the fit."""
        known, asked = self.about.get("options", {}), _reading(options)
        reading = ReadOptions(
            asked.time_column or known.get("time_column"),
            asked.drop or tuple(known.get("drop", ())),
            asked.resample or known.get("resample"),
            asked.dialect if asked.dialect != Dialect() else Dialect(**known.get("dialect", {})),
        )
        by = options.get("by") or self.about.get("by")
        return entities_of(data, by, reading, verbose=options.get("verbose", False))

    def _scored(self, found: _Found, work: EntityWork, alerts: Alerts) -> Iterator[EntityScores]:
        for name in found:
            if name not in self:
                yield EntityScores(name, ScoreAnswer(error=self._missing(name)))
        names = [name for name in found if name in self]
        task_of = self._tasks(found, work, alerts)
        for scored in work.answers(score_entity, names, task_of, failed=ScoreAnswer, ordered=True):
            yield EntityScores(*scored)

    def _tasks(
        self, found: _Found, work: EntityWork, alerts: Alerts, most_events: int = 0
    ) -> Callable[[str], ScoreTask]:
        return lambda name: ScoreTask(name, work.sent(found[name]), self.content(name), alerts, most_events)

    def _missing(self, name: str) -> str:
        entry = self.entries.get(name)
        if entry is None:
            return "The fleet has no such entity. Fit the fleet again with its readings."
        return f"Its fit failed: {entry.error}"

    # -- reports ----------------------------------------------------------------------------------------------------

    def report(
        self,
        data: object,
        output: str | os.PathLike[str],
        *,
        most: int = 50,
        most_events: int = 10,
        alerts: Alerts | None = None,
        **options: Unpack[FleetOptions],
    ) -> Overview:
        """Write a page with all entities, worst first; the worst `most` get a report in a folder next to it.

        The options are those of `score_each`.
        """
        work, rule = _work(options), alerts or Alerts()
        with self._entities(data, options) as found:
            lines = [line_of(scored) for scored in self._scored(found, work, rule)]
            task_of = self._tasks(found, work, rule, most_events)
            return write_overview(self.folder.path, lines, Path(output), work, task_of, most)

    # -- checks -----------------------------------------------------------------------------------------------------

    def check(self, data: object = None, by: str | None = None) -> FleetCheck:
        """Load every detector, and compare variables among entities and entities with those of `data`."""
        damaged = {}
        for name in self:
            try:
                load_bytes(self.content(name), f"The detector of {name!r}")
            except ModelFileError as error:
                damaged[name] = str(error)
        failed = {name: str(entry.error) for name, entry in self.entries.items() if not entry.is_fitted}
        unknown: list[str] = []
        silent: list[str] = []
        if data is not None:
            with self._entities(data, {"by": by}) as found:
                unknown = [name for name in found if name not in self.entries]
                silent = [name for name in self if name not in found]
        return FleetCheck(damaged, failed, self._different(), unknown, silent)

    def _different(self) -> dict[str, str]:
        own = {name: self.entries[name].variables for name in self}
        usual = max(Counter(own.values()).items(), key=lambda item: item[1], default=((), 0))[0]
        return {name: _other_variables(names, usual) for name, names in own.items() if names != usual}


def _other_variables(own: Sequence[str], most: Sequence[str]) -> str:
    lacking = [name for name in most if name not in own]
    extra = [name for name in own if name not in most]
    parts = [f"lacks {_listed(lacking)}"] if lacking else []
    parts += [f"also has {_listed(extra)}"] if extra else []
    return " and ".join(parts) or "has them in another order"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")

"""Runs the trials of an experiment: skips those that have a result, records failures, and can be stopped at any time.

All input is checked before the first trial. Each training run gets a process of its own (`isolation`). Several
processes may work on the same results: each takes jobs that no other process has claimed.
"""

import hashlib
import multiprocessing
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from typing import Any

from filelock import Timeout

from cometad.datasets.dataset import Dataset, concatenate
from cometad.errors import ParameterError
from cometad.fleet.engines import Engine
from cometad.parameters import check_integer
from cometad.progress import ProgressCallback, show_progress
from cometad_bench.datasets.readers import READERS, entities, status
from cometad_bench.datasets.stored import StoredDataset, opened
from cometad_bench.drift.experiment import drift, plants, settings_of
from cometad_bench.embedding import embedding
from cometad_bench.experiments import EXPERIMENTS, PLANT, Arm, Experiment, check_known, chosen, groups
from cometad_bench.isolation import Work, isolated
from cometad_bench.plants import PLANTS, plant_family
from cometad_bench.results import Record, Results, identity
from cometad_bench.split import part_of
from cometad_bench.trial import Measure, attempts, detection, failure, limit_threads, planned, whole_series

FOLDER = Path("results")
SYNTHETIC = {PLANT: plants, PLANTS: plant_family}  # datasets that are made, not read
Entity = Dataset | StoredDataset
WHOLE = ("concatenated", "embedding")  # protocols that join the entities of a dataset into one series


@dataclass(frozen=True)
class Job:
    plans: tuple[Record, ...]  # the fields of each result that are known before the trial runs
    work: Work  # runs some of them

    @cached_property
    def identities(self) -> list[str]:
        return [identity(plan) for plan in self.plans]


@dataclass
class Outcome:
    requested: int = 0  # trials that were requested and can run
    done_before: int = 0  # of these, trials that already had a result
    failed_before: int = 0  # trials that failed in an earlier run and were not retried
    done: int = 0
    failed: list[Record] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)  # missing datasets, and how to obtain them
    refused: dict[tuple[str, str], str] = field(default_factory=dict)  # (dataset, arm) that need too much memory
    elsewhere: int = 0  # trials that another process is running


def run(
    name: str,
    *,
    datasets: Sequence[str] | None = None,
    entities: Sequence[str] | None = None,
    arms: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    device: str = "cpu",
    data_dir: str | os.PathLike[str] | None = None,
    folder: str | os.PathLike[str] = FOLDER,
    retry: bool = False,
    isolate: bool = True,
    engine: Engine | None = None,
    verbose: bool = False,
    notify: Callable[[str], object] = lambda sentence: None,
) -> Outcome:
    """Run the trials of an experiment that have no result yet, and append their results to a file in the folder.

    `datasets`, `entities`, `arms` and `seeds` select a part of the experiment; `retry` reruns failed trials. `notify`
    is called before the first trial with a sentence for everything that cannot run. `isolate=False` runs trials in this
    process, for a debugger; their peak memory then includes what earlier trials left behind. An `engine` of a fleet,
    such as `RayEngine()`, runs several jobs at once; without one they run here, one after the other.
    """
    results, experiment = results_of(name, folder), EXPERIMENTS[name]
    check_known("dataset", datasets or (), (*READERS, *(one for one in experiment.datasets if one in SYNTHETIC)))
    wanted, rows = tuple(dict.fromkeys(datasets or experiment.datasets)), chosen(experiment, arms)
    if entities and experiment.protocol in WHOLE:
        raise ParameterError(f"The experiment {name} uses whole datasets; do not select entities.")
    for arm in rows:
        arm.build("MSL", 0, device)  # refuses an unknown device
    results.check_writable()
    results.read()  # refuses a file that does not hold results
    outcome = Outcome()
    for dataset in wanted:
        _check_availability(dataset, rows, device, data_dir, outcome)
    for dataset, how in outcome.absent.items():
        notify(f"Dataset {dataset} was not found. {how}")
    for (dataset, refused), why in outcome.refused.items():
        notify(f"{refused} on {dataset} will not run. {why}")
    found = [part for one in wanted if one not in outcome.absent for part in _series(one, experiment, data_dir)]
    if not outcome.absent:  # to which an entity may belong
        check_known("entity", entities or (), sorted({part.entity for part in found}))
    jobs = [
        job
        for part in found
        if not entities or part.entity in entities
        for seed in dict.fromkeys(seeds or experiment.seeds)
        for job in _jobs(name, part, [a for a in rows if (part.name, a.name) not in outcome.refused], seed, device)
    ]
    with show_progress("trial", verbose) as report:
        tally = _Tally(jobs, results, retry, outcome, report)
        if engine is None:
            _work(jobs, results, device if isolate else None, tally)
        else:
            _work_on(engine, jobs, results, device, tally)
        tally.finish()
    return outcome


def run_with_workers(name: str, *, workers: int, threads: int = 1, **options: Any) -> Outcome:
    """Run an experiment in several processes; `options` are those of `run`, and only the first process reports."""
    check_integer("workers", workers, 1)
    silent = {key: value for key, value in options.items() if key not in ("verbose", "notify")}
    context = multiprocessing.get_context("spawn")  # a forked process would inherit the state of thread pools
    with ProcessPoolExecutor(workers, context, limit_threads, (threads,)) as pool:
        shares = [pool.submit(run, name, **(silent if number else options)) for number in range(workers)]
        return joined([share.result() for share in shares])


def joined(outcomes: Sequence[Outcome]) -> Outcome:
    first = outcomes[0]
    done, failed = sum(one.done for one in outcomes), [record for one in outcomes for record in one.failed]
    # A process that started late counts what the others did meanwhile as done before.
    done_before = min(one.done_before for one in outcomes)
    failed_before = min(one.failed_before for one in outcomes)
    elsewhere = max(0, first.requested - done_before - failed_before - done - len(failed))
    return Outcome(first.requested, done_before, failed_before, done, failed, first.absent, first.refused, elsewhere)


def results_of(name: str, folder: str | os.PathLike[str] = FOLDER) -> Results:
    check_known("experiment", [name], EXPERIMENTS)
    return Results(Path(folder) / f"{name}.jsonl")


# --- checks before the first trial ------------------------------------------------------------------------------------


def _check_availability(
    dataset: str, arms: Sequence[Arm], device: str, data_dir: str | os.PathLike[str] | None, outcome: Outcome
) -> None:
    """Record whether a dataset is missing, and which arms need too much memory on it."""
    if dataset in SYNTHETIC:
        return
    found = status(dataset, data_dir)
    if not found.found:
        outcome.absent[dataset] = found.how_to_get
        return
    for arm in arms:
        try:
            check = getattr(arm.build(dataset, 0, device), "check_memory", None)  # a deep baseline has one
            if check is not None:
                check(READERS[dataset].published.variables)
        except ParameterError as error:
            outcome.refused[dataset, arm.name] = str(error)


def _series(name: str, experiment: Experiment, data_dir: str | os.PathLike[str] | None) -> list[Entity]:
    series: list[Entity] = list(SYNTHETIC[name]() if name in SYNTHETIC else entities(name, data_dir))
    if name in experiment.entities:
        series = [entity for entity in series if entity.entity in experiment.entities[name]]
    if experiment.part is not None:
        series = [entity for entity in series if part_of(name, entity.entity) == experiment.part]
    if experiment.protocol in WHOLE:
        return [concatenate([opened(entity) for entity in series])]
    return [opened(entity) for entity in series] if experiment.protocol == "drift" else series


# --- the trials -------------------------------------------------------------------------------------------------------


_PROTOCOLS: dict[str, Callable[[Any, str], Measure]] = {
    "concatenated": detection,
    "entity": detection,
    "tsb-ad": whole_series,
    "drift": drift,
    "embedding": embedding,
}


def _jobs(name: str, entity: Entity, arms: Sequence[Arm], seed: int, device: str) -> Iterator[Job]:
    protocol = EXPERIMENTS[name].protocol
    settings = settings_of(entity.entity) if protocol == "drift" else [{}]
    for group in groups(arms):
        plans = tuple(planned(name, entity, arm, seed, device, setting) for arm in group for setting in settings)
        yield Job(plans, partial(attempts, _PROTOCOLS[protocol], group, entity, device))


class _Tally:
    """Knows which trials have a result, here or from another process; stores each new one at once; reports progress."""

    def __init__(
        self, jobs: Sequence[Job], results: Results, retry: bool, outcome: Outcome, report: ProgressCallback
    ) -> None:
        self._results, self._outcome, self._report = results, outcome, report
        before = [(identity(record), record["error"]) for record in results.new()]
        self._finished = {name for name, error in before if error is None}
        failed = {name for name, _ in before} - self._finished
        self._finished |= set() if retry else failed
        self._total, self._passed = sum(len(job.plans) for job in jobs), 0
        self._expected = [Counter(plan["arm"] for plan in self._missing(job)) for job in jobs]
        self._waiting = sum(self._expected, Counter())  # by arm
        self._seconds: defaultdict[str, list[float]] = defaultdict(list)  # that trials took, by arm
        self._last = time.monotonic()
        outcome.requested = self._total
        outcome.failed_before = 0 if retry else sum(name in failed for job in jobs for name in job.identities)
        outcome.done_before = self._total - outcome.failed_before - self._waiting.total()
        report(0, self._total, f"{self._waiting.total()} to run")

    def begin(self, number: int, job: Job, mine: bool) -> list[Record]:
        """The trials of a job that have no result yet; none if another process has claimed it."""
        # Trials that fail during this run, here or in another process, are not retried.
        self._finished |= {identity(record) for record in self._results.new()}
        missing, before = self._missing(job) if mine else [], self._expected[number]
        self._outcome.elsewhere += 0 if mine else before.total()
        # Others may have run some.
        self._waiting = self._waiting - before + Counter(plan["arm"] for plan in missing)
        self._passed += len(job.plans) - len(missing)
        return missing

    def take(self, record: Record) -> None:
        outcome, arm, now = self._outcome, record["arm"], time.monotonic()
        self._results.append(record)
        outcome.done += record["error"] is None
        outcome.failed += [record] if record["error"] is not None else []
        self._passed += 1
        self._waiting[arm] -= 1
        self._seconds[arm].append(now - self._last)
        self._last = now
        what = f"{record['dataset']} {record['entity']} {arm}, seed {record['seed']}"
        text = f"{len(outcome.failed)} failed, about {self._remaining()} left; last: {what}"
        self._report(self._passed, self._total, text)

    def finish(self) -> None:
        if not self._outcome.done and not self._outcome.failed:
            self._report(self._passed, self._total, "nothing left to run")

    def _missing(self, job: Job) -> list[Record]:
        return [plan for plan, name in zip(job.plans, job.identities, strict=True) if name not in self._finished]

    def _remaining(self) -> str:
        """The expected time for the waiting trials, in words; an arm not seen yet counts as an average one."""
        everything = [seconds for laps in self._seconds.values() for seconds in laps]
        seconds = sum(count * fmean(self._seconds.get(arm, everything)) for arm, count in self._waiting.items())
        return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _work(jobs: Sequence[Job], results: Results, isolated_on: str | None, tally: _Tally) -> None:
    for number, job in enumerate(jobs):
        with claimed(results, job) as mine:
            missing = tally.begin(number, job, mine)
            # Closing it ends the process after an interrupt.
            found = closing(isolated(job.work, missing, isolated_on)) if isolated_on else nullcontext(job.work(missing))
            with found as records:
                for record in records:
                    tally.take(record)


def _work_on(engine: Engine, jobs: Sequence[Job], results: Results, device: str, tally: _Tally) -> None:
    """Run the jobs on an engine, whose workers run each in a process of its own."""
    sent: list[tuple[list[Record], ExitStack]] = []

    def tasks() -> Iterator[tuple[Work, list[Record], str]]:
        for number, job in enumerate(jobs):
            claim = ExitStack()
            claims.push(claim)  # in case of an interrupt
            missing = tally.begin(number, job, claim.enter_context(claimed(results, job)))
            if missing:
                sent.append((missing, claim))
                yield job.work, missing, device
            else:
                claim.close()

    with ExitStack() as claims:
        for outcome in engine.run(_isolated_trials, tasks()):
            plans, claim = sent[outcome.number]
            lost = [plan | failure(device, outcome.error or "") for plan in plans]
            for record in outcome.result if outcome.error is None else lost:
                tally.take(record)
            claim.close()


def _isolated_trials(task: tuple[Work, list[Record], str]) -> list[Record]:
    return list(isolated(*task))


@contextmanager
def claimed(results: Results, job: Job) -> Iterator[bool]:
    lock = results.lock(hashlib.sha256(job.identities[0].encode()).hexdigest()[:16])
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        Path(lock.lock_file).unlink(missing_ok=True)  # a process that opens it just now finds the job done
        lock.release()

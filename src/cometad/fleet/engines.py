"""Where a fleet's work runs: an engine calls one function on many tasks, anywhere, in any order.

An engine has one method, `run`. It pulls the next task only when a worker is free, so work is never divided up
beforehand, and no more tasks than workers are in memory. Pass your own object with the same method.
"""

import importlib.util
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from cometad.errors import ParameterError, needs_extra, unknown
from cometad.progress import in_words, show_progress

ATTEMPTS = 3  # for a task whose workers die


class TaskOutcome(NamedTuple):
    """The outcome of a task."""

    number: int  # of the task, counted from 0
    result: Any  # what the function returned; None if there is an error
    error: str | None = None  # why there is no result: its workers died


class Engine(Protocol):
    """Calls a function on tasks.

    >>> from cometad.fleet.engines import SerialEngine
    >>> [outcome.result for outcome in SerialEngine().run(abs, [-1, -2])]
    [1, 2]
    """

    same_disk: bool  # whether the workers can read the files that this process can
    workers: int  # working at once

    def run(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[TaskOutcome]:
        """Yield the outcome of each task once, in any order; an error that the function raises is raised here."""


class SerialEngine:
    """Runs tasks in this process, one after the other; for tests and debugging."""

    same_disk = True
    workers = 1

    def run(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[TaskOutcome]:
        for number, task in enumerate(tasks):
            yield TaskOutcome(number, function(task))


ENGINES = ("local", "ray", "serial")


def engine_of(engine: "str | Engine", workers: int | None = None, address: str | None = None) -> Engine:
    """An engine by its name, or the object itself.

    `workers` defaults to one per core; `address` is that of a Ray cluster.

    >>> from cometad.fleet.engines import engine_of
    >>> engine_of("local", workers=3).workers
    3
    >>> engine_of("spark")
    Traceback (most recent call last):
    ...
    cometad.errors.ParameterError: Unknown engine 'spark'. Available: local, ray, serial.
    """
    if not isinstance(engine, str):
        if not callable(getattr(engine, "run", None)):
            raise ParameterError(f"An engine needs the method run(function, tasks). Got {engine!r} instead.")
        return engine
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    if address is not None and engine != "ray":
        raise ParameterError(f"An address needs the engine ray, not {engine}. Remove it, or choose ray.")
    if engine == "ray":
        from cometad.fleet.ray_engine import RayEngine, check_reachable

        if address is not None:
            check_reachable(address)  # before reading a large table
        if importlib.util.find_spec("ray") is None:
            needs_extra("ray", "ray")
        return RayEngine(address, workers)
    if engine == "serial":
        return SerialEngine()
    from cometad.fleet.local_engine import LocalEngine

    return LocalEngine(workers)


def in_order(outcomes: Iterable[TaskOutcome]) -> Iterator[TaskOutcome]:
    """Outcomes in the order of their tasks; early ones wait in memory."""
    early: dict[int, TaskOutcome] = {}
    following = 0
    for outcome in outcomes:
        early[outcome.number] = outcome
        while following in early:
            yield early.pop(following)
            following += 1


class EntityWork(NamedTuple):
    """Runs one function on many entities on an engine; shows progress if it is to be `verbose`."""

    engine: Engine
    verbose: bool = False

    def sent(self, readings: Any) -> Any:
        """The readings of an entity for a worker: as they are, or in memory if it does not share this disk."""
        return readings if self.engine.same_disk else readings.carried()

    def answers(
        self,
        function: Callable[[Any], Any],
        names: Sequence[str],
        task_of: Callable[[str], Any],
        title: str = "entity",
        *,
        failed: Callable[..., Any] | None = None,
        note: Callable[[], str] = str,
        ordered: bool = False,
    ) -> Iterator[tuple[str, Any]]:
        """Yield each name and what the function returned for its task.

        If the workers of a task died, the answer is `failed(error=...)`, or there is none. `note` is shown with the
        progress.
        """
        with show_progress(title, self.verbose) as report:
            began, total = time.monotonic(), len(names)
            report(0, total, "")
            outcomes = self.engine.run(function, map(task_of, names))
            for done, outcome in enumerate(in_order(outcomes) if ordered else outcomes, 1):
                if outcome.error is None:
                    yield names[outcome.number], outcome.result
                elif failed is not None:
                    yield names[outcome.number], failed(error=outcome.error)
                seconds = max(time.monotonic() - began, 1e-9)
                pace = f"{done / seconds:.3g} a second, about {in_words((total - done) * seconds / done)} left"
                report(done, total, ", ".join(filter(None, (pace, note()))))

"""Processes on this machine: each takes the next task when it is free; one that dies is replaced.

On Linux, workers are forked from a server with preloaded libraries and compiled kernels, which takes less than 0.1 s.
Each computes with one thread. Workers are recycled after a number of tasks, to free any memory they have accumulated.
"""

import multiprocessing
import os
import signal
import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, cast

from cometad.compute import cpu_count
from cometad.fleet.engines import ATTEMPTS, TaskOutcome
from cometad.parameters import check_integer

PAUSE = 8  # other tasks that start before a retry: what killed the worker may be over by then
RECYCLE = 500  # tasks per worker
WARM = "cometad.fleet.warm"  # module preloaded by the fork server


class Child:
    """A process that runs `work(pipe, *arguments)`, and the other end of its pipe, which closes with the process.

    On Linux, it is forked from a server that has imported the module `warm`, which takes less than 0.1 s. Elsewhere
    forking is not safe, so that it imports everything itself.
    """

    def __init__(self, warm: str, work: Callable[..., None], *arguments: Any) -> None:
        context = _context(warm)
        self.pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_run, args=(work, theirs, *arguments), daemon=True)
        with _hidden_main():
            self.process.start()
        theirs.close()  # so that the pipe closes with the process

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def death(self, which: str) -> str:
        """Wait until the process, called `which`, has ended, and say why."""
        self.process.join()
        return death(self.process.exitcode, which)


def death(code: int | None, which: str) -> str:
    if code == -signal.SIGKILL:
        return f"{which} was killed (SIGKILL), probably because memory ran out."
    if code is not None and code < 0:
        return f"{which} was ended by {signal.Signals(-code).name}."
    return f"{which} ended early, with exit code {code}."


def _context(warm: str) -> Any:
    """The start method of processes, with the modules that the fork server preloads."""
    context: Any = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
    if sys.platform == "linux":
        from multiprocessing.forkserver import _forkserver

        preload = getattr(_forkserver, "_preload_modules", [])
        if warm not in preload:
            context.set_forkserver_preload([*(name for name in preload if name != "__main__"), warm])
    return context


@contextmanager
def _hidden_main() -> Iterator[None]:
    """Hide the running script from new processes, which would import it; their work does not need it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _run(work: Callable[..., None], pipe: Connection, *arguments: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C also reaches the parent, which ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    work(pipe, *arguments)


def _end_with_parent() -> None:
    """Wait for the parent to end, even if killed, and end this process."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class LocalEngine:
    """Runs tasks in `workers` processes on this machine, by default one per core.

    A worker is recycled after `recycle` tasks. If it dies, its task is retried, up to `attempts` attempts in all.
    """

    same_disk = True

    def __init__(self, workers: int | None = None, recycle: int = RECYCLE, attempts: int = ATTEMPTS) -> None:
        self.workers = cpu_count() if workers is None else workers
        check_integer("workers", self.workers, 1)
        self._recycle, self._attempts = recycle, attempts

    def run(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[TaskOutcome]:
        """Yield the outcomes as they arrive; closing the iterator ends the workers."""
        queue, outcomes = _Queue(tasks), list[TaskOutcome]()
        idle: list[_Worker] = []
        busy: dict[Connection, _Worker] = {}
        try:
            while True:
                while len(busy) < self.workers and (job := queue.take()) is not None:
                    worker = self._free(idle) or _Worker(function)
                    busy[worker.pipe] = worker
                    worker.start(job)
                if len(busy) < self.workers:  # nothing is left to do
                    _end(idle)
                yield from outcomes  # only now: no worker waits while the caller uses them
                if not busy:
                    return
                outcomes, ready = [], cast(list[Connection], wait(list(busy)))
                for pipe in ready:
                    worker = busy[pipe]
                    outcome = worker.outcome(self._attempts)
                    idle.append(busy.pop(pipe))
                    if outcome is None:
                        queue.retry(worker.job)
                    else:
                        outcomes.append(outcome)
        finally:
            _end([*idle, *busy.values()])

    def _free(self, idle: "list[_Worker]") -> "_Worker | None":
        """An idle worker, if any; the dead and those to recycle are ended."""
        while idle:
            worker = idle.pop()
            if worker.done < self._recycle and worker.process.is_alive():
                return worker
            worker.end()
        return None


class _Assignment(NamedTuple):
    number: int
    task: Any
    attempt: int = 1


class _Queue:
    """The tasks to hand out; one whose worker died comes again, after some others."""

    def __init__(self, tasks: Iterable[Any]) -> None:
        self._new = enumerate(tasks)
        self._again: deque[tuple[int, _Assignment]] = deque()  # each after a number of tasks have started
        self._started = 0

    def take(self) -> _Assignment | None:
        due = self._again and self._again[0][0] <= self._started
        found = None if due else next(self._new, None)
        if found is None and not self._again:
            return None
        self._started += 1
        return self._again.popleft()[1] if found is None else _Assignment(*found)

    def retry(self, job: _Assignment) -> None:
        self._again.append((self._started + PAUSE, job._replace(attempt=job.attempt + 1)))


class _Worker(Child):
    job: _Assignment

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__(WARM, _work, function)
        self.done = 0

    def start(self, job: _Assignment) -> None:
        self.job = job
        with suppress(BrokenPipeError, ConnectionResetError):  # it has just died, as `outcome` will find
            self.pipe.send(job.task)

    def outcome(self, attempts: int) -> TaskOutcome | None:
        """The outcome of the task; None if the worker died, and the task has not had all its attempts."""
        try:
            result, error = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            why = self.death(f"All {attempts} attempts failed; the last worker")
            return None if self.job.attempt < attempts else TaskOutcome(self.job.number, None, why)
        if error is not None:
            raise error
        self.done += 1
        return TaskOutcome(self.job.number, result)


def _end(workers: list[_Worker]) -> None:
    while workers:
        workers.pop().end()


def _work(pipe: Connection, function: Callable[[Any], Any]) -> None:
    one_thread()
    while True:
        try:
            task = pipe.recv()
        except (EOFError, ConnectionResetError):  # the parent ended, or was killed
            return
        try:
            answer: tuple[Any, Exception | None] = (function(task), None)
        except Exception as error:  # re-raised by the parent
            answer = (None, error)
        with suppress(BrokenPipeError, ConnectionResetError):
            pipe.send(answer)


@cache
def one_thread() -> None:
    """Limit this process to one thread, because there is a worker per core."""
    from threadpoolctl import threadpool_limits

    os.environ |= dict.fromkeys(("COMETAD_THREADS", "POLARS_MAX_THREADS"), "1")
    threadpool_limits(1)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)

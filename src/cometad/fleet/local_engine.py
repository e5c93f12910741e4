"""Processes on this machine: each takes the next task when it is free; one that dies is replaced.

On Linux, workers are forked from a server with preloaded libraries and compiled kernels, which takes less than 0.1 s.
Each computes with one thread. Workers are recycled after a number of tasks, to free any memory they have accumulated.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from cometad.fleet.engines import ATTEMPTS, TaskOutcome
from cometad.fleet.processes import death, end_with_parent, hidden_main
from cometad.parameters import check_integer

PAUSE = 8  # other tasks that start before a retry: what killed the worker may be over by then
RECYCLE = 500  # tasks per worker
WARM = "cometad.fleet.warm"  # module preloaded by the fork server


class _Assignment(NamedTuple):
    number: int
    task: Any
    attempt: int = 1
    after: int = 0  # number of tasks that must have started first


class LocalEngine:
    """Runs tasks in `workers` processes on this machine, by default one per core.

    A worker is recycled after `recycle` tasks. If it dies, its task is retried, up to `attempts` attempts in all.
    """

    same_disk = True

    def __init__(self, workers: int | None = None, recycle: int = RECYCLE, attempts: int = ATTEMPTS) -> None:
        check_integer("workers", _cores() if workers is None else workers, 1)
        self.workers = _cores() if workers is None else workers
        self._recycle, self._attempts = recycle, attempts

    def run(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[TaskOutcome]:
        """Yield the outcomes as they arrive; closing the iterator ends the workers."""
        crew = _Crew(function, enumerate(tasks), self._attempts, self._recycle)
        try:
            crew.hire(self.workers)
            while crew.members:
                for outcome in crew.turn():
                    yield outcome
                    crew.hand_out()  # the caller may have taken long meanwhile
                crew.retire()
                crew.hire(self.workers)
        finally:
            crew.end()


class _Member:
    """A worker: its process, the pipe to it, and its current task."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.pipe, theirs = _context().Pipe()
        self.process: BaseProcess = _context().Process(target=_work, args=(theirs, function), daemon=True)
        with hidden_main():
            self.process.start()
        theirs.close()  # so that the pipe closes with the process
        self.job: _Assignment | None = None
        self.done = 0

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


class _Crew:
    """The workers of one run, and the remaining tasks."""

    def __init__(
        self, function: Callable[[Any], Any], tasks: Iterator[tuple[int, Any]], attempts: int, recycle: int
    ) -> None:
        self._function, self._tasks, self._attempts, self._recycle = function, tasks, attempts, recycle
        self._again: deque[_Assignment] = deque()  # tasks whose worker died
        self._next: _Assignment | None = None
        self._started = 0  # tasks
        self.members: list[_Member] = []

    def _peek(self) -> _Assignment | None:
        """The next task, without removing it."""
        if self._next is None and self._again and self._again[0].after <= self._started:
            self._next = self._again.popleft()
        if self._next is None:
            number, task = next(self._tasks, (-1, None))
            if number >= 0:
                self._next = _Assignment(number, task)
            elif self._again:
                self._next = self._again.popleft()
        return self._next

    def hire(self, most: int) -> None:
        """Start workers while there are tasks."""
        while len(self.members) < most and self._peek() is not None:
            self.members.append(_Member(self._function))
            self.hand_out()

    def hand_out(self) -> None:
        """Give a task to each idle worker."""
        for member in self.members:
            if member.job is not None or not member.process.is_alive():
                continue
            job = self._peek()
            if job is None:
                return
            member.job, self._next = job, None
            self._started += 1
            try:
                member.pipe.send(job.task)
            except (BrokenPipeError, ConnectionResetError):  # it has just died; `turn` notices
                return

    def turn(self) -> list[TaskOutcome]:
        """Wait until a worker answers or dies; returns the outcomes."""
        self.hand_out()
        waiting: list[Connection] = [member.pipe for member in self.members if member.job is not None]
        if not waiting:  # all of them died before getting a task
            return []
        ready = wait(waiting)
        return [outcome for member in list(self.members) if member.pipe in ready for outcome in self._answer(member)]

    def _answer(self, member: _Member) -> list[TaskOutcome]:
        assert member.job is not None
        try:
            result, error = member.pipe.recv()
        except (EOFError, ConnectionResetError):
            return self._bury(member)
        if error is not None:
            raise error
        number, member.job = member.job.number, None
        member.done += 1
        if member.done >= self._recycle:
            self._dismiss(member)
        self.hand_out()
        return [TaskOutcome(number, result)]

    def _bury(self, member: _Member) -> list[TaskOutcome]:
        """Remove a dead worker; its task is retried or given up on."""
        job = member.job
        assert job is not None
        member.process.join()
        self._dismiss(member)
        if job.attempt < self._attempts:
            self._again.append(job._replace(attempt=job.attempt + 1, after=self._started + PAUSE))
            return []
        why = death(member.process.exitcode, f"All {self._attempts} attempts failed; the last worker")
        return [TaskOutcome(job.number, None, why)]

    def retire(self) -> None:
        """End idle workers that died or have nothing left to do."""
        for member in list(self.members):
            if member.job is None and (not member.process.is_alive() or self._peek() is None):
                self._dismiss(member)

    def _dismiss(self, member: _Member) -> None:
        self.members.remove(member)
        member.end()

    def end(self) -> None:
        for member in list(self.members):
            self._dismiss(member)


def _work(pipe: Connection, function: Callable[[Any], Any]) -> None:
    """Work on tasks until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C also reaches the parent, which ends this process
    threading.Thread(target=end_with_parent, daemon=True).start()
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


def _context() -> Any:
    """The start method of processes, with the modules that the fork server preloads."""
    context: Any = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
    if sys.platform == "linux":
        from multiprocessing.forkserver import _forkserver

        preload = getattr(_forkserver, "_preload_modules", [])
        if WARM not in preload:
            context.set_forkserver_preload([*(name for name in preload if name != "__main__"), WARM])
    return context


def _cores() -> int:
    """The number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

"""Threads for regular work and for event loops, and how fast everything is that waits by the clock."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

import structlog

from cometad.errors import CometadError

PACE = 1.0  # tests set more: threads look for work that much more often

_log = structlog.get_logger("cometad.serve")


def paced(seconds: float) -> float:
    """A time to wait, at the pace of this process."""
    return seconds / PACE


class RegularWork:
    """A thread that does some steps again and again, until it is stopped; one that fails is logged."""

    def __init__(self, name: str, every: float, *steps: Callable[[], object]) -> None:
        self._name, self._every, self._steps = name, every, steps
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"cometad-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self.ended.wait(self._every):
            for step in self._steps:
                try:
                    step()
                except Exception as error:  # the database may be away for a while; other steps are done
                    problem = not isinstance(error, CometadError)
                    _log.error(f"{self._name} failed", problem=str(error), exc_info=problem)


class LoopThread:
    """Runs tasks beside the HTTP server until they end or are stopped; they wait for networks, never for each other."""

    def __init__(self, name: str, work: Callable[[], Sequence[Coroutine[Any, Any, None]]]) -> None:
        self._work = work  # called in the thread
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: Sequence[asyncio.Task[None]] = ()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.ended = threading.Event()  # once every task has come to its end

    def start(self) -> None:
        self._thread.start()

    def stop(self, within: float | None = None) -> None:
        """Cancel the tasks, and wait for their end, at most `within` seconds."""
        self._stopping = True
        self.call(self._cancel)
        if self._thread.ident is not None:
            self._thread.join(within)

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function in the thread; may be called from any other, also before its start or after its end."""
        if self._loop is not None:
            with suppress(RuntimeError):  # it has just ended
                self._loop.call_soon_threadsafe(function, *arguments)

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            runner.run(self._main())
        self.ended.set()

    async def _main(self) -> None:
        self._tasks = [asyncio.create_task(one) for one in self._work()]
        if self._stopping:  # before there was anything to cancel
            self._cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

"""Threads for regular work, and how fast everything is that waits by the clock."""

import threading
from collections.abc import Callable

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
        """End the thread, once its step is done."""
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

"""Child processes that end with their parent, and the reason a process died, in words."""

import multiprocessing
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any


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

"""Processes that end with their parent, and the reason a process died, in words."""

import multiprocessing
import os
import signal
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def hidden_main() -> Iterator[None]:
    """Hide the running script from new processes, which would import it; their work does not need it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def end_with_parent() -> None:
    """Wait for the parent to end, even if killed, and end this process; run it in its own thread."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def death(code: int | None, which: str) -> str:
    """Why a process ended, in one sentence."""
    if code == -signal.SIGKILL:
        return f"{which} was killed (SIGKILL), probably because memory ran out."
    if code is not None and code < 0:
        return f"{which} was ended by {signal.Signals(-code).name}."
    return f"{which} ended early, with exit code {code}."

"""Compilation to machine code: kept on disk where there is room for it, and announced when it happens.

Where numba is told not to compile (NUMBA_DISABLE_JIT), `COMPILES` is False: functions run as plain Python, and the
kernels, which cannot, give way to the same algebra as products of torch tensors. All results stay, only slower.
"""

import logging
from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba.core import event

COMPILES = not numba.config.DISABLE_JIT  # type: ignore[attr-defined]

F = TypeVar("F", bound=Callable[..., Any])

_log = logging.getLogger("cometad")


def jit(function: F) -> F:
    """The function as machine code, made at its first call and found on disk by later processes.

    >>> from cometad.compiled import jit
    >>> jit(lambda x: x + 1)(2)
    3
    """
    try:
        compiled: Any = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # neither beside the package nor in the user's folder can anything be kept
        compiled = numba.njit(nogil=True, error_model="numpy")(function)
    kept: F = compiled
    return kept


class _Announcer(event.Listener):
    """Says once that something is being compiled, so that nobody wonders what the first call waits for."""

    def __init__(self) -> None:
        self._said = False

    def on_start(self, event: event.Event) -> None:
        module = event.data["dispatcher"].py_func.__module__
        if not self._said and module.startswith("cometad."):
            self._said = True
            _log.info("Compiling for this machine, up to a minute; where it can be kept on disk, this happens once.")

    def on_end(self, event: event.Event) -> None:
        pass


event.register("numba:compile", _Announcer())  # type: ignore[no-untyped-call]

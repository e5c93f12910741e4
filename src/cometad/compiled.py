"""Compilation to machine code, cached on disk where possible and announced when it happens.

If NUMBA_DISABLE_JIT is set, `COMPILES` is False: functions run as plain Python, and the kernels, which cannot, are
replaced by equivalent torch operations. The results are the same, only slower.
"""

import hashlib
import inspect
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import event
from numba.core.caching import FunctionCache

COMPILES = not numba.config.DISABLE_JIT  # type: ignore[attr-defined]

F = TypeVar("F", bound=Callable[..., Any])

_log = logging.getLogger("cometad")


def jit(function: F) -> F:
    """Compile a function at its first call, or load it from disk if an earlier process compiled it.

    A compiled function may use functions and constants of its own folder only: an edit elsewhere does not recompile it.
    """
    return _compiled(function, fastmath=False)


def fused(function: F) -> F:
    """Like `jit`, with every multiply-add fused: faster, and still the same bits for the same order of additions."""
    return _compiled(function, fastmath={"contract"})


def _compiled(function: F, fastmath: Any) -> F:
    # Without the entry point for C callers, which nobody uses, the first fit compiles a tenth faster.
    options: Any = {"nogil": True, "error_model": "numpy", "fastmath": fastmath, "no_cfunc_wrapper": True}
    compiled: Any = numba.njit(**options)(function)
    if COMPILES:
        # RuntimeError: no writable folder. AttributeError: an unknown version of numba. Compile in each process then.
        with suppress(RuntimeError, AttributeError):
            compiled._cache = _FolderCache(function)
    result: F = compiled
    return result


class _FolderCache(FunctionCache):
    """numba's cache on disk, invalidated by a change to any source file in the function's folder.

    numba itself checks only the file that defines the function. After an edit to a file that it imports from, such as
    the vector instructions in lanes.py, numba would load stale machine code.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        file = self._cache_file
        file._source_stamp = (file._source_stamp, _fingerprint(Path(inspect.getfile(function)).parent))


@cache
def _fingerprint(folder: Path) -> str:
    sources = b"".join(hashlib.sha256(path.read_bytes()).digest() for path in sorted(folder.glob("*.py")))
    return hashlib.sha256(sources).hexdigest()


class _CompileAnnouncer(event.Listener):
    """Logs the first compilation of a process, which explains why the first call is slow."""

    def __init__(self) -> None:
        self._announced = False

    def on_start(self, event: event.Event) -> None:
        module = event.data["dispatcher"].py_func.__module__
        if not self._announced and module.startswith("cometad."):
            self._announced = True
            # A warning, because Python shows those on stderr even if nobody set up logging.
            _log.warning("Compiling for this machine, once: about 15 seconds, for a trained network up to a minute.")

    def on_end(self, event: event.Event) -> None:
        pass


event.register("numba:compile", _CompileAnnouncer())  # type: ignore[no-untyped-call]

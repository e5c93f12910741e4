"""How kernels run: compiled to machine code, cached on disk where possible, and in several threads.

If NUMBA_DISABLE_JIT is set, `COMPILES` is False: functions run as plain Python, and the kernels, which cannot, are
replaced by equivalent torch operations. The results are the same, only slower.

Kernels release the GIL, and each thread writes its own part of the result, so the number of threads never changes a
result. It is COMETAD_THREADS if that is set, else OMP_NUM_THREADS, else the number of CPUs that this process may use.
"""

import hashlib
import inspect
import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from numba.core import event
from numba.core.caching import FunctionCache
from threadpoolctl import threadpool_limits

from cometad.errors import ParameterError

# -- compilation -------------------------------------------------------------------------------------------------------

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
    """numba's cache on disk, invalidated by a change to any source file in the function's folder or to intrinsics.py.

    numba itself checks only the file that defines the function. After an edit to a file that it imports from, such as
    the vector instructions in lanes.py, numba would load stale machine code.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        file = self._cache_file
        file._source_stamp = (file._source_stamp, _fingerprint(Path(inspect.getfile(function)).parent))


@cache
def _fingerprint(folder: Path) -> str:
    paths = [*sorted(folder.glob("*.py")), Path(__file__).with_name("intrinsics.py")]
    sources = b"".join(hashlib.sha256(path.read_bytes()).digest() for path in paths)
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


# -- threads -----------------------------------------------------------------------------------------------------------

_chosen: int | None = None  # inside `thread_count_of`


def thread_count() -> int:
    """The number of threads that `in_parts` uses for long work."""
    return _chosen or _thread_count(os.environ.get("COMETAD_THREADS", ""), os.environ.get("OMP_NUM_THREADS", ""))


@contextmanager
def thread_count_of(count: int) -> Iterator[None]:
    """Use this number of threads inside the `with` block, in the whole process."""
    global _chosen
    before, _chosen = _chosen, count
    try:
        yield
    finally:
        _chosen = before


def in_parts(work: Callable[[slice], object], length: int) -> None:
    """Call `work` on consecutive slices of 0..length, one per thread."""
    threads = 1 if length <= 1 or _here.busy else min(thread_count(), length)
    if threads == 1:
        work(slice(0, length))
        return
    cuts = np.linspace(0, length, threads + 1).astype(int)
    in_tasks(lambda k: work(slice(int(cuts[k]), int(cuts[k + 1]))), threads)


def in_tasks(work: Callable[[int], object], count: int) -> None:
    """Call `work` on each of 0..count; a thread that is done takes the next one."""
    threads = 1 if count <= 1 or _here.busy else min(thread_count(), count)
    if threads == 1:
        for k in range(count):
            work(k)
        return

    def task(k: int) -> None:
        _here.busy = True
        try:
            work(k)
        finally:
            _here.busy = False

    list(_pool(threads).map(task, range(count)))


class _Here(threading.local):
    """Whether this thread is a part of some work: its own parts would wait for threads that wait for it."""

    busy = False


_here = _Here()


class _SerialProducts:
    """How many `with` blocks want numpy's products to use one thread, and the setting to return to."""

    def __init__(self) -> None:
        self.lock, self.blocks = threading.Lock(), 0
        self.limits: threadpool_limits | None = None


_serial = _SerialProducts()


@contextmanager
def serial_products() -> Iterator[None]:
    """Compute numpy's matrix products with one thread inside the `with` block, in the whole process.

    Their last bit depends on the number of threads. Blocks in several threads may overlap.
    """
    with _serial.lock:
        if _serial.blocks == 0:
            _serial.limits = threadpool_limits(1, user_api="blas")
        _serial.blocks += 1
    try:
        yield
    finally:
        with _serial.lock:
            _serial.blocks -= 1
            if _serial.blocks == 0 and _serial.limits is not None:
                _serial.limits.restore_original_limits()


@cache
def _thread_count(own: str, openmp: str) -> int:
    if own:
        if not own.isdecimal() or int(own) < 1:
            raise ParameterError(f"COMETAD_THREADS must be an integer of at least 1. Got {own!r} instead.")
        return int(own)
    first = openmp.partition(",")[0].strip()  # OpenMP allows a list, one number per level of nesting
    return int(first) if first.isdecimal() and int(first) >= 1 else cpu_count()


def cpu_count() -> int:
    """The number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="cometad")


# A forked child inherits the pool object but not its threads, so it must create its own pool.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)

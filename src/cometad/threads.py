"""Threads for the kernels, which release the GIL: each thread writes its own part of the result.

The number of threads never changes a result. It is COMETAD_THREADS if that is set, else OMP_NUM_THREADS, else the
number of CPUs that this process may use.
"""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import pairwise

import numpy as np

from cometad.errors import ParameterError

_chosen: int | None = None  # inside `thread_count_of`


def thread_count() -> int:
    """The number of threads that `in_parts` uses for long work.

    >>> from cometad.threads import thread_count
    >>> thread_count() >= 1
    True
    """
    return _chosen or _thread_count(os.environ.get("COMETAD_THREADS", ""), os.environ.get("OMP_NUM_THREADS", ""))


@contextmanager
def thread_count_of(count: int) -> Iterator[None]:
    """Use this number of threads inside the `with` block, in the whole process.

    >>> from cometad.threads import thread_count, thread_count_of
    >>> with thread_count_of(3):
    ...     thread_count()
    3
    """
    global _chosen
    before, _chosen = _chosen, count
    try:
        yield
    finally:
        _chosen = before


def in_parts(work: Callable[[slice], object], length: int) -> None:
    """Call `work` on consecutive slices of 0..length, one per thread.

    >>> from cometad.threads import in_parts
    >>> parts = []
    >>> in_parts(parts.append, 10)
    >>> sum(part.stop - part.start for part in parts)
    10
    """
    threads = 1 if length <= 1 or _here.busy else min(thread_count(), length)
    if threads == 1:
        work(slice(0, length))
        return

    def part(steps: slice) -> None:
        _here.busy = True
        try:
            work(steps)
        finally:
            _here.busy = False

    cuts = np.linspace(0, length, threads + 1).astype(int)
    list(_pool(threads).map(part, [slice(int(a), int(b)) for a, b in pairwise(cuts)]))


class _Here(threading.local):
    """Whether this thread is a part of some work: its own parts would wait for threads that wait for it."""

    busy = False


_here = _Here()


@cache
def _thread_count(own: str, openmp: str) -> int:
    if own:
        if not own.isdecimal() or int(own) < 1:
            raise ParameterError(f"COMETAD_THREADS must be an integer of at least 1. Got {own!r} instead.")
        return int(own)
    first = openmp.partition(",")[0].strip()  # OpenMP allows a list, one number per level of nesting
    return int(first) if first.isdecimal() and int(first) >= 1 else _cpus()


def _cpus() -> int:
    """The number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="cometad")


# A forked child inherits the pool object but not its threads, so it must create its own pool.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)

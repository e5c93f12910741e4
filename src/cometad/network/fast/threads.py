"""Work shared among threads. The kernels release the lock, and each thread writes its own part of the result."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import pairwise

import numpy as np
import torch

_workers: int | None = None  # of the kernels, while torch itself keeps to one thread


@contextmanager
def kernels_only() -> Iterator[None]:
    """Threads for the kernels alone: torch keeps to one, throughout the process, until this is over.

    Products as small as a training step's gain nothing from more, and on a busy machine wait for each other a hundred
    times as long as they take. Nor do results then depend on how many threads there are.

    >>> import torch
    >>> from cometad.network.fast.threads import kernels_only
    >>> with kernels_only():
    ...     torch.get_num_threads()
    1
    """
    global _workers
    before, workers = torch.get_num_threads(), _workers
    _workers = workers or before
    torch.set_num_threads(1)
    try:
        yield
    finally:
        _workers = workers
        torch.set_num_threads(before)


def in_parts(work: Callable[[slice], object], length: int) -> None:
    """Call `work` on slices that together make 0..length, one per thread (as many as torch uses).

    >>> from cometad.network.fast.threads import in_parts
    >>> parts = []
    >>> in_parts(parts.append, 10)
    >>> sum(part.stop - part.start for part in parts)
    10
    """
    threads = min(_workers or torch.get_num_threads(), length)
    if threads == 1:
        work(slice(0, length))
        return
    cuts = np.linspace(0, length, threads + 1).astype(int)
    list(_pool(threads).map(work, [slice(int(a), int(b)) for a, b in pairwise(cuts)]))


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="cometad")


# A forked child has the pool's memory but not its threads: it starts its own.
os.register_at_fork(after_in_child=_pool.cache_clear)

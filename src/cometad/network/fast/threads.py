"""Threads for the kernels, which release the GIL: each thread writes its own part of the result."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import pairwise

import numpy as np
import torch

_workers: int | None = None  # kernel threads while torch is limited to one


@contextmanager
def torch_on_one_thread() -> Iterator[None]:
    """Limit torch to one thread inside the `with` block, in the whole process; the kernels keep all threads.

    Matrix products as small as those of a training step gain nothing from threads, and on a busy machine the threads
    wait for each other a hundred times longer than they work. It also makes results independent of the thread count.

    >>> import torch
    >>> from cometad.network.fast.threads import torch_on_one_thread
    >>> with torch_on_one_thread():
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
    """Call `work` on consecutive slices of 0..length, one per thread (as many as torch uses).

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


# A forked child inherits the pool object but not its threads, so it must create its own pool.
os.register_at_fork(after_in_child=_pool.cache_clear)

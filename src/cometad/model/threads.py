"""Work shared among threads. The kernels release the lock, and each thread writes its own part of the result."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import numpy as np
import torch


def in_parts(work: Callable[[slice], object], length: int) -> None:
    """Call `work` on slices that together make 0..length, one per thread (as many as torch uses).

    >>> from cometad.model.threads import in_parts
    >>> parts = []
    >>> in_parts(parts.append, 10)
    >>> sum(part.stop - part.start for part in parts)
    10
    """
    if length == 1 or torch.get_num_threads() == 1:
        work(slice(0, length))
        return
    threads = min(torch.get_num_threads(), length)
    cuts = np.linspace(0, length, threads + 1).astype(int)
    list(_pool(threads).map(work, [slice(int(a), int(b)) for a, b in pairwise(cuts)]))


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="cometad")


# A forked child has the pool's memory but not its threads: it starts its own.
os.register_at_fork(after_in_child=_pool.cache_clear)

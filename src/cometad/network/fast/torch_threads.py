"""Who may use torch, and with how many threads; `cometad.compute` has the threads of the kernels.

Its random state and its number of threads belong to the whole process, and a fit depends on both. So threads that fit
networks take turns.
"""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch

_turn = threading.RLock()  # held again by the same thread when it validates during training
_holder = threading.local()


@contextmanager
def torch_alone() -> Iterator[None]:
    """Wait until no other thread is inside such a block; then use as many torch threads as the process is set to.

    A thread that first used torch while another one had limited it would keep that limit. Of 40 fits in 10 threads, 4
    gave other bytes for that reason.
    """
    with _turn:
        if getattr(_holder, "inside", False):
            yield
            return
        own = torch.get_num_threads()
        wanted = _threads_of_process()
        _holder.inside = True
        try:
            if wanted != own:
                torch.set_num_threads(wanted)
            yield
        finally:
            _holder.inside = False


@contextmanager
def torch_on_one_thread() -> Iterator[None]:
    """Limit torch to one thread inside the `with` block, in the whole process; the kernels keep all threads.

    Matrix products as small as those of a training step gain nothing from threads, and on a busy machine the threads
    wait for each other a hundred times longer than they work. It also makes results independent of the thread count.
    """
    with torch_alone():
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def _threads_of_process() -> int:
    """The number of threads that torch is set to: a new thread starts with it, an old one may have another."""
    with ThreadPoolExecutor(1) as new:
        return new.submit(torch.get_num_threads).result()


def _renew() -> None:
    global _turn, _holder
    _turn, _holder = threading.RLock(), threading.local()


# A forked child inherits a held lock, but not the thread that would release it.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)

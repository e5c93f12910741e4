"""torch on one thread; `cometad.threads` has the threads of the kernels."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

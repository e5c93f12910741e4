"""Runs trials in a process of their own: the peak of its memory is theirs alone, and if it dies, the run goes on.

On Linux, processes are forked from a server that has loaded all libraries and kernels, which takes less than 0.1 s. The
server never touches a GPU, because CUDA does not survive a fork. Elsewhere forking is not safe, so that each process
loads everything itself, before its clock starts.
"""

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from cometad.fleet.local_engine import Child
from cometad_bench.results import Record
from cometad_bench.trial import failure, limit_threads

Work = Callable[[Sequence[Record]], Iterator[Record]]  # runs planned trials and yields their results in this order

WARM = "cometad_bench.warm"  # module preloaded by the fork server


def isolated(work: Work, plans: Sequence[Record], device: str) -> Generator[Record, None, None]:
    """Yield the results of `work(plans)`, which runs in another process.

    If that process dies, the trial it was running fails, and the rest run in a new process.
    """
    left = list(plans)
    while left:
        child = Child(WARM, _run, os.environ.get("COMETAD_THREADS"), work, left)
        try:
            for result in _received(child.pipe):
                if isinstance(result, Exception):
                    raise result
                del left[0]
                yield result
            if left:
                yield left.pop(0) | failure(device, child.death("The process of this trial"))
        finally:
            child.end()


def _received(receiver: Connection) -> Iterator[Any]:
    with suppress(EOFError, ConnectionResetError):
        while True:
            yield receiver.recv()


def _run(sender: Connection, threads: str | None, work: Work, plans: Sequence[Record]) -> None:
    if threads:
        limit_threads(int(threads))
    import cometad_bench.warm  # noqa: F401  (for its effect; the server has done it already)

    try:
        for record in work(plans):
            sender.send(record)
    except Exception as error:  # raised again by the parent
        sender.send(error)

"""Runs trials in a process of their own: the peak of its memory is theirs alone, and if it dies, the run goes on.

On Linux, processes are forked from a server that has loaded all libraries and kernels, which takes less than 0.1 s. The
server never touches a GPU, because CUDA does not survive a fork. Elsewhere forking is not safe, so that each process
loads everything itself, before its clock starts.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from cometad.fleet.processes import death, end_with_parent, hidden_main
from cometad_bench.results import Record
from cometad_bench.trial import failure, limit_threads

Work = Callable[[Sequence[Record]], Iterator[Record]]  # runs planned trials and yields their results in this order

_context: Any = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
if sys.platform == "linux":
    _context.set_forkserver_preload(["cometad_bench.warm"])


def isolated(work: Work, plans: Sequence[Record], device: str) -> Generator[Record, None, None]:
    """Yield the results of `work(plans)`, which runs in another process.

    If that process dies, the trial it was running fails, and the rest run in a new process.
    """
    left = list(plans)
    while left:
        with _started(work, left) as (process, receiver):
            for result in _received(receiver):
                if isinstance(result, Exception):
                    raise result
                del left[0]
                yield result
            process.join()
        if left:
            yield left.pop(0) | failure(device, death(process.exitcode, "The process of this trial"))


@contextmanager
def _started(work: Work, plans: Sequence[Record]) -> Iterator[tuple[BaseProcess, Connection]]:
    """Yield a process that works on the plans, and the end of a pipe with its results. In the end, kill it."""
    receiver, sender = _context.Pipe(duplex=False)
    process = _context.Process(target=_run, args=(sender, os.environ.get("COMETAD_THREADS"), work, plans), daemon=True)
    with hidden_main():
        process.start()
    sender.close()  # so that the pipe ends with the process
    try:
        yield process, receiver
    finally:
        process.kill()
        process.join()
        receiver.close()


def _received(receiver: Connection) -> Iterator[Any]:
    while True:
        try:
            yield receiver.recv()
        except EOFError:
            return


def _run(sender: Connection, threads: str | None, work: Work, plans: Sequence[Record]) -> None:
    """Send the results of the trials, or the error that no trial is to blame for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, which kills this process
    threading.Thread(target=end_with_parent, daemon=True).start()
    if threads:
        limit_threads(int(threads))
    import cometad_bench.warm  # noqa: F401  (for its effect; the server has done it already)

    try:
        for record in work(plans):
            sender.send(record)
    except Exception as error:  # raised again by the parent
        sender.send(error)

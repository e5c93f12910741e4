"""Several processes that work on one experiment: each takes jobs that no other has claimed."""

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from cometad.parameters import check_integer
from cometad_bench.runner import Outcome, run
from cometad_bench.trial import limit_threads


def run_with_workers(name: str, *, workers: int, threads: int = 1, **options: Any) -> Outcome:
    """Run an experiment in several processes; `options` are those of `run`, and only the first process reports."""
    check_integer("workers", workers, 1)
    silent = {key: value for key, value in options.items() if key not in ("verbose", "notify")}
    context = multiprocessing.get_context("spawn")  # a forked process would inherit the state of thread pools
    with ProcessPoolExecutor(workers, context, limit_threads, (threads,)) as pool:
        shares = [pool.submit(run, name, **(silent if number else options)) for number in range(workers)]
        return joined([share.result() for share in shares])


def joined(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome of several processes that were asked for the same trials."""
    first = outcomes[0]
    done, failed = sum(one.done for one in outcomes), [record for one in outcomes for record in one.failed]
    # A process that started late counts what the others did meanwhile as done before.
    done_before = min(one.done_before for one in outcomes)
    failed_before = min(one.failed_before for one in outcomes)
    elsewhere = max(0, first.requested - done_before - failed_before - done - len(failed))
    return Outcome(first.requested, done_before, failed_before, done, failed, first.absent, first.refused, elsewhere)

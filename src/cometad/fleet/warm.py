"""Importing this module loads the libraries and kernels that fits use, so that a forked worker starts at once.

It starts no threads, because the process that imports it will fork. So it does not use polars, which would start its
own.
"""

import numpy as np
import polars  # noqa: F401  (preloaded)
from threadpoolctl import threadpool_limits

import cometad.fleet.jobs  # noqa: F401  (what workers run)
from cometad.comet import Comet
from cometad.compute import thread_count_of


def _warm_up() -> None:
    values = np.random.default_rng(0).normal(size=(300, 2))
    with threadpool_limits(1), thread_count_of(1):
        detector = Comet().fit(values)
        detector.stream().update_many(values[:50])
        detector.step_scores(values)


_warm_up()

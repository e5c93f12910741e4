"""Compile what most tests need, so that the workers of a first run find it in the cache."""

import numpy as np

from cometad import Comet, NetworkComet
from cometad.data import ScoreMeasured
from cometad.metrics import evaluate
from cometad.network import Epochs, OneCycle
from contract import FRESH, NORMAL

SIZES = {"window": 40, "window_stride": 20, "dim": 8, "core_dim": 6, "codebook_size": 16, "batch_size": 16}

if __name__ == "__main__":
    gappy = FRESH.copy()
    gappy[60:64, 1] = np.nan
    for make, schedule in ((NetworkComet, OneCycle(4)), (Comet.paper, Epochs(1))):
        detector = make(**SIZES, test_batch=4, schedule=schedule, gaps=ScoreMeasured()).fit(NORMAL)
        scores = detector.decision_function(FRESH)
        detector.decision_function(gappy)
        detector.explain(gappy, 130)
        detector.stream().update(FRESH[0])
    views = Comet(gaps=ScoreMeasured()).fit(NORMAL)
    views.decision_function(gappy)
    views.stream().update(FRESH[0])
    evaluate(np.arange(len(FRESH)) // 20 == 7, scores)
    import cometad_bench.warm  # noqa: F401  (what trials use; under load, compiling it in a test took minutes)

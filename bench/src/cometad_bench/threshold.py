"""The threshold at which the benchmark compares detectors: one rule for all of them, without labels."""

from typing import Protocol

import numpy as np

from cometad.arrays import Floats

QUANTILE = 0.99


class TrainingScores(Protocol):
    """A fitted detector, which has the scores of its training series."""

    decision_scores_: Floats


def common_threshold(detector: TrainingScores) -> float:
    """Return the 99 % quantile of all training scores, whatever threshold rule the detector itself uses."""
    return float(np.quantile(detector.decision_scores_, QUANTILE))

"""The threshold at which the benchmark compares detectors: the same rule for all, and no label."""

from typing import Protocol

import numpy as np

from cometad.arrays import Floats

QUANTILE = 0.99


class Fitted(Protocol):
    """A fitted detector."""

    decision_scores_: Floats


def common_threshold(detector: Fitted) -> float:
    """The 99 % quantile of all training scores, whatever threshold rule the detector has in use.

    >>> import numpy as np
    >>> from cometad.baselines import BASELINES
    >>> from cometad.bench.threshold import common_threshold
    >>> detector = BASELINES["squared-norm"]().fit(np.arange(101.0)[:, None])
    >>> bool(common_threshold(detector) == np.quantile(detector.decision_scores_, 0.99))
    True
    """
    return float(np.quantile(detector.decision_scores_, QUANTILE))

"""Every simple baseline meets the contract of a detector; bench/tests has the deep ones."""

import numpy as np
import pytest

from cometad.baselines import BASELINES
from contract import CHECKS, FRESH, NORMAL, Subject
from tiny import TINY

# Random scores find nothing, and training readings are never outside the training range.
EXEMPT = {("random", "a_planted_spike_scores_highest"), ("sensor-range", "training_scores_and_threshold_are_kept")}

# A distance or an error of a whole window is about equally high wherever in it the spike is.
LATE = {name: BASELINES[name]().window - 1 for name in ("window-knn", "window-pca")}

SIMPLE = [name for name in BASELINES if name not in TINY]
subjects = {name: Subject(lambda name=name: BASELINES[name](), LATE.get(name, 0)) for name in SIMPLE}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", SIMPLE)
def test_a_baseline_meets_the_contract(name, check):
    if (name, check) in EXEMPT:
        pytest.skip("does not apply to this baseline")
    CHECKS[check](subjects[name])


@pytest.mark.parametrize("name", SIMPLE)
def test_a_baseline_can_be_fitted_on_a_single_variable(name):
    detector = subjects[name].make().fit(NORMAL[:, :1])
    assert np.isfinite(detector.decision_function(FRESH[:, :1])).all()

"""Every deep baseline meets the contract of a detector."""

import numpy as np
import pytest

from cometad.baselines import BASELINES
from contract import CHECKS, FRESH, NORMAL, Subject
from tiny import TINY

subjects = {name: Subject(lambda name=name: BASELINES[name](**TINY[name])) for name in TINY}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", TINY)
def test_a_deep_baseline_meets_the_contract(name, check):
    CHECKS[check](subjects[name])


@pytest.mark.parametrize("name", TINY)
def test_a_deep_baseline_can_be_fitted_on_a_single_variable(name):
    detector = subjects[name].make().fit(NORMAL[:, :1])
    assert np.isfinite(detector.decision_function(FRESH[:, :1])).all()

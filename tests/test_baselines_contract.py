"""Every baseline keeps the contract of a detector, in a size that is quick to fit."""

import pytest

from cometad.baselines import BASELINES
from contract import CHECKS, Subject

QUICK: dict[str, dict[str, object]] = {
}
# Chance sees nothing, and no training reading is outside of the training range.
EXEMPT = {("random", "a_planted_spike_scores_highest"), ("sensor-range", "training_scores_and_threshold_are_kept")}

subjects = {name: Subject(lambda name=name: BASELINES[name](**QUICK.get(name, {}))) for name in BASELINES}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_keeps_the_contract(name, check):
    if (name, check) in EXEMPT:
        pytest.skip("exempt by its nature")
    CHECKS[check](subjects[name])

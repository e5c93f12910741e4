"""Every baseline keeps the contract of a detector, in a size that is quick to fit."""

import pytest

from cometad import Epochs
from cometad.baselines import BASELINES
from contract import CHECKS, Subject

TRAINED = {"window": 20, "window_stride": 10, "batch_size": 16, "schedule": Epochs(2, learning_rate=1e-3)}
QUICK: dict[str, dict[str, object]] = {
    "lstm-ae": {**TRAINED, "hidden": 8},
    "lstm-vae": {**TRAINED, "hidden": 8, "latent": 4},
    "usad": {**TRAINED, "latent": 8},
    "anomaly-transformer": {**TRAINED, "dim": 8, "heads": 2, "layers": 1},
    "vtt": {**TRAINED, "dim": 4, "heads": 2, "layers": 1},
    "catch": {**TRAINED, "patch_size": 8, "channel_dim": 8, "head_dim": 4, "feed_dim": 8, "dim": 4, "layers": 1},
    "d3r": {**TRAINED, "dim": 8, "heads": 2, "feed_dim": 16, "period": 50, "draws": 2},
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

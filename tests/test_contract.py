"""Comet, NetworkComet, its paper preset and every arm of the ablation pass the checks for detectors."""

from functools import cache

import pytest

from cometad import Comet, NetworkComet
from cometad.network import Epochs, OneCycle
from cometad.presets import ABLATIONS
from contract import CHECKS, Subject

TINY = {"dim": 8, "core_dim": 6, "codebook_size": 16, "batch_size": 16}


def default():
    return NetworkComet(**TINY, window=32, window_stride=16, test_batch=4, schedule=OneCycle(12))


def paper(**changes):
    settings = {"window": 40, "window_stride": 20, "test_batch": 4, "schedule": Epochs(1, learning_rate=1e-3)}
    return Comet.paper(**{**TINY, **settings, **changes})


# The memory score ignores the distance to the code: a spike assigned to an active code looks normal.
BLIND_TO_SPIKES = {"w/o quant score"}
# The checks that the fields of an arm can affect.
PER_ARM = (
    "there_is_one_finite_score_per_time_step",
    "a_planted_spike_scores_highest",
    "scoring_changes_neither_detector_nor_input",
    "a_detector_can_be_rebuilt_from_its_parameters",
    "saving_and_loading_keep_the_scores",
    "training_scores_and_threshold_are_kept",
)

subjects = {"views": Subject(Comet), "default": Subject(default), "paper": Subject(paper)}


@cache
def arm(name):
    return Subject(lambda: paper(**ABLATIONS[name]))


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("preset", subjects)
def test_a_preset_passes_the_checks(preset, check):
    CHECKS[check](subjects[preset])


@pytest.mark.parametrize("check", PER_ARM)
@pytest.mark.parametrize("name", ABLATIONS)
def test_an_arm_of_the_ablation_passes_the_checks(name, check):
    if name in BLIND_TO_SPIKES and check == "a_planted_spike_scores_highest":
        pytest.skip("the memory score alone does not detect every spike")
    CHECKS[check](arm(name))

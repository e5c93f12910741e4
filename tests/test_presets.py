"""Every ablation arm of the paper is the published detector with only its own fields changed."""

import numpy as np
import pytest
import torch

from cometad import Comet
from cometad.network import Epochs
from cometad.presets import ABLATIONS
from contract import waves

FIELDS = {
    "w/o multi-scale": {"patch_sizes", "patch_strides"},
    "w/o quant score": {"score_weight"},
    "w/o memory score": {"score_weight"},
    "w/o local scaling": {"memory_distance"},
    "w/o variable selection": {"selection"},
    "w/o normalization": {"normalization"},
    "w/o TTA": {"adaptation"},
    "w/o contrastive": {"adaptation"},
}
SMALL = {
    "window": 40,
    "window_stride": 20,
    "dim": 8,
    "core_dim": 6,
    "codebook_size": 48,
    "batch_size": 16,
    "test_batch": 2,
    "schedule": Epochs(2, learning_rate=1e-3),
}


def wild(rows):
    """A series that turns abnormal in the middle, so that patches take codes that training never activated."""
    series = waves(rows, 4, seed=1)
    series[rows // 4 : rows // 2] *= np.random.default_rng(2).normal(scale=8, size=(rows // 2 - rows // 4, 4))
    return series


@pytest.fixture(scope="module")
def full():
    return Comet.paper(**SMALL).fit(waves(400, 4))


def test_the_arms_are_those_of_the_paper():
    assert set(ABLATIONS) == set(FIELDS)


@pytest.mark.parametrize("arm", ABLATIONS)
def test_an_arm_changes_exactly_its_declared_fields(arm):
    published, changed = (Comet.paper(**changes).get_params(deep=False) for changes in ({}, ABLATIONS[arm]))
    assert {name for name in published if changed[name] != published[name]} == set(ABLATIONS[arm]) == FIELDS[arm]


def test_the_contrastive_arm_changes_nothing_else_about_adaptation():
    published, changed = Comet.paper().adaptation, ABLATIONS["w/o contrastive"]["adaptation"]
    assert {name for name, value in vars(published).items() if getattr(changed, name) != value} == {
        "contrastive_weight"
    }
    assert changed.contrastive_weight == 0


def test_the_wild_series_takes_codes_that_training_never_activated(full):
    # Otherwise the contrastive term would have no effect, and its arm could not differ.
    windows = torch.from_numpy(full.scaling_(wild(400)).reshape(-1, full.window, 4))
    unseen = [~full.active_[k][scale.quantized.codes] for k, scale in enumerate(full.network_(windows))]
    assert max(scale.mean() for scale in unseen) > 0.005


@pytest.mark.parametrize("arm", ABLATIONS)
def test_an_arm_changes_the_scores(full, arm):
    series = wild(400)
    changed = Comet.paper(**{**SMALL, **ABLATIONS[arm]}).fit(waves(400, 4)).decision_function(series)
    published = full.decision_function(series)
    assert np.abs(changed - published).max() > 1e-7 * np.abs(published).max()


@pytest.mark.parametrize("arm", ["w/o quant score", "w/o memory score", "w/o variable selection", "w/o TTA"])
def test_an_arm_that_only_scores_differently_learns_the_same_network(full, arm):
    changed = Comet.paper(**{**SMALL, **ABLATIONS[arm]}).fit(waves(400, 4))
    for ours, theirs in zip(full.network_.parameters(), changed.network_.parameters(), strict=True):
        assert ours.detach().numpy().tobytes() == theirs.detach().numpy().tobytes()

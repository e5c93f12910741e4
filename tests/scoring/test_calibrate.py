"""Calibration: each variable in units of its own training scores."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometad.scoring import NoCalibration, TrainingCalibration


@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_the_center_is_the_median_and_the_unit_reaches_up_to_the_quantile(seed, variables):
    scores = np.random.default_rng(seed).gamma(2.0, size=(200, variables))
    center, unit = TrainingCalibration(quantile=0.9, least=0.0).fit(scores)
    for i in range(variables):
        assert center[i] == pytest.approx(np.median(scores[:, i]))
        assert center[i] + unit[i] == pytest.approx(np.quantile(scores[:, i], 0.9))


def test_a_constant_variable_gets_a_tenth_of_the_mean_unit():
    scores = np.stack([np.arange(11.0), np.zeros(11)], axis=1)
    _, unit = TrainingCalibration(quantile=0.9, least=0.1).fit(scores)
    assert unit.tolist() == [4.0, 0.1 * 2.0]


@pytest.mark.parametrize("scores", [np.zeros((9, 2)), np.full((9, 2), 3.0), 1e-9 * np.arange(18.0).reshape(9, 2)])
def test_if_no_variable_varied_scores_keep_their_unit(scores):
    center, unit = TrainingCalibration().fit(scores)
    assert unit.tolist() == [1.0, 1.0]
    np.testing.assert_allclose(center, np.median(scores, axis=0))


def test_without_calibration_scores_are_unchanged():
    assert NoCalibration().fit(np.ones((5, 3))).tolist() == [[0.0] * 3, [1.0] * 3]

"""Missing readings are replaced by their conditional mean, so that the others are not blamed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometad import Comet, Quantile
from cometad.data.gaps import ForwardFill, ScoreMeasured
from cometad.data.prepare import Likely
from cometad.datasets.synthetic import synthetic_plant
from cometad.errors import ModelFileError


def naive_mean(center, covariance, reading, missing):
    """The mean of the missing readings given the others, from the covariance: the textbook formula."""
    known = ~missing
    weights = covariance[np.ix_(missing, known)] @ np.linalg.inv(covariance[np.ix_(known, known)])
    return center[missing] + weights @ (reading[known] - center[known])


@given(seed=st.integers(0, 10_000), width=st.integers(1, 6), data=st.data())
def test_doubtful_cells_equal_the_conditional_mean(seed, width, data):
    random = np.random.default_rng(seed)
    training = (random.normal(size=(200, width)) @ random.normal(size=(width, width)) + 3).astype(np.float32)
    likely = Likely.fit(training, np.ones(200, bool))
    rows = random.normal(size=(4, width)).astype(np.float32)
    cells = data.draw(st.lists(st.booleans(), min_size=4 * width, max_size=4 * width))
    doubtful = np.array(cells).reshape(4, width)
    found, covariance = likely(rows, doubtful), np.linalg.inv(likely.precision)
    for row, mask, filled in zip(rows, doubtful, found, strict=True):
        np.testing.assert_array_equal(filled[~mask], row[~mask])
        np.testing.assert_allclose(filled[mask], naive_mean(likely.center, covariance, row, mask), rtol=1e-3, atol=1e-3)


def test_only_usable_readings_count_and_constants_are_no_obstacle():
    training = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
    training[:, 1] = 7.0
    training[100:, 0] = 50.0
    likely = Likely.fit(training, np.arange(300) < 100)
    assert likely(np.zeros((1, 2), np.float32), np.ones((1, 2), bool)) == pytest.approx(
        training[:100].mean(axis=0)[None], abs=1e-4
    )


def test_a_saved_matrix_that_is_no_inverse_covariance_is_refused():
    Likely(np.zeros(2), np.eye(2)).check_state()
    for wrong in (-np.eye(2), np.array([[1.0, 0.5], [0.0, 1.0]])):
        with pytest.raises(ModelFileError, match=r"likely\.precision"):
            Likely(np.zeros(2), wrong).check_state()


@pytest.fixture(scope="module")
def plant():
    return synthetic_plant(train_rows=4000, test_rows=3000, variables=12, faults_per_kind=0, drift=0.0, seed=101)


@pytest.mark.parametrize("gaps", [ScoreMeasured(), ForwardFill(3)], ids=repr)
def test_a_column_that_vanishes_raises_no_alarm_by_itself(plant, gaps):
    detector = Comet(gaps=gaps, threshold=Quantile(0.01)).fit(plant.train)
    usual, shares = detector.predict(plant.test)[1000:].mean(), []
    for i in range(12):
        lacking = plant.test.copy()
        lacking[1000:, i] = np.nan
        shares.append(detector.predict(lacking)[1000:].mean())
    assert np.mean(shares) < usual + 0.002
    assert max(shares) < usual + 0.01


def test_a_stream_and_a_batch_fill_alike(plant):
    detector = Comet(gaps=ScoreMeasured()).fit(plant.train)
    lacking = plant.test[:1500].copy()
    lacking[400:900, 3] = np.nan
    lacking[np.random.default_rng(0).random(lacking.shape) < 0.02] = np.nan
    stream = detector.stream()
    parts = [*(stream.update_many(lacking[begin : begin + 7]) for begin in range(0, 1500, 7)), stream.finish()]
    np.testing.assert_array_equal(np.concatenate(parts), detector.decision_function(lacking))

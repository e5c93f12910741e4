"""Fair arms: simple baselines with the calibration, pooling and smoothing of Comet."""

import math

import numpy as np
import pytest

from cometad.baselines import BASELINES
from cometad.baselines.baseline import VariableBaseline
from cometad.errors import ParameterError
from cometad_bench.fair import FairBaseline

SIMPLE = (
    *("sensor-range", "squared-norm", "pca", "window-pca", "forecast-error"),
    *("knn", "window-knn", "kmeans", "hbos", "isolation-forest"),
)
BY_VARIABLE = [name for name, kind in BASELINES.items() if issubclass(kind, VariableBaseline)]


@pytest.fixture(scope="module")
def series():
    rng = np.random.default_rng(3)
    train, test = rng.normal(size=(2, 300, 3)) @ rng.normal(size=(3, 3))
    test[100:130] += 4
    return train, test


def naive_tail(training, error, floors):
    """The calibrated error, from the definition."""
    middle, high = np.quantile(training, 0.5), np.quantile(training, 0.98)
    beyond = [value - high for value in training if value > high]
    width, excess = max(high - middle, floors[0]), max(sum(beyond) / len(beyond) if beyond else 0.0, floors[1])
    if error > middle + width:
        return -math.log(0.02) + math.log(1 + (error - middle - width) / excess)
    return -math.log(0.02) * min(max((error - middle) / width, 0.0), 1.0)


def naive_floors(training):
    """A tenth of the mean over variables, of both widths."""
    widths, excesses = [], []
    for column in training.T:
        middle, high = np.quantile(column, 0.5), np.quantile(column, 0.98)
        beyond = [value - high for value in column if value > high]
        widths.append(high - middle)
        excesses.append(sum(beyond) / len(beyond) if beyond else 0.0)
    return max(np.mean(widths) / 10, 1e-3), max(np.mean(excesses) / 10, 1e-3)


def naive_scores(training, errors, pooling, spans):
    """Calibrate, pool and smooth with loops; `training` and `errors` are (time, variable)."""
    floors = naive_floors(training)
    pooled = []
    for row in errors:
        powers = [naive_tail(training[:, i], error, floors) ** pooling for i, error in enumerate(row)]
        pooled.append((sum(powers) / len(powers)) ** (1 / pooling))
    smoothed = []
    for t in range(len(pooled)):
        means = [np.mean(pooled[max(t - span // 2, 0) : t + (span - 1) // 2 + 1]) for span in spans]
        smoothed.append(np.mean(means))
    return np.array(smoothed)


@pytest.mark.parametrize("name", SIMPLE)
def test_a_fair_arm_equals_the_loop_version(name, series):
    train, test = series
    plain = BASELINES[name](seed=1).fit(train)
    of = plain.errors if name in BY_VARIABLE else lambda X: plain.decision_function(X)[:, None]
    fair = FairBaseline(baseline=name, seed=1, pooling=4, smoothing=(4, 16)).fit(train)
    np.testing.assert_allclose(fair.decision_function(test), naive_scores(of(train), of(test), 4, (4, 16)), atol=1e-9)
    np.testing.assert_allclose(fair.decision_scores_, naive_scores(of(train), of(train), 4, (4, 16)), atol=1e-9)


@pytest.mark.parametrize("name", BY_VARIABLE)
def test_the_score_of_a_baseline_is_made_from_its_errors_alone(name, series):
    train, test = series
    detector = BASELINES[name]().fit(train)
    errors = detector.errors(test)
    assert errors.shape == test.shape
    assert (errors >= 0).all() or name == "hbos"
    np.testing.assert_array_equal(detector._pool(errors), detector.decision_function(test))


def test_only_the_variable_that_errs_has_an_error(series):
    train, test = series
    moved = test.copy()
    moved[0, 1] += 50
    for name in ("sensor-range", "squared-norm", "hbos"):
        change = BASELINES[name]().fit(train).errors(moved)[0] - BASELINES[name]().fit(train).errors(test)[0]
        assert np.flatnonzero(change).tolist() == [1], name


def test_without_smoothing_a_fair_arm_of_one_score_keeps_the_order_of_high_scores(series):
    train, test = series
    plain = BASELINES["knn"]().fit(train)
    fair = FairBaseline(baseline="knn", smoothing=()).fit(train).decision_function(test)
    scores = plain.decision_function(test)
    above = scores > np.median(plain.decision_scores_)
    assert (np.argsort(scores[above]) == np.argsort(fair[above])).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"baseline": "nothing"}, "baseline"), ({"pooling": 0}, "pooling"), ({"smoothing": (0,)}, "smoothing")],
)
def test_invalid_parameters_are_refused(changes, words):
    with pytest.raises(ParameterError, match=words):
        FairBaseline(**changes).check_parameters()


def test_a_fair_arm_cannot_be_saved(series, tmp_path):
    with pytest.raises(ParameterError, match="Save a pca instead"):
        FairBaseline(baseline="pca").fit(series[0]).save(tmp_path / "fair.comet")

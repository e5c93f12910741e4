"""Detectors follow the habits of scikit-learn and PyOD."""

import pickle
import warnings
from functools import cache

import numpy as np
import pytest
from sklearn import exceptions
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from cometad import BASELINES, Budget, Comet, NetworkComet, Quantile
from cometad.alerting import Spot
from cometad.data import ScoreMeasured
from cometad.errors import CometadError, NotFittedError, ParameterError
from cometad.network import NoAdaptation, OneCycle
from cometad.parameters import EXPECTED_FAILED_CHECKS
from cometad.views import Activity, Balance, Forecast, Joint, Patterns
from contract import FRESH, NORMAL, is_a_sentence

SHORT = (Patterns(2, 2), Joint(2, 2), Forecast(1), Balance(1), Activity(2))  # for series of a few readings
SIMPLE = ("random", "squared-norm", "sensor-range", "pca", "hbos", "knn")
TRAINED = {"window": 4, "window_stride": 2, "batch_size": 4, "schedule": OneCycle(1)}
NETWORK = {"patch_sizes": (2,), "patch_strides": (1,), "dim": 2, "core_dim": 1, "codebook_size": 2, "neighbors": 1}
CHECKED = {
    "comet": lambda: Comet(views=SHORT, smoothing=(2,)),
    **{name: BASELINES[name] for name in SIMPLE},
    "kmeans": lambda: BASELINES["kmeans"](window=2),
    "network": lambda: NetworkComet(**TRAINED, **NETWORK, refit=0, adaptation=NoAdaptation()),
    "usad": lambda: BASELINES["usad"](**TRAINED, latent=2),  # the quickest deep baseline: the others take up to minutes
}


@cache
def failed(name):
    """The checks that a detector fails, with their errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(CHECKED[name](), on_fail=None, on_skip=None)
    assert sum(one["status"] == "passed" for one in found) >= 36
    return {one["check_name"]: one["exception"] for one in found if one["status"] == "failed"}


@pytest.mark.parametrize("name", CHECKED)
def test_scikit_learns_checks_pass_but_for_the_listed_ones(name):
    assert {check: error for check, error in failed(name).items() if check not in EXPECTED_FAILED_CHECKS} == {}


def test_every_listed_check_fails_for_comet_and_has_a_reason():
    assert set(failed("comet")) == set(EXPECTED_FAILED_CHECKS)
    assert all(is_a_sentence(reason) for reason in EXPECTED_FAILED_CHECKS.values())


def test_an_unfitted_detector_raises_scikit_learns_error_and_ours():
    with pytest.raises(exceptions.NotFittedError) as caught:
        Comet().predict(FRESH)
    assert isinstance(caught.value, NotFittedError)
    assert isinstance(caught.value, CometadError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, exceptions.NotFittedError)
    assert str(again) == str(caught.value)


def comet():
    return Comet(views=SHORT, threshold=Budget(rate=0.01))


@pytest.fixture(scope="module")
def detector():
    return comet().fit(NORMAL)


def test_labels_are_the_flags_of_the_training_series(detector):
    assert detector.labels_.shape == (len(NORMAL),)
    assert np.array_equal(detector.labels_, detector.judge().push(detector.alert_scores_, detector.imputed_).flags)
    assert 0 < detector.labels_.sum() < 0.05 * len(NORMAL)


def test_there_are_no_labels_before_fit():
    assert not hasattr(Comet(), "labels_")


def test_imputed_readings_are_not_labeled():
    gappy = NORMAL.copy()
    gappy[100:120] = np.nan
    labels = BASELINES["squared-norm"](gaps=ScoreMeasured()).fit_predict(gappy)
    assert not labels[100:120].any()


def test_fit_predict_fits_and_returns_the_labels(detector):
    assert np.array_equal(comet().fit_predict(NORMAL), detector.labels_)


def test_contamination_is_the_rate_of_the_threshold():
    detector = BASELINES["squared-norm"](threshold=Spot(rate=1e-4))
    assert detector.contamination == 1e-4
    detector.contamination = 0.01
    assert detector.threshold == Spot(rate=0.01)
    assert detector.set_params(threshold=Quantile(0.2)).contamination == 0.2
    assert Comet(threshold=Budget(alerts_per_day=3, period=60)).contamination is None


def test_contamination_is_no_parameter_so_a_clone_has_one_rate():
    detector = Comet()
    detector.contamination = 0.003
    assert detector.threshold == Budget(rate=0.003)  # instead of the budget of alerts
    assert "contamination" not in detector.get_params()
    assert clone(detector).contamination == 0.003


@pytest.mark.parametrize("rate", [0, 1, -0.1, "high", None])
def test_an_invalid_contamination_is_refused(rate):
    detector = BASELINES["squared-norm"]()
    with pytest.raises(ParameterError, match="rate"):
        detector.contamination = rate


def test_a_field_of_a_parameter_can_be_set():
    detector = comet().set_params(threshold__rate=0.05, pooling=4)
    assert detector.threshold == Budget(rate=0.05)
    assert detector.pooling == 4
    assert detector.set_params(threshold__rate=0.1, threshold=Quantile()).threshold == Quantile(rate=0.1)


def test_an_unknown_field_is_refused():
    with pytest.raises(ParameterError, match=r"Unknown parameter 'threshold__rat'\. Did you mean threshold__rate\?"):
        Comet().set_params(threshold__rat=0.05)
    with pytest.raises(ParameterError, match="Cannot set 'seed__rate': 42 has no fields"):
        Comet().set_params(seed__rate=0.05)


def test_a_changed_field_needs_another_fit(detector):
    other = comet().fit(NORMAL).set_params(threshold__rate=0.1)
    with pytest.raises(NotFittedError, match="'threshold' was changed after fit"):
        other.predict(FRESH)

"""The simple baselines equal plain loops and the scikit-learn estimators they come from."""

import numpy as np
import pytest
from sklearn.ensemble import IsolationForest

from cometad.baselines import BASELINES
from cometad.errors import ParameterError
from contract import FRESH, NORMAL

CONSTANT = (
    *("pca", "window-pca", "forecast-error", "hbos"),
    *("knn", "window-knn", "kmeans", "isolation-forest", "sensor-range"),
)


def scaled(detector, series):
    return detector.scaling_(series).astype(np.float64)


def test_the_forest_stored_as_arrays_scores_like_scikit_learn():
    detector = BASELINES["isolation-forest"](trees=10, seed=3).fit(NORMAL)
    theirs = IsolationForest(n_estimators=10, max_samples=256, random_state=3).fit(detector.scaling_(NORMAL))
    assert np.allclose(detector.decision_function(FRESH), -theirs.score_samples(detector.scaling_(FRESH)), atol=1e-12)


def test_the_distance_to_the_kth_neighbor_equals_a_loop():
    detector = BASELINES["knn"](neighbors=3, sample=50).fit(NORMAL)
    for reading, score in zip(scaled(detector, FRESH)[:20], detector.decision_function(FRESH), strict=False):
        distances = sorted(float(np.linalg.norm(reading - other)) for other in detector.sample_)
        assert score == pytest.approx(distances[2])


def test_the_memory_for_neighbors_is_bounded():
    detector = BASELINES["knn"](sample=100).fit(NORMAL)
    assert detector.sample_.shape == (100, 3)


def test_the_score_of_a_time_step_is_the_mean_over_the_windows_that_cover_it():
    detector = BASELINES["kmeans"](window=7, clusters=4).fit(NORMAL)
    readings, found = scaled(detector, FRESH[:40]), detector.decision_function(FRESH[:40])
    for step in range(40):
        distances = []
        for start in range(max(0, step - 6), min(step, 40 - 7) + 1):
            window = readings[start : start + 7].ravel()
            distances.append(min(np.linalg.norm(window - center) for center in detector.centers_))
        assert found[step] == pytest.approx(np.mean(distances))


def test_hbos_sums_the_negative_log_heights_of_the_bins():
    detector = BASELINES["hbos"](bins=5).fit(NORMAL)
    readings, training = scaled(detector, FRESH[:30]), scaled(detector, NORMAL)
    for reading, score in zip(readings, detector.decision_function(FRESH[:30]), strict=True):
        total = 0.0
        for value, column in zip(reading, training.T, strict=True):
            counts, edges = np.histogram(column, bins=5)
            height = 0.0
            for count, low, high in zip(counts, edges, edges[1:], strict=False):
                if low <= value < high or value == high == edges[-1]:
                    height = count / counts.max()
            total -= np.log(height + 0.1)
        assert score == pytest.approx(total)


def test_readings_in_the_span_of_the_components_have_no_error():
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(400, 2)) @ rng.normal(size=(2, 6))
    detector = BASELINES["pca"](variance_share=0.999).fit(hidden)
    assert detector.decision_scores_.max() < 1e-8
    assert detector.decision_function(rng.normal(size=(50, 6))).min() > 1e-4


@pytest.mark.parametrize("share", [0.3, 0.5, 0.8, 1.0])
def test_the_fewest_components_that_explain_the_share_are_used(share):
    rng = np.random.default_rng(1)
    readings = rng.normal(size=(500, 4)) @ rng.normal(size=(4, 4))
    detector = BASELINES["pca"](variance_share=share).fit(readings)
    variances = np.sort(np.linalg.eigvalsh(np.cov(scaled(detector, readings).T)))[::-1]
    fewest = next(n for n in range(1, 5) if variances[:n].sum() >= share * variances.sum() - 1e-9)
    assert len(detector.directions_) == min(fewest, 3)  # at least one is left out


@pytest.mark.parametrize("share", [1.0001, 2.0, 90.0])
def test_a_variance_share_above_one_is_refused(share):
    with pytest.raises(ParameterError) as refused:
        BASELINES["pca"](variance_share=share).check_parameters()
    assert str(refused.value) == (
        f"The 'variance_share' parameter must be a number between 0 and 1. Got {share} instead."
    )


@pytest.mark.parametrize("name", CONSTANT)
def test_a_baseline_can_be_fitted_on_a_constant_series(name):
    constant = np.full((60, 2), 4.0)
    shifted = constant.copy()
    shifted[30] += 3
    scores = BASELINES[name]().fit(constant).decision_function(shifted)
    assert np.isfinite(scores).all()
    assert scores[30] == scores.max()

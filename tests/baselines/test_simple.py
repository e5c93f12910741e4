"""The simple baselines beside loops, and beside the estimators that they are kept from."""

import numpy as np
import pytest
from sklearn.ensemble import IsolationForest

from cometad.baselines import BASELINES
from contract import FRESH, NORMAL


def scaled(detector, series):
    return detector.scaling_(series).astype(np.float64)


def test_the_forest_kept_as_arrays_scores_as_scikit_learns():
    detector = BASELINES["isolation-forest"](trees=10, seed=3).fit(NORMAL)
    theirs = IsolationForest(n_estimators=10, max_samples=256, random_state=3).fit(detector.scaling_(NORMAL))
    assert np.allclose(detector.decision_function(FRESH), -theirs.score_samples(detector.scaling_(FRESH)), atol=1e-12)


def test_the_distance_to_the_kth_neighbor_is_that_of_a_loop():
    detector = BASELINES["knn"](neighbors=3, sample=50).fit(NORMAL)
    for reading, score in zip(scaled(detector, FRESH)[:20], detector.decision_function(FRESH), strict=False):
        distances = sorted(float(np.linalg.norm(reading - other)) for other in detector.sample_)
        assert score == pytest.approx(distances[2])


def test_the_memory_of_neighbors_has_a_bound():
    detector = BASELINES["knn"](sample=100).fit(NORMAL)
    assert detector.sample_.shape == (100, 3)


def test_a_time_step_takes_the_mean_of_the_windows_that_cover_it():
    detector = BASELINES["kmeans"](window=7, clusters=4).fit(NORMAL)
    readings, found = scaled(detector, FRESH[:40]), detector.decision_function(FRESH[:40])
    for step in range(40):
        distances = []
        for start in range(max(0, step - 6), min(step, 40 - 7) + 1):
            window = readings[start : start + 7].ravel()
            distances.append(min(np.linalg.norm(window - center) for center in detector.centers_))
        assert found[step] == pytest.approx(np.mean(distances))


def test_a_value_counts_by_the_height_of_its_bar():
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


def test_what_lies_in_the_main_directions_is_no_error():
    chance = np.random.default_rng(0)
    hidden = chance.normal(size=(400, 2)) @ chance.normal(size=(2, 6))
    detector = BASELINES["pca"](variance_share=0.999).fit(hidden)
    assert detector.decision_scores_.max() < 1e-8
    assert detector.decision_function(chance.normal(size=(50, 6))).min() > 1e-4


@pytest.mark.parametrize("name", ["pca", "hbos", "knn", "kmeans", "isolation-forest", "sensor-range"])
def test_a_series_that_never_changes_can_be_learned(name):
    still = np.full((60, 2), 4.0)
    moved = still.copy()
    moved[30] += 3
    scores = BASELINES[name]().fit(still).decision_function(moved)
    assert np.isfinite(scores).all()
    assert scores[30] == scores.max()

"""The metrics of the TSB-AD benchmark: its window and its VUS equal the loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive_metrics as naive
from cometad.metrics import PROTOCOLS, evaluate, reference, sliding_window, tsb_ad


def waves(period, length, noise, seed):
    rng = np.random.default_rng(seed)
    return np.sin(2 * np.pi * np.arange(length) / period) + noise * rng.normal(size=length)


@settings(deadline=None, max_examples=40)
@given(st.floats(3, 500), st.integers(1, 900), st.sampled_from([0.1, 1.0, 10.0]), st.integers(0, 99))
def test_the_window_equals_the_loops(period, length, noise, seed):
    readings = waves(period, length, noise, seed)
    assert sliding_window(readings) == naive.sliding_window(readings)


@pytest.mark.parametrize(
    ("readings", "window"),
    [
        (waves(50, 2000, 0.05, 0), 50),
        (waves(303, 6000, 0, 0), 303),
        (waves(310, 6000, 0, 0), 125),  # too long
        (waves(5, 6000, 0, 0)[:12], 125),  # too short: the only peaks are at 5
        (np.arange(1000.0), 125),  # no peak
        (np.full(1000, -1.0), 125),
        (np.array([1.0]), 125),
        (np.concatenate([waves(40, 20_000, 0, 0), 100 * waves(90, 20_000, 0, 0)]), 40),  # later readings do not count
    ],
)
def test_the_window_is_a_period_from_6_to_303_or_125(readings, window):
    assert sliding_window(readings) == window


@pytest.mark.parametrize("window", [0, 1, 9, 40])
def test_vus_of_the_protocol_equals_the_loops_at_250_ranks(window):
    rng = np.random.default_rng(window)
    labels = [int(i in (*range(4), *range(100, 130), 150, 299)) for i in range(300)]  # also at both ends
    scores = [round(float(score), 1) for score in rng.normal(size=300) + labels]
    descending = sorted(scores, reverse=True)
    cuts = [descending[int(i)] for i in np.linspace(0, 299, 250)]
    areas = [naive.range_auc(labels, scores, width, "vus", cuts) for width in range(window + 1)]
    found = evaluate(labels, scores, tsb_ad(window))
    assert found["vus_roc"] == pytest.approx(np.mean([roc for roc, _ in areas]), abs=1e-12)
    assert found["vus_pr"] == pytest.approx(np.mean([pr for _, pr in areas]), abs=1e-12)
    assert (found["r_auc_roc"], found["r_auc_pr"]) == pytest.approx(areas[-1], abs=1e-12)


def test_a_protocol_works_like_its_name():
    labels, scores = [0, 1, 0, 0, 1, 1], [3, 2, 1, 4, 5, 6]
    assert evaluate(labels, scores, PROTOCOLS["paper-250"]) == evaluate(labels, scores, "paper-250")
    assert reference(labels, PROTOCOLS["paper"], draws=2) == reference(labels, draws=2)

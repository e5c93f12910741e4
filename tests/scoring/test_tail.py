"""Tail calibration, fusion and smoothing agree with their plain loops, and keep their laws."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import naive_views as naive
from cometad.scoring.scores import LEVEL, USUAL, Tails, fuse, look_ahead, look_back, smooth
from cometad.views.crossfit import fit_tails

seeds = st.integers(0, 9999)


def errors_of(seed, rows=40, width=3, unknown=0.0):
    """Errors (time, variable) with heavy tails, variables of very different sizes, and some of them unknown."""
    rng = np.random.default_rng(seed)
    errors = rng.exponential(size=(rows, width)) ** 2 * 10.0 ** rng.integers(-6, 3, size=width)
    errors[rng.random(errors.shape) < unknown] = np.nan
    return errors


# -- calibration ----------------------------------------------------------------------------------------------------


@given(seeds, st.integers(1, 60), st.integers(1, 5), st.sampled_from([0.0, 0.3, 0.95]))
def test_tails_are_quantiles_and_a_mean_excess_with_floors(seed, rows, width, unknown):
    errors = errors_of(seed, rows, width, unknown)
    np.testing.assert_allclose(Tails.fit(errors), naive.tails(errors.tolist()), rtol=1e-9, atol=1e-15)


@given(seeds, st.integers(1, 5))
def test_calibrated_errors_follow_the_formula(seed, width):
    tails = Tails.fit(errors_of(seed, 200, width))
    errors = errors_of(seed + 1, 50, width, unknown=0.2)
    for row, scores in zip(errors.tolist(), tails(errors).tolist(), strict=True):
        for i, (error, score) in enumerate(zip(row, scores, strict=True)):
            if math.isnan(error):
                assert math.isnan(score)
            else:
                expected = naive.calibrated(error, tails.middle[i], tails.high[i], tails.excess[i])
                assert math.isclose(score, expected, rel_tol=1e-12, abs_tol=1e-12)


@given(seeds)
def test_a_larger_error_never_scores_lower_and_all_scores_are_finite(seed):
    tails = Tails.fit(errors_of(seed))
    errors = np.sort(np.concatenate([np.linspace(0, 5 * tails.high, 200), np.full((1, 3), 1e9)]), axis=0)
    scores = tails(errors)
    assert (np.diff(scores, axis=0) >= 0).all()
    assert np.isfinite(scores).all()
    assert (scores >= 0).all()


@given(seeds, st.sampled_from([3.0, 1000.0]))
def test_the_unit_of_errors_does_not_matter(seed, unit):
    errors = np.random.default_rng(seed).exponential(size=(100, 3))
    np.testing.assert_allclose(Tails.fit(unit * errors)(unit * errors), Tails.fit(errors)(errors), rtol=1e-9, atol=1e-9)


def test_two_percent_of_the_training_errors_lie_in_the_tail():
    errors = np.random.default_rng(0).exponential(size=(5000, 4))
    assert ((Tails.fit(errors)(errors) > LEVEL).mean(axis=0) == 0.02).all()


def test_a_variable_that_hardly_ever_errs_has_the_floor_of_the_others():
    errors = np.random.default_rng(0).exponential(size=(1000, 3))
    errors[:, 1] = 1e-12
    tails = Tails.fit(errors)
    widths = tails.high - tails.middle
    others = (widths[0] + widths[2]) / 3
    assert math.isclose(widths[1], 0.1 * others, rel_tol=1e-9)
    assert tails(np.array([[0.0, 0.01, 0.0]]))[0, 1] < LEVEL


def test_errors_that_are_all_equal_or_unknown_still_give_finite_scores():
    for errors in (np.zeros((50, 2)), np.full((50, 2), np.nan), np.empty((0, 2))):
        tails = Tails.fit(errors)
        assert np.isfinite(tails).all()
        assert (tails.high > tails.middle).all()
        assert (tails.excess > 0).all()
        assert np.isfinite(tails(np.array([[0.0, 1e6]]))).all()


def test_unknown_errors_do_not_change_the_tails():
    errors = errors_of(0, 100)
    with_gaps = np.insert(errors, [0, 0, 50, 100], np.nan, axis=0)
    assert np.array_equal(Tails.fit(with_gaps), Tails.fit(errors))


# -- fusion ---------------------------------------------------------------------------------------------------------


def tails_of(views, width):
    return np.stack([np.stack(Tails.fit(errors_of(v, 200, width))) for v in range(views)])


def weights_of(seed, views):
    return np.random.default_rng(seed).dirichlet(np.ones(views))


@given(seeds, st.integers(1, 4), st.integers(1, 6), st.integers(1, 8), st.sampled_from([0.0, 0.4, 0.9]))
def test_scores_are_power_means_of_root_mean_squares_over_known_views(seed, views, width, pooling, unknown):
    tails, weights = tails_of(views, width), weights_of(seed, views)
    errors = np.stack([errors_of(seed + v, 12, width, unknown) for v in range(views)], axis=1)
    fused = fuse(errors, tails, weights, pooling)
    for t in range(12):
        score, variables = naive.fused(errors[t].tolist(), tails.tolist(), weights.tolist(), pooling)
        assert math.isclose(fused.alerts[t], score, rel_tol=1e-9, abs_tol=1e-12)
        np.testing.assert_allclose(fused.variables[t], variables, rtol=1e-9, atol=1e-12)
    assert np.array_equal(fused.left_out, np.isnan(errors).all(axis=1))


@given(seeds, st.integers(1, 6), st.integers(1, 8))
def test_a_score_lies_between_the_mean_and_the_maximum_of_its_variables(seed, width, pooling):
    errors = errors_of(seed, 30, width)[:, None]
    fused = fuse(errors, tails_of(1, width), np.ones(1), pooling)
    assert (fused.alerts >= fused.variables.mean(axis=1) - 1e-9).all()
    assert (fused.alerts <= fused.variables.max(axis=1) + 1e-9).all()
    assert (fuse(errors, tails_of(1, width), np.ones(1), pooling + 1).alerts >= fused.alerts - 1e-9).all()


WEIGHTS = np.array([1, 1, 1, 1, 4]) / 8  # as in `Comet()`


def test_the_usual_score_is_the_mean_score_of_normal_readings():
    rng = np.random.default_rng(0)
    for errors in (rng.exponential(size=(20_000, 5, 1)), np.abs(rng.normal(size=(20_000, 5, 1)))):
        assert abs(fuse(errors, fit_tails(errors), WEIGHTS, 1).variables.mean() - USUAL) < 0.1


def test_high_scores_are_as_rare_when_fewer_views_know_an_error():
    errors = np.random.default_rng(0).exponential(size=(4000, 5, 1))
    tails = fit_tails(errors)
    limit = np.quantile(fuse(errors, tails, WEIGHTS, 4).alerts, 0.99)
    for known in ((0,), (4,), (0, 1), (0, 1, 2, 3), (0, 1, 2, 4)):
        errors[:, [v for v in range(5) if v not in known]] = np.nan
        assert (fuse(errors, tails, WEIGHTS, 4).alerts > limit).mean() < 0.03
        errors[:] = np.random.default_rng(len(known)).exponential(size=(4000, 5, 1))


@given(seeds)
def test_a_time_step_is_scored_alone(seed):
    errors = np.stack([errors_of(seed + v, 20, 3, 0.3) for v in range(2)], axis=1)
    tails, weights = tails_of(2, 3), weights_of(seed, 2)
    alone = [fuse(errors[t : t + 1], tails, weights, 4).alerts[0] for t in range(20)]
    assert np.array(alone).tobytes() == fuse(errors, tails, weights, 4).alerts.tobytes()


# -- smoothing ------------------------------------------------------------------------------------------------------

spans = st.lists(st.integers(1, 12), max_size=3).map(tuple)


@given(st.lists(st.floats(0, 100), max_size=40), spans)
def test_smoothing_is_the_mean_of_centered_means(scores, lengths):
    expected = np.array(naive.smoothed(scores, lengths))
    np.testing.assert_allclose(smooth(np.array(scores), lengths), expected, rtol=1e-9, atol=1e-9)


@given(st.lists(st.floats(0, 100), min_size=30, max_size=40), spans, st.integers(0, 29))
def test_a_smoothed_score_needs_exactly_the_scores_it_looks_at(scores, lengths, t):
    whole = smooth(np.array(scores), lengths)
    begin, stop = max(t - look_back(lengths), 0), t + look_ahead(lengths) + 1
    assert smooth(np.array(scores[begin:stop]), lengths)[t - begin] == whole[t]


@given(spans.filter(lambda lengths: max(lengths, default=1) > 1))
def test_a_smoothed_score_looks_as_far_as_it_claims(lengths):
    peak = np.zeros(60)
    peak[30] = 1.0
    touched = np.flatnonzero(smooth(peak, lengths))
    assert touched[0] == 30 - look_ahead(lengths)
    assert touched[-1] == 30 + look_back(lengths)


@given(st.floats(0, 100), spans)
def test_a_constant_score_stays_constant(score, lengths):
    np.testing.assert_allclose(smooth(np.full(30, score), lengths), score, rtol=1e-12)

"""Every view agrees with its plain loops."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import naive_views as naive
from cometad.views import Activity, Balance, Forecast, Joint, NetworkView, Patterns
from cometad.views.kmeans import codes_of, kmeans
from cometad.views.sums import padded, window_products
from cometad.views.view import windows_of
from naive import Weights
from tiny import NETWORK_VIEW

shapes = st.tuples(st.integers(40, 60), st.integers(1, 4), st.integers(0, 999))


def series(rows, width, seed):
    """Scaled readings (time, variable) that follow from each other and belong together, and which are usable."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(rows, width)) @ rng.normal(size=(width, width))
    values = np.cumsum(steps, axis=0) / np.arange(1, rows + 1)[:, None] ** 0.5
    usable = np.ones(rows, bool)
    usable[rng.integers(rows)] = False
    return values, usable


def agree(view, rows, expectation, within=1e-8):
    errors, expected = (np.array(part) for part in expectation)
    np.testing.assert_allclose(view.errors(rows, 0), errors, rtol=within, atol=within)
    np.testing.assert_allclose(view.expected(rows, 0), expected, rtol=within, atol=within)


@given(shapes, st.integers(1, 9), st.integers(1, 7))
def test_patterns_are_distances_to_the_nearest_code_of_a_variable(shape, length, codes):
    rows, usable = series(*shape)
    view = Patterns(length, codes).fit(rows, usable, np.random.default_rng(0))
    agree(view, rows, naive.patterns(rows, view.state()["codes"]))


@given(shapes, st.integers(1, 9), st.integers(1, 7))
def test_joint_errors_split_the_distance_to_the_nearest_code(shape, length, codes):
    rows, usable = series(*shape)
    view = Joint(length, codes).fit(rows, usable, np.random.default_rng(0))
    learned = view.state()["codes"]
    agree(view, rows, naive.joint(rows, learned.tolist(), length))
    for t, errors in enumerate(view.errors(rows, length - 1), start=length - 1):
        whole = min(((rows[t - length + 1 : t + 1].ravel() - code) ** 2).sum() for code in learned)
        np.testing.assert_allclose(length * (errors**2).sum(), whole, rtol=1e-9)


@given(shapes, st.integers(1, 4), st.sampled_from([1.0, 10.0]))
def test_forecast_is_a_ridge_regression_on_the_last_readings(shape, lags, penalty):
    rows, usable = series(*shape)
    view = Forecast(lags, penalty).fit(rows, usable, np.random.default_rng(0))
    weights, level = naive.ridge(rows.tolist(), usable, lags, penalty)
    agree(view, rows, naive.forecast(rows, weights, level, lags))


@given(shapes, st.integers(1, 3), st.sampled_from([0.5, 0.9, 0.99]))
def test_balance_is_what_the_principal_components_leave(shape, length, explained):
    rows, usable = series(*shape)
    view = Balance(length, explained).fit(rows, usable, np.random.default_rng(0))
    center, outer = naive.covariance(rows.tolist(), usable, length)
    vectors, variances, _ = np.linalg.svd(outer)
    count = naive.components_needed(variances.tolist(), explained)
    agree(view, rows, naive.balance(rows, center, vectors.T[:count].tolist()))


@given(shapes, st.integers(2, 12))
def test_activity_is_the_distance_from_the_usual_log_deviation(shape, length):
    rows, usable = series(*shape)
    view = Activity(length).fit(rows, usable, np.random.default_rng(0))
    usual = naive.usual_activity(rows.tolist(), usable, length)
    np.testing.assert_allclose(view.state()["usual"], usual, rtol=1e-12, atol=1e-12)
    agree(view, rows, naive.activity(rows, usual, length))


@pytest.mark.parametrize("initialization", ["k-means", "normal"])
@pytest.mark.parametrize("width, patch_sizes", [(1, (1,)), (1, (3,)), (2, (5, 2)), (4, (2, 3, 8))])
def test_network_errors_are_distances_of_embeddings_to_the_nearest_code(width, patch_sizes, initialization):
    rows, usable = series(60, width, seed=0)
    kind = NetworkView(**{**NETWORK_VIEW, "patch_sizes": patch_sizes, "initialization": initialization})
    view = kind.fit(rows, usable, np.random.default_rng(0))
    agree(view, rows, naive.network(rows, [Weights.of(scale) for scale in view.network]), within=1e-4)  # 32 bits


# -- k-means --------------------------------------------------------------------------------------------------------

clouds = st.tuples(st.integers(1, 60), st.integers(1, 5), st.integers(1, 9), st.integers(0, 999))


def cloud(count, dim, codes, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, dim)) + 3 * rng.integers(3, size=(count, 1)), rng.random(codes)


def distances(points, codes):
    return ((points[:, None] - codes[None]) ** 2).sum(axis=2)


@given(clouds)
def test_every_round_of_lloyd_brings_the_codes_closer(shape):
    points, uniforms = cloud(*shape)
    totals = [distances(points, kmeans(points, uniforms, rounds)).min(axis=1).sum() for rounds in range(9)]
    assert (np.diff(totals) <= 1e-9 * (1 + totals[0])).all()


@given(clouds)
def test_every_code_is_the_mean_of_its_points_or_has_none(shape):
    points, uniforms = cloud(*shape)
    codes = kmeans(points, uniforms, 200)
    owners = distances(points, codes).argmin(axis=1)
    for c, code in enumerate(codes):
        own = points[owners == c]
        assert not len(own) or np.allclose(own.mean(axis=0), code, rtol=1e-9, atol=1e-9)


@given(clouds)
def test_the_first_codes_are_distinct_points(shape):
    points, uniforms = cloud(*shape)
    codes = kmeans(points, uniforms, 0)
    assert len(codes) == min(len(uniforms), len(points))
    assert {code.tobytes() for code in codes} <= {point.tobytes() for point in points}
    assert len({code.tobytes() for code in codes}) == len(codes)


@given(st.lists(st.sampled_from([-1e3, -1.0, 0.0, 0.5, 7.0]), min_size=1, max_size=40), st.integers(0, 99))
def test_few_distinct_points_are_their_own_codes(values, seed):
    points = np.array(values)[:, None] * np.array([1.0, 2.0, -1.0])
    codes = codes_of(points, 8, np.random.default_rng(seed))
    assert sorted(codes[:, 0]) == sorted(set(values))
    assert distances(points, codes).min(axis=1).max() == 0.0


def test_a_distant_cluster_gets_a_code():
    """k-means++ draws in proportion to the squared distance: no start misses a cluster that is far away."""
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(size=(500, 2)), rng.normal(size=(3, 2)) + 1000])
    for _ in range(20):
        assert distances(points, codes_of(points, 2, rng)).min(axis=1).max() < 100


# -- windows --------------------------------------------------------------------------------------------------------


@given(st.lists(st.booleans(), min_size=3, max_size=40), st.integers(1, 3), st.integers(1, 50))
def test_windows_are_drawn_from_usable_readings_in_time_order(usable, length, limit):
    possible = [t - length + 1 for t in naive.usable_ends(usable, length)]
    assume(possible)
    starts = windows_of(np.array(usable), length, limit, np.random.default_rng(0)).tolist()
    assert starts == sorted(set(starts))
    assert set(starts) <= set(possible)
    assert len(starts) == min(limit, len(possible))


@given(st.integers(1, 30), st.integers(1, 4), st.integers(1, 5), st.integers(1, 40), st.integers(0, 99))
def test_products_of_windows_are_matrix_products(count, width, length, columns, seed):
    rng = np.random.default_rng(seed)
    begin = int(rng.integers(5))
    rows, start = rng.normal(size=(begin + count + length - 1, width)), rng.normal(size=columns)
    weights = rng.normal(size=(length * width, columns))

    def products(begin, count):
        whole, level = padded(weights, start)
        out = np.empty((count, len(level)))
        window_products(rows.ravel(), begin * width, width, whole, level, out)
        return out[:, :columns]

    found = products(begin, count)
    windows = np.array([rows[begin + t : begin + t + length].ravel() for t in range(count)])
    np.testing.assert_allclose(found, windows @ weights + start, rtol=1e-9, atol=1e-9)
    alone = np.concatenate([products(begin + t, 1) for t in range(count)])
    assert alone.tobytes() == found.tobytes()

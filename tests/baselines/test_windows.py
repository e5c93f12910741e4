"""The baselines that see windows equal plain loops, look at no later reading, and take degenerate series."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive_baselines as naive
from cometad import load
from cometad.baselines import BASELINES, baseline
from cometad.baselines.baseline import Moments
from cometad.baselines.forecast_error import PENALTIES, ForecastError
from cometad.baselines.knn_distance import WindowKnn
from cometad.baselines.window_pca import WindowPca
from cometad.data import ScoreMeasured
from cometad.errors import InputError, ModelFileError, ParameterError
from contract import FRESH, NORMAL, is_a_sentence, waves

WINDOWS = ("window-pca", "forecast-error", "window-knn")


def spans(name):
    return {"lags": 5} if name == "forecast-error" else {"window": 6}


def made(name, **changes):
    return BASELINES[name](**{**spans(name), **changes})  # windows of six readings


def scaled(detector, series):
    return detector.scaling_(series).astype(np.float64)


def alerts(detector, series):
    return detector.step_scores(series).alerts


@pytest.fixture(scope="module")
def fitted():
    return {name: made(name).fit(NORMAL) for name in WINDOWS}


# -- loops ----------------------------------------------------------------------------------------------------------

shapes = given(
    variables=st.integers(1, 4), length=st.integers(1, 7), rows=st.integers(30, 90), seed=st.integers(0, 2**32 - 1)
)


@settings(max_examples=20, deadline=None)
@shapes
def test_the_distance_to_training_windows_equals_a_loop(variables, length, rows, seed):
    train, test = waves(rows, variables, seed), waves(20, variables, seed + 1)
    detector = WindowKnn(window=length, neighbors=2).fit(train)
    known = naive.windows(scaled(detector, train), length)
    expected = [naive.neighbor_distance(one, known, 2) for one in naive.windows(scaled(detector, test), length)]
    np.testing.assert_allclose(alerts(detector, test), naive.spread_to_start(expected, length), atol=1e-6)
    np.testing.assert_allclose(detector.decision_function(test), naive.mean_of_covering(expected, length), atol=1e-6)


@settings(max_examples=20, deadline=None)
@shapes
def test_errors_of_rebuilt_windows_equal_a_loop(variables, length, rows, seed):
    train, test = waves(rows, variables, seed), waves(20, variables, seed + 1)
    detector = WindowPca(window=length, variance_share=0.8).fit(train)
    known = naive.windows(scaled(detector, train), length)
    if variables * length == 1:
        expected = [[abs(float(one[0] - known.mean()))] for one in naive.windows(scaled(detector, test), length)]
    else:
        fresh = naive.windows(scaled(detector, test), length)
        expected = [naive.component_errors(known, one, 0.8, variables) for one in fresh]
    errors = naive.mean_of_covering(expected, length)
    np.testing.assert_allclose(detector.errors(test), errors, atol=1e-7)
    squares = [np.mean(np.square(one)) for one in expected]
    np.testing.assert_allclose(alerts(detector, test), naive.spread_to_start(squares, length), atol=1e-7)
    np.testing.assert_allclose(detector.decision_function(test), np.mean(np.square(errors), axis=1), atol=1e-7)


@settings(max_examples=20, deadline=None)
@shapes
def test_forecasts_and_their_penalties_equal_a_loop(variables, length, rows, seed):
    train, test = waves(rows, variables, seed), waves(20, variables, seed + 1)
    detector = ForecastError(lags=length).fit(train)
    known = naive.windows(scaled(detector, train), length + 1)
    inputs, targets = known[:, :-variables], known[:, -variables:]
    unit = inputs.var(axis=0).mean()
    for i, penalty in enumerate(detector.penalties_):
        errors = [naive.validation_error(inputs, targets[:, i], unit * one) for one in PENALTIES]
        assert naive.validation_error(inputs, targets[:, i], penalty) == pytest.approx(min(errors), rel=1e-6)
    expected = [
        [
            abs(window[i - variables] - naive.ridge_forecast(inputs, targets[:, i], penalty, window[:-variables]))
            for i, penalty in enumerate(detector.penalties_)
        ]
        for window in naive.windows(scaled(detector, test), length + 1)
    ]
    np.testing.assert_allclose(detector.errors(test), naive.spread_to_start(expected, length + 1), atol=1e-6)


def test_moments_in_chunks_equal_those_of_numpy(monkeypatch):
    rows = (np.random.default_rng(0).normal(size=(100, 4)) + 7).astype(np.float32)
    monkeypatch.setattr(baseline, "ROWS_AT_ONCE", 7)
    found = Moments.of(rows)
    np.testing.assert_allclose(found.mean, rows.astype(np.float64).mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.covariance, np.cov(rows.astype(np.float64).T, bias=True), rtol=1e-10)


# -- laws -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WINDOWS)
def test_an_alert_score_uses_no_later_reading(name, fitted):
    other = FRESH.copy()
    other[150:] += 9
    found, changed = (alerts(fitted[name], series) for series in (FRESH, other))
    np.testing.assert_allclose(found[:150], changed[:150], rtol=1e-9)
    assert changed[150] > found[150]
    np.testing.assert_allclose(alerts(fitted[name], FRESH[:150]), found[:150], rtol=1e-9)


@pytest.mark.parametrize("name", WINDOWS)
def test_a_ranking_score_looks_ahead_by_less_than_a_window_if_at_all(name, fitted):
    other = FRESH.copy()
    other[150:] += 9
    found, changed = (fitted[name].decision_function(series) for series in (FRESH, other))
    first = 150 if name == "forecast-error" else 145
    np.testing.assert_allclose(found[:first], changed[:first], rtol=1e-6)
    assert (changed[first : first + 20] > found[first : first + 20]).all()


@pytest.mark.parametrize("name", WINDOWS)
def test_a_score_uses_no_reading_before_its_window(name, fitted):
    np.testing.assert_allclose(alerts(fitted[name], FRESH[40:])[5:], alerts(fitted[name], FRESH)[45:], rtol=1e-9)


@pytest.mark.parametrize("name", WINDOWS)
def test_the_first_readings_have_the_score_of_the_first_window(name, fitted):
    scores = alerts(fitted[name], FRESH)
    assert (scores[:5] == scores[5]).all()
    assert scores[6] != scores[5]


@pytest.mark.parametrize("name", WINDOWS)
def test_scores_do_not_depend_on_the_size_of_chunks(name, fitted, monkeypatch):
    whole = fitted[name].decision_function(FRESH)
    monkeypatch.setattr(baseline, "READINGS_AT_ONCE", 40)
    np.testing.assert_allclose(fitted[name].decision_function(FRESH), whole, rtol=1e-9)


@pytest.mark.parametrize("name", WINDOWS)
def test_the_order_of_variables_does_not_matter(name, fitted):
    order = [2, 0, 1]
    other = made(name).fit(NORMAL[:, order])
    np.testing.assert_allclose(
        other.decision_function(FRESH[:, order]), fitted[name].decision_function(FRESH), rtol=1e-6
    )
    if name != "window-knn":
        np.testing.assert_allclose(other.errors(FRESH[:, order]), fitted[name].errors(FRESH)[:, order], rtol=1e-5)


@pytest.mark.parametrize("name", WINDOWS)
def test_a_changed_order_of_normal_readings_scores_high(name, fitted):
    # Every single reading was seen in training: only windows show that a stretch runs backward.
    reversed_ = NORMAL.copy()
    reversed_[200:230] = NORMAL[200:230][::-1]
    scores, normal = alerts(fitted[name], reversed_), fitted[name].alert_scores_
    assert scores[200:235].max() > 1.5 * normal.max()
    plain = BASELINES["knn"]().fit(NORMAL)
    assert plain.decision_function(reversed_).max() == plain.decision_scores_.max()


def test_white_noise_is_forecast_by_its_mean():
    noise = np.random.default_rng(0).normal(size=(3000, 2))
    detector = ForecastError(lags=3).fit(noise)
    assert np.abs(detector.weights_).max() < 0.05
    assert detector.decision_function(noise).mean() == pytest.approx(1.0, abs=0.05)


def test_a_forecast_finds_the_weights_of_an_autoregression():
    rng = np.random.default_rng(0)
    series = np.zeros((20_000, 2))
    for step in range(2, len(series)):
        first, second = series[step - 1], series[step - 2]
        series[step] = 0.5 * first - 0.3 * second + [0.4 * first[1], 0.0] + rng.normal(size=2)
    detector = ForecastError(lags=2).fit(series)
    ratio = detector.scaling_.unit[1] / detector.scaling_.unit[0]
    expected = np.array([[-0.3, 0.0], [0.0, -0.3], [0.5, 0.0], [0.4 * ratio, 0.5]])  # the older reading first
    np.testing.assert_allclose(detector.weights_, expected, atol=0.03)


def test_the_number_of_training_windows_is_bounded():
    assert WindowKnn(window=4, sample=100).fit(NORMAL).sample_.shape == (100, 12)


# -- degenerate series ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WINDOWS)
def test_a_series_shorter_than_a_window_is_refused(name, fitted):
    for use in (made(name).fit, fitted[name].decision_function):
        with pytest.raises(InputError, match=r"5 readings, fewer than a window \(6\)") as caught:
            use(FRESH[:5])
        assert is_a_sentence(str(caught.value))


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("rows", [6, 7, 12])
def test_a_few_windows_are_enough(name, rows):
    detector = made(name).fit(NORMAL[:rows])
    assert np.isfinite(detector.decision_scores_).all()
    assert np.isfinite(detector.decision_function(FRESH)).all()


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("rows", [20, 200])
def test_collinear_and_constant_variables_do_no_harm(name, rows):
    def widened(series):
        return np.column_stack([series, series[:, 0], -2 * series[:, 1], np.full(len(series), 3.0)])

    detector = made(name).fit(widened(NORMAL[:rows]))
    broken = widened(FRESH)
    broken[100, 3] += 5
    scores = detector.decision_function(broken)
    assert scores.max() < 100  # 20 readings are fewer than the inputs of a forecast
    assert rows == 20 or 95 <= scores.argmax() < 106


@pytest.mark.parametrize("name", WINDOWS)
def test_placeholders_for_missing_readings_are_never_learned_from(name):
    gappy = NORMAL.copy()
    gappy[100:400] = np.nan
    detector = made(name, gaps=ScoreMeasured()).fit(gappy)
    near = [made(name, gaps=ScoreMeasured()).fit(part).decision_function(FRESH) for part in (NORMAL[:100], NORMAL)]
    scores = detector.decision_function(FRESH)
    assert np.median(scores) < 1.5 * max(np.median(one) for one in near)
    if name == "window-knn":
        assert len(detector.sample_) == 100 - 5 + 100 - 5


# -- parameters and files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (WindowPca, {"window": 0}),
        (WindowPca, {"variance_share": 1.5}),
        (WindowKnn, {"window": 0}),
        (ForecastError, {"lags": 0}),
    ],
)
def test_invalid_parameters_are_refused(kind, changes):
    with pytest.raises(ParameterError, match=next(iter(changes))):
        kind(**changes).fit(NORMAL)


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("change", [lambda array: array[:, :-1], lambda array: array[:-1]], ids=["columns", "rows"])
def test_a_file_with_arrays_of_another_shape_is_refused(name, change, fitted, tmp_path):
    detector = made(name).fit(NORMAL)
    which = {"window-pca": "directions_", "forecast-error": "weights_", "window-knn": "sample_"}[name]
    setattr(detector, which, np.ascontiguousarray(change(getattr(detector, which))))
    detector.save(tmp_path / "file")
    rows_may_vary = name != "forecast-error" and getattr(detector, which).shape[1] == 18
    if rows_may_vary:
        assert np.isfinite(load(tmp_path / "file").decision_function(FRESH)).all()
        return
    with pytest.raises(ModelFileError, match="has the shape"):
        load(tmp_path / "file")

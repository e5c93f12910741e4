"""Scaling is scikit-learn's to the last bit: detectors saved by earlier versions were scaled by it."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from cometad.data.prepare import fit_scaling
from cometad.errors import InputError

readings = st.one_of(
    st.floats(-1e6, 1e6), st.floats(-1e-9, 1e-9), st.just(0.1), st.just(1e9), st.floats(-1e100, 1e100), st.just(np.nan)
)
series = arrays(np.float64, st.tuples(st.integers(2, 40), st.integers(1, 4)), elements=readings)


def reference(kind, values):
    """Center and unit by scikit-learn."""
    if kind == "standard":
        scaler = StandardScaler().fit(values)
        return scaler.mean_, scaler.scale_
    scaler = MinMaxScaler().fit(values)
    return scaler.data_min_, 1 / scaler.scale_


def assert_like_scikit_learn(kind, values):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # scikit-learn's, about readings that are almost equal
        expected = reference(kind, values)
    for found, known in zip(fit_scaling(kind, values), expected, strict=True):
        assert found.tobytes() == known.tobytes()


@given(values=series)
@pytest.mark.parametrize("kind", ["standard", "min-max"])
def test_scaling_is_that_of_scikit_learn(kind, values):
    values[0] = np.nan_to_num(values[0])  # a variable without any reading is refused earlier
    assert_like_scikit_learn(kind, values)


@pytest.mark.parametrize("kind", ["standard", "min-max"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_a_long_series_is_scaled_like_by_scikit_learn(kind, order, missing):
    rng = np.random.default_rng(0)
    values = rng.normal(50, [[1.0, 1e-8, 0.0, 300.0]], size=(20_001, 4))
    values[rng.random(values.shape) < missing] = np.nan
    assert_like_scikit_learn(kind, np.asarray(values, order=order))
    assert_like_scikit_learn(kind, np.asarray(values, order=order)[:-7])


def test_a_constant_variable_has_the_unit_1():
    for kind in ("standard", "min-max"):
        assert fit_scaling(kind, np.full((5, 1), 7.0)) == (np.array([7.0]), np.array([1.0]))


def test_readings_too_large_to_scale_are_refused():
    with pytest.raises(InputError, match="too large to be scaled"):
        fit_scaling("standard", np.full((2, 1), 1e200))

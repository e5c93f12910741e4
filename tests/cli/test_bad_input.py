"""Bad input is refused in sentences (tests/golden/refused_*.txt has them); odd but usable input is accepted."""

import re
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from cometad import NetworkComet
from cometad.errors import InputError, ParameterError
from cometad.network import OneCycle
from cometad.series import as_series
from contract import is_a_sentence, waves

NAMES = ["flow", "level", "heat"]
TIMES = [datetime(2024, 3, 1, 4) + timedelta(minutes=10 * step) for step in range(120)]
SERIES = waves(120)
GOLDEN = Path(__file__).parents[1] / "golden"


def small(**changes):
    shape = {"window": 20, "window_stride": 10, "patch_sizes": (2, 4), "patch_strides": (1, 2), "dim": 4, "core_dim": 3}
    return NetworkComet(
        **{**shape, "codebook_size": 8, "schedule": OneCycle(3), "batch_size": 8, "test_batch": 2, **changes}
    )


@pytest.fixture(scope="module")
def fitted():
    return small().fit(SERIES)


@pytest.mark.parametrize("file", ["refused_calls.txt", "refused_commands.txt"])
def test_every_refusal_is_a_sentence(file):
    said = re.findall(
        r"^    (?:(?!Type|Key|Attribute)\w+Error|cometad): (.+)", (GOLDEN / file).read_text(), re.MULTILINE
    )
    assert len(said) > 100
    assert [each for each in said if not is_a_sentence(each.lstrip("-0123456789 ").capitalize())] == []


def test_as_many_readings_as_a_window_are_enough(fitted):
    assert small(validation_share=0.0).fit(SERIES[:20]).decision_scores_.shape == (20,)
    for use in (fitted.decision_function, fitted.score_map):
        use(SERIES[:20])
        with pytest.raises(InputError, match=r"19 readings, fewer than a window \(20\)"):
            use(SERIES[:19])


def test_constant_variables_are_accepted():
    for still in (with_constant(1), with_constant(slice(None))):
        for scaler in ("standard", "min-max"):
            detector = small(scaler=scaler).fit(still)
            assert np.isfinite(detector.decision_function(SERIES)).all()
            assert np.isfinite(detector.decision_function(still)).all()


def with_constant(variable):
    series = SERIES.copy()
    series[:, variable] = 5.0
    return series


@pytest.mark.parametrize(
    "series",
    [
        SERIES.astype(np.float32).astype(np.float64),
        SERIES.astype(np.float32),
        SERIES.astype(np.float32).tolist(),
        np.asfortranarray(SERIES.astype(np.float32)),
        pd.DataFrame(SERIES.astype(np.float32)),
        pd.DataFrame(SERIES.astype(np.float32), columns=NAMES, index=pd.DatetimeIndex(TIMES, tz="Europe/Berlin")),
        pl.DataFrame(SERIES.astype(np.float32), schema=NAMES).with_columns(pl.Series("time", TIMES)),
    ],
    ids=["float64", "float32", "list", "fortran", "unnamed frame", "index", "time column"],
)
def test_every_common_form_of_a_series_is_accepted(series, fitted):
    assert np.array_equal(as_series(series).values, SERIES.astype(np.float32))
    assert fitted.decision_function(series).shape == (120,)


def test_integers_and_booleans_are_numbers():
    mixed = pl.DataFrame({"count": [1, 2], "open": [True, False], "flow": [0.5, 1.5]})
    assert as_series(mixed).values.tolist() == [[1.0, 1.0, 0.5], [2.0, 0.0, 1.5]]
    assert as_series(mixed.to_pandas()).values.tolist() == [[1.0, 1.0, 0.5], [2.0, 0.0, 1.5]]


def test_objects_that_are_numbers_are_converted(fitted):
    mixed = np.array(
        [[1, 0.5, True], [Fraction(1, 4), Decimal("2.5"), np.float32(3)], [2**60, np.bool_(1), -7]], object
    )
    assert as_series(mixed).values.tolist() == [[1.0, 0.5, 1.0], [0.25, 2.5, 3.0], [2.0**60, 1.0, -7.0]]
    assert np.array_equal(fitted.decision_function(SERIES.astype(object)), fitted.decision_function(SERIES))
    assert np.isnan(as_series(np.array([[1.0, None]], object), missing=True).values[0, 1])


def test_readings_of_any_finite_size_give_finite_scores(fitted):
    for value in (1e30, -1e300, 1.7e308):
        series = SERIES.copy()
        series[1, 1] = value
        assert np.isfinite(fitted.decision_function(series)).all()


def test_parameters_are_checked_before_the_series():
    for use in (small(dim=5).fit, lambda series: small(dim=5).check_parameters()):
        with pytest.raises(ParameterError, match="must be even"):
            use("no series")


def test_the_error_for_diverging_training_suggests_a_lower_learning_rate():
    with pytest.raises(ParameterError, match="Lower the learning rate"):
        small(schedule=OneCycle(40, learning_rate=1e15)).fit(SERIES)

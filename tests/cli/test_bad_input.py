"""Bad input is refused early, with an error that a new user understands and that ends with advice."""

from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest

from cometad import Comet, NetworkComet
from cometad.errors import CometadError, InputError, NotFittedError, ParameterError
from cometad.network import Epochs, OneCycle, OnlineAdaptation
from cometad.scoring import (
    BudgetSelection,
    EmaMinMax,
    HighestVariables,
    PercentileSelection,
    TrainingCalibration,
    TrainingNormalization,
)
from cometad.series import as_series
from contract import is_a_sentence, waves

NAMES = ["flow", "level", "heat"]
START = datetime(2024, 3, 1, 4)
TIMES = [START + timedelta(minutes=10 * step) for step in range(120)]
SERIES = waves(120)


def small(**changes):
    shape = {"window": 20, "window_stride": 10, "patch_sizes": (2, 4), "patch_strides": (1, 2), "dim": 4, "core_dim": 3}
    return NetworkComet(
        **{**shape, "codebook_size": 8, "schedule": OneCycle(3), "batch_size": 8, "test_batch": 2, **changes}
    )


@pytest.fixture(scope="module")
def fitted():
    return small().fit(SERIES)


@pytest.fixture(scope="module")
def named():
    return small().fit(pd.DataFrame(SERIES, columns=NAMES))


def with_value(value, step=1, variable=1):
    series = SERIES.copy()
    series[step, variable] = value
    return series


def frame(series=SERIES, times=None):
    """A polars frame, with a column of times where they are given."""
    made = pl.DataFrame(series, schema=NAMES)
    return made if times is None else made.with_columns(pl.Series("time", times))


def refused(kind, words, use, *given, **more):
    """Check that a call is refused with a proper message that contains `words`."""
    with pytest.raises(kind) as caught:
        use(*given, **more)
    message = str(caught.value)
    assert isinstance(caught.value, CometadError)
    assert words in message
    assert is_a_sentence(message)


# -- series ---------------------------------------------------------------------------------------------------------

SERIES_REFUSED = {
    "one dimension": (SERIES[:, 0], "got (120,). Reshape your data: for a single variable pass series[:, None]."),
    "three dimensions": (SERIES[None], "got (1, 120, 3)."),
    "no dimension": (3.0, "got ()."),
    "a pandas series": (pd.Series(SERIES[:, 0]), "pass series[:, None]"),
    "a polars series": (pl.Series(SERIES[:, 0]), "pass series[:, None]"),
    "no rows": (np.empty((0, 3)), "empty"),
    "no columns": (np.empty((120, 0)), "empty"),
    "an empty pandas frame": (pd.DataFrame(), "empty"),
    "an empty polars frame": (pl.DataFrame(schema={"flow": pl.Float64}), "empty"),
    "times only": (pl.DataFrame({"time": TIMES}), "empty"),
    "nan": (with_value(np.nan), "Variable 'v1' is nan at time step 1."),
    "infinity": (with_value(np.inf), "Variable 'v1' is inf at time step 1."),
    "minus infinity": (with_value(-np.inf), "Variable 'v1' is -inf at time step 1."),
    "nan in a frame": (frame(with_value(np.nan)), "Variable 'level' is nan at time step 1."),
    "nan at a time": (frame(with_value(np.nan), TIMES), "Variable 'level' is nan at time step 1 (2024-03-01T04:10"),
    "nan at an index": (
        pd.DataFrame(with_value(np.nan), columns=NAMES, index=pd.DatetimeIndex(TIMES)),
        "Variable 'level' is nan at time step 1 (2024-03-01T04:10",
    ),
    "an empty cell": (pl.DataFrame({"flow": [1, None, 3]}), "Variable 'flow' is nan at time step 1."),
    "a missing integer": (
        pd.DataFrame({"flow": pd.array([1, None, 3], dtype="Int64")}),
        "Variable 'flow' is nan at time step 1.",
    ),
    "a masked reading": (
        np.ma.masked_array(SERIES, mask=np.arange(360).reshape(120, 3) == 4),
        "time step 1",
    ),
    "a column of text": (pd.DataFrame({"flow": [1.0], "state": ["on"]}), "Column 'state' is not numeric"),
    "a column of categories": (pd.DataFrame({"state": pd.Categorical(["on"])}), "Column 'state' is not numeric"),
    "a polars column of text": (pl.DataFrame({"flow": [1.0], "state": ["on"]}), "Column 'state' is not numeric"),
    "an array of text": (np.array([["1", "on"]]), "array of numbers"),
    "objects that are no numbers": (
        np.array([[1, 2], [3, {"on": 1}]], dtype=object),
        "The array has {'on': 1} at time step 1, column 1. The argument must be free of strings",
    ),
    "text among objects": (np.array([[1, "2"]], dtype=object), "The array has '2' at time step 0, column 1."),
    "nothing among objects": (np.array([[1, None]], dtype=object), "Variable 'v1' is nan at time step 0."),
    "a large integer among objects": (np.array([[1, 2**53 + 1]], dtype=object), "an integer too large to be exact"),
    "an integer beyond all floats": (np.array([[1, -(10**400)]], dtype=object), "an integer too large to be exact"),
    "a fraction beyond all floats": (np.array([[Fraction(10**400)]], dtype=object), "array of numbers"),
    "rows of objects": (np.array([{}, {}], dtype=object), "array of numbers"),
    "complex numbers": (SERIES + 1j, "Complex data not supported"),
    "rows of different lengths": ([[1.0, 2.0], [3.0]], "array of numbers"),
    "nothing": (None, "array of numbers"),
    "a path": ("plant.csv", "array of numbers"),
    "a lazy frame": (pl.LazyFrame({"flow": [1.0]}), "array of numbers"),
    "a time twice": (
        frame(times=[*TIMES[:2], *TIMES[1:-1]]),
        "The timestamp of time step 2 (2024-03-01T04:10:00.000000) appears twice.",
    ),
    "times out of order": (
        frame(times=[*TIMES[1:2], TIMES[0], *TIMES[2:]]),
        "time step 1 (2024-03-01T04:00:00.000000) is earlier than the one before it.",
    ),
    "an index out of order": (
        pd.DataFrame(SERIES, columns=NAMES, index=pd.DatetimeIndex(TIMES[::-1])),
        "time step 1 (2024-03-01T23:40",
    ),
    "a missing time": (frame(times=[TIMES[0], None, *TIMES[2:]]), "'time' has empty cells"),
    "a missing time in an index": (
        pd.DataFrame({"flow": [1.0, 2.0]}, index=pd.DatetimeIndex([START, None])),
        "time of reading 1 is missing",
    ),
    "two columns of times": (
        frame(times=TIMES).with_columns(pl.col("time").alias("again")),
        "more than one time column: time, again",
    ),
    "a column twice": (pd.DataFrame(SERIES, columns=["flow", "flow", "heat"]), "'flow'"),
}


@pytest.mark.parametrize("what", SERIES_REFUSED)
def test_an_unusable_series_is_refused(what, fitted):
    series, words = SERIES_REFUSED[what]
    refused(InputError, words, as_series, series)
    refused(InputError, words, small().fit, series)
    refused(InputError, words, fitted.decision_function, series)


def test_too_few_readings_are_refused_at_fit_and_at_scoring(fitted):
    refused(InputError, "19 readings, fewer than a window (20)", small().fit, SERIES[:19])
    refused(InputError, "has 18 readings, fewer than a window (20)", small(validation_share=0.1).fit, SERIES[:20])
    for use in (fitted.decision_function, fitted.predict, fitted.score_map):
        refused(InputError, "19 readings, fewer than a window (20)", use, SERIES[:19])


def test_as_many_readings_as_a_window_are_enough(fitted):
    assert small(validation_share=0.0).fit(SERIES[:20]).decision_scores_.shape == (20,)
    assert fitted.decision_function(SERIES[:20]).shape == (20,)


def test_a_different_number_of_variables_than_in_training_is_refused(fitted, named):
    for use in (fitted.decision_function, fitted.predict, fitted.score_map, named.decision_function):
        refused(InputError, "fitted on 3 variables, but this series has 2.", use, SERIES[:, :2])


def test_different_columns_than_in_training_are_refused(named):
    swapped = frame().select("level", "flow", "heat")
    refused(InputError, "a variable 'flow' where this series has 'level'.", named.decision_function, swapped)
    renamed = frame().rename({"heat": "temperature"}).to_pandas()
    refused(InputError, "a variable 'heat' where this series has 'temperature'.", named.decision_function, renamed)


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
        assert np.isfinite(fitted.decision_function(with_value(value))).all()


# -- before fit -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "use",
    [
        lambda detector: detector.decision_function(SERIES),
        lambda detector: detector.predict(SERIES),
        lambda detector: detector.score_map(SERIES),
        lambda detector: detector.stream(),
        lambda detector: detector.save("never-written"),
    ],
    ids=["decision_function", "predict", "score_map", "stream", "save"],
)
def test_use_before_fit_is_refused_with_advice(use):
    refused(NotFittedError, "not fitted yet. Call fit with", use, small())


# -- parameters -----------------------------------------------------------------------------------------------------

PARAMETERS_REFUSED = [
    ({"patch_sizes": (4,), "patch_strides": (5,)}, "'patch_strides' parameter"),
    ({"patch_sizes": (4,), "patch_strides": (0,)}, "'patch_strides' parameter"),
    ({"patch_sizes": (4,), "patch_strides": (1, 1)}, "'patch_strides' parameter"),
    ({"patch_sizes": (), "patch_strides": ()}, "'patch_sizes' parameter"),
    ({"patch_sizes": (21,), "patch_strides": (1,)}, "between 1 and the window (20)"),
    ({"patch_sizes": (0,), "patch_strides": (1,)}, "'patch_sizes' parameter"),
    ({"patch_sizes": 4}, "'patch_sizes' parameter"),
    *(({name: 0}, f"'{name}' parameter") for name in ("window", "window_stride", "dim", "core_dim", "codebook_size")),
    *(({name: 0}, f"'{name}' parameter") for name in ("batch_size", "neighbors", "test_batch")),
    ({"window": "20"}, "'window' parameter"),
    ({"window": 20.5}, "'window' parameter"),
    ({"dim": 5}, "must be even"),
    ({"score_weight": 1.5}, "'score_weight' parameter"),
    ({"score_weight": float("nan")}, "'score_weight' parameter"),
    ({"validation_share": 1.0}, "'validation_share' parameter"),
    ({"validation_share": -0.1}, "'validation_share' parameter"),
    ({"threshold": 0.99}, "'threshold' parameter must be an object with rate, fit and watch"),
    ({"threshold": "spot"}, "'threshold' parameter"),
    ({"scaler": "robust"}, "Unknown scaler 'robust'. Available: standard, min-max."),
    ({"initialization": "zeros"}, "Unknown initialization 'zeros'. Available: normal, k-means."),
    ({"memory_distance": "cosine"}, "Unknown memory distance 'cosine'. Available: local, plain."),
    ({"device": "tpu"}, "Unknown device 'tpu'. Did you mean cpu? Available: cpu, cuda."),
    ({"selection": "all"}, "'selection' parameter"),
    ({"adaptation": None}, "'adaptation' parameter"),
    ({"schedule": 100}, "'schedule' parameter"),
]


@pytest.mark.parametrize(("changes", "words"), PARAMETERS_REFUSED)
def test_a_parameter_out_of_range_is_refused_by_fit_before_the_series(changes, words):
    refused(ParameterError, words, small(**changes).fit, "no series")
    refused(ParameterError, words, small(**changes).check_parameters)


def test_a_parameter_set_out_of_range_is_refused_by_fit():
    refused(ParameterError, "must be even", small().set_params(dim=5).fit, SERIES)


@pytest.mark.parametrize(
    "part",
    [
        lambda: HighestVariables(0),
        lambda: BudgetSelection(0),
        lambda: PercentileSelection(101),
        lambda: EmaMinMax(1.5),
        lambda: TrainingNormalization(quantile=-0.5),
        lambda: TrainingCalibration(quantile=2.0),
        lambda: OneCycle(0),
        lambda: Epochs(0),
        lambda: OneCycle(10, learning_rate=-1.0),
        lambda: OnlineAdaptation(learning_rate=-1.0),
        lambda: OnlineAdaptation(pairs=2),
        lambda: OnlineAdaptation(error_limit=2.0),
        lambda: OnlineAdaptation(max_drift=-1.0),
    ],
)
def test_a_strategy_with_a_parameter_out_of_range_is_refused_when_created(part):
    refused(ParameterError, "parameter", part)


def test_an_unknown_paper_dataset_lists_the_available_ones():
    words = "Unknown paper dataset 'PMS'. Did you mean PSM? Available: PSM, SWaT, SMAP, MSL, WADI."
    refused(ParameterError, words, Comet.paper, "PMS")


def test_the_error_for_diverging_training_suggests_a_lower_learning_rate():
    diverging = small(schedule=OneCycle(40, learning_rate=1e15))
    refused(ParameterError, "Lower the learning rate", diverging.fit, SERIES)


def test_readings_too_large_to_be_scaled_are_refused():
    with pytest.raises(InputError, match="too large to be scaled"):
        small().fit(1e300 * np.random.default_rng(0).normal(size=(400, 2)))

"""What a series is made of; and the one policy for late readings: what it refuses, drops and counts."""

from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometad.data.tables import read_table
from cometad.errors import InputError, ParameterError
from cometad.series import LATE, Order, Series, as_series


def timed(minutes):
    times = np.datetime64("2024-03-01T00:00", "us") + np.array(minutes, "timedelta64[m]")
    return Series(np.arange(float(len(minutes)))[:, None], ("flow",), times, named=True)


@given(minutes=st.lists(st.integers(0, 9), min_size=1, max_size=12), last=st.none() | st.integers(0, 9))
def test_of_a_chunk_only_readings_after_all_before_them_are_kept(minutes, last):
    known = None if last is None else timed([last]).times[0]
    kept = [
        step
        for step, minute in enumerate(minutes)
        if all(minute > other for other in [-1 if last is None else last, *minutes[:step]])
    ]
    order = Order("drop", known)
    assert order.on_time(timed(minutes)).values[:, 0].tolist() == kept
    assert order == Order("drop", known)  # a query changes nothing
    if len(kept) < len(minutes):
        with pytest.raises(InputError, match=r"appears twice|is earlier than the one before it"):
            Order("refuse", known).on_time(timed(minutes))


@given(minutes=st.lists(st.integers(0, 9), min_size=1, max_size=12))
def test_without_increasing_only_the_last_time_counts(minutes):
    order = Order("drop", timed([4]).times[0])
    assert order.on_time(timed(minutes), increasing=False).values[:, 0].tolist() == [
        step for step, minute in enumerate(minutes) if minute > 4
    ]


def test_times_finer_than_a_microsecond_are_distinguished():
    times = np.array([0, 1, 2, 2], "datetime64[ns]")
    series = Series(np.zeros((4, 1)), ("flow",), times, named=True)
    assert len(Order("drop").on_time(series)) == 3


def test_a_missing_time_is_refused_under_every_rule():
    series = timed([0, 1])
    series.times[1] = np.datetime64("NaT")
    for late in LATE:
        with pytest.raises(InputError, match="time of reading 1 is missing"):
            Order(late).on_time(series)


def test_an_unknown_rule_is_refused():
    with pytest.raises(ParameterError, match="Unknown rule for late readings 'keep'"):
        Order("keep")


# --- frames -----------------------------------------------------------------------------------------------------------

LARGE = 2**53 + 1


@pytest.mark.parametrize("dtype", [pl.Int128, pl.Int64, pl.UInt64, pl.Decimal(38, 0), pl.Decimal(38, 2)], ids=str)
def test_integers_of_every_type_are_exact_or_refused(dtype):
    values = [Decimal(value) if dtype.is_decimal() else value for value in (1, 2**60, 3)]
    assert as_series(pl.DataFrame({"flow": pl.Series(values, dtype=dtype)})).values[:, 0].tolist() == [1, 2.0**60, 3]
    bad = pl.DataFrame({"flow": pl.Series([*values[:2], type(values[0])(LARGE)], dtype=dtype)})
    with pytest.raises(InputError, match=f"Column 'flow' has {LARGE} at time step 2, an integer too large to be exact"):
        as_series(bad)


def test_a_missing_cell_does_not_hide_an_integer_that_a_float_would_round():
    for frame in (pl.DataFrame({"flow": [None, LARGE]}), pd.DataFrame({"flow": pd.array([None, LARGE], "Int64")})):
        with pytest.raises(InputError, match=f"Column 'flow' has {LARGE} at time step 1"):
            as_series(frame, missing=True)


def test_decimals_are_rounded_as_numbers_with_a_point_are(tmp_path):
    frame = pl.DataFrame({"flow": pl.Series([Decimal("1.25"), None], dtype=pl.Decimal(38, 2))})
    assert as_series(frame, missing=True).values[0, 0] == 1.25
    frame.write_parquet(tmp_path / "plant.parquet")
    assert read_table(tmp_path / "plant.parquet")["flow"][0] == 1.25
    pl.DataFrame({"flow": pl.Series([Decimal(LARGE)], dtype=pl.Decimal(38, 2))}).write_parquet(
        tmp_path / "plant.parquet"
    )
    with pytest.raises(InputError, match=f"Column 'flow' has {LARGE} in row 1 of .*, an integer too large to be exact"):
        read_table(tmp_path / "plant.parquet")


def test_a_number_that_is_text_is_named():
    with pytest.raises(InputError, match=r"Column 'flow' is not numeric: it has the text '1\.5' in row 1 of the frame"):
        as_series(pl.DataFrame({"flow": [None, "1.5"]}))


def test_names_that_are_equal_as_text_are_refused():
    with pytest.raises(InputError, match="two columns named '0'"):
        as_series(pd.DataFrame(np.zeros((3, 3)), columns=[0, "0", 1]))


def test_the_times_of_periods_are_their_starts():
    frame = pd.DataFrame({"flow": [1.0, 2.0]}, index=pd.period_range("2024-03-01", periods=2, freq="h"))
    expected = np.array(["2024-03-01T00", "2024-03-01T01"], "datetime64[us]")
    assert np.array_equal(as_series(frame).times, expected)
    with pytest.raises(InputError, match="earlier than the one before it"):
        as_series(frame[::-1])


def test_an_index_that_holds_times_of_another_kind_is_refused():
    frame = pd.DataFrame({"flow": [1.0, 2.0]}, index=pd.to_timedelta([1, 0], unit="s"))
    with pytest.raises(InputError, match="The index holds durations, not times"):
        as_series(frame)
    levels = pd.MultiIndex.from_product([["a", "b"], pd.to_datetime(["2024-03-01"])])
    with pytest.raises(InputError, match="an index of several levels with times"):
        as_series(frame.set_axis(levels))
    assert as_series(frame.set_axis(pd.MultiIndex.from_product([["a"], [0, 1]]))).times is None


def test_the_resolution_of_times_is_named_where_it_makes_them_equal():
    nanoseconds = pl.Series("time", [1_000, 1_100], dtype=pl.Datetime("ns"))
    with pytest.raises(InputError, match=r"appears twice \(times are kept in microseconds\)\."):
        as_series(pl.DataFrame({"flow": [1.0, 2.0]}).with_columns(nanoseconds))
    with pytest.raises(InputError, match=r"appears twice\. "):
        as_series(timed([1, 1]))

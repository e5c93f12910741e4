"""The one policy for late readings: what it refuses, drops and counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometad.errors import InputError, ParameterError
from cometad.series import LATE, Order, Series


def timed(minutes):
    times = np.datetime64("2024-03-01T00:00", "us") + np.array(minutes, "timedelta64[m]")
    return Series(np.arange(float(len(minutes)))[:, None], ("flow",), times, named=True)


@given(minutes=st.lists(st.integers(0, 9), min_size=1, max_size=12), last=st.none() | st.integers(0, 9))
def test_a_chunk_is_filtered_like_single_readings(minutes, last):
    series, chunk, single = timed(minutes), Order("drop"), Order("drop")
    for order in (chunk, single):
        order.take(None if last is None else timed([last]).times[0])
    kept = []
    for step, time in enumerate(series.times):
        if single.admits(time, "Late."):
            single.take(time)
            kept.append(step)
    sifted = chunk.on_time(series)
    assert sifted.values[:, 0].tolist() == kept
    assert chunk.dropped == 0  # a query changes nothing
    assert single.dropped == len(minutes) - len(kept)
    if single.dropped:
        order = Order()
        order.take(chunk.last)
        with pytest.raises(InputError, match=r"appears twice|is earlier than the one before it"):
            order.on_time(series)


@given(minutes=st.lists(st.integers(0, 9), min_size=1, max_size=12))
def test_without_increasing_only_the_last_time_counts(minutes):
    order = Order("drop")
    order.take(timed([4]).times[0])
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


def test_a_late_reading_is_refused_with_the_given_wording():
    order = Order()
    order.take(5.0)
    with pytest.raises(InputError, match=r'^Line 7 is late\. Send .*pass late="drop"\.$'):
        order.admits(5.0, "Line 7 is late.")
    assert order.admits(5.5, "Line 7 is late.")


def test_an_unknown_rule_is_refused():
    with pytest.raises(ParameterError, match="Unknown rule for late readings 'keep'"):
        Order("keep")

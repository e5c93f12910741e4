"""Irregular readings are resampled to a regular grid, in chunks as at once."""

import itertools
import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from cometad.data.resample import RULES, Resampling, parse_period, resample, summary
from cometad.errors import InputError, ParameterError
from contract import is_a_sentence

CELL = st.one_of(st.just(math.nan), st.integers(-9, 9).map(float))
READINGS = st.lists(st.tuples(st.integers(-200, 200), CELL, CELL), min_size=1, max_size=40)


def frame(readings):
    """Readings (second, flow, level) as a frame."""
    times = np.array([int(reading[0]) for reading in readings]) * 1_000_000
    cells = np.array([reading[1:] for reading in readings], np.float64)
    return pl.DataFrame({"time": times.astype("datetime64[us]"), "flow": cells[:, 0], "level": cells[:, 1]})


def seconds(series):
    return (series.times.astype("datetime64[us]").astype(np.int64) // 1_000_000).tolist()


@pytest.mark.parametrize("rule", RULES)
@given(readings=READINGS, period=st.sampled_from([1, 7, 60]))
def test_resampling_equals_the_naive_loops(rule, readings, period):
    found = resample(frame(readings), f"{period}s", rule)
    edges, values = naive.resampled([r[0] for r in readings], [r[1:] for r in readings], period, rule)
    assert seconds(found) == edges
    assert np.array_equal(found.values, np.array(values), equal_nan=True)
    assert found.names == ("flow", "level")


@pytest.mark.parametrize("rule", RULES)
@given(readings=READINGS.map(lambda rows: sorted(rows, key=lambda row: row[0])), data=st.data())
def test_chunks_and_snapshots_change_nothing(rule, readings, data):
    readings = [(second, flow / 7, level / 7) for second, flow, level in readings]  # sums that round
    count = len(readings)
    cuts = [0, *sorted(data.draw(st.sets(st.integers(1, count), max_size=5)) - {count}), count]
    rules = Resampling("10s", rule)
    run, parts = rules.start(), []
    for start, stop in itertools.pairwise(cuts):
        parts.append(run.push(frame(readings[start:stop])))
        state, run = run.state(), rules.start()
        run.restore(state)
    parts.append(run.finish())
    whole = resample(frame(readings), "10s", rule)
    assert np.concatenate([part.values for part in parts]).tobytes() == whole.values.tobytes()
    assert [second for part in parts for second in seconds(part)] == seconds(whole)
    assert [part.first for part in parts] == [sum(map(len, parts[:i])) for i in range(len(parts))]
    rows = [len([r for r in readings if edge <= r[0] < edge + 10]) for edge in seconds(whole)]
    assert (run.bins, run.empty, run.several) == (len(rows), rows.count(0), sum(row > 1 for row in rows))


def test_a_bin_is_half_open_and_labeled_by_its_left_edge():
    found = resample(frame([(60, 1.0, 1.0), (119, 2.0, 2.0), (120, 3.0, 3.0)]), "1min", "max")
    assert seconds(found) == [60, 120]
    assert found.values[:, 0].tolist() == [2.0, 3.0]


def test_among_equal_times_the_later_row_counts_as_last():
    found = resample(frame([(0, 1.0, 5.0), (0, 2.0, math.nan)]), "1s", "last")
    assert found.values.tolist() == [[2.0, 5.0]]  # missing readings are ignored


def test_pandas_frames_and_time_zones_are_resampled_alike():
    readings = [(0, 1.0, 2.0), (61, 3.0, 4.0)]
    table = frame(readings)
    zoned = table.with_columns(pl.col("time").dt.replace_time_zone("UTC").dt.convert_time_zone("Asia/Tokyo"))
    indexed = pd.DataFrame({"flow": [1.0, 3.0], "level": [2.0, 4.0]}, index=pd.to_datetime([0, 61], unit="s"))
    for other in (zoned, indexed):
        assert seconds(resample(other, "60s")) == seconds(resample(table, "60s")) == [0, 60]


def test_a_run_holds_only_the_open_bin():
    run = Resampling("10s", "mean").start()
    for second in range(0, 5000, 2):
        run.push(frame([(second, 1.0, 2.0)]))
        assert len(run.state()["rows"]) <= 5
    assert run.order.last == np.datetime64("1970-01-01T01:23:09.999999")


def test_a_run_summarizes_what_it_did():
    run = Resampling("10s").start()
    run.push(frame([(0, 1.0, 1.0), (1, 1.0, 1.0), (25, 1.0, 1.0)]))
    run.finish()
    assert summary(run) == "Resampled to 3 readings: 1 are empty, 1 combine several."


def test_a_reading_for_a_complete_bin_is_refused_and_changes_nothing():
    run = Resampling("10s").start()
    run.push(frame([(0, 1.0, 1.0), (25, 1.0, 1.0)]))
    before = run.state()
    with pytest.raises(InputError, match="belongs to a bin that is already complete") as caught:
        run.push(frame([(26, 1.0, 1.0), (19, 1.0, 1.0)]))
    assert is_a_sentence(str(caught.value))
    assert all(np.array_equal(before[name], value) for name, value in run.state().items())
    assert len(run.push(frame([(21, 9.0, 9.0)]))) == 0  # out of order, but its bin is open
    assert run.finish().values.tolist() == [[1.0, 1.0]]


def test_one_wrong_time_does_not_fill_memory():
    with pytest.raises(InputError, match=r"no readings between .* periods") as caught:
        resample(frame([(0, 1.0, 1.0), (10**9, 1.0, 1.0)]), "1s")
    assert is_a_sentence(str(caught.value))


@pytest.mark.parametrize(
    "readings, words",
    [
        (np.ones((3, 2)), "needs times"),
        (pd.DataFrame({"flow": [1.0, 2.0]}, index=pd.DatetimeIndex(["2024-03-01", None])), "reading 1 is missing"),
    ],
)
def test_readings_without_times_are_refused(readings, words):
    with pytest.raises(InputError, match=words) as caught:
        resample(readings, "60s")
    assert is_a_sentence(str(caught.value))


def test_a_period_is_a_number_with_a_unit_or_a_timedelta():
    minute = 60_000_000
    for period in ("60s", "1min", "60000 ms", timedelta(minutes=1), np.timedelta64(1, "m")):
        assert parse_period(period) == minute
    assert parse_period("1d") == 24 * parse_period("1h") == 1440 * minute


@pytest.mark.parametrize("period", ["", "60", "s", "-1s", "0s", "1 fortnight", 60, None, "1e300s", timedelta(0)])
def test_an_unreadable_period_is_refused(period):
    with pytest.raises(ParameterError, match="Cannot read the period") as caught:
        Resampling(period)
    assert is_a_sentence(str(caught.value))


def test_an_unknown_rule_is_refused():
    with pytest.raises(ParameterError, match=r"Unknown resampling rule 'sum'\. Available: last, first, mean, min, max"):
        resample(frame([(0, 1.0, 1.0)]), "1s", "sum")


def test_times_before_1970_have_bins_too():
    early = pl.DataFrame({"time": [datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)], "flow": [1.0]})
    assert seconds(resample(early, "10s")) == [-10]

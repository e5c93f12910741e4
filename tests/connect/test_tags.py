"""Values that come variable by variable are put on one grid, whatever their order."""

import json
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from cometad.connect.tags import TagTable
from naive_connect import NaiveTable

NAMES = ["flow", "level", "heat"]
START = 1_772_366_400.0
STEPS = st.one_of(st.floats(-3, 3), st.floats(0, 0.6), st.sampled_from([0.0, 1.0, 12.0, 5000.0]))
MOVES = st.tuples(st.sampled_from([*NAMES, *NAMES, "until"]), STEPS, st.one_of(st.floats(-5, 5), st.just(math.nan)))


def same(rows):
    """Rows that can be compared: NaN equals NaN."""
    return repr(rows)


@settings(max_examples=60)
@given(
    st.lists(MOVES, min_size=1, max_size=40),
    st.sampled_from([1.0, 0.1, 0.25, 60.0]),
    st.sampled_from([1, 3, 10, None]),
)
def test_rows_are_those_of_a_loop_over_everything_that_came(moves, period, hold):
    table, naive = TagTable(NAMES, period, hold), NaiveTable(NAMES, period, hold)
    now = START
    for i, (name, step, value) in enumerate(moves):
        now += step * period
        if name == "until":
            given_now, expected = table.until(now), naive.until(now)
        else:
            given_now, expected = table.add(name, now, value), naive.add(name, now, value)
        assert same(given_now) == same(expected)
        if i == len(moves) // 2:  # a restart changes nothing
            saved = json.loads(json.dumps(table.state()))
            table = TagTable(NAMES, period, hold)
            assert table.continues(saved)
            table.restore(saved)


def test_the_grid_does_not_drift_in_a_million_periods():
    table = TagTable(["flow"], period=0.1)
    table.add("flow", START, 1.0)
    table.add("flow", START + 100_000, 2.0)
    ((at, row),) = table.until(START + 100_000)
    assert (at, row) == (START + 100_000, [2.0])


def test_a_silence_of_a_billion_periods_is_skipped():
    table = TagTable(NAMES, period=0.001)
    for name in NAMES:
        table.add(name, START, 1.0)
    rows = table.add("flow", START + 1e6, 2.0)
    assert len(rows) == 10  # as long as the values hold


def test_a_late_value_never_reopens_a_row():
    table = TagTable(["flow", "level"], period=1.0)
    for second in range(1, 4):
        table.add("flow", START + second, second)
        rows = table.add("level", START + second, second)
    assert [at for at, _ in rows] == [START + 2]
    assert table.add("flow", START + 1.5, 9.0) == []
    assert table.late == 1
    assert table.until(START + 3) == [(START + 3, [3, 3])]


def test_memory_does_not_grow_with_the_values_of_one_period():
    table = TagTable(NAMES, period=1.0)
    for i in range(5000):
        table.add("flow", START + i / 100_000, float(i))
    assert len(json.dumps(table.state())) < 500


def test_values_from_before_the_beginning_are_forgotten():
    table = TagTable(["flow"], period=1.0, hold=None)
    table.add("flow", START, 1.0)
    table.begin(START + 50)
    assert table.until(START + 49) == []
    table.add("flow", START - 7, 2.0)  # old, but all there is
    assert table.until(START + 51) == [(START + 50, [2.0]), (START + 51, [2.0])]


def test_the_state_of_another_table_is_not_taken():
    found = TagTable(["flow"], period=1.0).state()
    assert not TagTable(["flow"], period=2.0).continues(found)
    assert not TagTable(["level"], period=1.0).continues(found)

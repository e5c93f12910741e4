"""Gaps are filled by the rule that was chosen, are always marked, and never raise an alert by themselves."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from cometad.data.gaps import GAPS, ForwardFill, GapRun, Interpolate, RefuseGaps, ScoreMeasured, fill, parse_gaps
from cometad.errors import InputError, ParameterError
from contract import is_a_sentence

CENTER = np.array([10.0, -20.0])
RULES = [ForwardFill(1), ForwardFill(3), Interpolate(1), Interpolate(3), ScoreMeasured()]
CELL = st.one_of(st.just(math.nan), st.just(math.nan), st.floats(-1e300, 1e300))
SERIES = st.lists(st.tuples(CELL, CELL), min_size=1, max_size=24).map(lambda rows: np.array(rows, np.float64))


def by_hand(rule, column, center):
    if isinstance(rule, Interpolate):
        return naive.interpolated(column, rule.limit, center)
    return naive.forward_filled(column, rule.limit if isinstance(rule, ForwardFill) else 0, center)


# -- the rules ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES, ids=repr)
@given(values=SERIES)
def test_a_filled_series_is_that_of_the_loops(rule, values):
    filled = fill(values, rule, CENTER)
    for variable in range(2):
        expected = by_hand(rule, values[:, variable].tolist(), CENTER[variable])
        found = [part[:, variable].tolist() for part in filled]
        assert list(zip(*found, strict=True)) == expected


@pytest.mark.parametrize("rule", RULES, ids=repr)
@given(values=SERIES, data=st.data())
def test_chunks_and_snapshots_change_nothing(rule, values, data):
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=5))), len(values)]
    run, parts = GapRun(rule, CENTER), []
    for start, stop in itertools.pairwise(cuts):
        parts.append(run.push(values[start:stop]))
        assert run.waiting <= getattr(rule, "limit", 0)
        state, run = run.state(), GapRun(rule, CENTER)
        run.restore(state)
    parts.append(run.finish())
    for found, expected in zip(zip(*parts, strict=True), fill(values, rule, CENTER), strict=True):
        assert np.concatenate(found).tobytes() == expected.tobytes()


@given(values=SERIES)
def test_measured_cells_stay_as_they_are_and_no_other_is_given_as_measured(values):
    for rule in RULES:
        filled = fill(values, rule, CENTER)
        assert np.array_equal(filled.imputed, np.isnan(values))
        assert np.array_equal(filled.values[~filled.imputed], values[~np.isnan(values)])
        assert np.isfinite(filled.values).all()
        assert not (filled.doubtful & ~filled.imputed).any()


def test_a_gap_longer_than_the_limit_is_filled_but_doubtful():
    column = np.array([[1.0], [np.nan], [np.nan], [np.nan], [5.0]])
    for rule, doubtful in ((ForwardFill(2), [0, 0, 0, 1, 0]), (Interpolate(2), [0, 1, 1, 1, 0])):
        filled = fill(column, rule, np.zeros(1))
        assert filled.values[:, 0].tolist() == [1.0, 1.0, 1.0, 1.0, 5.0]
        assert filled.doubtful[:, 0].tolist() == doubtful


def test_interpolation_gives_a_reading_as_soon_as_its_gap_has_ended_or_is_too_long():
    run = GapRun(Interpolate(2), np.zeros(1))
    given = [len(run.push(np.array([[value]])).values) for value in (1.0, np.nan, np.nan, 4.0, np.nan, np.nan, np.nan)]
    assert given == [1, 0, 0, 3, 0, 0, 3]
    assert len(run.push(np.array([[np.nan]])).values) == 1  # the gap is known to be too long


def test_a_run_forgets_all_but_the_readings_that_wait():
    run = GapRun(Interpolate(4), np.zeros(3))
    chance = np.random.default_rng(0)
    sizes = set()
    for _ in range(50):
        values = chance.normal(size=(100, 3))
        values[chance.random(values.shape) < 0.3] = np.nan
        run.push(values)
        sizes.add(sum(array.nbytes for array in run.state().values()))
    assert max(sizes) <= (4 + 2) * 3 * 8


# -- what is refused ------------------------------------------------------------------------------------------------


def test_refusing_gaps_lets_whole_readings_pass():
    values = np.ones((3, 2))
    assert fill(values, RefuseGaps(), CENTER).values is values
    with pytest.raises(InputError, match="ForwardFill"):
        fill(np.full((1, 2), np.nan), RefuseGaps(), CENTER)


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, None, "3"])
@pytest.mark.parametrize("rule", [ForwardFill, Interpolate])
def test_a_limit_that_makes_no_sense_is_refused(rule, limit):
    with pytest.raises(ParameterError, match="'limit' parameter must be an integer from 1 up") as caught:
        rule(limit)
    assert is_a_sentence(str(caught.value))


def test_every_rule_has_a_name_on_the_command_line():
    assert [parse_gaps(name) for name in GAPS] == [RefuseGaps(), ForwardFill(), Interpolate(), ScoreMeasured()]
    assert parse_gaps("interpolate:7") == Interpolate(7)


@pytest.mark.parametrize("text", ["", "fill", "forward-fill:", "forward-fill:0", "interpolate:-1", "score-measured:2"])
def test_a_name_that_is_no_rule_is_refused(text):
    with pytest.raises(ParameterError, match="there are refuse, forward-fill") as caught:
        parse_gaps(text)
    assert is_a_sentence(str(caught.value))

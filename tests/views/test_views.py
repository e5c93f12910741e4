"""Every view, and a user's own, keeps the contract in views/view.py."""

from functools import cache, partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometad.compute import thread_count_of
from cometad.errors import InputError
from cometad.views import VIEWS, NetworkView
from cometad.views.panel import Panel
from contract import is_a_sentence, waves
from own_views import Level
from tiny import NETWORK_VIEW

KINDS = {**VIEWS, "network": partial(NetworkView, **NETWORK_VIEW), "own": Level}
ROWS = 300
every_view = pytest.mark.parametrize("name", KINDS)
few = settings(max_examples=8)

# The laws that a view cannot keep by its nature, and why: every other law holds for every view.
EXEMPT = {
    "permuting variables": {
        "network": "its initial weights are drawn by position, so variables in another order get others"
    },
    "a constant among others": {
        "network": "its embeddings mix all variables, so that of a constant moves with the others"
    },
}


def every_view_that_can(law):
    """All views, those exempt from a law with a mark that says why."""
    why = EXEMPT[law]
    skips = {name: [pytest.mark.skip(reason=f"{name}: {reason}")] for name, reason in why.items()}
    return pytest.mark.parametrize("name", [pytest.param(name, marks=skips.get(name, [])) for name in KINDS])


def rows_of(width=3, rows=ROWS, seed=0):
    return waves(rows, width, seed)


def fit(name, rows, usable=None, seed=7):
    usable = np.ones(len(rows), bool) if usable is None else usable
    return KINDS[name]().fit(rows, usable, np.random.default_rng(seed))


@cache
def fitted(name):
    return fit(name, rows_of())


def state_of(view):
    return {name: array.tobytes() for name, array in view.state().items()}


def fresh(rows=ROWS):
    return 1.3 * rows_of(rows=rows, seed=5)


# -- shapes and values ----------------------------------------------------------------------------------------------


@every_view
def test_errors_are_unknown_exactly_where_there_are_too_few_readings_before(name):
    view, rows = fitted(name), fresh()
    for first in (0, 1, view.context, view.context + 9, ROWS):
        errors = view.errors(rows, first)
        known = np.arange(first, ROWS) >= view.context
        assert errors.shape == (ROWS - first, 3)
        assert errors.dtype == np.float64
        assert np.array_equal(np.isfinite(errors), np.repeat(known[:, None], 3, axis=1))
        assert np.array_equal(np.isnan(errors), ~np.isfinite(errors))
        assert (errors[known] >= 0).all()


@every_view
def test_a_view_expects_readings_where_it_has_errors_or_nowhere(name):
    view, rows = fitted(name), fresh()
    expected = view.expected(rows, 0)
    assert expected.shape == rows.shape
    known = np.isfinite(expected)
    assert not known.any() or np.array_equal(known, np.isfinite(view.errors(rows, 0)))


@every_view
def test_series_shorter_than_the_context_have_no_errors_and_do_no_harm(name):
    view = fitted(name)
    for rows in range(view.context + 2):
        errors = view.errors(fresh()[:rows], 0)
        assert errors.shape == (rows, 3)
        assert np.isfinite(errors[view.context :]).all()


@every_view
def test_what_a_view_says_about_itself(name):
    view = KINDS[name]()
    assert isinstance(view.reason, str)
    assert view.reason
    assert view.min_rows >= 1
    assert 1 <= fitted(name).span <= fitted(name).context + 1


@every_view
def test_the_fewest_readings_a_view_asks_for_are_enough(name):
    rows = rows_of()[: KINDS[name]().min_rows]
    view = fit(name, rows)
    assert np.isfinite(view.errors(fresh(), view.context)).all()


@pytest.mark.parametrize("name", VIEWS)
def test_too_few_usable_readings_in_a_row_are_refused_with_advice(name):
    usable = np.arange(ROWS) % 7 > 0
    with pytest.raises(InputError, match="in a row") as caught:
        fit(name, rows_of(), usable)
    assert is_a_sentence(str(caught.value))


@every_view
@pytest.mark.parametrize("value", [0.0, 3.0])
def test_constant_variables_give_finite_errors(name, value):
    for still in ([1], [0, 1, 2]):
        rows = rows_of()
        rows[:, still] = value
        view = fit(name, rows)
        for series in (rows, fresh(), 50 * np.sign(fresh())):
            assert np.isfinite(view.errors(series, view.context)).all()


@every_view
@pytest.mark.parametrize("value", [0.0, 3.0])
def test_a_constant_series_is_as_expected(name, value):
    rows = np.full((ROWS, 3), value)
    view = fit(name, rows)
    assert view.errors(rows, view.context).max() < 0.1


@every_view_that_can("a constant among others")
@pytest.mark.parametrize("value", [0.0, 3.0])
def test_a_constant_among_others_is_as_expected(name, value):
    rows = rows_of()
    rows[:, 1] = value
    view = fit(name, rows)
    assert view.errors(rows, view.context)[:, 1].max() < 0.1


@every_view
def test_one_variable_is_enough(name):
    view = fit(name, rows_of(1))
    errors = view.errors(fresh()[:, :1].copy(), view.context)
    assert errors.shape == (ROWS - view.context, 1)
    assert np.isfinite(errors).all()


@every_view
def test_there_may_be_more_variables_than_readings(name):
    rows = np.random.default_rng(0).normal(size=(500, 600))
    view = fit(name, rows)
    assert np.isfinite(view.errors(rows[:100], view.context)).all()


# -- stream = batch -------------------------------------------------------------------------------------------------


@every_view
@few
@given(cuts=st.lists(st.integers(1, ROWS - 1), max_size=8).map(sorted))
def test_chunks_of_any_size_give_the_same_bits_as_one_batch(name, cuts):
    view, rows = fitted(name), fresh()
    for method in (view.errors, view.expected):
        parts = []
        for start, stop in zip([0, *cuts], [*cuts, ROWS], strict=True):
            begin = max(start - view.context, 0)
            parts.append(method(rows[begin:stop], start - begin))
        assert np.concatenate(parts).tobytes() == method(rows, 0).tobytes()


@every_view
def test_row_by_row_gives_the_same_bits_as_one_batch(name):
    view, rows = fitted(name), fresh(100)
    begins = np.maximum(np.arange(100) - view.context, 0)
    parts = [view.errors(rows[begin : t + 1], t - begin) for t, begin in enumerate(begins)]
    assert np.concatenate(parts).tobytes() == view.errors(rows, 0).tobytes()


@every_view
@pytest.mark.parametrize("width", [1, 8, 70])
def test_the_bits_do_not_depend_on_the_number_of_variables(name, width):
    """Kernels that work in blocks of variables and time steps add in the same order at every edge of a block."""
    rows = rows_of(width, 150)
    view = fit(name, rows)
    whole = view.errors(rows, 0)
    for start, stop in ((0, 33), (33, 34), (34, 41), (41, 150)):
        begin = max(start - view.context, 0)
        assert view.errors(rows[begin:stop], start - begin).tobytes() == whole[start:stop].tobytes()


def panel_of(views):
    tails = np.ones((len(views), 3, 3))
    return Panel(tuple(views), tails, tails, 4, (4,))


@every_view
def test_threads_do_not_change_the_bits(name):
    own, rows = fit("own", rows_of()), fresh(600)
    panel = panel_of([fitted(name), own])
    with thread_count_of(1):
        alone, state = panel.errors(rows, 10), state_of(fit(name, rows_of()))
    asked = own.asked
    with thread_count_of(3):
        assert panel.errors(rows, 10).tobytes() == alone.tobytes()
        assert state_of(fit(name, rows_of())) == state
    assert own.asked == asked + 3


@every_view
def test_shifting_time_shifts_errors(name):
    view, rows = fitted(name), fresh()
    whole = view.errors(rows, 0)
    for shift in (1, 13, 64):
        later = view.errors(rows[shift:].copy(), 0)
        assert later[view.context :].tobytes() == whole[shift + view.context :].tobytes()


@every_view
def test_an_error_depends_on_its_context_only(name):
    view, rows = fitted(name), fresh()
    changed = rows.copy()
    changed[: 150 - view.context] = 40.0
    changed[151:] = -40.0
    assert view.errors(changed, 0)[150].tobytes() == view.errors(rows, 0)[150].tobytes()


# -- learning -------------------------------------------------------------------------------------------------------


@every_view_that_can("permuting variables")
@pytest.mark.parametrize("width", [5, 150])
def test_permuting_variables_permutes_errors(name, width):
    rows, order = rows_of(width), np.random.default_rng(3).permutation(width)
    other = 1.3 * rows_of(width, seed=5)
    errors = fit(name, rows).errors(other, 0)
    permuted = fit(name, rows[:, order].copy()).errors(other[:, order].copy(), 0)
    np.testing.assert_allclose(permuted, errors[:, order], rtol=1e-9, atol=1e-9)


@every_view
def test_the_same_seed_gives_the_same_bytes(name):
    assert state_of(fit(name, rows_of())) == state_of(fitted(name))


@every_view
def test_fit_leaves_its_input_alone(name):
    rows, usable = rows_of(), np.arange(ROWS) > 40
    before = rows.copy(), usable.copy()
    fit(name, rows, usable)
    assert np.array_equal(rows, before[0])
    assert np.array_equal(usable, before[1])


@every_view
def test_scoring_changes_neither_view_nor_input(name):
    view, rows = fitted(name), fresh()
    before, first = state_of(view), view.errors(rows, 0)
    view.expected(rows, 0)
    assert np.array_equal(rows, fresh())
    assert state_of(view) == before
    assert view.errors(rows, 0).tobytes() == first.tobytes()


@every_view
def test_a_restored_view_has_the_same_bits(name):
    view, rows = fitted(name), fresh()
    again = KINDS[name]().restore({key: array.copy() for key, array in view.state().items()})
    assert state_of(again) == state_of(view)
    assert (again.context, again.span) == (view.context, view.span)
    assert again.errors(rows, 0).tobytes() == view.errors(rows, 0).tobytes()
    assert again.expected(rows, 0).tobytes() == view.expected(rows, 0).tobytes()


@every_view
def test_readings_that_are_not_usable_have_no_influence(name):
    usable = np.ones(ROWS, bool)
    usable[[0, 99, 299]] = usable[150:180] = False
    wild = rows_of()
    wild[~usable] = 50 * np.random.default_rng(0).choice([-1.0, 1.0], size=(33, 3))
    assert state_of(fit(name, wild, usable)) == state_of(fit(name, rows_of(), usable))


@every_view
def test_normal_readings_err_less_than_wild_ones(name):
    view, rows = fitted(name), rows_of(seed=9)
    wild = 3 * np.random.default_rng(0).normal(size=rows.shape)
    assert np.nanmean(view.errors(wild, 0)) > 2 * np.nanmean(view.errors(rows, 0))

"""Several views together: windows that cover a step, gaps, cross-fitting, and runs in constant memory."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive_views as naive
from cometad import Comet, Quantile
from cometad.compute import thread_count_of
from cometad.data import ForwardFill
from cometad.scoring.scores import smooth
from cometad.views import Activity, Balance, Forecast, Joint, Patterns
from cometad.views.adaptation import FollowLevel, KeepFitted
from cometad.views.balance import FittedBalance
from cometad.views.crossfit import FOLDS, cross_fit, fit_tails, fit_views, score_folds, stretch_errors
from cometad.views.panel import BLOCK, CLIP, SHARED, Panel, Tape, ViewsRun, clipped, score_series
from contract import waves

VIEWS = (Patterns(6, 5), Joint(4, 5), Forecast(3), Balance(2), Activity(5))
ROWS = waves(240)


@pytest.fixture(scope="module")
def panel():
    usable = np.ones(len(ROWS), bool)
    found = cross_fit(VIEWS, ROWS, usable, None, seed=1)
    return Panel(fit_views(VIEWS, ROWS, usable, 1), found.alert, found.ranking, 3, (2, 5))


def fresh(rows, seed=3):
    return (1.5 * waves(rows, seed=seed)).astype(np.float32)


def scored(panel, rows, imputed=None, cuts=(), adaptation=KeepFitted()):
    """Alert scores, ranking scores and what is left out, of rows that come in chunks."""
    run = ViewsRun(panel, adaptation)
    masks = [None] * (len(cuts) + 1) if imputed is None else np.split(imputed, cuts)
    parts = [
        part
        for chunk, mask in zip(np.split(rows, cuts), masks, strict=True)
        for part in run.push(chunk, mask if mask is not None and mask.any() else None)
    ]
    parts += run.finish()
    left_out = [np.zeros(part.variables.shape, bool) if part.left_out is None else part.left_out for part in parts]
    return (
        np.concatenate([part.alerts for part in parts]),
        np.concatenate([part.ranking for part in parts]),
        np.concatenate(left_out),
    )


# -- the formulas together ------------------------------------------------------------------------------------------


@given(st.integers(0, 999), st.sampled_from([0.0, 0.3, 0.9]))
def test_covering_means_are_over_the_windows_that_cover_a_step(seed, unknown):
    rng = np.random.default_rng(seed)
    usable = np.ones(len(ROWS), bool)
    views = fit_views(VIEWS, ROWS, usable, 1)
    none = np.zeros((len(views), 3, 3))
    errors = rng.exponential(size=(20, len(views), 3))
    errors[rng.random(errors.shape) < unknown] = np.nan
    means = Panel(views, none, none, 1, ()).covering(errors, 0, 20)
    for v, view in enumerate(views):
        for i in range(3):
            expected = naive.covering(errors[:, v, i].tolist(), view.span)
            np.testing.assert_allclose(means[:, v, i], expected, rtol=1e-12)


def test_a_run_calibrates_fuses_covers_and_smooths(panel):
    rows = fresh(60)
    errors = np.stack([view.errors(clipped(rows), 0) for view in panel.views], axis=1)
    alerts, ranking, _ = scored(panel, rows)
    means = np.empty(errors.shape)
    for v, view in enumerate(panel.views):
        for i in range(3):
            means[:, v, i] = naive.covering(errors[:, v, i].tolist(), view.span)
    weights = naive.weights([isinstance(view, FittedBalance) for view in panel.views])
    expected = [naive.fused(row.tolist(), panel.alert.tolist(), weights, 3)[0] for row in errors]
    ranks = [naive.fused(row.tolist(), panel.ranking.tolist(), weights, 3)[0] for row in means]
    np.testing.assert_allclose(alerts, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ranking, naive.smoothed(ranks, (2, 5)), rtol=1e-9, atol=1e-12)


@given(st.lists(st.sampled_from([Patterns(2, 2), Forecast(1), Balance(1)]), min_size=1, max_size=6))
@settings(max_examples=10)
def test_views_that_judge_relations_count_as_much_as_all_the_others(views):
    fitted = fit_views(views, ROWS[:30], np.ones(30, bool), 1)
    none = np.zeros((len(views), 3, 3))
    own = Panel(fitted, none, none, 1, ()).weights
    related = [isinstance(view, Balance) for view in views]
    np.testing.assert_allclose(own, naive.weights(related))
    assert math.isclose(own.sum(), 1)
    if 0 < sum(related) < len(views):
        assert math.isclose(own[related].sum(), 0.5)


def test_wild_readings_are_clipped():
    assert clipped(np.array([[1e6, -1e6, 3.0]], np.float32)).tolist() == [[CLIP, -CLIP, 3.0]]


# -- chunks ---------------------------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(st.integers(1, 120), st.data())
def test_chunks_of_any_size_with_gaps_give_the_same_bits(panel, rows, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, rows), max_size=6)))
    seed, share = data.draw(st.integers(0, 99)), data.draw(st.sampled_from([0.0, 0.02, 0.3]))
    imputed = np.random.default_rng(seed).random((rows, 3)) < share
    whole = scored(panel, fresh(rows), imputed)
    chunked = scored(panel, fresh(rows), imputed, cuts)
    for one, other in zip(whole, chunked, strict=True):
        assert one.tobytes() == other.tobytes()
    assert whole[0].shape == whole[1].shape == (rows,)


def test_row_by_row_a_gap_is_remembered_for_as_long_as_a_window_contains_it(panel):
    imputed = np.zeros((60, 3), bool)
    imputed[[20, 41], 1] = True
    whole, rows = scored(panel, fresh(60), imputed), scored(panel, fresh(60), imputed, list(range(1, 60)))
    for one, other in zip(whole, rows, strict=True):
        assert one.tobytes() == other.tobytes()


def test_a_series_longer_than_a_block_gives_the_same_bits(panel):
    rows = fresh(2 * BLOCK + 100)
    whole, chunked = scored(panel, rows), scored(panel, rows, cuts=(BLOCK + 7, BLOCK + 8))
    assert whole[0].tobytes() == chunked[0].tobytes()
    assert whole[1].tobytes() == chunked[1].tobytes()


def test_too_few_readings_before_a_step_are_no_gap(panel):
    imputed = np.zeros((60, 3), bool)
    imputed[30:40] = True
    left_out = scored(panel, fresh(60), imputed)[2]
    assert np.array_equal(left_out.all(axis=1), imputed.all(axis=1))  # a forecast is about one reading
    imputed[0] = True
    assert scored(panel, fresh(60), imputed)[2][0].all()


@pytest.mark.parametrize("width, lost", [(20, 2), (20, 3)])
def test_views_that_mix_variables_judge_the_others_unless_many_are_missing(width, lost):
    rows = np.random.default_rng(0).normal(size=(300, width))
    view = Forecast().fit(rows, np.ones(300, bool), np.random.default_rng(0))
    tails = fit_tails(view.errors(rows, 0)[:, None])
    imputed = np.zeros(rows.shape, bool)
    imputed[100:200, :lost] = True
    errors = Panel((view,), tails, tails, 4, ()).errors(rows, 50, imputed)[:, 0]
    assert np.isnan(errors[50:150, :lost]).all()
    assert np.isnan(errors[50:150, lost:]).all() == (lost > 0.1 * width)
    assert not np.isnan(errors[150:]).any()


def test_a_column_that_vanishes_raises_no_alarm():
    """Of three variables that belong together, one goes missing."""
    rng = np.random.default_rng(0)
    wave = np.sin(np.arange(6000) / 9)[:, None]
    rows = wave * [1.0, -2.0, 0.5] + 0.05 * rng.normal(size=(6000, 3))
    detector = Comet(gaps=ForwardFill(limit=5), threshold=Quantile(0.01)).fit(rows[:3000])
    fresh = rows[3000:].copy()
    fresh[1000:, 1] = np.nan
    assert detector.predict(fresh)[1000:].mean() < 0.02


def test_an_imputed_reading_has_no_score_in_any_window_that_contains_it(panel):
    imputed = np.zeros((60, 3), bool)
    imputed[30, 1] = True
    errors = panel.errors(clipped(fresh(60)), 0, imputed)
    plain = panel.errors(clipped(fresh(60)), 0)
    for v, view in enumerate(panel.views):
        unknown = np.isnan(errors[:, v]) & ~np.isnan(plain[:, v])
        assert np.flatnonzero(unknown.any(axis=1)).tolist() == list(range(30, 30 + view.span))
        assert unknown[:, [0, 2]].any() == view.mixes_variables  # a third of the variables is missing
        kept = ~unknown
        assert np.array_equal(errors[:, v][kept], plain[:, v][kept], equal_nan=True)


def test_the_state_of_a_run_does_not_grow(panel):
    run, sizes = ViewsRun(panel, KeepFitted()), []
    for k in range(30):
        list(run.push(fresh(50, seed=k)))
        sizes.append(sum(array.nbytes for array in run.state().values()))
    assert len(set(sizes[2:])) == 1


@given(st.integers(0, 7), st.lists(st.integers(0, 200), max_size=12))
def test_a_tape_keeps_the_last_rows(keep, counts):
    tape, seen = Tape(keep, (1,)), np.empty((0, 1))
    for count in counts:
        new = len(seen) + np.arange(float(count))[:, None]
        kept = seen[max(len(seen) - keep, 0) :]
        assert tape.append(new).tolist() == [*kept.tolist(), *new.tolist()]
        seen = np.concatenate([seen, new])
    assert tape.kept.tolist() == seen[max(len(seen) - keep, 0) :].tolist()


# -- a whole series at once -----------------------------------------------------------------------------------------

LONG = fresh(4_301)
GAPS = np.random.default_rng(0).random(LONG.shape) < 0.01
for cut in (0, 700, 1_433, 2_867, 4_290):  # also where three threads meet
    GAPS[max(cut - 6, 0) : cut + 5] = True
MASKS = {"measured": None, "no gap": np.zeros(LONG.shape, bool), "gaps": GAPS}
with_and_without_gaps = pytest.mark.parametrize("imputed", MASKS.values(), ids=MASKS)


def bits(scores):
    return [None if array is None else array.tobytes() for array in scores]


@with_and_without_gaps
def test_threads_give_the_bits_of_one_thread(panel, imputed):
    assert len(LONG) >= SHARED
    with thread_count_of(1):
        alone = score_series(panel, KeepFitted(), LONG, imputed)
    with thread_count_of(3):
        shared = score_series(panel, KeepFitted(), LONG, imputed)
    assert bits(alone) == bits(shared)


@pytest.mark.parametrize(
    "adaptation", [KeepFitted(), FollowLevel(half_life=256, every=128)], ids=["fitted", "following"]
)
@with_and_without_gaps
def test_a_series_is_scored_as_by_one_run_in_chunks(panel, imputed, adaptation):
    cuts = [1, 2, 9, 700, 1_433, 1_434, 2_900, 4_097, 4_300]
    alerts, ranking, left_out = scored(panel, LONG, imputed, cuts, adaptation)
    with thread_count_of(3):
        found = score_series(panel, adaptation, LONG, imputed)
    assert bits(found) == bits((ranking, alerts, None if imputed is None else left_out.all(axis=1)))
    assert left_out.any() == (imputed is not None and imputed.any())


# -- cross-fitting --------------------------------------------------------------------------------------------------


def test_a_block_is_scored_by_views_that_never_saw_it():
    """Changing the readings of a block changes every fold but its own."""
    usable = np.ones(len(ROWS), bool)
    changed = ROWS.copy()
    changed[60:120] *= 2.0
    plain, other = (cross_fit(VIEWS, rows, usable, None, seed=1).folds for rows in (ROWS, changed))
    same = [
        all(np.array_equal(a.state()[name], b.state()[name]) for name in a.state())
        for one, two in zip(plain, other, strict=True)
        for a, b in [(one.views[2], two.views[2])]  # the forecast
    ]
    assert same == [False, True, False, False]
    assert [(fold.start, fold.stop) for fold in plain] == [(0, 60), (60, 120), (120, 180), (180, 240)]


def test_readings_that_are_not_usable_change_no_tail():
    """Nor do the readings after them, whose windows contain them."""
    usable = np.ones(len(ROWS), bool)
    usable[100:110] = False
    wild = ROWS.copy()
    wild[100:110] = 40.0
    plain, other = (cross_fit(VIEWS, rows, usable, None, seed=1) for rows in (ROWS, wild))
    assert np.array_equal(plain.alert, other.alert)
    assert np.array_equal(plain.ranking, other.ranking)


def test_training_scores_are_those_of_each_fold():
    usable = np.ones(len(ROWS), bool)
    found = cross_fit(VIEWS, ROWS, usable, None, seed=1)
    scores = score_folds(found, 3)
    assert len(found.folds) == FOLDS
    for fold in found.folds:
        alerts = scored(Panel(fold.views, fold.alert, found.ranking, 3, ()), ROWS)[0]
        assert scores[fold.start : fold.stop].tobytes() == alerts[fold.start : fold.stop].tobytes()


def test_the_tails_of_a_fold_are_fitted_on_the_errors_of_the_others():
    usable = np.ones(len(ROWS), bool)
    found = cross_fit(VIEWS, ROWS, usable, None, seed=1)
    errors = [stretch_errors(one.views, ROWS, usable, None, one.start, one.stop)[0] for one in found.folds]
    for k, fold in enumerate(found.folds):
        others = np.concatenate([own for j, own in enumerate(errors) if j != k])
        assert np.array_equal(fold.alert, fit_tails(others))
        assert not np.array_equal(fold.alert, found.alert)


def test_tails_are_fitted_on_the_errors_of_each_fold():
    usable = np.ones(len(ROWS), bool)
    found = cross_fit(VIEWS, ROWS, usable, None, seed=1)
    errors = np.concatenate(
        [
            np.stack([view.errors(ROWS, 0) for view in fold.views], axis=1)[fold.start : fold.stop]
            for fold in found.folds
        ]
    )
    assert np.array_equal(found.alert, fit_tails(errors))


def test_new_readings_score_like_cross_fitted_training_readings():
    """The reason for cross-fitting: a view flatters the readings it was fitted on."""
    rng = np.random.default_rng(0)
    rows, new = rng.normal(size=(2, 600, 8))
    found = cross_fit((Joint(), Forecast()), rows, np.ones(600, bool), None, seed=1)
    views = fit_views((Joint(), Forecast()), rows, np.ones(600, bool), 1)
    own, fresh_scores = (
        scored(Panel(views, found.alert, found.ranking, 4, ()), part.astype(np.float32))[0] for part in (rows, new)
    )
    crossed = score_folds(found, 4)
    assert abs(crossed.mean() - fresh_scores.mean()) < 0.3 * (fresh_scores.mean() - own.mean())


def test_without_smoothing_ranking_scores_are_not_delayed_by_it(panel):
    plain = Panel(panel.views, panel.alert, panel.ranking, 3, ())
    ranking = scored(plain, fresh(60))[1]
    np.testing.assert_allclose(scored(panel, fresh(60))[1], smooth(ranking, (2, 5)), rtol=1e-12)
    assert plain.delay == plain.span - 1

"""Following levels: the formula, what is learned from and what is not, bounds, chunks, snapshots."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive_views as naive
from cometad import Comet
from cometad.errors import ModelFileError, ParameterError
from cometad.network import NoAdaptation
from cometad.views import Activity, Balance, Forecast, Joint, Patterns
from cometad.views.adaptation import SAMPLE, FollowLevel, KeepFitted
from cometad.views.crossfit import cross_fit, fit_views
from cometad.views.panel import Panel, ViewsRun, clipped
from contract import is_a_sentence, waves

VIEWS = (Patterns(6, 20), Joint(4, 20), Forecast(3), Balance(2), Activity(5))
NORMAL = waves(1600, seed=0)
QUICK = FollowLevel(half_life=40, every=20)


@pytest.fixture(scope="module")
def panel():
    usable = np.ones(len(NORMAL), bool)
    found = cross_fit(VIEWS, NORMAL, usable, None, seed=1)
    return Panel(fit_views(VIEWS, NORMAL, usable, 1), found.alert, found.ranking, 4, (4,))


@pytest.fixture(scope="module")
def detector():
    return Comet(views=VIEWS, adaptation=QUICK).fit(NORMAL)


def rows_of(count, seed=5):
    return waves(count, seed=seed).astype(np.float32)


def rising(count, to=0.8, seed=5):
    """Readings whose first variable drifts."""
    rows = rows_of(count, seed)
    rows[:, 0] += np.linspace(0, to, count)
    return rows


def followed(panel, rows, adaptation=QUICK, imputed=None, cuts=()):
    """A run to its end, with alert and ranking scores."""
    run = ViewsRun(panel, adaptation)
    masks = [None] * (len(cuts) + 1) if imputed is None else np.split(imputed, cuts)
    parts = [part for chunk, mask in zip(np.split(rows, cuts), masks, strict=True) for part in run.push(chunk, mask)]
    parts += run.finish()
    return run, *(np.concatenate([getattr(part, name) for part in parts]) for name in ("alerts", "ranking"))


def offset(run):
    return run.state()["level.offset"]


# -- the formula ----------------------------------------------------------------------------------------------------


@given(st.integers(0, 99), st.sampled_from([0.5, 2.0, 4.0]), st.sampled_from([0.001, 1.0]))
@settings(max_examples=20)
def test_one_step_moves_toward_the_mean_distance_from_what_is_expected(panel, seed, limit, max_drift):
    every = 40
    rows = (rows_of(every, seed) + np.float32(0.3)).astype(np.float32)
    adaptation = FollowLevel(half_life=40, limit=limit, max_drift=max_drift, every=every)
    run, *_ = followed(panel, rows, adaptation)
    seen = clipped(rows)
    errors = panel.errors(seen, 0)
    scores = panel.fused(errors).variables
    scores[np.isnan(errors).any(axis=1)] = np.nan
    expected = [view.expected(seen, 0) for view in panel.views]
    proposed = [
        naive.level_step(0.0, seen[:, i], [view[:, i] for view in expected], scores[:, i], 40, limit, max_drift, every)
        for i in range(panel.width)
    ]
    after = panel.fused(panel.errors(seen - np.array(proposed), 0)).variables
    accepted = scores <= limit
    helps = sum(after[accepted]) < sum(scores[accepted])
    np.testing.assert_allclose(offset(run), proposed if helps else np.zeros(panel.width), rtol=1e-9, atol=1e-12)
    assert run.adaptation_steps == (1, int(not helps))


def test_scores_are_those_of_readings_without_the_offset(panel):
    """The views are equivariant: an offset moves codes, means and forecasts alike."""
    rows = rising(400)
    run, scores, _ = followed(panel, rows[:60])
    moved = offset(run)
    assert moved.any()
    _, both, _ = followed(panel, rows[:80])
    fixed = panel.fused(panel.errors(clipped(rows[:80]) - moved, 60)).alerts
    np.testing.assert_allclose(both[60:], fixed, rtol=1e-9, atol=1e-12)
    assert both[:60].tobytes() == scores.tobytes()


def test_a_reading_never_influences_its_own_score(panel):
    _, adapting, _ = followed(panel, rising(200))
    _, fixed, _ = followed(panel, rising(200), KeepFitted())
    assert adapting[: QUICK.every].tobytes() == fixed[: QUICK.every].tobytes()
    assert adapting[QUICK.every :].tobytes() != fixed[QUICK.every :].tobytes()


# -- what it is for -------------------------------------------------------------------------------------------------


def test_a_slow_drift_is_followed(panel):
    rows = rising(4000)
    run, adapting, _ = followed(panel, rows)
    _, fixed, _ = followed(panel, rows, KeepFitted())
    assert 0.4 < offset(run)[0] <= 1.0
    assert np.abs(offset(run)[1:]).max() < 0.2
    assert adapting[-1000:].mean() < 0.7 * fixed[-1000:].mean()


def test_without_drift_levels_stay_where_they_are(panel):
    run, adapting, _ = followed(panel, rows_of(4000))
    _, fixed, _ = followed(panel, rows_of(4000), KeepFitted())
    assert np.abs(offset(run)).max() < 0.15
    assert adapting.mean() < 1.02 * fixed.mean()


@pytest.mark.parametrize("size", [0.7, 1.5, 4.0, 30.0])
def test_a_fault_that_persists_is_not_learned_beyond_the_bound(panel, size):
    rows = rows_of(6000)
    rows[:, 1] += size
    adaptation = FollowLevel(half_life=40, max_drift=0.5, every=20)
    run = ViewsRun(panel, adaptation)
    for chunk in np.split(rows, 12):
        list(run.push(chunk))
        assert np.abs(offset(run)).max() <= 0.5


def test_a_clear_fault_is_not_learned_at_all(panel):
    rows = rows_of(2000)
    rows[:, 1] += 10.0
    run, *_ = followed(panel, rows)
    assert offset(run)[1] == 0.0


def test_a_step_that_harms_is_undone(panel):
    class Misleading:
        """Expects everything far below."""

        context, span = 0, 1

        def errors(self, rows, first):
            return np.abs(rows[first:])

        def expected(self, rows, first):
            return rows[first:] - 50.0

    tails = np.array([[[0.0] * 3, [3.0] * 3, [1.0] * 3]])
    run, scores, _ = followed(Panel((Misleading(),), tails, tails, 4, ()), rows_of(400))
    _, fixed, _ = followed(Panel((Misleading(),), tails, tails, 4, ()), rows_of(400), KeepFitted())
    assert run.adaptation_steps == (20, 20)
    assert not offset(run).any()
    assert scores.tobytes() == fixed.tobytes()


def test_imputed_readings_are_not_learned_from(panel):
    rows, imputed = rows_of(400), np.zeros((400, 3), bool)
    rows[:, 2] += 0.3
    imputed[:, 2] = True
    run, *_ = followed(panel, rows, imputed=imputed)
    assert offset(run)[2] == 0.0
    assert followed(panel, rows)[0].state()["level.offset"][2] != 0.0


def test_readings_whose_window_has_a_gap_are_not_learned_from(panel):
    """Fewer views judge them, so they look more normal than they are."""
    rows, imputed = rows_of(400), np.zeros((400, 3), bool)
    rows[:, [0, 2]] += 0.3
    imputed[:: panel.span, 2] = True
    run, *_ = followed(panel, rows, imputed=imputed)
    assert offset(run)[2] == 0.0
    assert offset(run)[0] != 0.0


def test_views_that_expect_no_reading_change_nothing(panel):
    activity = Panel(panel.views[4:], panel.alert[4:], panel.ranking[4:], 4, ())
    run, *_ = followed(activity, rising(400))
    assert not offset(run).any()


# -- chunks and state -----------------------------------------------------------------------------------------------


def test_a_later_step_does_not_change_a_saved_state(panel):
    run = ViewsRun(panel, QUICK)
    list(run.push(rising(60)))
    saved = run.state()
    kept = {name: array.copy() for name, array in saved.items()}
    list(run.push(rising(100)))
    assert all(np.array_equal(saved[name], kept[name], equal_nan=True) for name in saved)


def test_the_state_does_not_grow(panel):
    run, sizes = ViewsRun(panel, FollowLevel(every=2 * SAMPLE)), []
    for k in range(10):
        list(run.push(rows_of(300, seed=k)))
        sizes.append(sum(array.nbytes for array in run.state().values()))
    assert len(set(sizes[2:])) == 1


def test_a_run_that_keeps_the_fitted_state_remembers_nothing_more(panel):
    run = ViewsRun(panel, KeepFitted())
    list(run.push(rows_of(300)))
    assert not [name for name in run.state() if name.startswith("level.")]
    assert run.adaptation_steps == (0, 0)


# -- the detector ---------------------------------------------------------------------------------------------------


def test_a_stream_may_replace_the_adaptation(detector):
    rows = rising(500).astype(np.float64)
    plain = Comet(views=VIEWS, adaptation=KeepFitted()).fit(NORMAL)
    still, following = detector.stream(adaptation=KeepFitted()), detector.stream()
    fixed = np.concatenate([still.update_many(rows), still.finish()])
    assert fixed.tobytes() == plain.decision_function(rows).tobytes()
    following.update_many(rows)
    assert (still.adaptation_steps, following.adaptation_steps[0]) == ((0, 0), 500 // QUICK.every)
    with pytest.raises(ModelFileError, match="adaptation"):
        detector.stream(still.snapshot())


def test_threshold_and_calibration_do_not_depend_on_adaptation(detector):
    plain = Comet(views=VIEWS, adaptation=KeepFitted()).fit(NORMAL)
    assert plain.threshold_ == detector.threshold_
    assert plain.alert_scores_.tobytes() == detector.alert_scores_.tobytes()
    assert np.array_equal(plain.panel_.alert, detector.panel_.alert)


def test_scoring_leaves_the_detector_as_fitted(detector):
    rows = rising(500).astype(np.float64)
    assert detector.decision_function(rows).tobytes() == detector.decision_function(rows).tobytes()


@pytest.mark.parametrize("changes", [{"half_life": 0}, {"every": 0}, {"limit": 0.0}, {"max_drift": -1.0}])
def test_settings_are_checked(changes):
    with pytest.raises(ParameterError) as caught:
        FollowLevel(**changes)
    assert is_a_sentence(str(caught.value))


def test_an_adaptation_of_the_network_is_refused(detector):
    with pytest.raises(ParameterError, match="adaptation"):
        Comet(adaptation=NoAdaptation()).check_parameters()
    with pytest.raises(ParameterError, match="adaptation"):
        detector.stream(adaptation=NoAdaptation())

"""Trimming: the stretches of a training series that do not fit the rest."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive_views as naive
from cometad import Comet
from cometad.views import Activity, Forecast, Patterns
from cometad.views.crossfit import STRETCH, CrossFitted, Fold, cross_fit, fit_views
from cometad.views.trim import (
    Stretch,
    _misfit_scores,
    _misfits,
    _smoothed,
    _Suspect,
    _usual,
    _worst,
    find_misfits,
    merged,
    outliers,
    stretches,
    unusable,
)
from contract import waves

VIEWS = (Forecast(), Patterns(length=8))
NAMES = ["flow", "level", "heat", "speed"]
close = {"rtol": 1e-9, "atol": 1e-9}


def trimmed(rows, usable=None, imputed=None, views=VIEWS):
    """The stretches that are found in scaled rows."""
    usable = np.ones(len(rows), bool) if usable is None else usable
    found = cross_fit(views, rows, usable, imputed, seed=1)
    return find_misfits(found, views, NAMES[: rows.shape[1]])


def faulty(rows=1500, width=3, start=400, stop=460, variable=1):
    """A normal series with an offset pasted into one variable."""
    series = waves(rows, width)
    series[start:stop, variable] += 4.0
    return series


def dirty(rows, width, seed):
    """A series with up to two faults, readings that are not usable, and imputed ones."""
    rng = np.random.default_rng(seed)
    series = waves(rows, width, seed)
    for start in rng.integers(rows, size=rng.integers(3)):
        series[start : start + 12, rng.integers(width)] += rng.choice([-3.0, 6.0])
    usable, imputed = np.ones(rows, bool), rng.random((rows, width)) < rng.choice([0.0, 0.01])
    for start in rng.integers(rows, size=rng.integers(4)):
        usable[start : start + rng.integers(30)] = False
    return series, usable, imputed


# -- fast equals naive ----------------------------------------------------------------------------------------------


class Twin:
    """Trimming as plain loops, given the views that were fitted without each fold."""

    def __init__(self, found, rows, usable, imputed):
        averaged = []  # [t][v][i]  over the windows that cover a step
        for fold in found.folds:
            count, views = fold.stop - fold.start, []
            for view in fold.views:
                errors = naive.measured(
                    view.errors(rows, 0).tolist(), usable, imputed, view.context, view.span, view.mixes_variables
                )
                known = errors[fold.start : fold.stop + view.span - 1]
                views.append([naive.covering(list(column), view.span) for column in zip(*known, strict=True)])
            averaged += [[[column[t] for column in view] for view in views] for t in range(count)]
        self.usual = naive.usual_errors(averaged)
        self.misfits = [naive.misfits(step, self.usual) for step in averaged]
        self.voters = naive.voters(rows.tolist())
        self.scores = [naive.misfit_score(step, self.voters) for step in self.misfits]
        self.smoothed = naive.smoothed_misfits(self.scores)
        self.marked = naive.misfitting(self.smoothed, usable)

    def voting(self, start, stop):
        """The misfits [t][v][i] of the variables that vote in a stretch."""
        return [[[view[i] for i in self.voters] for view in step] for step in self.misfits[start:stop]]


@given(st.integers(1000, 1300), st.integers(2, 4), st.integers(0, 999))
def test_misfits_are_those_of_the_plain_loops(rows, width, seed):
    series, usable, imputed = dirty(rows, width, seed)
    found = cross_fit(VIEWS, series, usable, imputed, seed=1)
    twin = Twin(found, series, usable, imputed)
    usual = _usual(found.sample)
    np.testing.assert_allclose(usual.transpose(1, 2, 0), twin.usual, **close)
    voters = np.array(twin.voters)
    scores = _misfit_scores(found, usual, voters)
    np.testing.assert_allclose(scores, twin.scores, **close)
    np.testing.assert_allclose(_smoothed(scores), twin.smoothed, **close)
    described = find_misfits(found, VIEWS, NAMES[:width])
    assert [(one.start, one.stop) for one in described] == stretches(np.array(twin.marked))
    for stretch in described:
        worst, view = naive.worst_misfits(twin.voting(stretch.start, stretch.stop))
        voting = [[row[i] for i in twin.voters] for row in series.tolist()]
        state = naive.suspect(voting, stretch.start, stretch.stop)
        assert stretch.variables == tuple(NAMES[twin.voters[i]] for i in worst)
        assert stretch.reason == naive.reason_of(
            voting, stretch.start, stretch.stop, worst[0], *state, VIEWS[view].reason
        )


@given(st.integers(1, 40), st.integers(1, 3), st.integers(1, 4), st.integers(0, 999))
def test_usual_errors_are_quantiles_with_floors(rows, views, width, seed):
    rng = np.random.default_rng(seed)
    errors = rng.exponential(size=(rows, views, width)) * 10.0 ** rng.integers(-5, 2, size=width)
    errors[rng.random(errors.shape) < 0.2] = np.nan
    errors[0] = 1.0  # at least one step is known
    known = errors[~np.isnan(errors).all(axis=(1, 2))]
    np.testing.assert_allclose(_usual(known).transpose(1, 2, 0), naive.usual_errors(errors.tolist()), **close)


@given(st.integers(1, 300), st.integers(0, 999))
def test_misfits_are_smoothed_over_64_steps_with_the_ends_held(rows, seed):
    scores = np.random.default_rng(seed).exponential(size=rows)
    np.testing.assert_allclose(_smoothed(scores), naive.smoothed_misfits(scores.tolist()), **close)


@given(st.integers(1, 400), st.integers(0, 12), st.sampled_from([0.0, 0.1, 0.9]), st.integers(0, 999))
def test_outliers_lie_far_above_the_usual_scores(rows, peaks, gone, seed):
    rng = np.random.default_rng(seed)
    scores, usable = rng.exponential(size=rows) ** 0.3, rng.random(rows) >= gone
    scores[rng.integers(rows, size=peaks)] *= rng.uniform(1, 9, size=peaks)
    usable[rng.integers(rows)] = True
    assert outliers(scores, usable).tolist() == naive.misfitting(scores.tolist(), usable.tolist())


@given(st.integers(1, 20), st.integers(1, 3), st.integers(1, 5), st.integers(0, 999))
def test_the_worst_variables_are_named(rows, views, width, seed):
    misfits = np.random.default_rng(seed).exponential(size=(rows, views, width))
    assert _worst(misfits) == naive.worst_misfits(misfits.tolist())


@given(st.integers(1, 1500), st.integers(1, 3), st.sampled_from([0.0, 0.05, 0.3]), st.integers(0, 999))
def test_a_suspect_is_described_as_by_plain_loops(rows, width, moves, seed):
    rng = np.random.default_rng(seed)
    series = rng.normal(size=(rows, width))
    start = int(rng.integers(rows))
    stop = int(rng.integers(start, rows)) + 1
    series[start:stop] = rng.normal(0, 3, width) + moves * series[start:stop]
    series[stop:] += rng.choice([0.0, 0.0, 4.0], width)
    one = _Suspect.of(series, start, stop, np.ones((1, 1, width)))
    levels, still = naive.suspect(series.tolist(), start, stop)
    np.testing.assert_allclose(one.levels, levels, **close)
    assert one.still.tolist() == still
    if stop - start < rows:
        reason = naive.reason_of(series.tolist(), start, stop, 0, levels, still, Forecast().reason)
        assert one.reason(series, (Forecast(),)) == reason
    assert one.changed_for_good(series) == naive.changed_for_good(series[:, 0].tolist(), start, stop)


def test_a_fold_longer_than_a_stretch_has_the_same_misfits():
    rows = waves(STRETCH + 300, 2)
    usable, voters = np.ones(len(rows), bool), np.arange(2)
    fold = Fold(0, len(rows), fit_views((Forecast(),), rows, usable, 1), np.zeros((1, 3, rows.shape[1])))
    usual = np.array([[[0.05, 0.1]], [[0.2, 0.1]]])
    none = np.zeros((0, 0, 0))
    found = CrossFitted(rows, usable, None, [fold], none, none, none)
    misfits = _misfits(found, fold, usual, fold.start, fold.stop)
    expected = [naive.misfit_score(step, voters) for step in misfits.tolist()]
    assert fold.stop - fold.start > STRETCH
    np.testing.assert_allclose(_misfit_scores(found, usual, voters), expected, **close)


# -- stretches ------------------------------------------------------------------------------------------------------


@given(st.lists(st.booleans(), max_size=30))
def test_stretches_are_runs_of_marked_steps(marked):
    found = stretches(np.array(marked, bool))
    steps = [step for start, stop in found for step in range(start, stop)]
    assert steps == [step for step, mark in enumerate(marked) if mark]
    assert all(first[1] < second[0] for first, second in pairwise(found))


def test_the_steps_of_stretches_are_unusable():
    found = [Stretch(1, 3, ("flow",), "asked for"), Stretch(2, 4, (), "asked for"), Stretch(6, 7, (), "asked for")]
    assert unusable(found, 8).nonzero()[0].tolist() == [1, 2, 3, 6]
    assert unusable([], 8).tolist() == [False] * 8


@pytest.mark.parametrize("start", [0, 400, 1440])
def test_a_pasted_fault_is_found_with_its_variable_and_a_reason(start):
    [stretch] = trimmed(faulty(start=start, stop=start + 60))
    reach = 8 + 64 // 2 + 16  # a view's context, half a mean, and the margin
    assert max(start - reach, 0) <= stretch.start <= start
    assert start + 60 <= stretch.stop <= start + 60 + reach
    assert (stretch.variables, stretch.reason) == (("level",), "too high")


def test_two_faults_are_named_apart():
    """One lies across the border of two folds, the other in the second of them."""
    rows = faulty(3000, start=735, stop=765)
    rows[1000:1030, 2] += 9.0
    assert [stretch.variables for stretch in trimmed(rows)] == [("level",), ("heat",)]


def test_the_reason_is_that_of_the_view_that_the_fault_violates():
    """A sensor that goes quiet is no harder to forecast."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1200, 2))
    rows[600:680, 1] *= 0.15
    [stretch] = [one for one in trimmed(rows, views=(Forecast(), Activity())) if one.start <= 640 < one.stop]
    assert (stretch.variables, stretch.reason) == (("level",), Activity().reason)


def test_readings_that_are_not_usable_are_never_marked():
    usable = np.ones(1500, bool)
    usable[420:440] = False
    found = trimmed(faulty(), usable)
    marked = unusable(found, 1500)
    assert not marked[~usable].any()
    assert marked[400:420].all()
    assert marked[440:460].all()


def test_a_fault_in_readings_that_are_not_usable_is_not_looked_for():
    usable = np.ones(1500, bool)
    usable[400:460] = False
    assert trimmed(faulty(), usable) == []


def stopped(rows=4000):
    """Four sensors of a plant that stands still for 200 readings: its sensors rest, with little noise."""
    series = waves(rows, 4)
    series[1500:1700] = -1.2 + 0.002 * series[1500:1700]
    return series


def test_a_standstill_is_called_one():
    [stretch] = trimmed(stopped())
    assert stretch.start <= 1500 < 1700 <= stretch.stop
    assert stretch.reason == "standstill"


def test_a_sensor_that_is_stuck_is_not_a_standstill():
    rows = waves(4000, 4)
    rows[1500:1700, 2] = rows[1500, 2] + 1.5
    [stretch] = trimmed(rows)
    assert (stretch.variables, stretch.reason) == (("heat",), "stuck")


def test_stretches_that_touch_become_one_described_as_the_longest():
    mine, small, large = (
        Stretch(0, 5, (), "mine"),
        Stretch(5, 8, ("heat",), "stuck"),
        Stretch(8, 20, ("flow",), "too low"),
    )
    assert merged([large, mine, small]) == (mine, Stretch(5, 20, ("flow",), "too low"))
    assert merged([small, mine._replace(start=9, stop=12)]) == (small, mine._replace(start=9, stop=12))
    assert merged([]) == ()


def test_grave_faults_do_not_hide_others():
    """A tenth of the history is faulty; a single look finds the gravest faults only."""
    rows, faults = waves(6000, 4), np.zeros(6000, bool)
    for k, start in enumerate(range(300, 5900, 1100)):
        rows[start : start + 100, k % 4] += 3.0 + 6.0 * (k % 2)
        faults[start : start + 100] = True
    once, found = trimmed(rows), Comet(views=VIEWS, trends=False).fit(rows).trimmed_
    assert unusable(once, 6000)[faults].mean() < 0.7
    assert unusable(found, 6000)[faults].mean() > 0.95
    assert unusable(found, 6000).mean() < 0.25


# -- what is not trimmed --------------------------------------------------------------------------------------------


def with_valve(rows=1000):
    """Two sensors, and a valve that is opened once for 60 readings."""
    series = waves(rows)
    series[:, 2] = 0.0
    series[400:460, 2] = 6.0
    return series


def test_a_valve_that_was_opened_once_is_ignored():
    rows = with_valve()
    assert trimmed(rows, views=(Patterns(length=8),)) == []
    sensor = rows + [0.0, 0.0, 0.01] * np.random.default_rng(0).normal(size=rows.shape)
    [stretch] = trimmed(sensor, views=(Patterns(length=8),))
    assert stretch.variables == ("heat",)


def regimes(starts, length, width=4, rows=6000):
    """Sensors that all run lower and quieter in some stretches, as in dry weeks."""
    series = waves(rows, width)
    for start in starts:
        series[start : start + length] = series[start : start + length] * 0.4 - 2.0
    return series


@pytest.mark.parametrize("starts, length", [((600, 1100), 180), ((1000, 4000), 180), ((1000, 4000), 90)])
def test_dry_weeks_are_not_faults(starts, length):
    """A way to run that comes back, even if in the same quarter, and in which several variables move."""
    assert trimmed(regimes(starts, length)) == []


def test_a_way_to_run_that_is_seen_once_and_shortly_is_left_out():
    [stretch] = trimmed(regimes((1000,), 180))
    assert stretch.start <= 1000 < 1180 <= stretch.stop
    assert stretch.reason == "too low"


def test_a_single_sensor_that_reads_the_same_wrong_level_twice_is_faulty():
    rows = waves(6000, 4)
    rows[600:780, 1] += 3.0
    rows[1100:1280, 1] += 3.0
    assert [stretch.variables for stretch in trimmed(rows)] == [("level",), ("level",)]


@pytest.mark.parametrize("step", [450, 1500, 3000, 5550])
def test_a_level_that_changes_for_good_is_not_a_fault(step):
    """The year changed, or a sensor was replaced."""
    rows = waves(6000, 4)
    rows[step:, 2] += 5.0
    assert trimmed(rows) == []
    rows[5700:, 2] -= 5.0
    assert trimmed(rows) != [] or step == 5550


@pytest.mark.parametrize("values, ignored", [(8, True), (9, False)])
def test_at_most_eight_distinct_values_make_a_valve(values, ignored):
    rows = with_valve()
    rows[:, 2] += 0.01 * (np.arange(len(rows)) % (values - 1)) * (rows[:, 2] == 0.0)
    assert len(np.unique(rows[:, 2])) == values
    assert (trimmed(rows, views=(Patterns(length=8),)) == []) is ignored


def test_if_all_variables_are_valves_none_is_ignored():
    rows = np.repeat(np.random.default_rng(0).integers(2, size=(200, 2)), 5, axis=0).astype(float)
    rows[400:460, 1] = 7.0
    [stretch] = trimmed(rows)
    assert stretch.start <= 400
    assert stretch.stop >= 460
    assert stretch.variables == ("level",)


def interrupted(spikes):
    """A series of ten recordings with breaks around the middle of each, and spikes in the middle of some.

    A spike raises the means of 64 steps, but nearly all of these are breaks: mostly the margins are marked.
    """
    rows, usable = waves(1200, 2), np.ones(1200, bool)
    for k in range(10):
        usable[120 * k + 20 : 120 * k + 48] = usable[120 * k + 51 : 120 * k + 82] = False
        rows[120 * k + 50] += 50.0 * (1 <= k <= spikes)
    return rows, usable


@pytest.mark.parametrize("spikes, kept", [(3, False), (9, True)])
def test_if_more_than_a_quarter_is_marked_nothing_is_trimmed(spikes, kept):
    rows, usable = interrupted(spikes)
    found = cross_fit((Forecast(1),), rows, usable, None, seed=1)
    twin = Twin(found, rows, usable, np.zeros(rows.shape, bool))
    assert any(twin.marked)
    assert bool(sum(twin.marked) > 0.25 * usable.sum()) is kept
    described = find_misfits(found, (Forecast(1),), NAMES[:2])
    assert unusable(described, len(rows)).tolist() == [mark and not kept for mark in twin.marked]


def test_independent_noise_is_hardly_trimmed():
    """On average: single series may lose more by chance, 4.5 % with seed 4."""
    noise = [np.random.default_rng(seed).normal(size=(1500, 4)) for seed in range(10)]
    assert np.mean([unusable(trimmed(rows), 1500).mean() for rows in noise]) < 0.02

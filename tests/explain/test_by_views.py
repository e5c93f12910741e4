"""Explanations by views: the right variable and view for planted faults, and the attribution equals the loops."""

import json
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import lfilter

import naive
from cometad import Comet
from cometad.alerting.alerts import Alerts
from cometad.data import ScoreMeasured
from cometad.explain.bands import fit_bands
from cometad.explain.by_views import BEFORE, NOTHING, SHOWN
from cometad.explain.level import Level
from cometad.explain.reasons import Reason, joined_rises, rises_of_voices, rounded, usual_rises
from cometad.scoring.scores import Tails
from cometad.views import VIEWS, Activity, Balance, Forecast
from cometad.views.crossfit import cross_fit

ROWS, FAULT = 1600, 1000
REASONS = {kind.__name__.lower(): kind.reason for kind in VIEWS.values()}

seeds = st.integers(0, 2**32 - 1)


def plant(rows=ROWS, seed=1):
    """Five variables: three follow one wave, one has a faster wave, and one a slower, independent one."""
    time = np.arange(rows)
    wave = np.sin(2 * np.pi * time / 48)
    columns = [
        *(20 + 5 * wave, 100 - 3 * wave, 60 + np.cos(2 * np.pi * time / 48)),
        *(5 + np.sin(2 * np.pi * time / 24), 300 + 40 * np.sin(2 * np.pi * time / 130)),
    ]
    return np.column_stack(columns) + 0.2 * np.random.default_rng(seed).normal(size=(rows, 5))


def spike(values):
    values[FAULT, 1] += 9
    return 1, (FAULT, FAULT + 1)


def stuck(values):
    values[FAULT : FAULT + 60, 0] = values[FAULT - 1, 0]
    return 0, (FAULT, FAULT + 60)


def broken(values):
    values[FAULT : FAULT + 60, 2] = 120 - values[FAULT : FAULT + 60, 2]
    return 2, (FAULT, FAULT + 60)


def shift(values):
    values[FAULT : FAULT + 60, 3] += 4
    return 3, (FAULT, FAULT + 60)


FAULTS = (spike, stuck, broken, shift)


def faulty(fault):
    values = plant()
    return values, *fault(values)


@pytest.fixture(scope="module")
def detector():
    return Comet().fit(plant(3000, seed=0))


# --- the arithmetic ---------------------------------------------------------------------------------------------------


@given(
    seeds, st.integers(0, 6), st.integers(1, 5), st.lists(st.integers(1, 40), min_size=1, max_size=3), st.integers(1, 4)
)
def test_rises_and_their_means_equal_the_loops(seed, before, inside, spans, variables):
    rng = np.random.default_rng(seed)
    scores = 5 * rng.exponential(size=(before + inside, len(spans) + 1, variables))
    scores[rng.random(scores.shape) < 0.3] = np.nan
    found = rises_of_voices(scores, before, spans)
    usual = [*(naive.usual_rise(inside, span) for span in spans), naive.usual_rise_of_level(inside)]
    expected = [
        [naive.rise_of_voice(own[:before, i].tolist(), own[before:, i].tolist(), usual[v]) for i in range(variables)]
        for v, own in enumerate(np.swapaxes(scores, 0, 1))
    ]
    np.testing.assert_allclose(found, expected)
    joined = [naive.joined_rise([row[i] for row in expected[:-1]], expected[-1][i]) for i in range(variables)]
    np.testing.assert_allclose(joined_rises(found), joined)


def test_a_variable_that_was_as_odd_before_has_not_risen():
    odd = np.full((41, 2, 2), 8.0)
    odd[:40, :, 1] = 1.0
    assert rises_of_voices(odd, 40, [1])[:, 0].tolist() == [0.0, 0.0]
    assert rises_of_voices(odd, 40, [1])[:, 1].min() > 6


@pytest.mark.parametrize("steps", [10, 100, 1000])
def test_the_usual_rise_is_about_the_highest_of_healthy_errors(steps):
    rng = np.random.default_rng(0)
    tails = Tails.fit(rng.exponential(size=(100_000, 1)))
    highest = tails(rng.exponential(size=(500, steps)).max(axis=1)[:, None])
    away = np.abs(rng.normal(size=(500, steps)))
    levels = np.log1p(away.max(axis=1)) - np.median(np.log1p(away))
    view, level = usual_rises(steps, [1])
    assert 0.7 < (highest < view).mean() < 0.9
    assert 0.4 < (levels < level).mean() < 0.9


@given(st.integers(1, 10_000), st.integers(1, 100))
def test_the_usual_rise_grows_with_the_event_and_shrinks_with_the_span(steps, span):
    assert (usual_rises(steps + 1, [span]) >= usual_rises(steps, [span])).all()
    assert usual_rises(steps, [span + 1])[0] <= usual_rises(steps, [span])[0]


@given(seeds)
def test_the_level_equals_the_loops(seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(3, 2, size=(80, 3))
    rows[:, 2] = 1.5  # constant
    usable = rng.random(80) < 0.8
    level, fresh = Level.fit(rows, usable), rng.normal(3, 5, size=(7, 3))
    found = level(fresh)
    for i in range(3):
        known = [float(row[i]) for row, use in zip(rows, usable, strict=True) if use]
        mean = sum(known) / len(known)
        deviation = math.sqrt(sum((value - mean) ** 2 for value in known) / len(known)) or 1.0
        for t in range(7):
            assert found[t, i] == pytest.approx(math.log(1 + abs(fresh[t, i] - mean) / deviation), rel=1e-9)
        assert level.band[i] == pytest.approx(np.quantile([abs(value - mean) for value in known], 0.98))


def test_bands_are_quantiles_of_what_views_fitted_without_a_block_miss_there():
    rows = np.random.default_rng(0).normal(size=(700, 2))
    usable = np.ones(700, bool)
    usable[300:320] = False
    found = cross_fit((Forecast(), Activity()), rows, usable, None, seed=0)
    gaps = [
        np.abs(rows[t] - fold.views[0].expected(rows[: t + 1], t)[0])
        for fold in found.folds
        for t in range(fold.start, fold.stop)
        if t >= fold.views[0].context and usable[t - fold.views[0].context : t + 1].all()
    ]
    bands = fit_bands(found)
    assert bands[0] == pytest.approx(np.quantile(gaps, 0.98, axis=0))
    assert np.isnan(bands[1]).all()


def test_bands_of_a_long_series_are_close_to_those_of_all_its_readings():
    rows, usable = np.random.default_rng(0).normal(size=(20_000, 2)), np.ones(20_000, bool)
    found = cross_fit((Forecast(),), rows, usable, None, seed=0)
    assert fit_bands(found)[0] == pytest.approx([2.326, 2.326], rel=0.1)  # 98 % of a normal distribution


@given(st.floats(-1e12, 1e12), st.floats(1e-6, 1e6))
def test_a_rounded_number_is_within_a_tenth_of_the_unit(value, unit):
    shown = float(rounded(value, unit).replace(",", ""))
    assert shown == pytest.approx(value, abs=0.1 * unit, rel=1e-3 if abs(value) >= 1e9 else 0)


# --- planted faults ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_attributed_to_its_variable(detector, fault):
    values, variable, event = faulty(fault)
    first, second, *_ = detector.explain(values, event).reasons
    assert first.variable == f"v{variable}"
    assert first.share > 0.8 > 0.1 > second.share
    assert first.why == REASONS[first.view]
    assert event[0] <= first.start <= first.step < first.stop <= event[1]
    assert first.observed[first.step - first.start] == values[first.step, variable]


def test_two_broken_variables_share_an_event(detector):
    values, _, event = faulty(shift)
    stuck(values)
    first, second, *rest = detector.explain(values, event).causes
    assert {first.variable, second.variable} == {"v0", "v3"}
    assert min(first.share, second.share) > 0.4
    assert sum(reason.share for reason in rest) < 0.1


@pytest.mark.parametrize("fault", [spike, shift], ids=lambda fault: fault.__name__)
def test_a_variable_that_only_leans_on_a_broken_one_is_no_cause(fault):
    detector = Comet(views=(Balance(),)).fit(plant(3000, seed=0))
    values, variable, event = faulty(fault)
    assert [reason.variable for reason in detector.explain(values, event).causes] == [f"v{variable}"]


def test_the_rounding_errors_of_a_counter_are_no_cause():
    counter = np.arange(5000) * 0.001 / 3 + 30  # its increments differ in the last bits only, more so from 32 on
    detector = Comet().fit(np.column_stack([plant(3000, seed=0), counter[:3000]]))
    values, _, event = faulty(shift)
    explanation = detector.explain(np.column_stack([values, counter[3000 : 3000 + ROWS] + 1]), event)
    (rounded,) = (reason for reason in explanation.reasons if reason.variable == "v5")
    assert (rounded.share, rounded.why) == (0.0, NOTHING)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_event_that_is_found_is_attributed_to_the_faulty_variable(detector, fault):
    values, variable, (start, stop) = faulty(fault)
    events = [event for event in detector.events(values, Alerts(merge_gap=16)) if start <= event.peak < stop + 32]
    worst = max(events, key=lambda event: event.peak_score)
    explanation = detector.explain(values, worst)
    assert explanation.reasons[0].variable == f"v{variable}"
    assert (explanation.peak, explanation.score) == (worst.peak, worst.peak_score)


def test_a_stuck_variable_is_not_as_lively_as_usual(detector):
    values, _, event = faulty(stuck)
    reason = detector.explain(values, event).reasons[0]
    assert (reason.view, reason.why) == ("activity", "not as lively as usual")
    assert reason.band is not None  # another view says what was expected
    assert reason.sentence().startswith("Not as lively as usual: it read ")


def test_a_spike_is_far_outside_the_band_around_what_was_expected(detector):
    values, _, event = faulty(spike)
    reason = detector.explain(values, event).reasons[0]
    assert abs(reason.observed[0] - reason.expected[0]) > 3 * reason.band
    assert abs(reason.expected[0] - plant()[FAULT, 1]) < 5  # nearer to the reading without the spike than the spike is


@pytest.mark.parametrize("kind", [kind for name, kind in VIEWS.items() if name != "network"])  # too slow to train
def test_a_view_alone_is_the_one_that_is_named(kind):
    detector = Comet(views=(kind(),)).fit(plant(3000, seed=0))
    values, _, event = faulty(shift)
    values[FAULT + 30, 3] += 30
    reason = detector.explain(values, event).reasons[0]
    assert (reason.variable, reason.view, reason.why) == ("v3", kind.__name__.lower(), kind.reason)


def test_without_an_expectation_only_the_reason_is_given():
    values, _, event = faulty(stuck)
    explanation = Comet(views=(Activity(),)).fit(plant(3000, seed=0)).explain(values, event)
    reason = explanation.reasons[0]
    assert (reason.variable, reason.band) == ("v0", None)
    assert np.isnan(reason.expected).all()
    assert np.isnan(explanation.normal).all()
    assert "expected" not in reason.sentence()
    assert json.loads(json.dumps(explanation.as_json(), allow_nan=False))["reasons"][0]["band"] is None


def test_expectations_are_those_of_the_view_in_sensor_units():
    detector = Comet(views=(Forecast(),)).fit(plant(3000, seed=0))
    values, _, event = faulty(shift)
    explanation = detector.explain(values, event, context=5)
    scaled = detector.scaling_(values)
    view, causes = detector.panel_.views[0], [explanation.names.index(one.variable) for one in explanation.causes]
    for t in range(FAULT - 32, FAULT + 65):  # the readings of the causes belong to the fault, and some before it may
        scaled[t, causes] = view.expected(scaled.astype(np.float64)[: t + 1], t)[0, causes]
    expected = view.expected(scaled.astype(np.float64), 0)
    np.testing.assert_allclose(explanation.normal, detector.scaling_.back(expected)[FAULT - 5 : FAULT + 65], rtol=1e-6)
    unit = dict(zip(detector.names_, detector.bands_[0] * detector.scaling_.unit, strict=True))
    assert {reason.variable: reason.band for reason in explanation.reasons} == pytest.approx(unit)


def test_a_variable_that_left_another_one_no_longer_follows_it():
    rng = np.random.default_rng(0)
    speed, other = lfilter([1], [1, -0.9], rng.normal(size=(2, 3000)))
    readings = np.stack([speed, other, 2 * speed + 1, speed], axis=1) + 0.1 * rng.normal(size=(3000, 4))
    broken = readings[2000:].copy()
    broken[500:541, 2] = 2 * other[2500:2541] + 1  # as lively as usual, and within its range
    normal, broken = (pl.DataFrame(rows, ["pump_speed", "heat", "flow", "power"]) for rows in (readings[:2000], broken))
    detector = Comet(views=(Balance(),)).fit(normal)
    reason = detector.explain(broken, (500, 541)).reasons[0]
    assert (reason.variable, reason.why) == ("flow", "no longer follows pump_speed")
    assert reason.sentence().startswith("No longer follows pump_speed: it read ")


def test_more_context_does_not_change_what_was_expected():
    detector = Comet().fit(plant(3000, seed=0))
    values, _, event = faulty(shift)
    short, long = (detector.explain(values, event, context=context) for context in (0, 20))
    np.testing.assert_array_equal(short.normal, long.normal[20:-20])


# --- laws -------------------------------------------------------------------------------------------------------------


def naive_rises(detector, scaled, start, stop):
    """The rises (variable, voice) of the steps start..stop of scaled readings (time, variable)."""
    panel, found = detector.panel_, []
    rows = np.clip(scaled, -50, 50).astype(np.float64)
    errors, steps = panel.errors(rows, 0), range(start - BEFORE, stop)
    for i in range(rows.shape[1]):
        rises = []
        for v, view in enumerate(panel.views):
            own = [naive.known_mean(errors[t : t + view.span, v, i].tolist()) for t in steps]
            heard = [naive.calibrated_tail(error, *panel.ranking[v, :, i]) for error in own]
            rises.append(naive.rise_of_voice(heard[:BEFORE], heard[BEFORE:], naive.usual_rise(stop - start, view.span)))
        center, deviation = detector.level_.center[i], detector.level_.deviation[i]
        away = [math.log(1 + abs(scaled[t, i] - center) / deviation) for t in steps]
        rises.append(naive.rise_of_voice(away[:BEFORE], away[BEFORE:], naive.usual_rise_of_level(stop - start)))
        found.append(rises)
    return found


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_shares_equal_the_loops(detector, fault):
    values, _, (start, stop) = faulty(fault)
    scaled, views = detector.scaling_(values), detector.panel_.views
    rises = naive_rises(detector, scaled, start, stop)

    def joined():
        return [naive.joined_rise(own[:-1], own[-1]) for own in naive_rises(detector, scaled, start, stop)]

    def replace(i):
        best = max((1, 2, 3), key=lambda v: rises[i][v])  # joint, forecast and balance compare variables
        expected = views[best].expected(np.clip(scaled, -50, 50).astype(np.float64)[:stop], start)
        scaled[start:stop, i] = expected[:, i]

    raised = naive.own_rises(joined(), replace, joined)
    share = {reason.variable: reason.share for reason in detector.explain(values, (start, stop)).reasons}
    total = sum(one**2 for one in raised)
    assert [share[f"v{i}"] for i in range(5)] == pytest.approx([one**2 / total for one in raised], abs=1e-6)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_permuting_variables_permutes_explanations(detector, fault):
    order = [3, 0, 4, 2, 1]
    values, _, event = faulty(fault)
    other = Comet().fit(plant(3000, seed=0)[:, order]).explain(values[:, order], event)
    same = {f"v{order[int(reason.variable[1:])]}": reason for reason in other.reasons}
    for reason in detector.explain(values, event).reasons:
        twin = same[reason.variable]
        assert twin.share == pytest.approx(reason.share, abs=1e-6)
        assert (twin.view, twin.step) == (reason.view, reason.step)
        assert twin.expected == pytest.approx(reason.expected, rel=1e-6)


def test_only_readings_around_the_event_matter(detector):
    values, _, (start, stop) = faulty(spike)
    reach, ahead = BEFORE + detector.panel_.context, detector.panel_.span - 1 + 32
    other = values.copy()
    other[: start - reach], other[stop + ahead :] = 1e5, -1e5
    assert detector.explain(other, (start, stop)).as_json() == detector.explain(values, (start, stop)).as_json()


def test_the_score_is_the_alert_score_of_the_peak(detector):
    values, _, (start, stop) = faulty(stuck)
    alerts = detector.step_scores(values).alerts
    explanation = detector.explain(values, (start, stop))
    assert explanation.score == alerts[start:stop].max()
    assert explanation.peak == start + alerts[start:stop].argmax()


def test_a_reason_shows_a_few_readings_inside_the_event(detector):
    values, variable, (start, stop) = faulty(shift)
    explanation = detector.explain(values, (start, stop), context=7)
    for reason in explanation.reasons:
        assert start <= reason.start <= reason.step < reason.stop <= stop
        assert reason.stop - reason.start == len(reason.observed) == len(reason.expected) == SHOWN
        assert np.array_equal(reason.observed, values[reason.start : reason.stop, int(reason.variable[1:])])
    assert (explanation.begin, explanation.observed.shape) == (start - 7, (74, 5))
    assert explanation.normal.shape == (74, 5)
    assert variable == 3


# --- gaps, edges and mistakes -----------------------------------------------------------------------------------------


def test_imputed_readings_are_none_and_have_no_share():
    detector = Comet(gaps=ScoreMeasured()).fit(plant(3000, seed=0))
    values, _, event = faulty(shift)
    values[FAULT - 2 : FAULT + 62, 0] = np.nan
    explanation = detector.explain(values, event)
    share = {reason.variable: reason.share for reason in explanation.reasons}
    assert share["v0"] == 0
    assert explanation.reasons[0].variable == "v3"
    plain = json.loads(json.dumps(explanation.as_json(), allow_nan=False))
    assert plain["observed"][FAULT - plain["begin"]][0] is None
    gone = next(reason for reason in explanation.reasons if reason.variable == "v0")
    assert np.isnan(gone.observed).all()
    assert gone.why == NOTHING
    assert gone.sentence() == "No more unusual than before."


def test_if_nothing_rose_measured_variables_share_equally():
    detector = Comet(gaps=ScoreMeasured()).fit(plant(3000, seed=0))
    values = np.repeat(detector.scaling_.back(detector.level_.center[None]), ROWS, axis=0)
    values[FAULT, 0] = np.nan
    share = {reason.variable: reason.share for reason in detector.explain(values, FAULT).reasons}
    assert share == pytest.approx({"v0": 0.0, "v1": 0.25, "v2": 0.25, "v3": 0.25, "v4": 0.25})


def test_a_variable_that_only_left_its_level_is_far_from_it():
    detector = Comet(views=(Forecast(lags=8),)).fit(plant(3000, seed=0))
    values = plant()
    values[0:3] = plant(3, seed=0)
    values[1, 4] = 420.0  # before the view has the readings it needs
    reason = detector.explain(values, (0, 3)).reasons[0]
    assert (reason.variable, reason.view, reason.why) == ("v4", "level", "far from its usual level")
    assert reason.expected[1] == pytest.approx(plant(3000, seed=0)[:, 4].mean())
    assert 30 < reason.band < 60


def test_one_variable_and_a_constant_one_are_explained():
    values = plant()[:, :1]
    values[FAULT] += 9
    single = Comet().fit(plant(3000, seed=0)[:, :1]).explain(values, FAULT)
    assert [reason.share for reason in single.reasons] == [1.0]
    fixed = np.column_stack([plant(3000, seed=0)[:, 0], np.full(3000, 7.0)])
    fresh = fixed[:ROWS].copy()
    fresh[FAULT, 1] = 8.0
    assert Comet().fit(fixed).explain(fresh, FAULT).reasons[0].variable == "v1"


def test_a_reason_says_when_it_was_unusual():
    reason = Reason("flow", 1.0, "patterns", "alone unusual", 1, 0, 2, np.array([1.0, 7.1]), np.array([1.0, 4.2]))
    assert reason.sentence("12:30") == "Alone unusual: it read 7.1 at 12:30, expected 4.2."


def test_the_variables_of_an_array_have_the_names_of_training():
    names, values = ("flow", "level", "heat", "speed", "load"), plant()
    found = Comet().fit(pl.DataFrame(values, names)).explain(values, FAULT)
    assert found.names == names
    assert {reason.variable for reason in found.reasons} == set(names)

"""Counters, states and clocks are recognized or declared, and slow or rare ones raise no alarms of their own."""

import itertools
import math
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from cometad import Comet, load
from cometad.data.gaps import ForwardFill, Interpolate
from cometad.data.kinds import certain_kinds, kind_of, questions, restarts_at
from cometad.data.quality import Statistics, findings
from cometad.errors import InputError, ParameterError
from cometad.scoring.scores import LEVEL
from cometad.series import as_series

# -- recognition -------------------------------------------------------------------------------------------------------


def naive_kind(readings):
    """The docstring of `Trends.fit` for a variable that does not stray, one reading at a time."""
    steps = [b - a for a, b in itertools.pairwise(readings)]
    up, down = sum(step > 0 for step in steps), sum(step < 0 for step in steps)
    landed = [b for a, b in itertools.pairwise(readings) if b < a]
    places = [0, *(t for t, step in enumerate(steps) if step), len(steps)]
    rests = max(b - a for a, b in itertools.pairwise(places)) > len(steps) * 2 / 3
    sizes = [abs(step) for step in steps if step]
    if up and down:
        counts = up >= 20 and up >= 8 * down and min(readings) >= 0 and max(landed) <= 0.1 * max(readings)
    else:
        equal = len(sizes) >= 5 and max(sizes) - min(sizes) <= 1e-6 * max(sizes)
        counts = len(sizes) >= 20 or (not rests and (len(sizes) >= 8 or equal))
    if counts:
        return "counter"
    values = sorted(set(readings))
    if 32 * len(sizes) > len(readings) or not 2 <= len(values) <= 8:
        return "sensor"
    to_the_next = max(sizes) <= (1 + 1e-6) * min(b - a for a, b in itertools.pairwise(values))
    fine = len(values) > 2 and max(sizes) <= 0.1 * max(map(abs, values))
    return "sensor" if to_the_next and fine else "state"


RUNS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 60)), min_size=1, max_size=30)
GROWTH = st.lists(st.tuples(st.sampled_from([0, 0, 1, 1, 1, 3, -50]), st.integers(1, 60)), min_size=1, max_size=40)


@given(runs=RUNS, base=st.sampled_from([0.0, 18.0, 90.0, -50.0]))
def test_the_kind_equals_the_naive_rules(runs, base):
    readings = np.array([base + value for value, length in runs for _ in range(length)])
    assert kind_of(readings, strayed=False) == naive_kind(readings.tolist())


@given(growth=GROWTH)
def test_the_kind_of_what_grows_equals_the_naive_rules(growth):
    level, readings = 0.0, []
    for step, length in growth:
        level = max(level + step, 0.0)
        readings += [level] * length
    assert kind_of(np.array(readings), strayed=False) == naive_kind(readings)


def test_a_counter_starts_anew_below_the_highest_reading_at_which_it_did_and_its_largest_step():
    meter = np.concatenate([np.arange(0, 40, 2.0), np.arange(3, 50, 2.0), np.arange(1, 50, 2.0)])
    assert restarts_at(meter) == 5.0
    assert restarts_at(np.arange(9.0)) == -math.inf
    assert restarts_at(-np.arange(9.0)) == -math.inf
    assert restarts_at(np.ones(1)) == -math.inf


# -- what is scored ----------------------------------------------------------------------------------------------------


def sensors(random, rows, count=4):
    waves = np.sin(np.arange(rows)[:, None] / [17, 29]) @ random.normal(size=(2, count))
    return waves + 0.4 * random.normal(size=(rows, count))


def above(detector, readings):
    """The share of readings whose alert score is above the fitted threshold."""
    return float((detector.step_scores(readings).alerts > detector.threshold_).mean())


def alone(detector, readings):
    """The share of the last 1,500 readings in which the last variable is as unusual as in 2 % of the training."""
    return float((detector.stream().update_many(readings).variables[-1500:, -1] > LEVEL).mean())


def slow_counter(seed, every=52):
    """470 readings with 9 steps, and 2,000 more in which it steps as before, but twelve times as fast for 160."""
    random = np.random.default_rng(seed)
    steps = np.arange(2470) % every == every // 2
    fast = steps.copy()
    fast[1470:1630:4] = True
    rest = sensors(random, 2470)
    return [np.column_stack([rest, 1000 + np.cumsum(own)]) for own in (steps, fast)]


@pytest.mark.parametrize("seed", [0, 1])
def test_a_slow_counter_is_not_unusual_for_ever_but_a_faster_pace_is(seed):
    series, fast = slow_counter(seed)
    assert (np.diff(series[:470, 4]) > 0).sum() == 9
    detector, without = Comet().fit(series[:470]), Comet().fit(series[:470, :4])
    assert detector.trends_.kinds == {4: "counter"}
    assert alone(Comet(trends=False).fit(series[:470]), series[470:]) > 0.5
    assert alone(detector, series[470:]) < 0.05
    assert above(detector, series[470:]) < above(without, series[470:, :4]) + 0.005
    assert detector.predict(series[470:]).mean() < 0.015
    assert any(1000 <= event.start < 1200 for event in detector.events(fast[470:]))
    assert detector.explain(fast[470:], (1020, 1150)).reasons[0].variable == "v4"


def test_a_slow_counter_that_is_replaced_is_unusual_once():
    series, _ = slow_counter(0)
    detector = Comet().fit(series[:470])
    replaced = series[470:].copy()
    replaced[1000:, 4] -= replaced[1000, 4]
    usual = detector.step_scores(series[470:]).alerts > detector.threshold_
    scored = detector.step_scores(replaced).alerts > detector.threshold_
    assert scored[1000]
    assert scored[1100:].sum() <= usual[1100:].sum() + 5


@pytest.fixture(scope="module")
def plant():
    """Sensors, a set point, an energy counter that starts anew, and the hour; 4,000 readings to learn from."""
    random, rows = np.random.default_rng(1), 8000
    times = [datetime(2026, 3, 1) + timedelta(minutes=15 * t) for t in range(rows)]
    day = np.arange(rows) % 96
    energy = np.cumsum(np.where(day == 0, 0.0, random.random(rows)))
    energy -= energy[np.arange(rows) - day]
    table = {f"s{i}": column for i, column in enumerate(sensors(random, rows).T)}
    held = np.repeat(np.tile([20.0, 40.0, 60.0, 40.0], 3), 350)  # eleven changes in 4,000 readings
    table |= {"set_point": np.resize(held, rows), "energy": energy, "hour": [float(t.hour) for t in times]}
    return pl.DataFrame({"time": times, **table})


@pytest.fixture(scope="module")
def fitted(plant):
    return Comet().fit(plant[:4000])


def test_a_plant_has_a_state_a_counter_and_a_clock(fitted):
    assert fitted.trends_.kinds == {4: "state", 5: "counter", 6: "clock"}
    assert fitted.trends_.trending == [5, 6]
    assert fitted.trends_.sentences(fitted.names_) == [
        "'energy' only grows or only falls: its increments are scored instead of its readings.",
        "'set_point' holds few values: any other reading counts as far from them.",
        "'hour' only counts readings or tells the time: it is not learned.",
    ]


def changed(plant, **columns):
    fresh = plant[4000:]
    return fresh.with_columns(pl.Series(name, own(fresh[name].to_numpy().copy())) for name, own in columns.items())


def put(start, stop, value):
    def own(values):
        values[start:stop] = value
        return values

    return own


def test_known_values_of_a_state_raise_nothing_and_others_are_found(plant, fitted):
    assert above(fitted, plant[4000:]) < 0.01
    np.testing.assert_array_equal(
        Comet(kinds={"set_point": "sensor"}).fit(plant[:4000]).alert_scores_, fitted.alert_scores_
    )
    moved = changed(plant, set_point=lambda values: np.where(values == 20, 60.0, values))
    assert above(fitted, moved) < 0.02
    for value in (50.0, 90.0, 0.0):
        scores = fitted.step_scores(changed(plant, set_point=put(2000, 2040, value))).alerts
        assert scores[2000:2040].min() > fitted.threshold_
    found = fitted.explain(changed(plant, set_point=put(2000, 2040, 50.0)), (2000, 2040))
    assert found.reasons[0].variable == "set_point"
    assert set(found.reasons[0].expected.round().tolist()) <= {40.0, 60.0}


def test_rounding_errors_and_gaps_of_a_state_are_no_other_values():
    random = np.random.default_rng(0)
    valve = np.repeat(random.integers(0, 2, 30), 100) * 0.3
    valve[1500:] = np.where(valve[1500:] > 0, 3 * 0.1, 0.0)  # 0.30000000000000004
    gone = valve.copy()
    gone[500:510], gone[-9:-4] = np.nan, np.nan
    table = np.column_stack([sensors(random, 3000), gone])
    detector = Comet(gaps=Interpolate(20)).fit(table)
    assert detector.trends_.kinds == {4: "state"}
    again = np.where(valve > 0, 0.3 + 1e-12, 0.0)[:, None]
    near = detector.trends_(np.hstack([table[:, :4], again]))[:, 4]
    np.testing.assert_allclose(near, valve, atol=1e-3)
    moved = detector.trends_(np.full((1, 5), 0.1), np.ones((1, 5), bool))
    assert moved[0, 4] == 0.0


def test_a_state_with_a_season_is_expected_to_hold_what_it_usually_does():
    random, hours = np.random.default_rng(0), np.arange(24 * 70)
    times = [datetime(2026, 1, 5) + timedelta(hours=int(hour)) for hour in hours]
    valve = np.where((hours % 24 >= 8) & (hours % 24 < 18), 50.0, 0.0)
    table = pl.DataFrame({"time": times, "valve": valve, "flow": random.normal(size=len(hours))})
    detector = Comet(kinds={"valve": "state"}).fit(table[:1200])
    assert detector.season_ is not None
    fresh = table[1200:].with_columns(pl.Series("valve", np.where(hours[:480] // 6 == 34, 20.0, valve[1200:])))
    reason = detector.explain(fresh, (204, 210)).reasons[0]
    assert reason.variable == "valve"
    np.testing.assert_allclose(reason.expected, 50.0, atol=1.0)
    broken = fresh.with_columns(pl.Series("valve", np.where(hours[:480] == 205, 1e9, fresh["valve"])))
    np.testing.assert_allclose(detector.explain(broken, 205).reasons[0].expected, 50.0, atol=1.0)


def test_a_counter_may_start_anew_but_not_stop(plant, fitted):
    energy = plant["energy"].to_numpy()[4000:]
    scores = fitted.step_scores(plant[4000:]).alerts
    midnights = np.flatnonzero(np.diff(energy) < 0) + 1
    assert len(midnights) > 30
    assert (scores[midnights] > fitted.threshold_).mean() < 0.05
    stopped = changed(plant, energy=lambda values: np.where(np.arange(4000) // 96 == 20, values[20 * 96 + 9], values))
    assert fitted.predict(stopped)[20 * 96 + 10 : 21 * 96].any()


def test_a_clock_is_not_learned(plant, fitted):
    usual = fitted.step_scores(plant[4000:]).alerts
    broken = changed(plant, hour=lambda values: 1e6 - values)
    np.testing.assert_array_equal(fitted.step_scores(broken).alerts, usual)


def test_a_stream_in_chunks_equals_the_batch_and_a_saved_detector_scores_the_same(plant, fitted, tmp_path):
    fitted.save(tmp_path / "plant.comet")
    again, fresh = load(tmp_path / "plant.comet"), plant[4000:5200]
    assert again.trends_.kinds == fitted.trends_.kinds
    stream, parts = again.stream(), []
    for begin in range(0, len(fresh), 170):
        parts.append(stream.update_many(fresh[begin : begin + 170]))
        stream = again.stream(stream.snapshot())
    parts.append(stream.finish())
    np.testing.assert_array_equal(np.concatenate(parts), fitted.decision_function(fresh))


def test_rounding_of_a_clock_is_no_movement():
    rest = sensors(np.random.default_rng(0), 6000)
    for clock in (0.1 * np.arange(6000), 2026 + np.arange(6000) / 525_600, 1.7e9 + 1.1 * np.arange(6000)):
        series = np.column_stack([rest, clock])
        detector = Comet().fit(series[:1000])
        assert detector.trends_.kinds == {4: "counter"}
        assert above(detector, series[1000:]) < above(Comet().fit(rest[:1000]), rest[1000:]) + 0.005


def test_a_counter_with_gaps_is_recognized():
    random = np.random.default_rng(0)
    series = np.column_stack([sensors(random, 2000), np.cumsum(random.random(2000))])
    series[random.random(2000) < 0.02, 4] = np.nan
    for gaps in (ForwardFill(2), Interpolate(2)):
        assert Comet(gaps=gaps).fit(series).trends_.kinds == {4: "counter"}


# -- declared kinds ----------------------------------------------------------------------------------------------------


def test_declared_kinds_replace_recognized_ones_and_are_saved(plant, tmp_path):
    kinds = {"set_point": "sensor", "energy": "sensor", "s0": "counter"}
    detector = Comet(kinds=kinds).fit(plant[:1500])
    assert detector.trends_.kinds == {0: "counter", 6: "clock"}
    detector.save(tmp_path / "plant.comet")
    assert load(tmp_path / "plant.comet").get_params() == detector.get_params() == clone(detector).get_params()
    only = Comet(kinds={"set_point": "state"}, trends=False).fit(plant[:1500])
    assert only.trends_.kinds == {4: "state"}
    assert Comet(trends=False).fit(plant[:1500]).trends_.kinds == {}


def test_a_declared_state_may_change_often():
    random = np.random.default_rng(0)
    pump = np.repeat(random.integers(0, 2, 500), 4) * 5.0
    detector = Comet(kinds={"v4": "state"}).fit(np.column_stack([sensors(random, 2000), pump]))
    assert detector.trends_.kinds == {4: "state"}
    assert detector.trends_.known[:, 4].tolist() == [0.0, 5.0]
    still = Comet(kinds={"v0": "state"}).fit(np.column_stack([np.full(2000, 3.0), pump]))
    assert still.trends_.known[:, 0].tolist() == [3.0]
    recipes = np.column_stack([sensors(random, 640), np.repeat(np.arange(64.0), 10)])
    recipes[5, 4] = np.nan
    assert Comet(kinds={"v4": "state"}, gaps=ForwardFill(2)).fit(recipes).trends_.kinds == {4: "state"}


def test_a_declared_counter_with_a_single_reading_is_refused_like_any_other_variable():
    series = sensors(np.random.default_rng(0), 600)
    series[1:, 2] = np.nan
    with pytest.raises(InputError, match="Only 3 of 600 readings can be learned from"):
        Comet(kinds={"v2": "counter"}, gaps=ForwardFill(2)).fit(series)


@pytest.mark.parametrize("kinds", ["counter", {"v0": "meter"}, {"v0": None}, {"v0": ["state"]}, [("v0", "state")]])
def test_kinds_are_a_dict_of_known_words(kinds):
    with pytest.raises(ParameterError, match="The 'kinds' parameter must be None or a dict from variables to counter"):
        Comet(kinds=kinds).check_parameters()


def test_a_declared_kind_needs_a_variable_that_can_be_of_it(plant):
    with pytest.raises(ParameterError, match=r"Unknown variable 'enrgy'\. Did you mean energy\?"):
        Comet(kinds={"enrgy": "counter"}).fit(plant[:1500])
    with pytest.raises(InputError, match=r"'s0' is no state: it has 1,500 values, more than 64\.$"):
        Comet(kinds={"s0": "state"}).fit(plant[:1500])


# -- columns that are no measurements ----------------------------------------------------------------------------------

UTC_TIMES = [datetime(2025, 12, 20, tzinfo=ZoneInfo("UTC")) + timedelta(minutes=47 * t) for t in range(6000)]
PARTS = {
    "year": lambda t: t.year,
    "Month": lambda t: t.month,
    "day": lambda t: t.day,
    "day_of_year": lambda t: t.timetuple().tm_yday,
    "hour": lambda t: t.hour,
    "minute": lambda t: t.minute,
    "weekday": lambda t: t.weekday(),
    "dayofweek": lambda t: t.isoweekday(),
    "day of week": lambda t: t.isoweekday() % 7,
    "Weekday ": lambda t: t.isoweekday() % 7 + 1,
}


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "Australia/Sydney"])
def test_parts_of_the_date_are_clocks_in_any_zone(zone):
    local = [time.astimezone(ZoneInfo(zone)) for time in UTC_TIMES]
    columns = {name: [float(part(time)) for time in local] for name, part in PARTS.items()}
    table = pl.DataFrame({"time": UTC_TIMES, **columns})
    series = as_series(table)
    assert certain_kinds(series, {}, search=True) == dict.fromkeys(range(len(PARTS)), "clock")
    assert {finding.kind for finding in questions(series)} == {"clock"}
    wrong = as_series(table.with_columns(pl.col(name).reverse() for name in columns))
    assert {finding.kind for finding in questions(wrong)} == {"calendar"}  # named like it, but it is something else
    assert {finding.kind for finding in questions(as_series(table.drop("time")))} == {"calendar"}


def test_only_names_and_readings_together_make_a_clock():
    count = np.arange(500.0)
    rows = {"id": count, "Unnamed: 0": count + 7, "pieces": count, "index": 2 * count, "hour": count / 3}
    labels = {"is_anomaly": count > 490, "label": 0.0 * count, "target": count / 500}
    table = pl.DataFrame({**rows, **labels, "flow": np.sin(count)})
    asked = {finding.variable: finding.kind for finding in questions(as_series(table))}
    assert asked == {"id": "clock", "Unnamed: 0": "clock", "pieces": "index", "is_anomaly": "label", "label": "label"}
    assert certain_kinds(as_series(table), {"id": "counter"}, search=True) == {0: "counter", 1: "clock"}


def test_units_are_guessed_only_for_variables_with_many_values():
    random = np.random.default_rng(0)
    normal = np.column_stack([random.integers(0, 2, 1000) * 50.0, random.normal(20, 3, 1000)])
    kinds = {finding.variable: finding.kind for finding in findings(normal * 1.8 + 32, Statistics.fit(normal))}
    assert kinds["v1"] == "unit"
    kilo = {finding.variable: finding.kind for finding in findings(normal * 1000, Statistics.fit(normal))}
    assert kilo == {"v0": "range", "v1": "unit"}

"""Variables that only grow or wander are found without labels, and their movement is scored."""

import itertools
import math
from dataclasses import astuple

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometad import Comet, load
from cometad.data.gaps import ForwardFill, ScoreMeasured
from cometad.data.kinds import strays
from cometad.data.prepare import TrendRun, Trends
from cometad.data.quality import Inspection
from cometad.errors import ParameterError

ROWS = 4000
CELL = st.one_of(st.just(math.nan), st.floats(-1e6, 1e6), st.integers(-3, 3).map(float))
SERIES = st.one_of(
    st.lists(CELL, min_size=1, max_size=90),
    st.tuples(CELL, CELL, st.integers(400, 600)).map(lambda drawn: [drawn[0]] + [drawn[1]] * drawn[2]),
)
GAIN = st.sampled_from([1.0, 1 / 64, 0.25])
STARTS = st.sampled_from([(), (-math.inf,), (0.5,), (1e5,)])  # where a counter starts anew
VALUES = st.lists(st.integers(-9, 9).map(float), min_size=1, max_size=5, unique=True).map(sorted)


def naive_movements(readings, gain, usual, far, known=()):
    """The docstring of `Trends`, one reading at a time; NaN is an imputed reading."""
    movements, level, away = [], None, 0
    for reading in readings:
        if not gain:
            near = min(known, key=lambda value: abs(reading - value))
            movements.append(near if math.isnan(reading) else near + far * (reading - near))
        elif math.isnan(reading):
            movements.append(usual)
            level, away = None, 0
        elif level is None or away == 512 or (known and reading <= known[0] and reading < level):
            movements.append(usual)
            level, away = reading - usual + gain * usual, 0
        else:
            movements.append(reading - level)
            followed = min(max(movements[-1], usual - far), usual + far) if gain < 1 else movements[-1]
            away = away + 1 if followed != movements[-1] and not known else 0
            level = reading - usual + gain * usual if followed != movements[-1] and known else level + gain * followed
    return movements


def naive_strays(values):
    """The share of the means of 128 stretches that no other quarter reaches."""
    edges = [len(values) * k // 128 for k in range(129)]
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    outside = 0
    for k, mean in enumerate(means):
        others = [other for j, other in enumerate(means) if j // 32 != k // 32]
        outside += not min(others) <= mean <= max(others)
    return outside / 128


def one(gain, usual=0.0, far=1e9, known=()):
    return Trends(*(np.array([value]) for value in (gain, usual, far)), np.array(known, float).reshape(-1, 1))


@given(readings=SERIES, gain=GAIN, usual=st.floats(-10, 10), far=st.sampled_from([0.5, 100.0, 1e9]), known=STARTS)
def test_movements_equal_the_naive_loop(readings, gain, usual, far, known):
    column = np.array(readings)[:, None]
    found = one(gain, usual, far, known)(column, np.isnan(column))[:, 0]
    np.testing.assert_allclose(found, naive_movements(readings, gain, usual, far, known), rtol=1e-9, atol=1e-7)


@given(readings=SERIES, far=st.sampled_from([1.0, 16.0, 37.7]), known=VALUES)
def test_distances_of_states_equal_the_naive_loop(readings, far, known):
    column = np.array(readings)[:, None]
    found = one(0.0, far=far, known=[*known, math.nan])(column, np.isnan(column))[:, 0]
    np.testing.assert_array_equal(found, naive_movements(readings, 0.0, 0.0, far, known))


@given(readings=SERIES, gain=GAIN, far=st.sampled_from([0.5, 1e9]), known=STARTS, data=st.data())
def test_chunks_and_snapshots_change_nothing(readings, gain, far, known, data):
    column, trends = np.array(readings)[:, None], one(gain, 0.5, far, known)
    missing = np.isnan(column)
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, len(column)), max_size=5))), len(column)]
    run, parts = TrendRun(trends), []
    for begin, end in itertools.pairwise(cuts):
        parts.append(run.push(column[begin:end], missing[begin:end]))
        run, state = TrendRun(trends), run.state()
        run.restore(state)
    np.testing.assert_array_equal(np.concatenate(parts), trends(column, missing))


@given(seed=st.integers(0, 999), walk=st.floats(0, 0.3), rows=st.integers(2048, 3000))
def test_a_variable_strays_if_too_many_means_are_outside_of_the_other_quarters(seed, walk, rows):
    random = np.random.default_rng(seed)
    values = random.normal(size=rows) + np.cumsum(walk * random.normal(size=rows))
    assert strays(values[:, None]) == (naive_strays(values.tolist()) > 0.08)


def wandering(random, rows=ROWS):
    return np.cumsum(random.normal(size=rows)) + np.linspace(0, 200, rows)


def switching(random, rows=ROWS):
    """Two modes, the second only in the last third."""
    return 0.05 * random.normal(size=rows) + 10.0 * (np.arange(rows) > rows * 2 / 3)


def test_what_is_excluded_does_not_count():
    random = np.random.default_rng(0)
    series = np.column_stack([np.cumsum(random.random(ROWS)), wandering(random), set_point(random)])
    series = np.column_stack([series, random.normal(size=(ROWS, 6))])
    kinds = Trends.fit(series).kinds
    assert kinds == {0: "counter", 1: "wanders", 2: "state"}
    series[1000:2400] = 500 * random.random((1400, 9))
    series[2400:, 1] += 300.0  # it went on meanwhile
    fitted = Comet(season="none", trim=False).fit(series, exclude=[(1000, 2400)]).trends_
    assert fitted.kinds == kinds
    assert Comet(trim=False).fit(series).trends_.kinds != kinds
    assert fitted.usual[0] < 1
    assert fitted.known[:3, 2].tolist() == [0.0, 20.0, 40.0]


def steps_at(*places):
    return lambda random: np.isin(STEPS, places).cumsum()


def day_meter(random, rows=ROWS):
    """Energy since midnight, at 96 readings a day; the night adds nothing."""
    day = np.arange(rows) % 96
    grown = np.where((day > 24) & (day < 72), random.random(rows), 0.0)
    return np.concatenate([np.cumsum(part) for part in np.split(grown, range(96, rows, 96))])


def set_point(random, rows=ROWS):
    """Three values in random order, each for 300 readings."""
    return np.repeat(random.integers(0, 3, rows // 300 + 1) * 20.0, 300)[:rows]


STEPS = np.arange(ROWS)
KINDS = {
    "eight steps": (steps_at(40, 900, 1300, 1400, 2200, 2600, 3300, 3900), "counter"),
    "hours that step five times": (steps_at(400, 1200, 2000, 2800, 3600), "counter"),
    "meter that starts anew at midnight": (day_meter, "counter"),
    "elapsed time": (lambda random: 0.1 * STEPS, "counter"),
    "year and its fraction": (lambda random: 2026 + STEPS / 525_600, "counter"),
    "set point": (set_point, "state"),
    "set point that rises four times": (steps_at(500, 1200, 2000, 2900), "state"),
    "ramp of nine steps": (steps_at(*range(1000, 1009)), None),
    "pump that often switches": (lambda random: STEPS // 45 % 2, "state"),
    "pump that always switches": (lambda random: STEPS // 20 % 2, None),
    "pulse": (lambda random: STEPS % 3, None),
    "id": (lambda random: 7.0 + STEPS, "counter"),
    "counter that rests": (lambda random: np.cumsum(random.random(ROWS) < 0.1), "counter"),
    "tank that empties": (lambda random: 9.0 - np.cumsum(random.random(ROWS)), "counter"),
    "walk with a trend": (wandering, "wanders"),
    "trend below noise": (lambda random: random.normal(size=ROWS) + STEPS / 1000, "wanders"),
    "half a cycle": (lambda random: np.cos(STEPS / ROWS * np.pi) + 0.05 * random.normal(size=ROWS), "wanders"),
    "slow temperature, rounded": (lambda random: np.round(2 * np.sin(STEPS / 400)) / 2 + 20, None),
    "mode that moves to the next": (lambda random: np.round(2 * np.sin(STEPS / 400)) + 4, "state"),
    "noise": (lambda random: random.normal(size=ROWS), None),
    "ten cycles": (lambda random: np.sin(STEPS / ROWS * 20 * np.pi), None),
    "switch that is turned on once": (lambda random: STEPS > 3000, "state"),
    "mode that comes late": (switching, None),
    "constant": (lambda random: np.full(ROWS, 3.0), None),
}


@pytest.mark.parametrize("name", KINDS)
def test_trends_are_told_from_other_courses(name):
    draw, kind = KINDS[name]
    random = np.random.default_rng(0)
    others = random.normal(size=(ROWS, 3))
    found = Trends.fit(np.column_stack([others, draw(random)]))
    assert found.kinds == ({} if kind is None else {3: kind})


def test_short_series_wander_only_if_they_only_grow():
    random = np.random.default_rng(0)
    series = np.column_stack([np.arange(500.0), wandering(random, 500), random.normal(size=(500, 2)).T[0]])
    assert Trends.fit(series).kinds == {0: "counter"}


def test_if_most_variables_wander_all_do_except_constants_and_counters():
    random = np.random.default_rng(0)
    walks = np.column_stack([wandering(random) for _ in range(3)])
    rest = np.column_stack([random.normal(size=ROWS), np.full(ROWS, 2.0), STEPS])
    assert Trends.fit(np.column_stack([walks, rest])).kinds == {**dict.fromkeys(range(4), "wanders"), 5: "counter"}


def test_a_broken_sensor_does_not_carry_the_level_away():
    random = np.random.default_rng(0)
    walk = wandering(random)
    trends = Trends.fit(np.column_stack([walk, random.normal(size=(ROWS, 2))]))
    broken = np.column_stack([walk, np.zeros((ROWS, 2))])
    broken[2000, 0] = 1e30
    plain = trends(np.column_stack([walk, np.zeros((ROWS, 2))]))
    assert (
        np.abs(trends(broken)[2001:] - plain[2001:]).max() < trends.far[0] / 60
    )  # one reading moves it by at most 1 / 64 of that


def test_after_a_jump_that_lasts_the_level_starts_anew():
    random = np.random.default_rng(0)
    walk = wandering(random)
    trends = Trends.fit(np.column_stack([walk, random.normal(size=(ROWS, 2))]))
    walk[2000:] += 1e9
    moved = trends(np.column_stack([walk, np.zeros((ROWS, 2))]))[:, 0]
    assert (moved[2000:2512] > 1e8).all()
    assert np.abs(moved[2512:]).max() < 100


def test_sentences_name_a_few_variables():
    trends = Trends(np.array([1.0, *[1 / 64] * 8]), np.zeros(9), np.zeros(9))
    grows, wanders = trends.sentences([f"v{i}" for i in range(9)])
    assert grows == "'v0' only grows or only falls: its increments are scored instead of its readings."
    assert wanders.startswith("'v1', 'v2', 'v3', 'v4', 'v5' and 3 more variables wander: ")


# -- detectors --------------------------------------------------------------------------------------------------------


def plant(rows=6000):
    """An id, a meter and two sensors that share a load; half to train, half to test, with two faults."""
    random = np.random.default_rng(3)
    load = 1 + 0.5 * np.sin(np.arange(rows) / 40) + 0.05 * random.normal(size=rows)
    rates = np.column_stack([np.ones(rows), 3 * load])
    rates[4500:4520, 1] = 30.0
    sensors = load[:, None] * [2.0, -1.0] + 0.1 * random.normal(size=(rows, 2))
    sensors[5200:5220, 0] += 5.0
    frame = pl.DataFrame(np.column_stack([np.cumsum(rates, axis=0), sensors]), ["id", "meter", "flow", "heat"])
    return frame[: rows // 2], frame[rows // 2 :]


@pytest.fixture(scope="module")
def fitted():
    train, test = plant()
    return Comet().fit(train), test


def test_counters_are_scored_by_their_increments(fitted):
    detector, test = fitted
    assert detector.trends_.kinds == {0: "clock", 1: "counter"}
    flags = detector.predict(test)
    assert flags[1500:1520].any()
    assert flags[2200:2220].any()
    assert flags.mean() < 0.04
    scores = detector.step_scores(test).alerts
    assert scores[:500].max() < scores[1500:1520].max()


def test_without_trends_readings_are_scored(fitted):
    train, test = plant()
    plain = Comet(trends=False).fit(train)
    assert plain.trends_.kinds == {}
    assert (plain.step_scores(test).alerts > plain.threshold_).mean() > 0.5  # the counters leave their range
    assert (fitted[0].step_scores(test).alerts > fitted[0].threshold_).mean() < 0.05


def test_a_stream_in_chunks_equals_the_batch(fitted, tmp_path):
    detector, test = fitted
    detector.save(tmp_path / "plant.comet")
    again = load(tmp_path / "plant.comet")
    for theirs, ours in zip(astuple(again.trends_), astuple(detector.trends_), strict=True):
        np.testing.assert_array_equal(theirs, ours)
    stream, parts = again.stream(), []
    for begin in range(0, len(test), 700):
        parts.append(stream.update_many(test[begin : begin + 700]))
        stream = again.stream(stream.snapshot())
    parts.append(stream.finish())
    np.testing.assert_array_equal(np.concatenate(parts), detector.decision_function(test))


@pytest.mark.parametrize("gaps", [ForwardFill(3), ScoreMeasured()], ids=repr)
def test_a_counter_that_goes_missing_and_returns_raises_no_alarm(gaps):
    train, test = plant()
    detector = Comet(gaps=gaps).fit(train)
    lacking = test[:1400].with_columns(
        meter=pl.when(pl.int_range(pl.len()).is_between(400, 900)).then(None).otherwise(pl.col("meter"))
    )
    usual = detector.judge().push(detector.step_scores(test[:1400]).alerts).flags
    scored = detector.step_scores(lacking)
    flags = detector.judge().push(scored.alerts, scored.imputed).flags
    assert flags.sum() <= usual.sum() + 10
    stream = detector.stream()
    parts = [stream.update_many(lacking[:450]), stream.update_many(lacking[450:]), stream.finish()]
    np.testing.assert_array_equal(np.concatenate(parts), scored.scores)


def test_explanations_are_in_the_units_of_the_sensors(fitted):
    detector, test = fitted
    explained = detector.explain(test, (1500, 1520))
    assert explained.reasons[0].variable == "meter"
    meter = explained.names.index("meter")
    np.testing.assert_array_equal(explained.observed[:, meter], test["meter"].to_numpy()[1468:1552])
    before = slice(0, 30)
    assert np.abs(explained.normal[before, meter] - explained.observed[before, meter]).max() < 5
    assert explained.reasons[0].expected.min() > 10_000  # what the counter should show, not its increments


def test_a_movement_that_a_person_calls_normal_raises_no_alarm_again(fitted):
    detector, test = fitted
    twice = test.with_columns(
        meter=pl.col("meter") + pl.when(pl.int_range(pl.len()) >= 800).then(2.0 * 27 * 20).otherwise(0.0)
    )
    taught = detector.learn_normal(test, (1500, 1520))
    assert detector.predict(test)[1500:1520].any()
    assert not taught.predict(test)[1500:1520].any()
    assert taught.predict(twice)[800]  # a much larger step


def test_a_trend_is_no_finding_about_the_range(fitted):
    detector, test = fitted
    kinds = []
    for trending in ((), detector.trends_.kinds):
        inspection = Inspection(detector.statistics_, trending)
        inspection.push(test)
        kinds.append({finding.variable for finding in inspection.findings() if finding.kind in ("range", "unit")})
    assert kinds == [{"meter"}, set()]


def test_trends_is_true_or_false():
    with pytest.raises(ParameterError, match="trends"):
        Comet(trends="walks").check_parameters()

"""Each stage of an exported graph against our own code."""

import copy
from datetime import date

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from cometad.alerting.budget import Budget
from cometad.alerting.thresholds import Conformal, Quantile
from cometad.baselines import BASELINES
from cometad.data.prepare import LASTING, Scaling, TrendRun, Trends
from cometad.data.season import DAY, Season
from cometad.export.agreement import opened
from cometad.export.graph import DOUBLE, Graph
from cometad.export.rules import RULE_GRAPHS
from cometad.export.stages import excused, movements, power_mean, scaled, variable_scores, without_season
from cometad.export.step import season_slots
from cometad.export.views import VIEW_GRAPHS, nearest
from cometad.scoring.scores import Errors, Scores, fuse
from cometad.scoring.signatures import Gathering, Signatures
from cometad.series import Series
from cometad.views import Activity, Balance, Forecast, Joint, Patterns
from cometad.views.joint import FittedJoint
from cometad.views.panel import clipped

VIEWS = [Patterns(length=6, codes=5), Joint(length=4, codes=6), Forecast(lags=3), Balance(length=4), Activity(length=7)]


def compiled(make, *shapes):
    """A function of arrays with these shapes that runs the graph that `make` makes of wires."""
    graph = Graph()
    names = [f"input{k}" for k in range(len(shapes))]
    results = make(graph, *map(graph.wire, names))
    results = results if isinstance(results, (tuple, list)) else (results,)
    outputs = [f"output{k}" for k in range(len(results))]
    for wire, name in zip(results, outputs, strict=True):
        graph.identity(wire, name)
    inputs = [helper.make_tensor_value_info(*each) for each in zip(names, [DOUBLE] * len(names), shapes, strict=True)]
    body = helper.make_graph(
        graph.nodes,
        "stage",
        inputs,
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        graph.initializers,
    )
    session = opened(
        helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )

    def run(*arrays):
        found = session.run(outputs, dict(zip(names, arrays, strict=True)))
        return found[0] if len(found) == 1 else found

    return run


def rows_of(rng, count, width, discrete):
    """Scaled readings as views see them: smooth ones, or few values, so that codes are often equally near."""
    rows = rng.choice([-1.3, 0.1, 0.7], (count, width)) if discrete else rng.normal(size=(count, width))
    return clipped(rows.astype(np.float32))


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: type(view).__name__)
@settings(max_examples=4)
@given(width=st.integers(1, 5), seed=st.integers(0, 99), discrete=st.booleans())
def test_a_view_has_the_same_errors(view, width, seed, discrete):
    rng = np.random.default_rng(seed)
    fitted = view.fit(rows_of(rng, 120, width, discrete), np.ones(120, bool), rng)
    rows, length = rows_of(rng, 60, width, discrete), fitted.context + 1
    rows[20] = 50.0
    run = compiled(lambda graph, window: VIEW_GRAPHS[type(fitted)](graph, fitted, window), (length, width))
    theirs = np.concatenate([run(rows[t - length + 1 : t + 1]) for t in range(length - 1, 60)])
    np.testing.assert_allclose(theirs, fitted.errors(rows, length - 1), rtol=1e-12, atol=1e-7)


@pytest.mark.parametrize("view", [Forecast(lags=2), Balance(length=2)], ids=["Forecast", "Balance"])
def test_a_view_of_many_variables_has_the_same_errors(view):
    rng = np.random.default_rng(0)
    rows = rows_of(rng, 300, 70, discrete=False)  # more than 64: principal directions are used
    fitted = view.fit(rows, np.ones(300, bool), rng)
    run = compiled(lambda graph, window: VIEW_GRAPHS[type(fitted)](graph, fitted, window), (fitted.context + 1, 70))
    own = rows[-fitted.context - 1 :]
    np.testing.assert_allclose(run(own), fitted.errors(own, fitted.context), rtol=1e-10)


def test_between_equally_near_codes_the_graph_chooses_the_one_that_our_search_chooses():
    rng, dim = np.random.default_rng(0), 40
    ours, theirs, plain = [], [], []
    for _ in range(60):
        window = rng.normal(size=dim).astype(np.float32).astype(np.float64)
        away = rng.normal(size=dim)
        codes = np.array([window + rng.permutation(away) for _ in range(6)])  # all at the same distance
        expected = FittedJoint(Joint(length=1), codes).expected(window[None], 0)[0]
        ours.append(int(np.flatnonzero((codes == expected).all(axis=1))[0]))
        run = compiled(lambda graph, wire, codes=codes: nearest(graph, wire, [codes]), (1, dim))
        theirs.append(int(run(window[None])[0]))
        plain.append(int((0.5 * (codes**2).sum(axis=1) - codes @ window).argmin()))
    assert theirs == ours
    assert plain != ours, "double precision alone would do, so this test shows nothing"


def test_scaling_is_the_same_to_the_bit():
    rng = np.random.default_rng(0)
    scaling = Scaling(rng.normal(size=4), rng.random(4) + 0.1)
    run = compiled(lambda graph, values: scaled(graph, scaling, values), (4,))
    for values in (rng.normal(size=4), np.array([1e300, -1e300, 49.99999999 * scaling.unit[2], 0.0])):
        assert np.array_equal(run(values), clipped(scaling(values[None]))[0])


def test_trends_are_the_same_to_the_bit():
    rng = np.random.default_rng(0)
    gain, usual = np.array([0.0, 1.0, 1 / 64, 1 / 64, 0.0, 1.0, 0.0, 1 / 90]), rng.normal(size=8)
    known = np.full((3, 8), np.nan)  # of a state, of a counter that starts anew, a clock and a slow counter
    known[:, 4], known[0, 5:] = [-9.0, 2.0, 7.0], [0.5, 3.0, -np.inf]
    trends = Trends(gain, usual, np.array([0.0, 3.0, 2.0, 1.0, 0.5, 0.0, 0.0, 1.0]), known)
    readings = np.cumsum(rng.normal(size=(900, 8)), axis=0)
    readings[100 : 100 + LASTING + 50, 3] += 500.0  # so long that the level starts anew
    readings[[50, 51], 1:] = [[1e300] * 7, [-1e300] * 7]
    run = compiled(
        lambda graph, reading, level, away, seen: movements(graph, trends, reading, level, away, seen.same(0.0)),
        *([(8,)] * 3),
        (1,),
    )
    level, away, moved = np.zeros(8), np.zeros(8), []
    for t, reading in enumerate(readings):
        one, level, away = run(reading, level, away, np.array([float(t)]))
        moved.append(one)
    assert np.array_equal(np.array(moved), TrendRun(trends).push(readings))


HOUR = 3_600_000_000  # microseconds
EASTER = (date(2024, 3, 29) - date(1970, 1, 1)).days * DAY


@settings(max_examples=12)
@given(
    seed=st.integers(0, 999),
    minutes=st.sampled_from([10, 60, 300, 1440]),
    length=st.sampled_from([DAY, 7, 200]),
    holidays=st.sampled_from([None, "DE"]),
)
def test_seasons_are_the_same_to_the_bit(seed, minutes, length, holidays):
    rng, minute = np.random.default_rng(seed), HOUR // 60
    count, slots = int(rng.integers(20, 900)), min(max(1440 // minutes, 1), 24) if length == DAY else min(length, 168)
    micros = EASTER - int(rng.integers(count)) * minutes * minute + 7 * minute + minutes * minute * np.arange(count)
    micros[count // 3 :] += int(rng.integers(3)) * 5 * HOUR  # a gap
    micros[3 * count // 4 :] -= int(rng.integers(2)) * HOUR  # a clock that is set back
    values = np.round(rng.normal(size=(count, 4)), 1)
    values[rng.random(count) < 0.4, 0] = 1e200
    season = Season(np.array([1, 2, 0, 7]) if length == DAY else np.array([1, 1, 0, 1]), "UTC", holidays, length, slots)
    series = Series(values[: count // 2], ("a", "b", "c", "d"), micros[: count // 2].astype("datetime64[us]"), True)
    season._learn(series, *season._placed(count // 2, series.micros), np.zeros(series.values.shape, bool))
    slots = season_slots(season)
    assert [slot.name for slot in slots][5:] == ([] if length == DAY else ["at"])

    def make(graph, reading, at, *before):
        parts = {"at": at} | dict(zip((slot.name for slot in slots), before, strict=True))
        moved, after = without_season(graph, season, reading, parts)
        return moved, *(after[slot.name] for slot in slots)

    run = compiled(make, (4,), (1,), *(slot.initial.shape for slot in slots))
    parts, moved = [slot.initial for slot in slots], []
    for reading, micro in zip(values[count // 2 :], micros[count // 2 :], strict=True):
        one, *parts = run(reading, np.array([float(micro)]), *parts)
        moved.append(one)
    assert np.array_equal(np.array(moved), copy.deepcopy(season).push(values[count // 2 :], micros[count // 2 :]))


@given(seed=st.integers(0, 99), views=st.integers(1, 4), width=st.integers(1, 4), pooling=st.sampled_from([1, 3, 8]))
@settings(max_examples=8)
def test_scores_are_the_same_also_while_views_still_wait_for_readings(seed, views, width, pooling):
    rng = np.random.default_rng(seed)
    tails = np.sort(rng.random((views, 3, width)), axis=1) + np.arange(3)[None, :, None]
    weights = rng.dirichlet(np.ones(views))
    errors = 4 * rng.random((30, views, width))
    unknown = rng.random((30, views)) < 0.4
    errors[unknown] = np.nan

    def make(graph, errors, known):
        scores = variable_scores(graph, errors, known > 0.5, tails, weights)
        return scores, power_mean(graph, scores, pooling)

    run, ours = compiled(make, (views, width), (views, 1)), fuse(errors, tails, weights, pooling)
    for t in range(30):
        variables, score = run(np.nan_to_num(errors[t]), (~unknown[t]).astype(float)[:, None])
        np.testing.assert_allclose(variables[0], ours.variables[t], rtol=1e-13)
        np.testing.assert_allclose(score[0, 0], ours.alerts[t], rtol=1e-13)


def test_verdicts_excuse_the_same_scores():
    rng, views, width = np.random.default_rng(0), 2, 3
    rows, errors, variables = (
        rng.normal(size=(400, width)),
        5 * rng.random((400, views, width)),
        6 * rng.random((400, 3)),
    )
    errors[rng.random((400, views)) < 0.2] = np.nan
    normal = []
    for start in (0, 50):
        gathering = Gathering(start, views, width)
        gathering.add(rows[start : start + 9], errors[start : start + 9], variables[start : start + 9])
        normal.append(gathering.signature())
    signatures, highs = Signatures(np.full(width, 0.3), tuple(normal)), np.full((views, width), 2.0)
    usual = compiled(lambda graph, own: power_mean(graph, own, 8), (1, width))
    scores = np.array([usual(own[None])[0, 0] for own in variables])
    fused = Scores(scores, variables, np.zeros((400, width), bool))
    ours = signatures.excuse(fused, Errors(rows, errors), highs, 8).alerts
    run = compiled(
        lambda graph, row, errors, known, own: excused(graph, signatures, highs, 8, row, errors, known > 0.5, own),
        (1, width),
        (views, width),
        (views, 1),
        (1, width),
    )
    known = ~np.isnan(errors[:, :, 0])
    theirs = [
        run(rows[t, None], np.nan_to_num(errors[t]), known[t].astype(float)[:, None], variables[t, None])[0, 0]
        for t in range(400)
    ]
    np.testing.assert_allclose(theirs, ours, rtol=1e-13)
    assert 10 < (ours < scores).sum() < 390


def plant(rule, period=None):
    """A detector with a threshold rule, whose readings come with that many seconds between them."""
    readings = np.random.default_rng(0).normal(size=(500, 2))
    if period is not None:
        times = pd.date_range("2026-01-01", periods=len(readings), freq=pd.Timedelta(seconds=period))
        readings = pd.DataFrame(readings, index=times)
    return BASELINES["squared-norm"](threshold=rule).fit(readings)


def tracked(detector, scores):
    """The thresholds of the exported rule of a detector."""
    graphs = RULE_GRAPHS[type(detector.threshold)]
    slots = graphs.slots(detector)

    def make(graph, score, *before):
        parts = dict(zip((slot.name for slot in slots), before, strict=True))
        threshold, after = graphs.track(graph, detector, score, parts)
        return threshold, *(after[slot.name] for slot in slots)

    run, before, thresholds = compiled(make, *([(1,)] * (1 + len(slots)))), [slot.initial for slot in slots], []
    for score in scores:
        found = run(np.array([score]), *before)
        threshold, *before = found if slots else (found,)
        thresholds.append(threshold[0])
    return np.array(thresholds)


def assert_judged_the_same(detector, scores):
    """The graph's thresholds and flags are those of the judge, which is returned."""
    judged, theirs = detector.judge().push(scores), tracked(detector, scores)
    np.testing.assert_allclose(theirs, judged.thresholds, rtol=1e-9, atol=1e-20)
    assert np.array_equal(scores > theirs, judged.flags)
    return judged


@pytest.mark.parametrize(
    "rule", [Budget(rate=0.05), Budget(rate=0.3, patience=0), Budget(), Quantile(0.02), Conformal(0.05)], ids=str
)
def test_a_threshold_follows_the_same_scores(rule):
    scores = 2 * np.random.default_rng(0).exponential(size=700)
    scores[100:140] += 16.0  # a fault
    scores[300:] += 6.0  # a shift
    scores[400:480] = 4.0  # constant
    scores[600] = 1e200
    judged = assert_judged_the_same(plant(rule), scores)
    assert len(set(judged.thresholds)) > 100 or not isinstance(rule, Budget)


BUDGETS = {
    "default": plant(Budget()),
    "many alerts, short pauses": plant(Budget(alerts=30, per=1000)),
    "hourly": plant(Budget(alerts_per_day=0.2), period=3600.0),
    "no tail": BASELINES["squared-norm"](threshold=Budget()).fit(np.zeros((50, 2))),
}
MADE = {
    "noise": lambda size, noise: noise,
    "shift": lambda size, noise: size + noise,
    "constant": lambda size, noise: np.full(len(noise), size),
    "ramp": lambda size, noise: np.linspace(0, size, len(noise)) + noise,
    "growth": lambda size, noise: (size + noise) * 1.03 ** np.arange(len(noise)),
    "flicker": lambda size, noise: np.where(np.arange(len(noise)) % 7 < 3, size, 0.1) * noise,
    "few values": lambda size, noise: np.where(noise > 2, size, 1.0),
}
pieces = st.tuples(
    st.sampled_from(list(MADE)), st.sampled_from([0.5, 5.0, 12.0, 30.0, 200.0, 1e6]), st.integers(1, 150)
)


@pytest.mark.parametrize("detector", BUDGETS.values(), ids=BUDGETS)
@given(pieces=st.lists(pieces, min_size=1, max_size=8), seed=st.integers(0, 99))
@settings(max_examples=15)
def test_a_budget_of_alerts_judges_any_scores_the_same(detector, pieces, seed):
    rng = np.random.default_rng(seed)
    scores = [MADE[kind](size, rng.chisquare(2, length)) for kind, size, length in pieces]
    assert_judged_the_same(detector, np.concatenate(scores))


def test_a_budget_of_alerts_settles_escalates_and_forgets_as_the_judge_does():
    scores = np.random.default_rng(0).chisquare(2, 900)
    scores[100:400] += 60.0  # settles after 64 readings
    scores[250:330] *= 2.0  # escalates, and settles again
    scores[[405, 450]] = 100.0  # the first one while the state lasts, the second after it
    scores[500:800] = 90.0  # constant
    judged = assert_judged_the_same(plant(Budget()), scores)
    opened = [change.step for change in judged.changes if change.kind == "opened"]
    closed = [(change.step, change.event.new_level) for change in judged.changes if change.kind == "closed"]
    assert opened[-4:] == [100, 250, 450, 500]
    assert [step for step, new_level in closed if new_level] == [163, 313, 563]


def test_a_threshold_follows_constant_scores_that_are_almost_zero():
    detector, scores = BASELINES["squared-norm"](threshold=Budget(rate=0.1)).fit(np.zeros((50, 2))), np.full(300, 3e-27)
    scores[100] = 1.0
    assert_judged_the_same(detector, scores)

"""Gaps are filled by the chosen rule, always marked, and never raise an alert by themselves."""

import copy
import itertools
import math
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from cometad import Comet, NetworkComet, Quantile
from cometad.alerting import DriftingSpot
from cometad.alerting.alerts import Alerts, Judge
from cometad.alerting.severity import ScoreTail
from cometad.data.gaps import GAPS, ForwardFill, GapRun, Interpolate, RefuseGaps, ScoreMeasured, fill, parse_gaps
from cometad.data.network_windows import learnable, window_starts
from cometad.errors import InputError, ParameterError
from cometad.network import Epochs, NoAdaptation, OneCycle, OnlineAdaptation
from cometad.network.adaptation import NormalCriteria
from cometad.network.patches import patches_containing, reached
from contract import is_a_sentence, waves
from tiny import UNEVEN

CENTER = np.array([10.0, -20.0])
TAIL = ScoreTail.fit(np.arange(100.0))
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
def test_filling_equals_the_naive_loops(rule, values):
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
        assert len(run.state()["waiting"]) <= getattr(rule, "limit", 0)
        state, run = run.state(), GapRun(rule, CENTER)
        run.restore(state)
    parts.append(run.finish())
    for found, expected in zip(zip(*parts, strict=True), fill(values, rule, CENTER), strict=True):
        assert np.concatenate(found).tobytes() == expected.tobytes()


@pytest.mark.parametrize("rule", RULES, ids=repr)
@given(values=SERIES)
def test_imputed_values_stay_within_the_bounds(rule, values):
    plain, bounded = fill(values, rule, CENTER), fill(values, rule, CENTER, (np.array([-3.0, -30.0]), 12.0))
    near = plain.imputed & ~plain.doubtful
    expected = np.where(near, np.minimum(np.maximum(plain.values, [-3.0, -30.0]), 12.0), plain.values)
    assert np.array_equal(bounded.values, expected)


def test_interpolation_returns_a_reading_as_soon_as_its_gap_ends_or_is_too_long():
    run = GapRun(Interpolate(2), np.zeros(1))
    given = [len(run.push(np.array([[value]])).values) for value in (1.0, np.nan, np.nan, 4.0, np.nan, np.nan, np.nan)]
    assert given == [1, 0, 0, 3, 0, 0, 3]
    assert len(run.push(np.array([[np.nan]])).values) == 1  # the gap is known to be too long


# -- errors --------------------------------------------------------------------------------------------------------


def test_refusing_gaps_lets_complete_readings_pass():
    values = np.ones((3, 2))
    assert fill(values, RefuseGaps(), CENTER).values is values
    with pytest.raises(InputError, match="ForwardFill"):
        fill(np.full((1, 2), np.nan), RefuseGaps(), CENTER)


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, None, "3"])
@pytest.mark.parametrize("rule", [ForwardFill, Interpolate])
def test_an_invalid_limit_is_refused(rule, limit):
    with pytest.raises(ParameterError, match="'limit' parameter must be an integer of at least 1") as caught:
        rule(limit)
    assert is_a_sentence(str(caught.value))


def test_every_rule_has_a_name_on_the_command_line():
    assert [parse_gaps(name) for name in GAPS] == [RefuseGaps(), ForwardFill(), Interpolate(), ScoreMeasured()]
    assert parse_gaps("interpolate:7") == Interpolate(7)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Available: refuse, forward-fill, interpolate, score-measured"),
        ("fill", "Available: refuse, forward-fill"),
        ("forward-fill:", "Write it as forward-fill or forward-fill:LIMIT"),
        ("forward-fill:1_0", "Write it as forward-fill or forward-fill:LIMIT"),
        ("forward-fill:0", "'limit' parameter must be an integer of at least 1"),
        ("interpolate:-1", "Write it as interpolate or interpolate:LIMIT"),
        ("score-measured:2", r"Write it as score-measured\."),
    ],
)
def test_an_unreadable_gap_rule_is_refused(text, words):
    with pytest.raises(ParameterError, match=words) as caught:
        parse_gaps(text)
    assert is_a_sentence(str(caught.value))


# -- how imputed readings affect scores -------------------------------------------------------------------------------

SHAPE = UNEVEN | {"schedule": OneCycle(10)}
SCALES = list(zip(SHAPE["patch_sizes"], SHAPE["patch_strides"], strict=True))
LEARNING = OnlineAdaptation(learning_rate=1e-2, max_drift=0.5, error_limit=0.99, contrastive_weight=0.1, pairs=16)
NORMAL = waves(300)
FRESH = waves(170, seed=1)


@cache
def fitted(rule, adapts=False, **changes):
    adaptation = LEARNING if adapts else NoAdaptation()
    return NetworkComet(**{**SHAPE, "adaptation": adaptation, "gaps": rule, **changes}).fit(NORMAL)


@cache
def fitted_paper(rule):
    return Comet.paper(**{**SHAPE, "schedule": Epochs(1), "gaps": rule}).fit(NORMAL)


def with_gaps(seed, share=0.02, series=FRESH):
    """The series with cells, and some whole readings, missing at random."""
    rng = np.random.default_rng(seed)
    values = series.copy()
    values[rng.random(values.shape) < share] = np.nan
    for start in rng.integers(0, len(values), size=2):
        values[start : start + rng.integers(1, 30)] = np.nan
    return values


class Judged(NamedTuple):
    scores: np.ndarray
    imputed: np.ndarray
    flags: np.ndarray


def judged_by(detector, values):
    scores, _, imputed = detector.step_scores(values)
    assert detector.decision_function(values).tobytes() == scores.tobytes()
    return Judged(scores, np.zeros(len(scores), bool) if imputed is None else imputed, detector.predict(values))


@given(
    cells=st.lists(st.tuples(st.booleans(), st.just(False)), min_size=8, max_size=30),
    scales=st.lists(st.sampled_from([(1, 1), (2, 1), (5, 2), (8, 5), (4, 4)]), min_size=1, max_size=3),
)
def test_the_reach_of_a_cell_equals_the_naive_loops(cells, scales):
    marked = np.array(cells)[None]
    assert reached(marked, scales)[0].tolist() == naive.left_out(cells, scales)
    for size, stride in scales:
        starts = range(0, len(cells) - size + 1, stride)
        expected = [any(cell[0] for cell in cells[start : start + size]) for start in starts]
        assert patches_containing(marked, size, stride)[0, :, 0].tolist() == expected


@pytest.mark.parametrize("adapts", [False, True])
def test_a_gap_rule_changes_nothing_without_gaps(adapts):
    without = fitted(RefuseGaps(), adapts)
    for rule in RULES:
        detector = fitted(rule, adapts)
        assert detector.threshold_ == without.threshold_
        assert detector.decision_function(FRESH).tobytes() == without.decision_function(FRESH).tobytes()
        stream = detector.stream()
        scored = [*(stream.update(row) for row in FRESH), stream.finish()]
        assert np.concatenate(scored).tobytes() == without.decision_function(FRESH).tobytes()
        assert all(part.left_out is None for part in scored)


@pytest.mark.parametrize("make", [fitted, partial(fitted, adapts=True), fitted_paper], ids=["fixed", "adapts", "paper"])
@pytest.mark.parametrize("rule", RULES, ids=repr)
@settings(max_examples=5)
@given(data=st.data())
def test_a_stream_with_gaps_equals_the_batch_for_any_chunks_and_snapshots(make, rule, data):
    detector, values = make(rule), with_gaps(data.draw(st.integers(0, 99)))
    judged = judged_by(detector, values)
    cuts = [0, *sorted(data.draw(st.sets(st.integers(1, len(values) - 1), max_size=6))), len(values)]
    stream, parts = detector.stream(), []
    for start, stop in itertools.pairwise(cuts):
        one_by_one = data.draw(st.booleans())
        parts += [stream.update(row) for row in values[start:stop]] if one_by_one else []
        parts += [] if one_by_one else [stream.update_many(values[start:stop])]
        stream = detector.stream(stream.snapshot())
    parts.append(stream.finish())
    assert np.concatenate(parts).tobytes() == judged.scores.tobytes()
    assert np.concatenate([part.flags for part in parts]).tolist() == judged.flags.tolist()
    assert np.concatenate([part.imputed for part in parts]).tolist() == judged.imputed.tolist()


@pytest.mark.parametrize("rule", RULES, ids=repr)
@given(seed=st.integers(0, 99))
@settings(max_examples=5)
def test_time_steps_out_of_reach_of_gaps_keep_their_scores(rule, seed):
    detector, values = fitted(rule), with_gaps(seed, share=0.0)
    whole = detector.decision_function(FRESH)
    judged = judged_by(detector, values)
    near = np.zeros(len(values), bool)
    for start, new in naive.scoring_windows(len(values), SHAPE["window"]):
        steps = slice(start, start + SHAPE["window"])
        reach = naive.left_out(np.isnan(values[steps]).tolist(), SCALES)
        near[start + new : steps.stop] = [any(row) for row in reach][new:]
    assert near.any()
    assert not near.all()
    assert judged.scores[~near].tobytes() == whole[~near].tobytes()
    assert judged.imputed.tolist() == near.tolist()  # all variables are missing at once
    assert not judged.flags[near].any()
    assert not judged.scores[near].any()


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_a_variable_with_an_imputed_reading_counts_as_normal(rule):
    detector, values = fitted(rule), SPIKED_FRESH.copy()
    values[60:64, 1] = np.nan
    scored = detector.stream().update_many(values)
    left_out = scored.left_out
    assert left_out[60:64, 1].all()
    assert not left_out[:, [0, 2]].any()
    assert not scored.variables[left_out].any()
    assert not scored.imputed.any()
    assert scored.flags[100]  # the other variables still count


SPIKED_FRESH = FRESH.copy()
SPIKED_FRESH[100] += 25


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_a_broken_value_held_over_a_gap_raises_no_alert(rule):
    """The last value before the gap is absurd, and so is what is imputed: only measured readings may count."""
    values = FRESH.copy()
    values[80] = 1e4
    values[81:120] = np.nan
    judged = judged_by(fitted(rule), values)
    assert not judged.flags[81:120].any()
    assert judged.imputed[81:120].all()
    assert all(event.stop <= 81 or event.start >= 120 for event in fitted(rule).events(values))


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_a_broken_value_held_over_a_gap_of_one_variable_does_not_affect_the_others(rule):
    """All variables share some features, so imputed values must not be absurd."""
    values = FRESH.copy()
    values[80, 1] = 1e4
    values[81:140, 1] = np.nan
    quiet = values.copy()
    quiet[80, 1] = FRESH[80, 1]
    flags, usual = (judged_by(fitted(rule), series).flags[90:140] for series in (values, quiet))
    assert flags.sum() <= usual.sum()


def test_imputed_readings_do_not_move_a_moving_minimum():
    detector = Comet.paper(**{**SHAPE, "schedule": Epochs(1), "gaps": ScoreMeasured(), "adaptation": NoAdaptation()})
    detector.fit(NORMAL)
    values = FRESH.copy()
    values[:48] = np.nan  # all of the first batch, to which later ones would be compared
    judged = judged_by(detector, values)
    assert judged.imputed.tolist() == [True] * 48 + [False] * (len(values) - 48)
    assert judged.scores[48:].tobytes() == detector.decision_function(FRESH[48:]).tobytes()


def test_adaptation_learns_nothing_from_patches_with_imputed_readings():
    """The same as treating these patches as abnormal, with the contrastive term off."""
    detector = fitted(RefuseGaps(), adapts=True)
    windows = FRESH[:48].reshape(2, 24, 3).astype(np.float32)
    imputed = np.zeros(windows.shape, bool)
    imputed[0, 5:7, 1] = imputed[1, 20, :] = True
    states = []
    for marks, hidden in ((imputed, False), (None, True), (None, False)):
        network = copy.deepcopy(detector.network_)
        seen = NormalCriteria(detector.active_, [np.full(3, 1e6)] * 3)
        settings = OnlineAdaptation(learning_rate=1e-2, contrastive_weight=0.0, error_limit=0.99)
        adapter = settings.start(network, seen, detector._objective, seed=0)
        scored = [detector._fitted.scorer.whole(windows, k) for k in range(3)]
        if hidden:
            for (size, stride), part in zip(SCALES, scored, strict=True):
                part.errors[patches_containing(imputed, size, stride)] = 1e9
        adapter.learn(windows, scored, marks)
        states.append(torch.cat([parameter.detach().flatten() for parameter in network.parameters()]))
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])


def test_raw_scores_of_imputed_readings_are_missing():
    values = FRESH.copy()
    values[60, 1] = np.nan
    raw = fitted(ForwardFill(1)).score_map(values)
    assert np.isnan(raw.memory[:, 60, 1]).all()
    assert np.isfinite(raw.memory[:, :, [0, 2]]).all()


@pytest.mark.parametrize("rule", [Quantile(0.1), DriftingSpot(rate=1e-2, depth=5)], ids=repr)
@given(scores=st.lists(st.tuples(st.floats(-3, 30), st.booleans()), max_size=40), cut=st.integers(0, 40))
def test_a_threshold_neither_flags_nor_follows_imputed_readings(rule, scores, cut):
    training = np.random.default_rng(0).normal(size=500)
    values, imputed = np.array([score for score, _ in scores]), np.array([gone for _, gone in scores], bool)

    def judge():
        return Judge(rule, rule.fit(training), Alerts(), ScoreTail.fit(training))

    run, alone = judge(), judge()
    parts = [run.push(values[part], imputed[part]) for part in (slice(None, cut), slice(cut, None))]
    flags, thresholds = (np.concatenate([getattr(part, name) for part in parts]) for name in ("flags", "thresholds"))
    expected = alone.push(values[~imputed])
    assert flags[~imputed].tolist() == expected.flags.tolist()
    assert thresholds[~imputed].tolist() == expected.thresholds.tolist()
    assert not flags[imputed].any()
    assert np.isfinite(thresholds).all()
    kinds = [change.kind for part in parts for change in part.changes]
    assert kinds == [change.kind for change in expected.changes]


# -- fitting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [ForwardFill(3), Interpolate(3), ScoreMeasured()], ids=repr)
def test_nothing_is_learned_from_doubtful_readings(rule, tmp_path):
    values = NORMAL.copy()
    values[100:140, 1] = np.nan
    detector = NetworkComet(**SHAPE, gaps=rule).fit(values)
    assert detector.scaling_.center[1] == pytest.approx(np.nanmean(values[:270, 1]))
    starts = window_starts(270, 24, 8)
    kept = learnable(starts, 24, detector._checked(values))
    doubtful = range(103 if isinstance(rule, ForwardFill) else 100, 140)
    assert kept.tolist() == [start for start in starts if not set(range(start, start + 24)) & set(doubtful)]
    judged = judged_by(detector, values)
    assert np.array_equal(judged.scores, detector.decision_scores_)
    measured = ~judged.imputed
    scores = detector.alert_scores_
    lines = [np.quantile(scores[part][measured[part]], 0.99) for part in (slice(None), slice(270, None))]
    assert detector.threshold_ == max(lines)
    assert detector.with_threshold(Quantile(0.01)).threshold_ == detector.threshold_
    detector.save(tmp_path / "detector")
    loaded = NetworkComet.load(tmp_path / "detector")
    assert loaded.gaps == rule
    assert judged_by(loaded, values).scores.tobytes() == judged.scores.tobytes()
    assert loaded.statistics_.names == detector.statistics_.names
    assert np.array_equal(loaded.statistics_.quantiles, detector.statistics_.quantiles)


def test_too_many_gaps_are_refused_when_fitting():
    values = NORMAL.copy()
    values[5::20, 1] = np.nan
    with pytest.raises(
        InputError,
        match=r"Only 0 of 32 windows of 24 readings have no gap beyond the limit; most gaps are in variable 'v1'",
    ) as caught:
        NetworkComet(**SHAPE, gaps=ScoreMeasured()).fit(values)
    assert is_a_sentence(str(caught.value))
    NetworkComet(**SHAPE, gaps=ForwardFill(1)).fit(values)  # short gaps may be learned from
    values[:, 1] = np.nan
    with pytest.raises(InputError, match="Variable 'v1' has no reading in the training part") as caught:
        NetworkComet(**SHAPE, gaps=ForwardFill(1)).fit(values)
    assert is_a_sentence(str(caught.value))


def test_a_threshold_needs_measured_readings():
    values = NORMAL.copy()
    values[::2] = np.nan
    with pytest.raises(InputError, match="Every time step of the training series depends on") as caught:
        NetworkComet(**SHAPE, gaps=ForwardFill(1)).fit(values)
    assert is_a_sentence(str(caught.value))


def test_infinite_readings_are_not_gaps():
    values = FRESH.copy()
    values[3, 1] = np.inf
    with pytest.raises(InputError, match=r"Variable 'v1' is inf at time step 3\. Correct"):
        judged_by(fitted(ScoreMeasured()), values)


# -- missing columns --------------------------------------------------------------------------------------------------

NAMES = ["flow", "level", "heat"]


@cache
def fitted_on_a_frame(rule):
    return NetworkComet(**SHAPE, gaps=rule, adaptation=NoAdaptation()).fit(pl.DataFrame(NORMAL, schema=NAMES))


def test_a_missing_column_is_reported_once_and_counts_as_missing_readings(caplog):
    detector = fitted_on_a_frame(ScoreMeasured())
    gone = pl.DataFrame(FRESH, schema=NAMES).drop("level")
    empty = FRESH.copy()
    empty[:, 1] = np.nan
    judged = detector.step_scores(gone)
    assert [record.message for record in caplog.records] == ["No column for 'level'. Its readings count as missing."]
    assert judged.scores.tobytes() == judged_by(detector, empty).scores.tobytes()
    caplog.clear()
    stream = detector.stream()
    parts = [stream.update_many(part) for part in (gone[:50], gone[50:])]
    by_name = detector.stream()
    parts_by_name = [by_name.update(row) for row in gone.iter_rows(named=True)]
    for scored, last in ((parts, stream.finish()), (parts_by_name, by_name.finish())):
        assert np.concatenate([*scored, last]).tobytes() == judged.scores.tobytes()
    assert len(caplog.records) == 1


def test_a_missing_column_is_refused_without_a_gap_rule():
    gone = pl.DataFrame(FRESH, schema=NAMES).drop("level")
    with pytest.raises(InputError, match="fitted on 3 variables, but this series has 2"):
        judged_by(fitted_on_a_frame(RefuseGaps()), gone)


@pytest.mark.parametrize("names", [["flow", "speed", "heat"], ["heat", "level", "flow"]])
def test_other_columns_are_refused_even_with_a_gap_rule(names):
    with pytest.raises(InputError, match="where this series has"):
        judged_by(fitted_on_a_frame(ScoreMeasured()), pl.DataFrame(FRESH, schema=names))
    with pytest.raises(InputError, match="no value for 'flow'"):
        fitted_on_a_frame(ScoreMeasured()).stream().update({"speed": 1.0})


# -- late and duplicate readings ------------------------------------------------------------------------------------


def timed(values, minutes):
    times = np.datetime64("2024-03-01T00:00", "us") + np.asarray(minutes) * np.timedelta64(60_000_000, "us")
    return pl.DataFrame(values, schema=NAMES).with_columns(pl.Series("time", times))


@given(minutes=st.lists(st.integers(0, 60), min_size=40, max_size=80), data=st.data())
@settings(max_examples=10)
def test_late_and_duplicate_readings_are_dropped_and_counted_and_nothing_else_changes(minutes, data):
    detector = fitted_on_a_frame(RefuseGaps())
    values = FRESH[: len(minutes)]
    kept = [i for i, minute in enumerate(minutes) if all(minute > other for other in minutes[:i])]
    whole = detector.stream()
    expected = whole.update_many(timed(values[kept], np.array(minutes)[kept]))
    cut = data.draw(st.integers(0, len(minutes)))
    stream, parts = detector.stream(late="drop"), []
    for part in (slice(None, cut), slice(cut, None)):
        if len(minutes[part]):
            parts.append(stream.update_many(timed(values[part], minutes[part])))
        stream = detector.stream(stream.snapshot(), late="drop")
    assert np.concatenate([np.empty(0), *parts]).tobytes() == np.asarray(expected).tobytes()
    assert (stream.seen, stream.dropped) == (len(kept), len(minutes) - len(kept))
    assert stream.snapshot() != whole.snapshot() or len(kept) == len(minutes)

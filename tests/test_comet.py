"""Comet: two scores, of a batch and of a stream to the same bits, and everything a user may pass."""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

from comet_case import LEAST, SETTINGS, assert_like_a_batch, fed, fitted, fresh, joined
from cometad import Comet, NetworkComet, Quantile, load
from cometad.checkpoint import read
from cometad.comet import REMOVED
from cometad.data import ForwardFill, ScoreMeasured
from cometad.errors import CometadError, InputError, NotFittedError, ParameterError
from cometad.report.gather import trimmed as trimmed_sentences
from cometad.saving import saved_state
from cometad.views import Activity, Forecast, Patterns
from contract import is_a_sentence, saved, waves
from own_views import NamelessLevel

every_setting = pytest.mark.parametrize("name", SETTINGS)

# -- streams --------------------------------------------------------------------------------------------------------


def test_alert_scores_come_at_once_and_ranking_scores_as_late_as_stated():
    detector = fitted()
    stream, delay = detector.stream(), detector.panel_.delay
    for t, row in enumerate(fresh("views", 200)):
        scored = stream.update(row)
        assert list(scored.steps) == [t]
        assert list(scored.ranking_steps) == ([t - delay] if t >= delay else [])
        assert np.asarray(scored).tobytes() == scored.scores.tobytes()
    last = stream.finish()
    assert len(last) == 0
    assert list(last.ranking_steps) == list(range(200 - delay, 200))


def test_ranking_scores_wait_for_windows_and_smoothing():
    """31 readings until the last window that covers a step, and 31 for half of the longest mean."""
    assert fitted().panel_.delay == 31 + 31
    assert fitted("one view").panel_.delay == 2


def test_the_memory_of_a_stream_does_not_grow_once_it_remembers_64_events():
    stream, sizes = fitted().with_threshold(Quantile(0.05)).stream(), []
    spiked = waves(50)
    spiked[40] = 9.0
    for _ in range(120):
        stream.update_many(spiked)
        sizes.append(len(stream.snapshot()))
    assert stream._judge.alerts.opened >= 120
    assert max(sizes[80:]) - min(sizes[80:]) < 16  # the counts of readings have more digits
    assert stream.seen == 6000


# -- causality ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["views", "one view", "own view", "forward fill", "score measured"])
def test_cutting_the_series_after_a_step_changes_neither_its_alert_score_nor_its_flag(name):
    detector, series = fitted(name), fresh(name, 240)
    alerts, flags = detector.step_scores(series).alerts, detector.predict(series)
    assert 0 < flags.sum() < 240
    for stop in [*range(LEAST, 60), *range(60, 240, 7)]:
        assert detector.step_scores(series[:stop]).alerts.tobytes() == alerts[:stop].tobytes()
        assert detector.predict(series[:stop]).tolist() == flags[:stop].tolist()


def test_a_flag_of_a_drifting_threshold_never_changes_either():
    detector, series = fitted("drifting threshold"), fresh("drifting threshold", 240)
    flags = detector.predict(series)
    for stop in range(LEAST, 240, 11):
        assert detector.predict(series[:stop]).tolist() == flags[:stop].tolist()


def test_later_readings_change_ranking_scores_within_the_delay_only():
    detector, series = fitted(), fresh("views", 240)
    changed = series.copy()
    changed[200:] += 9.0
    before, after = detector.decision_function(series), detector.decision_function(changed)
    final = 200 - detector.panel_.delay
    assert before[:final].tobytes() == after[:final].tobytes()
    assert before[final] != after[final]


# -- what it finds --------------------------------------------------------------------------------------------------


def plant(rows, seed):
    """Five sensors, most of which follow the same two causes."""
    rng, time = np.random.default_rng(seed), np.arange(rows)
    fast, slow = np.sin(2 * np.pi * time / 25), np.sin(2 * np.pi * time / 60 + 1)
    sensors = [fast, 0.8 * fast + 0.3 * slow, slow, fast - slow, np.cos(2 * np.pi * time / 40)]
    return np.stack(sensors, axis=1) + 0.05 * rng.normal(size=(rows, 5))


@cache
def plant_detector():
    return Comet().fit(plant(1500, 0))


def spike(series):
    series[300, 2] += 3.0
    return 300, 301


def stuck_sensor(series):
    series[280:330, 0] = series[280, 0]
    return 280, 330


def broken_correlation(series):
    series[280:330, 1] = plant(400, 7)[313:363, 1]  # looks like itself, but not at this time
    return 280, 330


def level_shift(series):
    series[280:330, 4] += 1.5
    return 280, 330


@pytest.mark.parametrize("fault", [spike, stuck_sensor, broken_correlation, level_shift])
def test_a_fault_scores_highest_and_is_flagged(fault):
    series = plant(600, 1)
    usual = plant_detector().predict(series)
    start, stop = fault(series)
    scores, flags = plant_detector().decision_function(series), plant_detector().predict(series)
    assert start - 4 <= scores.argmax() < stop + 4
    assert flags[start : start + 10].any()
    events = [event for event in plant_detector().events(series) if event.start < stop and start < event.stop]
    assert sum(min(event.stop, stop) - max(event.start, start) for event in events) >= 0.4 * (stop - start)
    assert flags[:start].tolist() == usual[:start].tolist()
    assert usual.mean() < 0.03


def test_neither_the_start_of_a_stream_nor_a_gap_raises_false_alarms():
    """There only some views have an error, and a mean of fewer views is noisier."""
    detector, start, after = Comet(gaps=ForwardFill(limit=3)).fit(plant(1500, 0)), [], []
    for seed in range(1, 31):
        series = plant(120, seed)
        start.append(detector.predict(series)[:31])
        series[60] = np.nan
        after.append(detector.predict(series)[61:92])
    assert np.mean(start) < 0.03
    assert np.mean(after) < 0.05


def test_an_excluded_fault_has_no_influence_on_what_is_learned():
    normal = plant(600, 0)
    states = []
    for value in (0.0, 9.0, -500.0):
        dirty = normal.copy()
        dirty[200:205, 1] = value
        states.append(Comet(trim=False).fit(dirty, exclude=[(200, 205)]))
    for other in states[1:]:
        assert other.threshold_ == states[0].threshold_
        assert [array.tobytes() for array in saved_state(other, Comet.saved).values()] == [
            array.tobytes() for array in saved_state(states[0], Comet.saved).values()
        ]


def test_a_gross_fault_in_the_training_series_is_left_out_and_listed():
    dirty = plant(1500, 0)
    dirty[700:740] = 9.0
    detector = Comet().fit(dirty)
    assert detector.trimmed_
    assert any(stretch.start <= 700 and stretch.stop >= 740 for stretch in detector.trimmed_)
    assert sum(stretch.stop - stretch.start for stretch in detector.trimmed_) < 240
    assert Comet(trim=False).fit(dirty).trimmed_ == ()
    assert detector.threshold_ < 2 * plant_detector().threshold_


# -- exclude --------------------------------------------------------------------------------------------------------

TIMES = pd.date_range("2026-01-01", periods=600, freq="min")


@cache
def excluded_by_steps():
    return Comet(trim=False).fit(plant(600, 0), exclude=[(60, 120), (300, 301)])


@pytest.mark.parametrize(
    "first",
    [
        ("2026-01-01 01:00", "2026-01-01T02:00"),
        (datetime(2026, 1, 1, 1), datetime(2026, 1, 1, 2)),
        (np.datetime64("2026-01-01T01:00"), np.datetime64("2026-01-01T02:00")),
        (pd.Timestamp("2026-01-01 01:00"), pd.Timestamp("2026-01-01 02:00")),
        ("2026-01-01 00:59:30", "2026-01-01T01:59:30"),
        (np.int64(60), np.int64(120)),
        [60, 120],
    ],
)
def test_timestamps_exclude_the_same_readings_as_time_steps(first):
    frame = pd.DataFrame(plant(600, 0), index=TIMES, columns=list("abcde"))
    detector = Comet(trim=False).fit(frame, exclude=[first, (300, 301)])
    assert detector.trimmed_ == excluded_by_steps().trimmed_
    assert detector.threshold_ == excluded_by_steps().threshold_
    polars = pl.DataFrame(plant(600, 0), schema=list("abcde")).with_columns(pl.Series("time", TIMES.to_numpy()))
    assert Comet(trim=False).fit(polars, exclude=[first, (300, 301)]).trimmed_ == detector.trimmed_


def test_excluded_stretches_are_listed_and_kept_in_a_file(tmp_path):
    detector = excluded_by_steps()
    assert [(stretch.start, stretch.stop) for stretch in detector.trimmed_] == [(60, 120), (300, 301)]
    detector.save(tmp_path / "plant.comet")
    assert Comet.load(tmp_path / "plant.comet").trimmed_ == detector.trimmed_


@pytest.mark.parametrize(
    ("exclude", "words"),
    [
        ([(5,)], "pairs"),
        ([5], "pairs"),
        (["ab"], "pairs"),
        ([(10, 5)], "not a stretch"),
        ([(5, 5)], "not a stretch"),
        ([(-1, 5)], "not a stretch"),
        ([(0, 601)], "not a stretch"),
        ([("2026-01-01", "2026-01-02")], "has no times"),
        ([(0, 590)], "can be learned from"),
        ([(step, step + 1) for step in range(0, 600, 20)], "in a row"),
    ],
)
def test_a_bad_exclude_is_refused_with_advice(exclude, words):
    with pytest.raises(CometadError, match=words) as caught:
        Comet().fit(plant(600, 0), exclude=exclude)
    assert is_a_sentence(str(caught.value))


def test_an_excluded_time_must_be_one():
    frame = pd.DataFrame(plant(600, 0), index=TIMES, columns=list("abcde"))
    for pair in (("yesterday", "today"), ("2026-01-01", 5), (None, None), (1.5, 2.5)):
        with pytest.raises(InputError, match="Cannot exclude") as caught:
            Comet().fit(frame, exclude=[pair])
        assert is_a_sentence(str(caught.value))


# -- parameters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REMOVED)
def test_a_removed_parameter_says_where_it_is_now(name):
    with pytest.raises(ParameterError, match=f"no longer has the parameter '{name}'") as caught:
        Comet(**{name: 1})
    assert f"Comet.paper({name}=...)" in str(caught.value)
    assert is_a_sentence(str(caught.value))


def test_every_parameter_of_the_network_is_known_or_has_a_new_place():
    ours, theirs = (set(kind().get_params(deep=False)) for kind in (Comet, NetworkComet))
    assert theirs - ours - {"adaptation"} == set(REMOVED)
    assert not ours & set(REMOVED)


def test_an_unknown_parameter_is_a_type_error():
    with pytest.raises(TypeError, match="unexpected keyword argument 'widnow'"):
        Comet(widnow=3)
    with pytest.raises(ValueError, match="widnow"):
        Comet().set_params(widnow=3)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("views", ()),
        ("views", Patterns()),
        ("views", "patterns"),
        ("views", (Patterns,)),
        ("views", (Patterns(), 3)),
        ("pooling", 0),
        ("pooling", 2.5),
        ("pooling", True),
        ("smoothing", 4),
        ("smoothing", (4, 0)),
        ("smoothing", (2.5,)),
        ("smoothing", "16"),
        ("scaler", "robust"),
        ("gaps", "forward-fill"),
        ("threshold", 0.99),
        ("seed", -1),
    ],
)
def test_a_bad_parameter_is_refused_with_advice(parameter, value):
    for made in (Comet(**{parameter: value}), Comet().set_params(**{parameter: value})):
        for use in (made.check_parameters, lambda made=made: made.fit("no series")):
            with pytest.raises(ParameterError, match=parameter) as caught:
                use()
            assert is_a_sentence(str(caught.value))


def test_a_bad_parameter_is_refused_wherever_it_is_used_before_fit():
    with pytest.raises(ParameterError, match="'views' parameter must be"):
        _ = Comet(views=()).min_readings
    with pytest.raises(ParameterError, match="'views' parameter must be"):
        _ = Comet(views=3).min_training_readings
    with pytest.raises(ParameterError, match="'threshold' parameter must be"):
        _ = Comet(threshold=0.99).contamination


def test_a_changed_parameter_asks_for_another_fit():
    detector = clone(fitted()).fit(waves(600)).set_params(pooling=3)
    assert detector.get_params()["pooling"] == 3
    with pytest.raises(NotFittedError, match="'pooling' was changed"):
        detector.predict(waves(100))
    assert detector.fit(waves(600)).panel_.pooling == 3


def test_every_parameter_has_an_effect():
    base = fitted().decision_function(waves(200, seed=9))
    changes = (
        {"views": (Forecast(),)},
        {"pooling": 1},
        {"smoothing": ()},
        {"scaler": "min-max"},
        {"seed": 1},
    )
    for change in changes:
        assert not np.array_equal(Comet(**change).fit(waves(600)).decision_function(waves(200, seed=9)), base), change


def test_another_threshold_keeps_the_scores():
    other = fitted().with_threshold(Quantile(rate=0.1))
    assert other.threshold_ < fitted().threshold_
    series = fresh("views", 100)
    assert other.decision_function(series).tobytes() == fitted().decision_function(series).tobytes()


# -- files ----------------------------------------------------------------------------------------------------------


@every_setting
def test_a_loaded_detector_has_the_same_bits(name, tmp_path):
    detector, series = fitted(name), fresh(name, 150)
    detector.save(tmp_path / "plant.comet")
    loaded = load(tmp_path / "plant.comet")
    assert type(loaded) is Comet
    assert loaded.get_params() == detector.get_params()
    for one, other in zip(loaded.step_scores(series), detector.step_scores(series), strict=True):
        assert (one is None and other is None) or one.tobytes() == other.tobytes()
    assert loaded.predict(series).tolist() == detector.predict(series).tolist()
    assert loaded.alert_scores_.tobytes() == detector.alert_scores_.tobytes()
    assert loaded.decision_scores_.tobytes() == detector.decision_scores_.tobytes()
    assert loaded.stream().snapshot() == detector.stream().snapshot()
    assert saved(loaded) == saved(detector)


def test_a_file_holds_views_by_name(tmp_path):
    fitted("own view").save(tmp_path / "plant.comet")
    views = read(tmp_path / "plant.comet", "Comet", needs=("parameters",)).facts["parameters"]["views"]
    assert views == [{"kind": "tests-level"}, {"kind": "Forecast", "lags": 2, "penalty": 10.0}]


def test_a_view_without_a_registered_name_scores_but_cannot_be_saved(tmp_path):
    detector = Comet(views=(NamelessLevel(), Forecast(lags=2)), pooling=1, smoothing=(5,)).fit(waves(600))
    series = fresh("own view", 100)
    assert detector.decision_function(series).tobytes() == fitted("own view").decision_function(series).tobytes()
    stream = detector.stream()
    assert_like_a_batch([*fed(stream, series, (40,)), stream.finish()], detector, series)
    with pytest.raises(ParameterError, match="NamelessLevel, a class without a registered name") as caught:
        detector.save(tmp_path / "plant.comet")
    assert is_a_sentence(str(caught.value))
    assert not (tmp_path / "plant.comet").exists()


# -- odd input ------------------------------------------------------------------------------------------------------


def test_too_few_readings_are_refused_with_advice():
    for use in (lambda: Comet().fit(waves(99)), lambda: fitted().decision_function(waves(8))):
        with pytest.raises(InputError, match="readings") as caught:
            use()
        assert is_a_sentence(str(caught.value))


@pytest.mark.parametrize("rows", [100, 128])
def test_the_fewest_readings_are_enough(rows):
    detector = Comet().fit(waves(rows))
    assert np.isfinite(detector.decision_function(waves(LEAST, seed=1))).all()
    assert detector.min_readings == LEAST


def test_a_view_is_left_out_if_the_history_is_shorter_than_four_of_its_windows():
    views = (Patterns(length=50), Forecast(4), Activity(length=26))
    detector = Comet(views=views).fit(waves(199))
    assert (detector.left_out_, detector.kept_) == ((0,), views[1:])
    assert [type(view) for view in detector.views_] == [
        type(view) for view in Comet(views=views[1:]).fit(waves(199)).views_
    ]
    assert trimmed_sentences(detector) == ["The history is too short for these views: Patterns (200 readings)."]
    again = Comet.from_bytes(detector.to_bytes())
    assert again.left_out_ == (0,)
    assert again.step_scores(waves(60)).alerts.tobytes() == detector.step_scores(waves(60)).alerts.tobytes()
    assert again.explain(waves(60), 50).causes is not None
    whole = Comet(views=views).fit(waves(200))
    assert (whole.left_out_, len(whole.views_), trimmed_sentences(whole)) == ((), 3, [])
    assert detector.fit(waves(200)).left_out_ == ()


def test_trimming_leaves_enough_to_learn_from():
    short = waves(104)
    short[50:60] = 30.0
    assert Comet().fit(short).trimmed_ == ()


@pytest.mark.parametrize("rows", [100, 200, 500, 1000])
def test_a_short_history_keeps_the_budget(rows):
    """One alert per 1,000 readings, on average over noise and smooth plants."""
    alerts = []
    for seed in range(4):
        rng = np.random.default_rng([seed, rows])
        noise, slow = rng.normal(size=(2, rows + 2000, 3))
        slow = np.sin(np.arange(rows + 2000)[:, None] / rng.uniform(3, 15, 3)) + 0.05 * slow
        for series in (noise, slow):
            events = Comet().fit(series[:rows]).events(series[rows:])
            alerts.append(sum(event.level == "alert" for event in events))
    assert np.mean(alerts) / 2 <= 1


def test_gaps_that_leave_no_window_are_refused_with_advice():
    gappy = waves(600)
    gappy[::20, 1] = np.nan
    with pytest.raises(InputError, match="in a row") as caught:
        Comet(gaps=ScoreMeasured()).fit(gappy)
    assert is_a_sentence(str(caught.value))
    assert np.isfinite(Comet(gaps=ForwardFill(limit=2)).fit(gappy).decision_function(gappy)).all()


@pytest.mark.parametrize("constant", [[1], [0, 2], [0, 1, 2]])
def test_constant_variables_are_normal_until_they_move(constant):
    still = waves(400)
    still[:, constant] = 5.0
    detector = Comet().fit(still)
    series = waves(200, seed=3)
    series[:, constant] = 5.0
    assert detector.predict(series).mean() < 0.1
    series[150:, constant] = 8.0
    scores, alerts, _ = detector.step_scores(series)
    assert np.isfinite(scores).all()
    assert alerts[150:].min() > alerts[:150].max()


def test_one_variable_is_enough():
    detector = Comet().fit(waves(400, 1))
    series = waves(200, 1, seed=3)
    series[100] += 3.0
    assert detector.step_scores(series).alerts.argmax() == 100
    assert detector.predict(series)[100] == 1


def test_many_variables_and_few_readings_give_a_working_detector():
    rows = np.random.default_rng(0).normal(size=(600, 500))
    detector = Comet(trim=False).fit(rows)
    series = rows[:100].copy()
    series[60, :25] = 30.0
    scores, alerts, _ = detector.step_scores(series)
    assert np.isfinite(scores).all()
    assert alerts[60] > alerts[:60].max()


def test_two_threads_that_fit_at_once_get_the_same_bytes():
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: saved(Comet().fit(waves(600))), range(2))
    assert first == second == saved(fitted())


def test_two_streams_of_one_detector_do_not_disturb_each_other():
    detector, series = fitted(), fresh("views", 100)
    one, other = detector.stream(), detector.stream()
    parts = []
    for row in series:
        parts.append(one.update(row))
        other.update(-row)
    assert joined(parts, "alert_scores").tobytes() == detector.step_scores(series).alerts.tobytes()

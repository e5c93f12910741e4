"""A batch is a stream run to its end: the same readings give the same bits, however they arrive."""

from dataclasses import FrozenInstanceError
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import comet_case
from comet_case import assert_like_a_batch, fed, joined
from cometad import Alerts, Budget, Comet, NetworkComet, Quantile
from cometad.alerting import Conformal, DriftingSpot, Spot
from cometad.data.gaps import ScoreMeasured
from cometad.errors import InputError, ModelFileError
from cometad.network import Epochs, NoAdaptation, OneCycle, OnlineAdaptation
from cometad.scoring import (
    AllVariables,
    BudgetSelection,
    EmaMinMax,
    HighestVariables,
    NoCalibration,
    NoNormalization,
    PercentileSelection,
    TrainingNormalization,
)
from contract import is_a_sentence, waves
from tiny import UNEVEN

SHAPE, WINDOW = UNEVEN, UNEVEN["window"]
LONGEST = 8
QUICK = OnlineAdaptation(learning_rate=1e-2, max_drift=0.5, error_limit=0.99)


def default(**changes):
    return NetworkComet(**{**SHAPE, "schedule": OneCycle(10), "adaptation": QUICK, **changes})


def paper(**changes):
    return Comet.paper(**{**SHAPE, "schedule": Epochs(1), **changes})


SETTINGS = {
    "default": (default(), 3),
    "default, fixed": (default(adaptation=NoAdaptation()), 3),
    "default, one variable": (default(), 1),
    "default, many variables": (default(selection=HighestVariables(9)), 17),
    "both scores, all variables": (default(score_weight=0.5, selection=AllVariables()), 9),
    "nothing normalized": (default(calibration=NoCalibration(), normalization=NoNormalization()), 2),
    "selected by percentile": (default(selection=PercentileSelection(50), score_weight=0.5), 5),
    "selected by percentile, one variable": (default(selection=PercentileSelection(50)), 1),
    "selected by budget, fixed": (default(selection=BudgetSelection(2), adaptation=NoAdaptation()), 9),
    "highest variables, batches": (default(normalization=EmaMinMax()), 3),
    "an update for each window": (default(normalization=EmaMinMax(windows=1)), 3),
    "paper": (paper(), 4),
    "paper, fixed": (paper(adaptation=NoAdaptation()), 4),
    "paper, budget, from training": (paper(selection=BudgetSelection(2), normalization=TrainingNormalization()), 4),
    "patch = window": (default(patch_sizes=(WINDOW,), patch_strides=(WINDOW,)), 2),
}
SOME = ["default", "both scores, all variables", "selected by percentile", "highest variables, batches", "paper"]
every_network = pytest.mark.parametrize("name", SETTINGS)
every_setting = pytest.mark.parametrize("name", [*SETTINGS, *comet_case.SETTINGS])
some_networks = pytest.mark.parametrize("name", SOME)
some_settings = pytest.mark.parametrize("name", [*SOME, *comet_case.SETTINGS])
few = settings(max_examples=5)  # each example is several whole streams


@cache
def fitted(name):
    if name in comet_case.SETTINGS:
        return comet_case.fitted(name)
    detector, variables = SETTINGS[name]
    return detector.fit(waves(200, variables))


def fresh(name, rows):
    if name in comet_case.SETTINGS:
        return comet_case.fresh(name, rows)
    return 1.3 * waves(rows, SETTINGS[name][1], seed=rows)


@st.composite
def chunked(draw, least=WINDOW, most=5 * WINDOW):
    """How many rows a series has, often a whole number of windows or one more, and where it is cut."""
    rows = draw(st.integers(least, most) | st.sampled_from([48, 49, 71, 72, 73, 96, 97]))
    return rows, sorted(draw(st.lists(st.integers(0, rows), max_size=6)))


# -- stream = batch -------------------------------------------------------------------------------------------------


@every_setting
@few
@given(chunked(least=comet_case.LEAST))
def test_chunks_of_any_size_give_the_same_bits_as_one_batch(name, how):
    detector = fitted(name)
    rows, cuts = max(how[0], detector.min_readings), how[1]
    series, stream = fresh(name, rows), detector.stream()
    assert_like_a_batch([*fed(stream, series, cuts), stream.finish()], detector, series)
    assert stream.seen == stream.given == rows


@every_setting
@pytest.mark.parametrize("rows", [4 * WINDOW + 1, 8 * WINDOW - 1])
def test_row_by_row_gives_the_same_bits_as_one_batch(name, rows):
    detector, series = fitted(name), fresh(name, rows)
    stream, whole = detector.stream(), detector.stream()
    parts = [*(stream.update(row) for row in series), stream.finish()]
    assert_like_a_batch(parts, detector, series)
    at_once = joined([whole.update_many(series), whole.finish()], "variables")
    assert at_once.shape == series.shape
    assert joined(parts, "variables").tobytes() == at_once.tobytes()


@given(chunked(least=LONGEST, most=WINDOW - 1), st.sampled_from([s for s in SETTINGS if s != "patch = window"]))
def test_a_stream_may_be_shorter_than_a_window(how, name):
    rows, cuts = how
    series, stream, whole = fresh(name, rows), fitted(name).stream(), fitted(name).stream()
    parts = [*fed(stream, series, cuts), stream.finish()]
    at_once = [whole.update_many(series), whole.finish()]
    assert joined(parts).tobytes() == joined(at_once).tobytes()
    assert joined(parts).shape == (rows,)
    assert np.isfinite(joined(parts)).all()


@every_network
def test_the_score_map_explains_the_scores(name):
    detector, series = fitted(name), fresh(name, 4 * WINDOW + 15)
    maps = detector.score_map(series)
    assert maps.memory.shape == maps.quantization.shape == (len(detector.patch_sizes), *series.shape)
    stream = detector.stream()
    parts = [stream.update_many(series), stream.finish()]
    units = detector.calibration_[:, :, None, :]  # (score, center or unit, 1, variable)
    memory, quantization = (
        (raw.mean(axis=0) - center) / unit
        for raw, (center, unit) in zip((maps.memory, maps.quantization), units, strict=True)
    )
    mixed = (1 - detector.score_weight) * memory + detector.score_weight * quantization
    np.testing.assert_allclose(np.concatenate([part.variables for part in parts]), mixed, rtol=1e-9, atol=1e-9)


# -- causality ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["default", "default, fixed", "nothing normalized", "both scores, all variables"])
def test_a_causal_score_is_late_by_less_than_the_longest_patch(name):
    stream = fitted(name).stream()
    for row in fresh(name, 5 * WINDOW):
        stream.update(row)
        assert 0 <= stream.seen - stream.given <= LONGEST - 1


def test_a_stream_is_not_late_at_the_end_of_a_window():
    stream = fitted("default").stream()
    stream.update_many(fresh("default", 3 * WINDOW))
    assert stream.given == 3 * WINDOW


@some_networks
@few
@given(st.integers(1, 4 * WINDOW), st.integers(0, 2**16))
def test_a_final_score_does_not_depend_on_later_readings(name, now, seed):
    detector, series = fitted(name), fresh(name, 5 * WINDOW)
    given = detector.stream().update_many(series[:now]).scores
    wild = series.copy()
    wild[now:] = np.random.default_rng(seed).normal(scale=20, size=wild[now:].shape)
    for future in (series, wild):
        stream = detector.stream()
        scores = joined([stream.update_many(future), stream.finish()])
        assert scores[: len(given)].tobytes() == given.tobytes()


@pytest.mark.parametrize("name", ["default, fixed", "selected by budget, fixed"])
def test_without_adaptation_shifting_time_by_windows_shifts_scores(name):
    detector, series = fitted(name), fresh(name, 5 * WINDOW + 7)
    scores = detector.decision_function(series)
    assert detector.decision_function(series[2 * WINDOW :]).tobytes() == scores[2 * WINDOW :].tobytes()


# -- snapshots ------------------------------------------------------------------------------------------------------


@some_settings
@few
@given(chunked(least=LONGEST), st.data())
def test_a_stream_resumes_from_its_snapshot_bit_for_bit(name, how, data):
    rows, cuts = how
    rows = max(rows, WINDOW)
    cut = data.draw(st.integers(0, rows))
    detector, series = fitted(name), fresh(name, rows)
    stream = detector.stream()
    before = stream.update_many(series[:cut])
    other = detector.stream(stream.snapshot())
    assert (other.seen, other.given) == (stream.seen, stream.given)
    assert other.snapshot() == stream.snapshot()
    after = [*fed(other, series[cut:], [c - cut for c in cuts if c > cut]), other.finish()]
    assert_like_a_batch([before, *after], detector, series)
    untouched = [stream.update_many(series[cut:]), stream.finish()]
    assert joined(untouched).tobytes() == joined(after).tobytes()
    assert stream.adaptation_steps == other.adaptation_steps


RULES = [Quantile(0.2), Conformal(0.2), Spot(0.05, level=0.8), DriftingSpot(0.05, level=0.8, depth=5)]


@pytest.mark.parametrize("name, rule", [*(("default", rule) for rule in RULES), ("views", Budget())])
@settings(max_examples=10)
@given(chunked(), st.data(), st.sampled_from([Alerts(), Alerts(min_length=3, merge_gap=2, hold_off=4)]))
def test_flags_and_events_equal_the_batch_even_across_a_snapshot(name, rule, how, data, alerts):
    rows, cuts = how
    cut = data.draw(st.integers(0, rows))
    detector, series = fitted(name).with_threshold(rule), fresh(name, rows)
    first = detector.stream(alerts=alerts)
    parts = fed(first, series[:cut], [c for c in cuts if c <= cut])
    second = detector.stream(first.snapshot(), alerts=alerts)
    parts += [*fed(second, series[cut:], [c - cut for c in cuts if c > cut]), second.finish()]
    flags = joined(parts, "flags")
    np.testing.assert_array_equal(flags, detector.predict(series))
    if name == "default":  # an open event holds the threshold of a budget of alerts, in which `predict` agrees
        np.testing.assert_array_equal(flags, joined(parts) > joined(parts, "thresholds"))
    changes = [change for part in parts for change in part.changes]
    events = detector.events(series, alerts)
    assert [change.event for change in changes if change.kind == "closed"] == events
    opened = [change.event.number for change in changes if change.kind == "opened"]
    assert opened == [event.number for event in events] == list(range(1, len(events) + 1))


def test_a_snapshot_with_other_alerts_or_another_threshold_is_refused():
    detector = fitted("default")
    snapshot = detector.stream(alerts=Alerts(min_length=2)).snapshot()
    for stream in (detector.stream, detector.with_threshold(Spot(level=0.8)).stream):
        with pytest.raises(ModelFileError, match="other threshold, adaptation or alert settings"):
            stream(snapshot)


def test_another_threshold_leaves_the_detector_and_its_scores_unchanged():
    detector, series = fitted("default"), fresh("default", 60)
    before = detector.threshold_
    other = detector.with_threshold(Quantile(0.5))
    kept = detector.alert_scores_[180:]  # not trained on
    assert other.threshold_ == max(np.quantile(scores, 0.5) for scores in (detector.alert_scores_, kept))
    assert other.threshold_ != detector.threshold_ == before
    np.testing.assert_array_equal(other.decision_function(series), detector.decision_function(series))


def test_thresholds_are_fitted_on_scores_of_the_fitted_state():
    normal = waves(400)
    detector = NetworkComet(schedule=OneCycle(10), threshold=Quantile(0.1)).fit(normal)
    stream = detector.stream(adaptation=NoAdaptation())
    kept = np.concatenate([stream.update_many(normal), stream.finish()])
    np.testing.assert_array_equal(detector.alert_scores_, kept)
    assert detector.threshold_ == max(np.quantile(scores, 0.9) for scores in (kept, kept[360:]))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_a_saved_detector_judges_as_before(rule, tmp_path):
    detector, series = fitted("default").with_threshold(rule), fresh("default", 90)
    detector.save(tmp_path / "detector")
    loaded = NetworkComet.load(tmp_path / "detector")
    assert (loaded.threshold, loaded.threshold_, loaded.tail_) == (rule, detector.threshold_, detector.tail_)
    np.testing.assert_array_equal(loaded.predict(series), detector.predict(series))


def test_scores_cannot_be_replaced():
    scored = fitted("default").stream().update_many(fresh("default", 30))
    with pytest.raises(FrozenInstanceError):
        scored.start = 1


@pytest.mark.parametrize("name", ["default", "paper"])
def test_restoring_an_older_snapshot_rewinds_the_stream(name):
    series, stream = fresh(name, 6 * WINDOW), fitted(name).stream()
    stream.update_many(series[:50])
    snapshot = stream.snapshot()
    first = [stream.update_many(series[50:]), stream.finish()]
    stream.restore(snapshot)
    assert stream.seen == 50
    assert joined([stream.update_many(series[50:]), stream.finish()]).tobytes() == joined(first).tobytes()


@some_networks
def test_the_memory_of_a_stream_does_not_grow(name):
    stream = fitted(name).stream()
    sizes = []
    for batch in np.split(fresh(name, 16 * WINDOW), 8):  # each fills one test batch
        stream.update_many(batch[:-5])
        sizes.append(len(stream.snapshot()))
        stream.update_many(batch[-5:])
    # A few bytes for the digits of the counts; the first batch has none before it and no optimizer yet.
    assert max(sizes[1:]) - min(sizes[1:]) <= 16


@some_settings
def test_a_snapshot_of_another_detector_is_refused_and_changes_nothing(name):
    other = default(seed=7).fit(waves(200, fitted(name).n_features_in_))
    stream = fitted(name).stream()
    stream.update_many(fresh(name, 30))
    before = stream.snapshot()
    with pytest.raises(ModelFileError, match="another detector") as caught:
        stream.restore(other.stream().snapshot())
    assert is_a_sentence(str(caught.value))
    assert stream.snapshot() == before


def test_a_truncated_snapshot_or_another_file_is_refused(tmp_path):
    detector = fitted("default")
    snapshot = detector.stream().snapshot()
    detector.save(tmp_path / "detector")
    for wrong in (b"", snapshot[:9], snapshot[:-1], b"x" * 100, (tmp_path / "detector").read_bytes()):
        with pytest.raises(ModelFileError) as caught:
            detector.stream(wrong)
        assert is_a_sentence(str(caught.value))


def test_a_snapshot_fits_the_saved_and_loaded_detector(tmp_path):
    detector, series = fitted("default"), fresh("default", 100)
    stream = detector.stream()
    stream.update_many(series[:70])
    detector.save(tmp_path / "detector")
    other = NetworkComet.load(tmp_path / "detector").stream(stream.snapshot())
    assert other.update_many(series[70:]).scores.tobytes() == stream.update_many(series[70:]).scores.tobytes()


# -- readings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "refused",
    [
        lambda stream: stream.update([1.0, 2.0]),
        lambda stream: stream.update([1.0, 2.0, float("nan")]),
        lambda stream: stream.update([1.0, 2.0, float("inf")]),
        lambda stream: stream.update(["a", "b", "c"]),
        lambda stream: stream.update([None, 1.0, 2.0]),
        lambda stream: stream.update(1.0),
        lambda stream: stream.update(np.zeros((1, 3))),
        lambda stream: stream.update({"v0": 1.0, "v1": 2.0}),
        lambda stream: stream.update({"v0": 1.0, "v1": 2.0, "v2": "high"}),
        lambda stream: stream.update_many(np.zeros((5, 4))),
        lambda stream: stream.update_many(np.zeros(3)),
        lambda stream: stream.update_many(np.full((5, 3), np.nan)),
        lambda stream: stream.update_many(np.vstack([np.zeros((60, 3)), np.full((1, 3), np.nan)])),
        lambda stream: stream.update_many([[1.0, 2.0, 3.0], [1.0]]),
        lambda stream: stream.update_many(pl.DataFrame({"v0": ["a"], "v1": ["b"], "v2": ["c"]})),
    ],
)
@pytest.mark.parametrize("name", ["default", "highest variables, batches"])
def test_a_refused_reading_leaves_the_stream_unchanged(name, refused):
    stream = fitted(name).stream()
    stream.update_many(fresh(name, 70))
    before = stream.snapshot()
    with pytest.raises(InputError) as caught:
        refused(stream)
    assert is_a_sentence(str(caught.value))
    assert stream.snapshot() == before


@pytest.fixture(scope="module")
def named():
    return default().fit(pd.DataFrame(waves(200), columns=["flow", "level", "heat"]))


def test_readings_may_be_passed_by_name_in_any_order(named):
    series = fresh("default", 60)
    stream = named.stream()
    parts = [stream.update({"heat": c, "flow": a, "level": b}) for a, b, c in series]
    assert joined([*parts, stream.finish()]).tobytes() == named.decision_function(series).tobytes()


def test_the_error_for_an_incomplete_reading_names_the_missing_variable(named):
    with pytest.raises(InputError, match="no value for 'level'"):
        named.stream().update({"flow": 1.0, "heat": 2.0})


def test_frames_are_accepted_and_their_names_compared_with_those_of_fit(named):
    series = fresh("default", 60)
    names = ["flow", "level", "heat"]
    times = pd.date_range("2024-03-01", periods=60, freq="min")
    for frame in (pd.DataFrame(series, columns=names, index=times), pl.DataFrame(series, schema=names)):
        stream = named.stream()
        parts = [stream.update_many(frame[:20]), stream.update_many(frame[20:]), stream.finish()]
        assert joined(parts).tobytes() == named.decision_function(series).tobytes()
    with pytest.raises(InputError, match="'flow' where this series has 'level'"):
        named.stream().update_many(pl.DataFrame(series, schema=["level", "flow", "heat"]))


def test_a_detector_fitted_without_names_accepts_frames_with_any_names():
    detector, series = fitted("default"), fresh("default", 60)
    frame = pl.DataFrame(series, schema=["flow", "level", "heat"])
    stream = detector.stream()
    parts = [stream.update_many(frame), stream.finish()]
    assert joined(parts).tobytes() == detector.decision_function(frame).tobytes()


def test_times_must_increase_from_chunk_to_chunk_too(named):
    times = pd.date_range("2024-03-01", periods=60, freq="min")
    frame = pd.DataFrame(fresh("default", 60), columns=["flow", "level", "heat"], index=times)
    stream = named.stream()
    stream.update_many(frame[:30])
    before = stream.snapshot()
    with pytest.raises(InputError, match="time"):
        stream.update_many(frame[20:40])
    assert (stream.snapshot(), stream.dropped) == (before, 0)


def test_no_readings_give_no_scores():
    stream = fitted("default").stream()
    assert len(stream.update_many(np.empty((0, 3)))) == 0
    assert stream.seen == 0
    assert len(stream.finish()) == 0


# -- the end --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["default", "paper"])
def test_a_finished_stream_accepts_no_more_readings(name):
    stream = fitted(name).stream()
    stream.update_many(fresh(name, 60))
    stream.finish()
    assert len(stream.finish()) == 0
    for one in (stream, fitted(name).stream(stream.snapshot())):
        with pytest.raises(InputError, match="finished") as caught:
            one.update_many(fresh(name, 3))
        assert is_a_sentence(str(caught.value))
        assert one.given == 60


@pytest.mark.parametrize("name", ["default", "paper"])
def test_finishing_too_early_is_refused_and_the_stream_continues(name):
    detector, series = fitted(name), fresh(name, 60)
    stream = detector.stream()
    early = stream.update_many(series[: LONGEST - 1])
    with pytest.raises(InputError, match=f"longest patch \\({LONGEST}\\)") as caught:
        stream.finish()
    assert is_a_sentence(str(caught.value))
    parts = [early, stream.update_many(series[LONGEST - 1 :]), stream.finish()]
    assert joined(parts).tobytes() == detector.decision_function(series).tobytes()


def test_scored_readings_convert_to_an_array_and_have_steps():
    stream = fitted("default").stream()
    first, second = stream.update_many(fresh("default", 30)), stream.update_many(fresh("default", 40))
    assert np.array_equal(np.concatenate([first, second]), joined([first, second]))
    assert second.start == len(first)
    assert second.variables.shape == (len(second), 3)


@pytest.mark.parametrize("name", ["default", "views", "following"])
def test_reset_returns_to_the_fitted_state(name):
    stream, series = fitted(name).stream(), fresh(name, 5 * WINDOW)
    first = joined([stream.update_many(series), stream.finish()])
    assert (stream.adaptation_steps[0] > 0) == (name != "views")
    stream.reset()
    assert (stream.seen, stream.given, stream.adaptation_steps) == (0, 0, (0, 0))
    assert joined([stream.update_many(series), stream.finish()]).tobytes() == first.tobytes()


def test_a_missing_value_is_named_by_its_variable_and_its_time_step_in_the_stream(named):
    stream = named.stream()
    stream.update_many(fresh("default", 7))
    with pytest.raises(InputError, match="Variable 'level' is nan at time step 7"):
        stream.update({"flow": 1.0, "level": float("nan"), "heat": 1.0})


def test_a_pandas_row_is_matched_by_name(named):
    one, other = named.stream(), named.stream()
    for _, row in pd.DataFrame(fresh("default", 40), columns=named.names_).iterrows():
        np.testing.assert_array_equal(one.update(row), other.update(row[["level", "heat", "flow"]]))


# -- values ---------------------------------------------------------------------------------------------------------


@cache
def lenient():
    return Comet(gaps=ScoreMeasured()).fit(waves(300))


def test_a_masked_value_is_missing_however_it_arrives():
    row = waves(300)[7]
    hidden = np.ma.array([row[0], 999.0, row[2]], mask=[0, 1, 0])
    expected = lenient().stream().update([row[0], None, row[2]])
    assert expected.left_out.tolist() == [[False, True, False]]
    for found in (
        lenient().stream().update(hidden),
        lenient().stream().update_many([hidden]),
        lenient().stream().update_many(hidden[None]),
    ):
        assert found.left_out.tolist() == expected.left_out.tolist()
        assert np.array_equal(found.variables, expected.variables)


ROUNDED = 2**53 + 1
INEXACT = [
    [ROUNDED, 1, 1],
    [ROUNDED, 1.5, 1],
    (-ROUNDED, 1, 1),
    np.array([ROUNDED, 1, 1]),
    np.array([ROUNDED, 1, 1], np.uint64),
    np.ma.array([ROUNDED, 1, 1]),
    {"v0": ROUNDED, "v1": 1.5, "v2": 1},
]


@pytest.mark.parametrize("reading", INEXACT, ids=repr)
def test_an_integer_that_a_float_rounds_is_refused(reading):
    stream = lenient().stream()
    stream.update([1, 1, 1])
    with pytest.raises(InputError, match="9007199254740993 at time step 1, an integer too large to be exact") as caught:
        stream.update(reading)
    assert is_a_sentence(str(caught.value))
    assert stream.seen == 1
    assert stream.update([2**53, 1e300, 1]).start == 1


def test_text_in_a_reading_is_named():
    for reading in ({"v0": 1, "v1": "Bad", "v2": 1}, [1, "Bad", 1]):
        with pytest.raises(InputError, match="Variable 'v1' is 'Bad' at time step 0, not a number") as caught:
            lenient().stream().update(reading)
        assert is_a_sentence(str(caught.value))

"""Each event opens and closes exactly once, however the scores arrive, and a fault that lasts is news only once."""

import itertools
import json
import math
import pickle
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometad.alerting import alerts as alerts_module
from cometad.alerting.alerts import AlertRun, Alerts, Judge, find_events
from cometad.alerting.budget import Budget
from cometad.alerting.severity import ScoreTail
from cometad.alerting.thresholds import Quantile
from cometad.errors import InputError, ModelFileError, ParameterError
from contract import is_a_sentence
from naive_alerts import NaiveRun

ROOT = Path(__file__).parents[2]
TAIL = ScoreTail(center=1.0, base=2.0, start=1.5, share=0.02, shape=0.1, scale=0.7)
BELOW_ZERO = TAIL._replace(center=-5.0, base=-2.0, start=-3.0)
SHARP = Alerts(low=1.0)


# Few distinct values, so that scores often equal each other, the threshold or the low mark.
LEVELS = st.sampled_from([-6.0, -2.0, 0.0, 1.0, 1.5, 2.0, 2.5, 3.0, 7.0])


alert_rules = st.builds(
    Alerts,
    low=st.sampled_from([0.25, 0.5, 1.0]),
    min_length=st.integers(1, 4),
    merge_gap=st.integers(0, 3),
    hold_off=st.integers(0, 6),
    longest=st.sampled_from([1, 3, 8, 64]),
    longest_hours=st.sampled_from([0.1, 8.0]),
    alert_from=st.sampled_from([0.0, 0.15, 0.3, 1.0]),
)


@st.composite
def cases(draw):
    count = draw(st.integers(0, 60))
    scores = draw(st.lists(LEVELS, min_size=count, max_size=count))
    moving = draw(st.booleans())
    thresholds = draw(st.lists(LEVELS, min_size=count, max_size=count)) if moving else [draw(LEVELS)] * count
    imputed = draw(st.lists(st.sampled_from([False, False, False, True]), min_size=count, max_size=count))
    return scores, thresholds, imputed, draw(alert_rules), draw(st.sampled_from([TAIL, BELOW_ZERO]))


def whole(case):
    scores, thresholds, imputed, alerts, tail = case
    run = alerts.start(tail)
    return run, run.push(scores, thresholds, imputed) + run.finish()


@settings(max_examples=300)
@given(cases(), st.sampled_from([math.nan, 60.0, 3600.0]), st.booleans())
def test_a_run_equals_the_loops(case, period, timed):
    scores, thresholds, imputed, alerts, tail = case
    times = np.array([1_000_000 * (step - 3) for step in range(len(scores))], np.int64) if timed else None
    run, naive = AlertRun(alerts, tail, period=period), NaiveRun(alerts, tail, period=period)
    measured = ~np.array(imputed, bool)
    _, shown, changes = run.advance(np.array(scores), np.array(thresholds), measured, times)
    for step, score in enumerate(scores):
        naive.take(score, thresholds[step], measured[step], int(times[step]) if timed else None)
    assert run.since == (None if naive.event is None else naive.event.start)
    changes += run.finish()
    naive.finish()
    assert changes == naive.changes
    assert shown.tolist() == thresholds
    assert (run.suppressed, run.short, run.opened) == (naive.suppressed, naive.short, naive.opened)


@settings(max_examples=60)
@given(cases(), st.lists(st.integers(0, 60), max_size=12), st.lists(st.booleans(), min_size=13, max_size=13))
def test_chunks_and_snapshots_change_nothing(case, cuts, snapshots):
    scores, thresholds, imputed, alerts, tail = case
    run, changes = alerts.start(tail), []
    edges = [0, *sorted(min(cut, len(scores)) for cut in cuts), len(scores)]
    for start, stop, snapshot in zip(edges, edges[1:], snapshots, strict=False):
        changes += run.push(scores[start:stop], thresholds[start:stop], imputed[start:stop])
        if snapshot:
            state, run = run.state(), alerts.start(tail, step=999)
            run.restore(state)
    changes += run.finish()
    at_once, expected = whole(case)
    assert changes == expected
    assert all(np.array_equal(value, at_once.state()[name]) for name, value in run.state().items())


@given(cases(), st.integers(1, 7))
def test_processing_a_long_chunk_in_blocks_changes_nothing(case, block):
    _, expected = whole(case)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alerts_module, "BLOCK", block)
        assert whole(case)[1] == expected


@settings(max_examples=60)
@given(cases())
def test_each_event_opens_once_updates_and_closes_once(case):
    _, changes = whole(case)
    for number in {change.event.number for change in changes}:
        kinds = [change.kind for change in changes if change.event.number == number]
        assert kinds == ["opened", *["updated"] * (len(kinds) - 2), "closed"]
    steps = [change.step for change in changes]
    assert steps == sorted(steps)


@settings(max_examples=60)
@given(cases())
def test_events_are_numbered_disjoint_and_ordered(case):
    events = find_events(*case[:2], *case[3:], case[2])
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    for event in events:
        assert event.start <= event.peak < event.stop
        assert 1 <= event.steps <= event.stop - event.start
    for before, after in itertools.pairwise(events):
        assert before.stop < after.start or (before.new_level and before.stop == after.start)  # something stronger


@settings(max_examples=60)
@given(cases())
def test_every_hot_step_is_in_an_event_or_counted_as_short_or_suppressed(case):
    scores, thresholds, imputed, *_ = case
    run, changes = whole(case)
    in_events = sum(change.event.steps for change in changes if change.kind == "closed")
    hot = sum(s > t and not i for s, t, i in zip(scores, thresholds, imputed, strict=True))
    assert in_events + run.short + run.suppressed == hot


@settings(max_examples=30)
@given(cases(), st.integers(-50, 10**15))
def test_a_later_first_step_shifts_all_events(case, later):
    scores, thresholds, imputed, alerts, tail = case
    run = alerts.start(tail, step=later)
    shifted = run.push(scores, thresholds, imputed) + run.finish()
    assert [(c.step, c.event.start, c.event.stop, c.event.peak) for c in shifted] == [
        (c.step + later, c.event.start + later, c.event.stop + later, c.event.peak + later) for c in whole(case)[1]
    ]


# Each parameter on its own, in pictures.


def drawn(picture):
    """Scores from a picture: # is above the threshold of 2, - is between it and the low mark, . is below both."""
    return [{"#": 3.0, "-": 1.8, ".": 0.0, "?": 9.0}[letter] for letter in picture]


def spans(picture, alerts):
    """The intervals of the events in a picture; steps marked ? are imputed and have high scores."""
    imputed = [letter == "?" for letter in picture]
    return [(event.start, event.stop) for event in find_events(drawn(picture), 2.0, alerts, TAIL, imputed)]


@pytest.mark.parametrize(
    "picture, alerts, expected",
    [
        ("..##-#-..", Alerts(), [(2, 7)]),
        ("..##-#-..", SHARP, [(2, 4), (5, 6)]),
        (".--#--.", Alerts(), [(3, 6)]),  # an event starts with a hot step, not before
        (".#..##..#-#.", Alerts(min_length=3), [(8, 11)]),
        ("...#-", Alerts(min_length=3), []),
        (".#.#..#.", Alerts(merge_gap=1), [(1, 4), (6, 7)]),
        (".#.-..#.", Alerts(merge_gap=1), [(1, 4), (6, 7)]),  # reaching the low mark keeps an event open
        (".#.#..#.", Alerts(merge_gap=2), [(1, 7)]),
        (".#.#.#", Alerts(hold_off=1), [(1, 2), (5, 6)]),
        (".#.###", Alerts(hold_off=2), [(1, 2), (5, 6)]),  # still hot after the hold-off: a new event
        (".#..#.#.", Alerts(merge_gap=1, hold_off=2), [(1, 2), (6, 7)]),  # counted from the step that closed the event
    ],
)
def test_events_match_the_pictures(picture, alerts, expected):
    assert spans(picture, alerts) == expected


@pytest.mark.parametrize(
    "picture, alerts, expected",
    [
        (".?.", Alerts(), []),  # opens no event
        ("#?????#", Alerts(), [(0, 7)]),  # closes no event
        ("#?.", Alerts(), [(0, 1)]),  # is not the last step of an event
        ("#.??.??#..#", Alerts(merge_gap=2), [(0, 11)]),
        ("#.??.??#..#", Alerts(merge_gap=1), [(0, 1), (7, 8), (10, 11)]),  # quiet steps on both sides add up
        ("#?#..", Alerts(min_length=2), [(0, 3)]),  # does not interrupt a candidate
        ("#?..", Alerts(min_length=2), []),  # does not count toward min_length
        ("#.??#", Alerts(hold_off=2), [(0, 1), (4, 5)]),  # counts toward hold_off
    ],
)
def test_an_imputed_step_is_neither_hot_nor_quiet(picture, alerts, expected):
    assert spans(picture, alerts) == expected


def test_the_score_of_an_imputed_step_is_ignored():
    scores = np.array([0.0, np.nan, 3.0, np.nan, 4.0, np.inf])
    imputed = np.isnan(scores) | np.isinf(scores)
    (event,) = find_events(scores, 2.0, Alerts(), TAIL, imputed)
    assert (event.start, event.stop, event.peak, event.steps) == (2, 5, 4, 2)


def test_hot_steps_during_a_hold_off_are_counted_as_suppressed():
    run = Alerts(hold_off=4).start(TAIL)
    run.push(drawn("#.#-##"), 2.0)
    assert (run.suppressed, run.event) == (3, None)
    assert [change.kind for change in run.push(drawn("#"), 2.0)] == ["opened"]


def test_hot_steps_too_short_for_an_event_are_counted_even_at_the_end():
    run = Alerts(min_length=3).start(TAIL)
    run.push(drawn("##.#-."), 2.0)
    assert run.short == 3
    run.push(drawn("##"), 2.0)
    assert run.short == 3
    assert run.finish() == []
    assert run.short == 5


def test_an_event_is_updated_only_by_a_new_peak():
    run = Alerts().start(TAIL)
    changes = run.push([3.0, 3.0, 2.5, 4.0, 4.0, 5.0], 2.0)
    assert [(c.kind, c.step, c.event.peak_score) for c in changes] == [
        ("opened", 0, 3.0),
        ("updated", 3, 4.0),
        ("updated", 5, 5.0),
    ]
    assert run.event == changes[-1].event


def test_the_open_event_is_available_at_any_time():
    run = Alerts(merge_gap=1).start(TAIL)
    run.push(drawn("#-."), 2.0)
    assert run.event is not None
    assert (run.event.start, run.event.stop, run.event.open) == (0, 2, True)
    run.push([0.0], 2.0)
    assert run.event is None


def test_the_peak_is_a_hot_step_even_if_the_threshold_moves():
    (event,) = find_events([3.0, 8.0, 4.0], [2.0, 9.0, 2.0], Alerts(), TAIL)
    assert (event.peak, event.steps) == (2, 2)


def test_negative_scores_have_hysteresis_too():
    tail = TAIL._replace(center=-10.0)
    (event,) = find_events([-9.0, -1.0, -3.0, -9.0], -2.0, Alerts(), tail)
    assert (event.start, event.stop) == (1, 3)


def test_nothing_is_hot_under_an_infinite_threshold():
    assert find_events([1e300, -1.0], np.inf, Alerts(low=0.1), TAIL) == []
    (event,) = find_events([0.0, np.inf], 2.0, Alerts(), TAIL)
    assert (event.peak_score, event.severity) == (np.inf, 1.0)


# Chunks, snapshots and memory.


def test_a_finished_run_accepts_no_more_scores():
    run = Alerts().start(TAIL)
    run.push([3.0], 2.0)
    assert [change.kind for change in run.finish()] == ["closed"]
    assert run.finish() == []
    with pytest.raises(InputError, match="finished"):
        run.push([3.0], 2.0)
    again = Alerts().start(TAIL)
    again.restore(run.state())
    with pytest.raises(InputError, match="finished"):
        again.push([3.0], 2.0)


def test_a_state_is_small_and_unaffected_by_later_scores():
    run = Alerts().start(TAIL)
    run.push([3.0] * 5000, 2.0)
    state = run.state()
    copy = {name: value.copy() for name, value in state.items()}
    run.push([9.0, 0.0], 2.0)
    assert sum(value.nbytes for value in state.values()) < 250
    assert all(np.array_equal(state[name], value) for name, value in copy.items())


def size_after(rounds):
    """The size in bytes of a run after a number of rounds with two events each."""
    run = Alerts().start(TAIL)
    for _ in range(rounds):
        run.push(drawn("..##..####...-."), 2.0)
    return len(pickle.dumps(run))


def test_the_memory_of_a_run_does_not_grow_with_events():
    assert size_after(1000) < size_after(10) + 50  # the numbers grow, their count does not


def test_refused_scores_leave_a_run_unchanged():
    run = Alerts(merge_gap=3).start(TAIL)
    run.push([0.0, 3.0], 2.0)
    before = run.state()
    refused = [
        ([4.0, np.nan], 2.0, None),
        ([4.0, 4.0], [2.0, np.nan], None),
        ([4.0, 4.0], [2.0], None),
        ([4.0, 4.0], 2.0, [False]),
        ([[4.0]], 2.0, None),
    ]
    for scores, thresholds, imputed in refused:
        with pytest.raises(InputError) as caught:
            run.push(scores, thresholds, imputed)
        assert is_a_sentence(str(caught.value))
        assert all(np.array_equal(before[name], value) for name, value in run.state().items())


def test_the_error_for_nan_names_its_time_step_even_if_nothing_is_hot():
    with pytest.raises(InputError, match="score of time step 42 is NaN"):
        Alerts().start(TAIL, step=40).push([0.0, 0.0, np.nan], 2.0)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"low": low} for low in (0, -0.5, 1.01, math.nan, "1", True, None)),
        *({"min_length": length} for length in (0, -1, 1.5, True, "2")),
        *({"merge_gap": gap} for gap in (-1, 0.5, False)),
        *({"hold_off": steps} for steps in (-1, 2.0, None)),
        *({"longest": length} for length in (0, 2.5, None)),
        *({"longest_hours": hours} for hours in (0, -1, math.nan, "8")),
        *({"alert_from": least} for least in (-0.1, 1.1, math.nan, None)),
    ],
)
def test_invalid_parameters_are_refused_in_one_sentence(wrong):
    with pytest.raises(ParameterError, match=f"The '{next(iter(wrong))}' parameter must be .* instead[.]"):
        Alerts(**wrong)


# States that last.


def events_of(scores, alerts=None, threshold=2.0, tail=TAIL):
    return find_events(scores, threshold, alerts or Alerts(), tail)


@settings(max_examples=60)
@given(
    st.integers(1, 3000),
    st.floats(2.5, 1e6),
    st.floats(0.0, 0.04),
    st.integers(0, 2**32 - 1),
    st.integers(0, 9),
    st.integers(1, 100),
)
def test_a_fault_of_any_length_is_one_event_and_opens_again_only_once_it_was_over(length, high, noise, seed, gap, rest):
    """Its scores vary by less than a tenth of their distance from the median, with short pauses."""
    fault = 1.0 + (high - 1.0) * (1 + noise * np.random.default_rng(seed).uniform(-1, 1, length))
    pauses = (np.arange(length) % 30 > 10) & (np.arange(length) % 30 <= 10 + gap) & (np.arange(length) < length - 1)
    scores = np.concatenate([np.zeros(5), np.where(pauses, 0.0, fault), np.zeros(rest), [high]])
    found = events_of(scores, Alerts(merge_gap=9))
    again = rest > (10 if length > 64 else 9)
    assert [event.start for event in found] == [5, *([5 + length + rest] if again else [])]
    assert found[0].new_level == (length >= 64 or (not again and length + rest + 1 >= 64))


@pytest.mark.parametrize("min_length, starts", [(1, [500, 600]), (2, [500])])
@pytest.mark.parametrize("budget", [Budget(), Quantile(0.001)])
def test_a_spike_in_a_state_that_lasts_does_not_make_the_state_news(budget, min_length, starts):
    random = np.random.default_rng(2)
    training = random.exponential(size=10_000)
    scores = random.exponential(size=6000) * 0.5
    scores[500:] = random.uniform(12.0, 12.1, 5500)
    scores[600] = 20.0
    judge = Judge(budget, budget.fit(training), Alerts(min_length=min_length), ScoreTail.fit(training))
    changes = judge.push(scores).changes
    assert [change.event.start for change in changes if change.kind == "opened"] == starts


def test_an_alert_that_was_sent_stays_one_with_a_higher_mark():
    run = Alerts(alert_from=0.1).start(TAIL)
    (change,) = run.push([9.0], 2.0)
    assert change.event.level == "alert"
    resumed = Alerts(alert_from=1.0).start(TAIL)
    resumed.restore(run.state())
    assert [change.event.level for change in resumed.push([9.5, 0.0], 2.0)] == ["alert", "alert"]


def test_a_state_that_lasts_is_news_again_only_if_it_is_a_tenth_further_from_the_median():
    for high, news in ((4.0, False), (4.29, False), (4.31, True)):  # 3.3 above the median of 1
        scores = [*[4.0] * 200, *[high] * 100, 0.0]
        found = events_of(scores)
        assert [event.start for event in found] == ([0, 200] if news else [0])
        assert all(event.new_level for event in found)


def test_a_state_may_fade_and_return_slowly_without_being_news_but_not_at_once():
    weaker, slowly = [*[9.0] * 100, *[3.0] * 1000], np.linspace(3.0, 9.0, 2000)
    assert len(events_of([*weaker, *slowly])) == 1
    assert [event.start for event in events_of([*weaker, *[9.0] * 100])] == [0, 1100]


def test_hot_steps_of_a_state_that_lasts_are_suppressed():
    run = Alerts(longest=5).start(TAIL)
    run.push([3.0] * 20, 2.0)
    assert (run.suppressed, run.event, run.opened) == (15, None, 1)
    run.push([0.0] * 11, 2.0)
    assert [change.kind for change in run.push([3.0], 2.0)] == ["opened"]


@pytest.mark.parametrize("merge_gap, calm", [(0, 11), (10, 11), (20, 21)])
def test_a_state_is_over_after_more_quiet_readings_than_a_merge_gap_and_than_ten(merge_gap, calm):
    for quiet, again in ((calm - 1, False), (calm, True)):
        scores = [*[3.0] * 80, *[0.0] * quiet, 3.0]
        assert len(events_of(scores, Alerts(merge_gap=merge_gap))) == 1 + again


@pytest.mark.parametrize("period, longest", [(math.nan, 64), (1.0, 64), (450.0, 64), (3600.0, 8), (86_400.0, 8)])
def test_an_event_lasts_64_readings_or_eight_hours(period, longest):
    run = AlertRun(Alerts(), TAIL, period=period)
    changes = run.push([3.0] * 200, 2.0)
    assert [change.kind for change in changes] == ["opened", "closed"]
    assert changes[-1].event.stop == max(longest, 2)  # one reading opens it, a later one closes it
    assert changes[-1].event.new_level


def test_longest_is_not_part_of_what_a_stream_has_to_resume_with():
    """The text of Alerts is part of a stream's fingerprint: it is the same as in 0.2."""
    assert repr(Alerts(longest=5, longest_hours=1, alert_from=0.5)) == (
        "Alerts(low=0.8, min_length=1, merge_gap=0, hold_off=0)"
    )


# Alerts and notices.


@settings(max_examples=100)
@given(cases())
def test_a_notice_may_become_an_alert_and_an_alert_never_a_notice(case):
    _, changes = whole(case)
    for before, after in itertools.pairwise(changes):
        if before.event.number == after.event.number:
            assert (before.event.level, after.event.level) != ("alert", "notice")
            assert before.event.severity <= after.event.severity


@settings(max_examples=100)
@given(cases(), st.sampled_from([0.0, 0.15, 0.3, 0.5, 1.0]))
def test_a_higher_limit_for_alerts_changes_no_event_and_adds_no_alert(case, limit):
    *given_, alerts, tail = case
    _, changes = whole(case)
    _, others = whole((*given_, replace(alerts, alert_from=limit), tail))
    assert [change._replace(event=replace(change.event, level="alert")) for change in changes] == [
        change._replace(event=replace(change.event, level="alert")) for change in others
    ]
    for one, other in zip(changes, others, strict=True):
        assert (other.event.level == "alert") == (one.event.severity >= limit)


def test_a_notice_becomes_an_alert_at_a_higher_peak():
    run = Alerts(alert_from=0.4).start(TAIL)
    changes = run.push([2.5, 4.0, 9.0, 2.5, 0.0], 2.0)
    assert [(c.kind, c.event.level) for c in changes] == [
        ("opened", "notice"),
        ("updated", "notice"),
        ("updated", "alert"),
        ("closed", "alert"),
    ]


# Times.


def test_an_event_knows_its_times_in_utc():
    run, second = Alerts(merge_gap=1).start(TAIL), 1_000_000
    times = np.array([-1, 0, 1, 60, 3600]) * second + second // 4
    (*_, last) = run.advance(np.array([0.0, 3.0, 4.0, 1.9, 0.0]), np.full(5, 2.0), np.ones(5, bool), times).changes
    assert last.event.as_json() == {
        "number": 1,
        "start": 1,
        "stop": 3,
        "peak": 2,
        "peak_score": 4.0,
        "severity": last.event.severity,
        "steps": 2,
        "open": True,
        "level": "alert",
        "new_level": False,
        "rarity": round(10 ** (9 * last.event.severity)),
        "start_time": "1970-01-01T00:00:00.250Z",
        "stop_time": "1970-01-01T00:00:01.250Z",
        "peak_time": "1970-01-01T00:00:01.250Z",
    }
    (closed,) = run.finish()
    assert closed.event.stop_time == datetime(1970, 1, 1, 0, 1, 0, 250_000, UTC)


def test_an_event_without_times_has_none_and_does_not_write_any():
    (event,) = events_of([3.0, 0.0])
    assert (event.start_time, event.stop_time, event.peak_time) == (None, None, None)
    assert not [name for name in event.as_json() if name.endswith("_time")]
    assert json.loads(json.dumps(event.as_json())) == event.as_json()


# States of version 0.2.


@settings(max_examples=60)
@given(cases(), st.integers(0, 60), st.sampled_from([1, 2]), LEVELS)
def test_a_run_resumes_from_a_state_of_an_earlier_version(case, cut, marks, top):
    """It had 12 counts; 0.2 kept two marks, 0.1 only one. Neither knew states that last."""
    scores, _, imputed, alerts, tail = case
    alerts = replace(alerts, longest=100)
    run = alerts.start(tail)
    run.push(scores[:cut], top, imputed[:cut])
    state, resumed = run.state(), alerts.start(tail)
    resumed.restore({"counts": state["counts"][:12], "peak_score": state["peak_score"][:marks]})
    rest = scores[cut:], top, imputed[cut:]
    sent = run.event and run.event.number  # 0.2 sent every event
    expected = [
        replace_event(change, level="alert") if change.event.number == sent else change
        for change in run.push(*rest) + run.finish()
    ]
    assert resumed.push(*rest) + resumed.finish() == expected


def replace_event(change, **values):
    return change._replace(event=replace(change.event, **values))


@pytest.mark.parametrize("counts, marks", [(0, 5), (11, 2), (13, 2), (18, 5), (20, 5), (19, 0), (19, 3), (19, 6)])
def test_a_state_of_a_wrong_size_is_refused(counts, marks):
    with pytest.raises(ModelFileError, match=r"its array '(counts|peak_score)'"):
        Alerts().start(TAIL).restore({"counts": np.zeros(counts, np.int64), "peak_score": np.zeros(marks)})


@pytest.mark.parametrize("at, value", [(0, -1), (1, 4), (5, -3)])
def test_a_state_with_impossible_counts_is_refused(at, value):
    state = Alerts().start(TAIL).state()
    state["counts"][at] = value
    with pytest.raises(ModelFileError, match="its array 'counts' is not that of events"):
        Alerts().start(TAIL).restore(state)


# Pictures in the docs.


def pictures():
    """Each picture of the docs: its scores, and the events drawn for each setting below them."""
    page = (ROOT / "docs" / "alerts.md").read_text()
    for scores, rows in re.findall(r"^scores (.*)\n((?:[a-z_]+=.*\n)+)", page, re.MULTILINE):
        margin = len(scores) - len(scores.lstrip())
        picture = scores.split()
        for name, value, drawing in re.findall(r"^([a-z_]+)=([0-9.]+)(.*)$", rows, re.MULTILINE):
            width = len("scores ") + margin - len(f"{name}={value}")
            cells = drawing[width : width + 2 * len(picture) : 2]
            yield pytest.param("".join(picture), name, float(value), cells, id=f"{name}={value}")


@pytest.mark.parametrize("picture, name, value, cells", list(pictures()))
def test_the_pictures_in_the_docs_are_correct(picture, name, value, cells):
    alerts = Alerts(**{name: value if name == "low" else int(value)})
    drawn_events = [match.span() for match in re.finditer("=+", cells)]
    assert spans(picture, alerts) == drawn_events
    assert drawn_events


def test_the_docs_have_a_picture_of_every_parameter():
    assert {case.values[1] for case in pictures()} == {"longest", "min_length", "merge_gap", "hold_off"}

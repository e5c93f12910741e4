"""Each event opens and closes exactly once, however the scores arrive, and severity measures how rare its peak is."""

import itertools
import math
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cometad.alerting import alerts as alerts_module
from cometad.alerting.alerts import AlertRun, Alerts, Change, Event, find_events
from cometad.alerting.severity import ScoreTail, severity
from cometad.alerting.tail import Tail, fit_tail
from cometad.errors import InputError, ParameterError
from contract import is_a_sentence

ROOT = Path(__file__).parents[2]
TAIL = ScoreTail(center=1.0, base=2.0, start=1.5, share=0.02, shape=0.1, scale=0.7)
BELOW_ZERO = TAIL._replace(center=-5.0, base=-2.0, start=-3.0)
SHARP = Alerts(low=1.0)


# The definitions as loops.


def naive_severity(score, tail):
    def log_probability(value):
        excess = max((value - tail.start) / tail.scale, 0.0)
        return math.log(tail.share) - (math.log(1 + tail.shape * excess) / tail.shape if tail.shape else excess)

    base = log_probability(tail.base)
    rarest = min(math.log(1e-9), base + math.log(1e-3))
    return min(max((base - log_probability(score)) / (base - rarest), 0.0), 1.0)


class Naive:
    """All changes of a whole series, and how many hot steps were suppressed or short."""

    def __init__(self, scores, thresholds, imputed, alerts, tail):
        self.scores, self.tail, self.count = scores, tail, len(scores)
        self.changes, self.suppressed, self.short = [], 0, 0
        self.measured = [step for step in range(len(scores)) if not imputed[step]]
        self.hot = {step for step in self.measured if scores[step] > thresholds[step]}
        self.marks = [min(top, alerts.low * top + (1 - alerts.low) * tail.center) for top in thresholds]
        self.scan(alerts)

    def scan(self, alerts):
        at, free = 0, 0
        while at < len(self.measured):
            step = self.measured[at]
            together = self.until_quiet(at, 0)
            if step not in self.hot:
                at += 1
            elif step < free:
                self.suppressed += 1
                at += 1
            elif len(together) < alerts.min_length:
                self.short += len(self.hot.intersection(together))
                at += len(together)
            else:
                seen = self.until_quiet(at, alerts.merge_gap)
                at += len(seen) + 1  # one quiet step too many
                closes = self.measured[at - 1] if at <= len(self.measured) else self.count - 1
                self.add(seen, together[alerts.min_length - 1], closes)
                free = closes + alerts.hold_off + 1

    def until_quiet(self, at, gap):
        """The measured steps from a given one up to the first run of quiet steps longer than the gap."""
        seen, quiet = [], 0
        for step in self.measured[at:]:
            quiet = 0 if self.is_warm(step, self.measured[at]) else quiet + 1
            if quiet > gap:
                break
            seen.append(step)
        return seen

    def is_warm(self, step, start):
        """Whether a step of an event is at or above its own low mark or, early on, that of the start."""
        early = step - start < 500
        return self.scores[step] >= (min(self.marks[step], self.marks[start]) if early else self.marks[step])

    def add(self, seen, opens, closes):
        number = 1 + sum(change.kind == "opened" for change in self.changes)
        for step in seen:
            best_before = max((self.scores[s] for s in seen if s < step and s in self.hot), default=-math.inf)
            if step == opens:
                self.changes.append(Change("opened", self.event(number, seen, step, True), step))
            elif step > opens and step in self.hot and self.scores[step] > best_before:
                self.changes.append(Change("updated", self.event(number, seen, step, True), step))
        self.changes.append(Change("closed", self.event(number, seen, closes, False), closes))

    def event(self, number, seen, now, is_open):
        hot = [step for step in seen if step <= now and step in self.hot]
        peak = max(hot, key=lambda step: (self.scores[step], -step))
        stop = max(step for step in seen if step <= now and self.is_warm(step, seen[0])) + 1
        score = self.scores[peak]
        return Event(number, seen[0], stop, peak, score, naive_severity(score, self.tail), len(hot), is_open)


# Few distinct values, so that scores often equal each other, the threshold or the low mark.
LEVELS = st.sampled_from([-6.0, -2.0, 0.0, 1.0, 1.5, 2.0, 2.5, 3.0, 7.0])


@st.composite
def cases(draw):
    count = draw(st.integers(0, 60))
    scores = draw(st.lists(LEVELS, min_size=count, max_size=count))
    moving = draw(st.booleans())
    thresholds = draw(st.lists(LEVELS, min_size=count, max_size=count)) if moving else [draw(LEVELS)] * count
    imputed = draw(st.lists(st.sampled_from([False, False, False, True]), min_size=count, max_size=count))
    alerts = Alerts(
        draw(st.sampled_from([0.25, 0.5, 1.0])),
        draw(st.integers(1, 4)),
        draw(st.integers(0, 3)),
        draw(st.integers(0, 6)),
    )
    return scores, thresholds, imputed, alerts, draw(st.sampled_from([TAIL, BELOW_ZERO]))


def whole(case):
    scores, thresholds, imputed, alerts, tail = case
    run = alerts.start(tail)
    return run, run.push(scores, thresholds, imputed) + run.finish()


def rounded(changes):
    """The changes with rounded severities, because the naive formula rounds differently."""
    return [(kind, {**vars(event), "severity": round(event.severity, 9)}, step) for kind, event, step in changes]


@settings(max_examples=200)
@given(cases())
def test_a_run_equals_the_loops(case):
    run, changes = whole(case)
    naive = Naive(*case)
    assert rounded(changes) == rounded(naive.changes)
    assert (run.suppressed, run.short) == (naive.suppressed, naive.short)


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
        assert before.stop < after.start


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


@pytest.mark.parametrize("length, ends", [(400, 400), (800, 500)])
def test_a_threshold_that_rises_above_a_fault_does_not_end_its_event_for_500_steps(length, ends):
    scores, thresholds = np.full(1000, 5.0), np.full(1000, 2.0)
    scores[length:] = 0.0
    thresholds[10:] = 9.0
    [event] = find_events(scores, thresholds, Alerts(), ScoreTail.fit([0.0, 0.0, 1.0]))
    assert (event.start, event.stop, event.steps) == (0, ends, 10)


def test_the_low_mark_is_never_above_the_threshold():
    thresholds = np.linspace(-9, 9, 101)
    for low in (1e-3, 0.3, 0.8, 1.0):
        for center in (-4.0, 0.0, 4.0):
            marks = Alerts(low=low).low_marks(thresholds, center)
            assert (marks <= thresholds).all()
            assert (marks[thresholds <= center] == thresholds[thresholds <= center]).all()
            assert (marks[thresholds > center] >= center - 1e-9).all()


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
    assert sum(value.nbytes for value in state.values()) < 200
    assert all(np.array_equal(state[name], value) for name, value in copy.items())


def size_after(rounds):
    """The size in bytes of a run after a number of rounds with two events each."""
    run = Alerts().start(TAIL)
    for _ in range(rounds):
        run.push(drawn("..##..####...-."), 2.0)
    return len(pickle.dumps(run))


def test_the_memory_of_a_run_does_not_grow_with_events():
    assert size_after(1000) < size_after(10) + 50  # the numbers grow, their count does not


def test_blocks_without_hot_steps_are_skipped(monkeypatch):
    taken = []
    through = AlertRun._through_block
    monkeypatch.setattr(AlertRun, "_through_block", lambda run, *block: taken.extend(block[0]) or through(run, *block))
    scores = np.zeros(100_000)
    scores[[5, 70_000]] = 3.0
    assert len(find_events(scores, 2.0, Alerts(merge_gap=2), TAIL)) == 2
    assert {5, 6, 7, 8, 70_000, 70_003} <= set(taken)
    assert len(taken) < 1000


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
    ],
)
def test_invalid_parameters_are_refused_in_one_sentence(wrong):
    with pytest.raises(ParameterError, match=f"The '{next(iter(wrong))}' parameter must be .* instead[.]"):
        Alerts(**wrong)


# Severity.


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=200), st.none() | st.floats(-1e9, 1e9))
@example([0.0], None)
@example([1.0] * 7, 1.0)
@example([0.0, 5e-324], None)
@example([0.0, 0.0, 1e-200], None)  # in these units, high scores overflow
@example([3.0, 4.0], -7.0)
@example([0.0, 1e-118], 1.0)  # a tail narrower than rounding errors
def test_severity_rises_with_the_score_from_0_to_1(scores, threshold):
    tail = ScoreTail.fit(scores, threshold)
    ladder = np.concatenate([[-np.inf], np.linspace(-2e9, 2e9, 50), [1e300, np.inf]])
    ladder = np.sort(np.concatenate([ladder, scores, tail.start + np.geomspace(1e-6, 1e6, 50) * tail.scale]))
    rungs = severity(ladder, tail)
    assert (np.diff(rungs) >= -1e-12).all()
    assert rungs[0] == 0.0
    assert rungs[-1] == 1.0
    assert severity(tail.base, tail) == 0.0


def test_severity_rises_strictly_between_the_threshold_and_one_in_a_billion():
    tail = ScoreTail(center=0.7, base=5.0, start=4.0, share=math.exp(-4.0), shape=0.0, scale=1.0)  # exponential scores
    rungs = severity(np.linspace(5.0, math.log(1e9) - 1e-6, 100), tail)
    assert (np.diff(rungs) > 0).all()
    assert 0.999 < rungs[-1] < 1.0


def log10_ratio(tail, score, true):
    """By how many powers of ten a tail overestimates the probability of a score."""
    return float(tail.log_probability(score)) / math.log(10) - math.log10(true)


@pytest.mark.parametrize("seed", range(5))
def test_the_tail_of_exponential_scores_is_calibrated(seed):
    tail = ScoreTail.fit(np.random.default_rng(seed).exponential(size=50_000))
    for power in (2, 3, 4):
        assert abs(log10_ratio(tail, math.log(10**power), 10**-power)) < 0.2
    assert abs(log10_ratio(tail, math.log(1e9), 1e-9)) < 1.5
    assert abs(float(severity(tail.base + 0.5 * (math.log(1e9) - tail.base), tail)) - 0.5) < 0.05


@pytest.mark.parametrize("seed", range(5))
def test_the_tail_of_normal_scores_is_calibrated_and_cautious_far_out(seed):
    tail = ScoreTail.fit(np.random.default_rng(seed).normal(size=50_000))
    for score in (2.1, 2.5, 3.0, 3.5):
        assert abs(log10_ratio(tail, score, math.erfc(score / math.sqrt(2)) / 2)) < 0.4
    for score in (4.5, 5.0, 6.0):
        assert 0 < log10_ratio(tail, score, math.erfc(score / math.sqrt(2)) / 2) < 4


@pytest.mark.parametrize("seed", range(5))
def test_a_heavy_tail_is_recognized(seed):
    scores = np.random.default_rng(seed).pareto(3.0, size=50_000)
    tail = ScoreTail.fit(scores)
    rare = 1e6 ** (1 / 3) - 1  # has a probability of 1e-6
    assert abs(log10_ratio(tail, rare, 1e-6)) < 1.0
    assert (
        log10_ratio(tail._replace(shape=0.0, scale=np.mean(scores[scores > tail.start]) - tail.start), rare, 1e-6) < -4
    )


def test_severity_uses_the_threshold_tail_with_the_lightest_shape_the_scores_allow():
    scores = np.random.default_rng(6).pareto(2.0, size=4000)
    tail = ScoreTail.fit(scores)
    excess = scores[scores > tail.start] - tail.start
    likeliest = fit_tail(excess, np.zeros(len(excess), bool))
    assert tail.shape == pytest.approx(likeliest.shape - 1.645 * (1 + likeliest.shape) / math.sqrt(len(excess)))
    assert tail.scale / (1 - tail.shape) == pytest.approx(excess.mean())  # the mean of the excesses is kept


@pytest.mark.parametrize("shape", [-0.7, 0.0, 0.4])
def test_log_survival_is_the_inverse_of_above(shape):
    tail = Tail(shape, 3.0)
    for share in (0.9, 0.1, 1e-6):
        assert float(tail.log_survival(tail.above(share))) == pytest.approx(math.log(share))
    assert float(tail.log_survival(-1.0)) == 0.0


def test_beyond_the_end_of_a_bounded_tail_nothing_survives():
    assert float(Tail(-1.0, 3.0).log_survival(3.5)) == -math.inf


@pytest.mark.parametrize("count, above", [(10_000, 200), (1000, 50), (60, 30), (1, 0)])
def test_a_tail_is_fitted_to_enough_scores(count, above):
    assert ScoreTail.fit(np.arange(float(count))).share == pytest.approx((above + 1) / (count + 1))


def test_severities_of_normal_readings_follow_the_documented_distribution():
    rng = np.random.default_rng(3)
    tail = ScoreTail.fit(rng.exponential(size=50_000), threshold=math.log(100))
    fresh = rng.exponential(size=400_000)
    grades = severity(fresh[fresh > math.log(100)], tail)
    # Between the threshold and one in a billion lie seven powers of ten; each adds 1/7.
    for powers, share in ((1, 0.1), (2, 0.01)):
        assert np.mean(grades > powers / 7) == pytest.approx(share, rel=0.5)


def test_severity_does_not_depend_on_the_units_of_the_scores():
    scores = np.random.default_rng(1).normal(size=5000)
    peaks = np.linspace(2.5, 6.0, 20)
    plain = severity(peaks, ScoreTail.fit(scores, 2.4))
    moved = severity(peaks * 1000 - 7, ScoreTail.fit(scores * 1000 - 7, 2.4 * 1000 - 7))
    assert plain == pytest.approx(moved, abs=1e-9)
    assert 0.0 < plain[0] < 0.1


def test_a_threshold_below_the_tail_moves_its_start():
    scores = np.random.default_rng(2).exponential(size=20_000)
    tail = ScoreTail.fit(scores, threshold=0.5)
    assert tail.start == 0.5
    assert float(tail.probability(1.0)) == pytest.approx(math.exp(-1.0), rel=0.05)


def test_an_extremely_rare_threshold_still_leaves_room_for_severities():
    tail = ScoreTail.fit(np.random.default_rng(4).exponential(size=20_000), threshold=60.0)
    assert float(severity(60.0, tail)) == 0.0
    assert 0.1 < float(severity(62.0, tail)) < 0.9


def test_a_tail_can_be_rebuilt_from_its_six_numbers():
    tail = ScoreTail.fit(np.random.default_rng(5).normal(size=300), 2.0)
    state = np.array(tail)
    assert state.shape == (6,)
    assert ScoreTail(*state) == tail


@pytest.mark.parametrize("scores, threshold", [([], None), ([[1.0]], None), ([np.nan], None), ([1.0], np.inf)])
def test_a_tail_without_usable_scores_is_refused(scores, threshold):
    with pytest.raises(InputError) as caught:
        ScoreTail.fit(scores, threshold)
    assert is_a_sentence(str(caught.value))


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
    assert {case.values[1] for case in pictures()} == {"low", "min_length", "merge_gap", "hold_off"}

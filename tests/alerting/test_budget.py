"""A budget holds its bound on any scores, equals its definition to the bit, and keeps to it where scores drift."""

import json
import math
from dataclasses import replace
from datetime import datetime

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cometad.alerting import THRESHOLDS, Alerts, Budget
from cometad.alerting.alerts import Judge
from cometad.alerting.severity import ScoreTail
from cometad.alerting.thresholds import parse_threshold
from cometad.alerting.watch import EXTRA_COST, STEP
from cometad.baselines import BASELINES
from cometad.errors import InputError, ModelFileError, ParameterError
from cometad.registry import from_json, to_json
from naive_alerts import NaiveBudget, NaiveRun

TRAINING = np.random.default_rng(0).exponential(size=2000)

sizes = st.sampled_from([-1e6, -3.0, 0.0, 0.5, 1.0, 4.0, 5.0, 8.0, 60.0, 1e3, 1e6, 1e12])
lengths = st.integers(1, 400)
seeds = st.integers(0, 2**32 - 1)
rates = st.sampled_from([0.001, 0.01, 0.05, 0.3, 0.9])
rules = st.builds(Budget, rate=rates, patience=st.sampled_from([0, 1, 5, 500]))
trainings = st.one_of(
    st.just(TRAINING),
    st.builds(np.full, st.just(50), st.sampled_from([0.0, 0.1, -7.0, 1e6])),
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30).map(np.array),
)


def constant(size, length, seed):
    return np.full(length, size)


def alternating(size, length, seed):
    return np.where(np.arange(length) % 2, size, 1.0)


def ramp(size, length, seed):
    return np.linspace(0, size, length)


def explosion(size, length, seed):
    return np.minimum(1.1 ** np.arange(length), 1e100)


def outlier(size, length, seed):
    return np.where(np.arange(length) == length // 2, 1e9, np.random.default_rng(seed).exponential(size=length))


def random(size, length, seed):
    return size + np.random.default_rng(seed).exponential(size=length)


def walk(size, length, seed):
    return np.random.default_rng(seed).normal(size=length).cumsum()


def few_values(size, length, seed):
    return np.random.default_rng(seed).choice([0.0, 1.0, 5.0, size], size=length)


kinds = st.sampled_from([constant, alternating, ramp, explosion, outlier, random, walk, few_values])
mixtures = st.lists(st.builds(lambda kind, *given: kind(*given), kinds, sizes, lengths, seeds), min_size=1, max_size=6)
adversarial = mixtures.map(np.concatenate)


# -- a budget of flagged readings: the definition as a loop -----------------------------------------------------------


class NaiveRate:
    """The docstring of `Budget`, one score at a time."""

    def __init__(self, training, rate, patience):
        self.rate, self.patience = rate, patience
        self.start, median = np.quantile(training, [1 - rate, 0.5]).tolist()
        spread = max(self.start - median, 1e-6 * max(map(abs, training)))
        self.spread = float(spread) if spread > 1e-30 else 1e-6
        self.position, self.allowance, self.held, self.kept = 0.0, min(20.0, patience), 0, 0
        self.scores, self.flags = [float(training[-1])], []

    def score_at(self, position):
        distance = self.spread * math.expm1(abs(position))
        return self.start + distance if position >= 0 else self.start - distance

    def position_of(self, score):
        return math.copysign(math.log1p(abs(score - self.start) / self.spread), score - self.start)

    def judge(self, score):
        """Returns the threshold that applies to the score, then moves it."""
        threshold = self.score_at(self.position)
        is_open = any(self.flags[-2:])
        self.allowance = min(self.patience, self.allowance + 0.5 * self.rate)
        self.flags.append(score > threshold)
        if score > threshold:
            raised = self.position + 0.5 * (1 - self.rate)
            if is_open and score > self.score_at(raised) and self.allowance >= 1:
                self.allowance -= 1
                self.held += 1
            else:
                self.position = raised
        else:
            lowered = self.position - 0.5 * self.rate
            if abs(score - self.scores[-1]) <= 1e-6 * self.spread and score > self.score_at(lowered):
                self.kept += 1
            else:
                self.position = lowered
        self.scores.append(score)
        return threshold

    def most_flags(self, count, highest):
        tracked = max(0.0, self.position_of(highest)) / 0.5 + 1
        return tracked + (1.5 * self.rate * count + 20 if self.patience else self.rate * count)

    def fewest_flags(self, count, lowest):
        return self.rate * (count - self.kept) - max(0.0, -self.position_of(lowest)) / 0.5 - 1


@settings(max_examples=50)
@given(rules, trainings, adversarial)
def test_a_budget_equals_its_definition_to_the_bit(rule, training, scores):
    naive = NaiveRate(training, rule.rate, rule.patience)
    watch = rule.watch(rule.fit(training))
    expected = [naive.judge(score) for score in scores.tolist()]
    assert watch.follow(scores).tolist() == expected
    assert watch.threshold == naive.score_at(naive.position)


# -- the bound -------------------------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(rules, trainings, adversarial)
@example(Budget(rate=0.01), TRAINING, np.full(5000, 1e12))
@example(Budget(rate=0.01), TRAINING, np.arange(5000.0))
@example(Budget(rate=0.01), TRAINING, np.tile([0.0, 1e6], 2500))
@example(Budget(rate=0.01), np.zeros(50), np.repeat([0.0, 1e6, 0.0, 1e12], 1000))
@example(Budget(0.05), TRAINING, 1.5 ** np.arange(500))
@example(Budget(rate=0.01), np.array([6.8e-305]), np.full(3000, 1e12))
def test_the_bound_on_flags_holds_for_any_scores(rule, training, scores):
    naive = NaiveRate(training, rule.rate, rule.patience)
    flags = rule.watch(rule.fit(training)).push(scores)
    counts = np.arange(1, len(scores) + 1)
    highest, lowest = np.maximum.accumulate(scores), np.minimum.accumulate(scores)
    for score, count, flagged, high, low in zip(scores, counts, flags.cumsum(), highest, lowest, strict=True):
        naive.judge(float(score))
        assert naive.fewest_flags(count, low) - 1e-6 <= flagged <= naive.most_flags(count, high) + 1e-6


@settings(max_examples=50)
@given(rules, adversarial, adversarial)
def test_the_bound_holds_for_a_stretch_within_a_stream(rule, before, stretch):
    naive = NaiveRate(TRAINING, rule.rate, rule.patience)
    watch = rule.watch(rule.fit(TRAINING))
    for score in before.tolist():
        naive.judge(score)
    watch.push(before)
    climb = max(0.0, naive.position_of(stretch.max()) - naive.position)
    bound = 1.5 * rule.rate * len(stretch) + climb / 0.5 + 1 + rule.patience
    assert watch.push(stretch).sum() <= bound + 1e-6


@settings(max_examples=50)
@given(rules, adversarial)
def test_holding_costs_at_most_20_and_half_of_the_budget_in_total_and_patience_in_a_row(rule, scores):
    naive = NaiveRate(TRAINING, rule.rate, rule.patience)
    in_a_row = 0
    for score in scores.tolist():
        held = naive.held
        naive.judge(score)
        in_a_row = in_a_row + 1 if naive.held > held else 0
        assert in_a_row <= rule.patience * (1 + rule.rate) + 1
    assert naive.held <= min(20, rule.patience) + 0.5 * rule.rate * len(scores) + 1e-6


# -- streams ---------------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(rules, adversarial, st.lists(st.integers(0, 2000), max_size=5))
@example(Budget(rate=0.01), np.full(3000, 7.0), [1500, 2000, 2500])
@example(Budget(0.1), np.tile(np.repeat([0.0, 1e6], 40), 20), [61, 62, 750, 781, 782])
def test_chunks_of_any_size_and_resuming_give_the_same_bits(rule, scores, cuts):
    fitted = rule.fit(TRAINING)
    whole = rule.watch(fitted)
    expected, watch, parts = whole.follow(scores), rule.watch(fitted), []
    for part in np.split(scores, sorted(min(cut, len(scores)) for cut in cuts)):
        watch = rule.watch(watch.state())
        parts.append(watch.follow(part))
    assert np.array_equal(np.concatenate(parts), expected)
    assert np.array_equal(watch.state(), whole.state())
    assert np.array_equal(fitted, rule.fit(TRAINING))  # a watch does not modify the state that it starts from


def test_the_state_has_the_same_size_after_any_stream():
    rule = Budget(rate=0.01)
    watch = rule.watch(rule.fit(TRAINING))
    watch.push(np.random.default_rng(2).exponential(size=10_000))
    assert watch.state().shape == rule.fit(TRAINING).shape == (7,)


# -- what a user sees ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("draw", ["normal", "exponential"])
def test_independent_scores_are_flagged_at_the_rate(draw):
    drawn = getattr(np.random.default_rng(3), draw)
    for rate in (0.01, 0.1):
        watch = Budget(rate).watch(Budget(rate).fit(drawn(size=5000)))
        assert watch.push(drawn(size=20_000)).mean() == pytest.approx(rate, rel=0.1)


def test_neighbors_that_are_alike_do_not_spend_the_allowance():
    noise = np.random.default_rng(4).normal(size=60_000)
    scores = np.zeros(60_000)
    for i in range(1, 60_000):
        scores[i] = 0.95 * scores[i - 1] + noise[i]
    watch = Budget(rate=0.01).watch(Budget(rate=0.01).fit(scores[:10_000]))
    assert watch.push(scores[10_000:]).mean() == pytest.approx(0.01, rel=0.2)


@pytest.mark.parametrize("level", [1.0, 1e3, 1e6, 1e9])
@pytest.mark.parametrize("training", [TRAINING, np.zeros(1000)], ids=["varied", "all zero"])
def test_a_jump_of_any_size_is_caught_up_with_after_a_bounded_number_of_flags(training, level):
    watch = Budget(rate=0.01).watch(Budget(rate=0.01).fit(training))
    flags = watch.push(level * (1 + 0.1 * np.random.default_rng(5).random(4000)))
    assert not flags[:105].all()
    assert flags[120:].mean() < 0.013


def test_one_huge_outlier_raises_the_threshold_by_one_step_only():
    watch = Budget(rate=0.01).watch(Budget(rate=0.01).fit(TRAINING))
    before = watch.threshold
    watch.push(1e12)
    assert before < watch.threshold < before + np.ptp(TRAINING)
    watch.push(np.random.default_rng(6).random(99))
    assert watch.threshold == pytest.approx(before)


def test_the_threshold_returns_from_a_level_a_million_times_as_high():
    random = np.random.default_rng(7)
    watch = Budget(rate=0.01).watch(Budget(rate=0.01).fit(TRAINING))
    watch.push(1e6 + random.exponential(size=2000))
    assert watch.threshold > 1e5
    assert watch.push(random.exponential(size=5000)).mean() > 0.003


def test_constant_scores_are_not_flagged_once_caught_up_with():
    watch = Budget(rate=0.01).watch(Budget(rate=0.01).fit(TRAINING))
    watch.push(np.full(3000, 7.0))
    assert watch.push(np.full(3000, 7.0)).sum() == 0
    assert watch.push(7.5).all()


def test_rounding_does_not_make_constant_scores_change():
    """Two programs that add in another order round differently, and still have to agree on the threshold."""
    exact = np.full(3000, 7.0)
    rounded = exact + np.random.default_rng(10).choice([-1e-14, 0.0, 1e-14], exact.size)
    for rule in (Budget(rate=0.01), Budget(alerts_per_day=10, period=60)):
        ours, theirs = (rule.watch(rule.fit(TRAINING)).follow(scores) for scores in (exact, rounded))
        assert theirs == pytest.approx(ours)


def test_a_fault_is_flagged_to_its_end_while_patience_lasts():
    """50,000 readings earn 250 held ones, besides the first 20."""
    random = np.random.default_rng(8)
    calm, fault = random.exponential(size=50_000), 50 + random.exponential(size=240)
    for patience, share in ((0, 0.1), (100, 0.5), (500, 1.0)):
        rule = Budget(rate=0.01, patience=patience)
        watch = rule.watch(rule.fit(TRAINING))
        watch.push(calm)
        before = watch.threshold
        assert watch.push(fault).mean() == pytest.approx(share, abs=0.1)
        assert (watch.threshold < before + 10) == (patience == 500)


def test_the_threshold_scales_and_shifts_with_the_scores():
    scores = np.random.default_rng(9).exponential(size=5000)
    plain = Budget(rate=0.01).watch(Budget(rate=0.01).fit(TRAINING)).follow(scores)
    moved = Budget(rate=0.01).watch(Budget(rate=0.01).fit(8 * TRAINING - 3)).follow(8 * scores - 3)
    assert moved == pytest.approx(8 * plain - 3)


# -- a budget of alerts: the definition as a loop ----------------------------------------------------------------------

DAY = 86_400
shares = st.sampled_from([1e-5, 1e-4, 1e-3, 0.01])
alert_budgets = st.builds(lambda share: Budget(alerts=share, per=1), shares)
alert_rules = st.builds(
    Alerts,
    low=st.sampled_from([0.3, 0.8, 1.0]),
    min_length=st.integers(1, 3),
    merge_gap=st.sampled_from([0, 2, 20]),
    hold_off=st.sampled_from([0, 30]),
    longest=st.sampled_from([1, 5, 64]),
    longest_hours=st.sampled_from([0.5, 8.0]),
    alert_from=st.sampled_from([0.0, 0.15, 0.5]),
)


def missing_of(seed, size):
    """Which readings are missing: single ones and long stretches, or none."""
    random = np.random.default_rng(seed)
    if seed % 3 == 0:
        return np.zeros(size, bool)
    return (random.random(size) < 0.1) | (np.sin(np.arange(size) / 20 + seed) > 0.95)


def judged_by_loops(budget, training, scores, missing, alerts, times=None, period=math.nan):
    tail = ScoreTail.fit(training)
    alerts = replace(alerts, merge_gap=max(alerts.merge_gap, min(10, int(0.1 / budget.share()))))
    naive = NaiveRun(alerts, tail, NaiveBudget(training.tolist(), budget.share(), tail), period)
    for k, score in enumerate(scores.tolist()):
        naive.take(score, None, not missing[k], None if times is None else int(times[k]))
    return naive


def judge_of(budget, training, alerts=None, period=math.nan):
    return Judge(budget, budget.fit(training), alerts or Alerts(), ScoreTail.fit(training), period)


@settings(max_examples=300)
@given(alert_budgets, trainings, adversarial, seeds, alert_rules, st.sampled_from([math.nan, 60.0, 3600.0]))
def test_thresholds_flags_and_events_equal_their_definition_to_the_bit(budget, training, scores, seed, alerts, period):
    missing = missing_of(seed, len(scores))
    times = None if math.isnan(period) else 10**15 + np.arange(len(scores)) * round(period) * 10**6
    naive = judged_by_loops(budget, training, scores, missing, alerts, times, period)
    judge = judge_of(budget, training, alerts, period)
    found = judge.push(np.where(missing, np.nan, scores), missing, times)
    assert found.thresholds.tolist() == naive.thresholds
    assert found.flags.tolist() == naive.flags
    assert judge.alerts.threshold == naive.threshold
    changes = found.changes + judge.finish()
    naive.finish()
    assert changes == naive.changes
    assert (judge.alerts.suppressed, judge.alerts.short) == (naive.suppressed, naive.short)


@settings(max_examples=60)
@given(alert_budgets, adversarial, seeds, alert_rules, st.lists(st.integers(0, 2000), max_size=5))
def test_chunks_of_any_size_and_resuming_give_the_same_events(budget, scores, seed, alerts, cuts):
    missing = missing_of(seed, len(scores))
    whole, judge = judge_of(budget, TRAINING, alerts), judge_of(budget, TRAINING, alerts)
    expected, parts = whole.push(scores, missing), []
    for part in np.split(np.arange(len(scores)), sorted(min(cut, len(scores)) for cut in cuts)):
        state, judge = judge.state(), judge_of(budget, TRAINING, alerts)
        judge.restore(state)
        parts.append(judge.push(scores[part], missing[part]))
    assert np.array_equal(np.concatenate([part.thresholds for part in parts]), expected.thresholds)
    assert [change for part in parts for change in part.changes] == expected.changes
    assert all(np.array_equal(value, whole.state()[name]) for name, value in judge.state().items())
    assert judge.finish() == whole.finish()


@settings(max_examples=60)
@given(alert_budgets, adversarial, st.lists(st.integers(0, 2000), max_size=5))
def test_its_watch_equals_a_judge_and_resumes_with_the_same_bits(budget, scores, cuts):
    watch, fitted = budget.watch(budget.fit(TRAINING)), budget.fit(TRAINING)
    parts = []
    for part in np.split(scores, sorted(min(cut, len(scores)) for cut in cuts)):
        watch = budget.watch(watch.state())
        parts.append(watch.follow(part))
    judge = judge_of(budget, TRAINING)
    assert np.array_equal(np.concatenate(parts), judge.push(scores).thresholds)
    assert watch.threshold == judge.alerts.threshold
    assert np.array_equal(fitted, budget.fit(TRAINING))


@settings(max_examples=60)
@given(alert_budgets, trainings, adversarial, seeds, alert_rules)
def test_every_flag_of_a_budget_is_in_an_event_or_short_or_suppressed(budget, training, scores, seed, alerts):
    missing = missing_of(seed, len(scores))
    judge = judge_of(budget, training, alerts)
    found = judge.push(scores, missing)
    closed = [change.event for change in found.changes + judge.finish() if change.kind == "closed"]
    assert found.flags.sum() == sum(event.steps for event in closed) + judge.alerts.short + judge.alerts.suppressed
    for event in closed:
        assert found.flags[event.start : event.stop].sum() == event.steps


# -- a budget of alerts: the bound -------------------------------------------------------------------------------------


@settings(max_examples=300)
@given(alert_budgets, trainings, adversarial, seeds, alert_rules)
@example(Budget(), TRAINING, np.full(5000, 1e12), 0, Alerts())
@example(Budget(), TRAINING, np.arange(5000.0), 0, Alerts(longest=1))
@example(Budget(alerts=0.01, per=1), TRAINING, np.tile([0.0] * 11 + [1e6], 900), 0, Alerts())
@example(Budget(alerts=0.01, per=1), np.zeros(50), np.repeat([0.0, 1e6, 0.0, 1e12], 1000), 0, Alerts())
@example(Budget(alerts=0.01, per=1), TRAINING, 1.5 ** np.arange(500), 0, Alerts(longest=1))
@example(Budget(), np.array([6.8e-305]), np.full(3000, 1e12), 0, Alerts())
def test_the_bound_on_alerts_holds_for_any_scores(budget, training, scores, seed, alerts):
    missing = missing_of(seed, len(scores))
    start, spread, *_ = budget.fit(training).tolist()
    opened = np.zeros(len(scores))
    for change in judge_of(budget, training, alerts).push(scores, missing).changes:
        opened[change.step] += change.kind == "opened"
    highest = np.maximum.accumulate(np.where(missing, -np.inf, scores))
    climb = np.log1p(np.maximum(highest - start, 0.0) / spread)
    assert (opened.cumsum() <= budget.share() * (~missing).cumsum() + climb / 0.25 + 1.8 + 1e-6).all()


def test_the_bound_holds_for_scores_that_know_the_threshold():
    """Each score is just above it, and the pauses are long enough for the next event. The bound is not far off."""
    budget = Budget(alerts=0.01, per=1)
    start, spread, *_ = budget.fit(TRAINING).tolist()
    judge, count, highest = judge_of(budget, TRAINING), 0, start
    for events in range(1, 101):
        highest = max(highest, judge.alerts.threshold + 1e-3)
        found = judge.push([judge.alerts.threshold + 1e-3, *[0.0, 0.1] * 6])
        assert [change.kind for change in found.changes] == ["opened", "closed"]
        count += 13
        bound = 0.01 * count + math.log1p((highest - start) / spread) / 0.25 + 1.8
        assert bound / 1.6 - 1.6 < events <= bound + 1e-6


# -- a budget of alerts: what a user sees ------------------------------------------------------------------------------


def opened(budget, training, scores, period=math.nan):
    judge = judge_of(budget, training, period=period)
    changes = judge.push(scores).changes + judge.finish()
    return [change.event for change in changes if change.kind == "closed"]


@pytest.mark.parametrize("share", [1e-3, 1e-2])
@pytest.mark.parametrize("draw", ["normal", "exponential"])
def test_independent_scores_open_events_at_most_as_often_as_allowed(draw, share):
    drawn = getattr(np.random.default_rng(3), draw)
    found = opened(Budget(alerts=share, per=1), drawn(size=10_000), drawn(size=100_000))
    assert 0.4 * share < len(found) / 100_000 <= share


def test_drifting_scores_keep_to_their_budget():
    random = np.random.default_rng(4)
    scores = random.exponential(size=60_000) * np.linspace(1.0, 20.0, 60_000)
    assert len(opened(Budget(), random.exponential(size=10_000), scores)) <= 60 + math.log1p(60) / 0.25 + 1.8


def test_a_long_fault_is_one_event_that_does_not_raise_the_threshold_further():
    random, calm = np.random.default_rng(5), np.random.default_rng(6).random(500)
    fault = 40 + random.random(3000)
    judge = judge_of(Budget(), TRAINING)
    judge.push(calm)
    before = judge.alerts.threshold
    (first, *rest) = [change.event for change in judge.push(fault).changes if change.kind != "updated"]
    assert [(first.number, first.start)] * len(rest) == [(event.number, event.start) for event in rest]
    assert rest[-1].new_level
    assert judge.push(np.zeros(11)).changes == []
    assert judge.alerts.threshold < before + 2
    assert [change.kind for change in judge.push([40.0]).changes] == ["opened"]


def test_a_fault_that_flickers_is_one_event():
    flicker = np.tile([50.0, *[0.5, 0.6] * 5], 5)
    (event,) = opened(Budget(), TRAINING, np.concatenate([np.zeros(100), flicker, np.zeros(100)]))
    assert (event.start, event.stop, event.steps) == (100, 145, 5)


def test_a_fault_is_flagged_while_its_event_is_open_even_below_the_raised_threshold():
    judge = judge_of(Budget(), TRAINING)
    top = judge.alerts.threshold
    found = judge.push([top + 0.1] * 20)
    assert found.flags.all()
    assert set(found.thresholds) == {top}
    assert judge.alerts.track[2] > 0


@pytest.mark.parametrize("size", [30, 300, 2000])
@pytest.mark.parametrize("rare", [1e-4, 1e-6])
def test_a_budget_too_fine_for_its_history_starts_above_its_highest_score_and_does_not_flood(size, rare):
    random = np.random.default_rng(size)
    training, budget = random.exponential(size=size), Budget(alerts=rare, per=1)
    assert budget.watch(budget.fit(training)).threshold > training.max()
    assert len(opened(budget, training, random.exponential(size=20_000))) <= 2 + 20_000 * rare


def test_quiet_data_after_noisy_training_opens_no_event():
    random = np.random.default_rng(7)
    training, quiet = random.exponential(size=10_000), 0.01 * random.exponential(size=200_000)
    assert opened(Budget(), training, quiet) == []
    watch = Budget().watch(Budget().fit(training))
    watch.push(quiet)
    assert watch.threshold == np.quantile(training, 0.8)


def test_rare_events_cost_less_than_ordinary_ones():
    climbs, top = [], judge_of(Budget(), TRAINING).alerts.threshold
    for score in (20.0, 9.0, 8.0, top + 0.01):
        judge = judge_of(Budget(), TRAINING)
        judge.push([score, 0.0])
        climbs.append(judge.alerts.track[2])
    assert climbs == sorted(climbs)
    assert climbs[0] == pytest.approx(STEP, abs=1e-3)
    assert climbs[-1] == pytest.approx((1 + EXTRA_COST) * STEP, abs=1e-3)


def test_it_starts_where_a_third_of_the_flags_may_open_an_event():
    scores = np.random.default_rng(0).exponential(size=10_000)
    assert Budget().fit(scores)[0] == np.quantile(scores, 1 - 0.001 / 0.3)
    assert judge_of(Budget(), scores).push(scores[:1]).thresholds == np.quantile(scores, 1 - 0.001 / 0.3)


def test_an_event_may_last_hours_or_readings():
    fault = np.concatenate([np.zeros(20), np.full(200, 40.0)])
    for period, stop in ((60.0, 84), (3600.0, 28)):
        (event,) = opened(Budget(), TRAINING, fault, period)
        assert (event.start, event.stop, event.new_level) == (20, stop, True)


# -- a budget of alerts: its share of the readings ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "budget, period, share",
    [
        (Budget(), math.nan, 0.001),
        (Budget(), 60.0, 0.001),
        (Budget(), 1.0, 3 / DAY),
        (Budget(alerts_per_day=3), 60.0, 3 / 1440),
        (Budget(alerts_per_day=3, period=10.0), 60.0, 3 / 8640),  # its own period comes first
        (Budget(alerts=2, per=1000), 1.0, 0.002),
        (Budget(alerts=2, per=1000, alerts_per_day=4), 1.0, 4 / DAY),  # the lower limit applies
        (Budget(alerts=1, per=10_000, alerts_per_day=100), 60.0, 1e-4),
        (Budget(alerts_per_day=3), 3600.0, 0.01),  # never more than one in 100
        (Budget(alerts=1, per=2), math.nan, 0.01),
        (Budget(rate=0.05), 3600.0, 0.05),
    ],
)
def test_a_budget_allows_a_share_of_the_readings(budget, period, share):
    assert budget.share(period) == pytest.approx(share)
    assert budget.fit(TRAINING, period)[6] == budget.share(period)


@pytest.mark.parametrize(
    "budget, period, sentence",
    [
        (Budget(), 3600.0, None),
        (Budget(rate=0.5), 60.0, None),
        (Budget(alerts=1, per=100), math.nan, None),
        (
            Budget(alerts=1, per=20),
            math.nan,
            "The budget of 1 alert per 20 readings is one in 20 readings, too many to look at. It is reduced to one in "
            "100.",
        ),
        (
            Budget(alerts_per_day=30),
            600.0,
            "The budget of 30 alerts a day is one in 4.8 readings, too many to look at. It is reduced to one in 100: "
            "1.4 a day.",
        ),
    ],
)
def test_a_budget_that_is_too_large_is_reduced_in_a_sentence(budget, period, sentence):
    assert budget.reduced(period) == sentence


def test_detectors_take_the_period_from_the_times_and_warn_about_a_reduced_budget(caplog):
    times = pl.datetime_range(datetime(2026, 1, 1), datetime(2026, 1, 2), "1m", eager=True)[:1000]
    values = np.random.default_rng(0).normal(size=(1000, 2))
    frame = pl.DataFrame({"time": times, "a": values[:, 0], "b": values[:, 1]})
    rule = Budget(alerts_per_day=7.2)
    detector = BASELINES["squared-norm"](threshold=rule).fit(frame)
    assert detector.threshold_state_[6] == 7.2 / 1440
    with pytest.raises(InputError, match=r"Fit on readings with times, or pass period=SECONDS to the budget\."):
        BASELINES["squared-norm"](threshold=rule).fit(values)
    assert not caplog.records
    BASELINES["squared-norm"](threshold=Budget(alerts_per_day=100)).fit(frame)
    assert [record.message for record in caplog.records] == [Budget(alerts_per_day=100).reduced(60.0)]


# -- parameters ------------------------------------------------------------------------------------------------------

BOTH = (
    "A budget limits alerts or flagged readings, not both. Pass alerts=2, per=1000 or alerts_per_day=3, or only a rate."
)


def must_be(name, value, instead):
    return f"The '{name}' parameter must be {instead}. Got {value!r} instead."


FEWER, SOME = (
    "above 0 and fewer than one per reading, such as alerts=1, per=1000",
    "a number above 0, such as alerts_per_day=3",
)


@pytest.mark.parametrize(
    "wrong, sentence",
    [
        ({"rate": 0.01, "alerts": 1}, BOTH),
        ({"rate": 0.01, "alerts_per_day": 3}, BOTH),
        *(({"alerts": value}, must_be("alerts", value, FEWER)) for value in (0, -1, 1000, 2000.0, math.nan, "2", True)),
        ({"alerts": 5, "per": 5}, must_be("alerts", 5, FEWER)),
        *(
            ({"alerts_per_day": value}, must_be("alerts_per_day", value, SOME))
            for value in (0, -3, math.inf, math.nan, "3", True)
        ),
        ({"alerts": 1, "per": 0}, must_be("per", 0, "a number above 0 and below inf")),
        ({"alerts_per_day": 3, "period": -1}, must_be("period", -1, "a number above 0 and below inf")),
        *(({"rate": value}, must_be("rate", value, "a number above 0 and below 1")) for value in (0, 1, -0.1, "0.1")),
        *(
            ({"patience": value}, must_be("patience", value, "an integer of at least 0"))
            for value in (-1, 1.5, True, None)
        ),
    ],
)
def test_an_invalid_budget_is_refused_in_one_sentence(wrong, sentence):
    with pytest.raises(ParameterError) as caught:
        Budget(**wrong)
    assert str(caught.value) == sentence


def test_alerts_per_day_alone_need_a_period():
    with pytest.raises(InputError) as caught:
        Budget(alerts_per_day=3).fit(TRAINING)
    assert str(caught.value) == (
        "A budget of alerts per day needs the time between readings. Fit on readings with times, or pass "
        "period=SECONDS to the budget."
    )
    given, known = Budget(alerts_per_day=3, period=60.0).fit(TRAINING), Budget(alerts_per_day=3).fit(TRAINING, 60.0)
    assert np.array_equal(given, known)


@pytest.mark.parametrize(
    "text, budget, words",
    [
        ("budget", Budget(), "1 alert per 1,000 readings, at most 3 a day"),
        ("1/1000,3/day", Budget(alerts=1, alerts_per_day=3), "1 alert per 1,000 readings, at most 3 a day"),
        ("3/day,1/1000", Budget(alerts=1, alerts_per_day=3), "1 alert per 1,000 readings, at most 3 a day"),
        ("1/1000", Budget(alerts=1), "1 alert per 1,000 readings"),
        ("2/5e4", Budget(alerts=2, per=50_000), "2 alerts per 50,000 readings"),
        ("3/day", Budget(alerts_per_day=3), "3 alerts a day"),
        ("1/day", Budget(alerts_per_day=1), "1 alert a day"),
        ("alerts-per-day:0.5", Budget(alerts_per_day=0.5), "0.5 alerts a day"),
        ("alerts-per-day", Budget(alerts_per_day=3), "3 alerts a day"),
        ("budget:0.02", Budget(rate=0.02), "2 % of the readings"),
    ],
)
def test_a_budget_can_be_read_and_written_in_words(text, budget, words):
    assert parse_threshold(text) == budget
    assert str(budget) == words


@pytest.mark.parametrize(
    "text, sentence",
    [
        *(
            (text, f"Cannot read the budget {text!r}. Write it as 3/day or 1/1000.")
            for text in ("many/day", "3/week", "/day", "3/", "1/1000,", "1/1000/2", "spot/3")
        ),
        *(
            (text, f"The budget {text!r} is not above 0 and below one alert per reading. Write it as 3/day or 1/1000.")
            for text in ("0/day", "-1/1000", "nan/day", "2/2", "1/0")
        ),
        (
            "alerts-per-day:many",
            "Cannot read the threshold 'alerts-per-day:many'. Write it as alerts-per-day or alerts-per-day:NUMBER.",
        ),
        ("budget:2", "Cannot use the threshold 'budget:2'. " + must_be("rate", 2.0, "a number above 0 and below 1")),
    ],
)
def test_a_text_that_is_no_budget_is_refused_with_what_to_write(text, sentence):
    with pytest.raises(ParameterError) as caught:
        parse_threshold(text)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    "budget",
    [
        Budget(),
        Budget(rate=0.02, patience=7),
        Budget(alerts=2, per=500),
        Budget(alerts_per_day=5, period=60),
        Budget(alerts=1, per=100, alerts_per_day=2.5),
    ],
)
def test_a_budget_is_saved_by_name_and_read_back(budget):
    assert THRESHOLDS["budget"] is Budget
    assert from_json(json.loads(json.dumps(to_json(budget)))) == budget
    assert replace(budget) == budget


@pytest.mark.parametrize(
    "budget", [{"rate": 0.01, "alerts_per_day": None}, {"rate": None, "alerts_per_day": 3.0}, {"rate": 0.5}]
)
def test_a_budget_of_an_earlier_version_is_read_and_written_as_it_was(budget):
    saved = {"kind": "Budget", "patience": 500, "period": None, "alerts_per_day": None} | budget
    loaded = from_json(saved)
    assert (loaded.rate, loaded.alerts_per_day, loaded.alerts) == (saved["rate"], saved["alerts_per_day"], None)
    assert to_json(loaded) == saved


# -- states ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 6, 8, 12, 14, 36, 38])
def test_a_state_of_a_wrong_size_is_refused(size):
    with pytest.raises(ModelFileError, match="the state of its threshold is not 7 or 13 or 37 numbers"):
        Budget().watch(np.ones(size))
    with pytest.raises(ModelFileError, match="the state of its threshold is not 7 numbers"):
        Budget(rate=0.01).watch(np.ones(size))


@pytest.mark.parametrize("spread", [0.0, -1.0])
def test_a_state_without_a_spread_is_refused(spread):
    for budget in (Budget(), Budget(rate=0.01)):
        state = budget.fit(TRAINING)
        state[1] = spread
        with pytest.raises(ModelFileError, match="with a positive spread"):
            budget.watch(state)


def test_a_state_of_version_02_falls_to_the_median_at_most():
    """Its fourth number counted flags; it had no tail."""
    budget, earlier = Budget(alerts_per_day=3, period=60), [-2.0, 4.0, 0.0, 250.0, 31.0, -5.0, 3 / 1440]
    watch = budget.watch(np.array(earlier))
    assert watch.threshold == -2.0
    watch.push(np.random.default_rng(0).random(60_000) - 9.0)
    assert watch.threshold == -6.0
    judge = Judge(budget, np.array(earlier), Alerts(), ScoreTail(-6.0, -2.0, -2.0, 0.002, 0.0, 1.0))
    counts = np.zeros(12, np.int64)
    judge.restore({"watch": np.array(earlier), "alerts.counts": counts, "alerts.peak_score": np.zeros(2)})
    assert judge.push([-1.0, -3.0, -9.0]).thresholds[0] == -2.0
    assert judge.alerts.threshold < 0.0

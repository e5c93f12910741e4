"""A budget holds its bound on any scores, equals its definition to the bit, and keeps its rate where scores drift."""

import math
from datetime import datetime

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cometad.alerting import THRESHOLDS, Alerts, Budget
from cometad.alerting.judge import Judge
from cometad.alerting.severity import ScoreTail
from cometad.alerting.thresholds import parse_threshold
from cometad.baselines import BASELINES
from cometad.errors import InputError, ParameterError
from cometad.registry import from_json, to_json

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


# -- the definition as a loop ----------------------------------------------------------------------------------------


class NaiveBudget:
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
    naive = NaiveBudget(training, rule.rate, rule.patience)
    watch = rule.watch(rule.fit(training))
    expected = [naive.judge(score) for score in scores.tolist()]
    assert watch.follow(scores).tolist() == expected
    assert watch.threshold == naive.score_at(naive.position)


# -- the bound -------------------------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(rules, trainings, adversarial)
@example(Budget(), TRAINING, np.full(5000, 1e12))
@example(Budget(), TRAINING, np.arange(5000.0))
@example(Budget(), TRAINING, np.tile([0.0, 1e6], 2500))
@example(Budget(), np.zeros(50), np.repeat([0.0, 1e6, 0.0, 1e12], 1000))
@example(Budget(0.05), TRAINING, 1.5 ** np.arange(500))
@example(Budget(), np.array([6.8e-305]), np.full(3000, 1e12))
def test_the_bound_on_flags_holds_for_any_scores(rule, training, scores):
    naive = NaiveBudget(training, rule.rate, rule.patience)
    flags = rule.watch(rule.fit(training)).push(scores)
    counts = np.arange(1, len(scores) + 1)
    highest, lowest = np.maximum.accumulate(scores), np.minimum.accumulate(scores)
    for score, count, flagged, high, low in zip(scores, counts, flags.cumsum(), highest, lowest, strict=True):
        naive.judge(float(score))
        assert naive.fewest_flags(count, low) - 1e-6 <= flagged <= naive.most_flags(count, high) + 1e-6


@settings(max_examples=50)
@given(rules, adversarial, adversarial)
def test_the_bound_holds_for_a_stretch_within_a_stream(rule, before, stretch):
    naive = NaiveBudget(TRAINING, rule.rate, rule.patience)
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
    naive = NaiveBudget(TRAINING, rule.rate, rule.patience)
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
@example(Budget(), np.full(3000, 7.0), [1500, 2000, 2500])
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


def test_single_scores_give_the_same_bits_as_a_batch():
    rule, scores = Budget(), 3 * np.random.default_rng(1).exponential(size=3000)
    batch, single = rule.watch(rule.fit(TRAINING)), rule.watch(rule.fit(TRAINING))
    thresholds = []
    for score in scores:
        thresholds.append(single.threshold)
        assert single.push(score).tolist() == [score > thresholds[-1]]
    assert batch.follow(scores).tolist() == thresholds


def test_the_state_has_the_same_size_after_any_stream():
    rule = Budget()
    watch = rule.watch(rule.fit(TRAINING))
    watch.push(np.random.default_rng(2).exponential(size=10_000))
    assert watch.state().shape == rule.fit(TRAINING).shape == (7,)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_scores_that_are_not_finite_are_refused_and_leave_the_watch_unchanged(wrong):
    watch = Budget().watch(Budget().fit(TRAINING))
    with pytest.raises(InputError, match="position 1"):
        watch.push([9.0, wrong])
    assert np.array_equal(watch.state(), Budget().fit(TRAINING))


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
    watch = Budget().watch(Budget().fit(scores[:10_000]))
    assert watch.push(scores[10_000:]).mean() == pytest.approx(0.01, rel=0.2)


@pytest.mark.parametrize("level", [1.0, 1e3, 1e6, 1e9])
@pytest.mark.parametrize("training", [TRAINING, np.zeros(1000)], ids=["varied", "all zero"])
def test_a_jump_of_any_size_is_caught_up_with_after_a_bounded_number_of_flags(training, level):
    watch = Budget().watch(Budget().fit(training))
    flags = watch.push(level * (1 + 0.1 * np.random.default_rng(5).random(4000)))
    assert not flags[:105].all()
    assert flags[120:].mean() < 0.013


def test_one_huge_outlier_raises_the_threshold_by_one_step_only():
    watch = Budget().watch(Budget().fit(TRAINING))
    before = watch.threshold
    watch.push(1e12)
    assert before < watch.threshold < before + np.ptp(TRAINING)
    watch.push(np.random.default_rng(6).random(99))
    assert watch.threshold == pytest.approx(before)


def test_the_threshold_returns_from_a_level_a_million_times_as_high():
    random = np.random.default_rng(7)
    watch = Budget().watch(Budget().fit(TRAINING))
    watch.push(1e6 + random.exponential(size=2000))
    assert watch.threshold > 1e5
    assert watch.push(random.exponential(size=5000)).mean() > 0.003


def test_constant_scores_are_not_flagged_once_caught_up_with():
    watch = Budget().watch(Budget().fit(TRAINING))
    watch.push(np.full(3000, 7.0))
    assert watch.push(np.full(3000, 7.0)).sum() == 0
    assert watch.push(7.5).all()


def test_rounding_does_not_make_constant_scores_change():
    """Two programs that add in another order round differently, and still have to agree on the threshold."""
    exact = np.full(3000, 7.0)
    rounded = exact + np.random.default_rng(10).choice([-1e-14, 0.0, 1e-14], exact.size)
    for rule in (Budget(), Budget(alerts_per_day=10, period=60)):
        ours, theirs = (rule.watch(rule.fit(TRAINING)).follow(scores) for scores in (exact, rounded))
        assert theirs == pytest.approx(ours)


def test_a_fault_is_flagged_to_its_end_while_patience_lasts():
    """50,000 readings earn 250 held ones, besides the first 20."""
    random = np.random.default_rng(8)
    calm, fault = random.exponential(size=50_000), 50 + random.exponential(size=240)
    for patience, share in ((0, 0.1), (100, 0.5), (500, 1.0)):
        rule = Budget(patience=patience)
        watch = rule.watch(rule.fit(TRAINING))
        watch.push(calm)
        before = watch.threshold
        assert watch.push(fault).mean() == pytest.approx(share, abs=0.1)
        assert (watch.threshold < before + 10) == (patience == 500)


def test_the_threshold_scales_and_shifts_with_the_scores():
    scores = np.random.default_rng(9).exponential(size=5000)
    plain = Budget().watch(Budget().fit(TRAINING)).follow(scores)
    moved = Budget().watch(Budget().fit(8 * TRAINING - 3)).follow(8 * scores - 3)
    assert moved == pytest.approx(8 * plain - 3)


# -- a budget of alerts ----------------------------------------------------------------------------------------------

DAY = 86_400
alert_rules = st.builds(
    Budget,
    alerts_per_day=st.sampled_from([1.0, 10.0, 400.0]),
    period=st.just(60.0),
    patience=st.sampled_from([0, 1, 5, 500]),
)


def naive_alerts(rule, training, scores):
    """The thresholds and the places where alerts begin: the docstring of `Budget`, one score at a time."""
    start, spread, *_ = rule.fit(training).tolist()
    share, position, length, pause = rule.alerts_per_day * rule.period / DAY, 0.0, 0, math.inf
    thresholds, begins, last, longest = [], [], float(training[-1]), min(30, int(0.1 / share))

    def score_at(position):
        distance = spread * math.expm1(abs(position))
        return start + distance if position >= 0 else start - distance

    for score in scores:
        threshold = score_at(position)
        thresholds.append(threshold)
        flagged = score > threshold
        begins.append(flagged and pause > longest)
        if flagged and pause <= longest and length < rule.patience:
            length += 1
        elif flagged:
            position, length = position + 0.15 * (1 - share), 0
        elif abs(score - last) > 1e-6 * spread or score <= score_at(position - 0.15 * share):
            position -= 0.15 * share
        pause, last = 0 if flagged else pause + 1, score
    return thresholds, begins


@settings(max_examples=50)
@given(alert_rules, trainings, adversarial)
def test_a_budget_of_alerts_equals_its_definition_to_the_bit(rule, training, scores):
    expected, _ = naive_alerts(rule, training, scores.tolist())
    assert rule.watch(rule.fit(training)).follow(scores).tolist() == expected


@settings(max_examples=200)
@given(alert_rules, trainings, adversarial)
@example(Budget(alerts_per_day=10, period=60), TRAINING, np.arange(5000.0))
@example(Budget(alerts_per_day=10, period=60), TRAINING, np.tile([0.0, 1e6], 2500))
def test_the_bound_on_alerts_holds_for_any_scores(rule, training, scores):
    start, spread, *_, share = rule.fit(training).tolist()
    _, begins = naive_alerts(rule, training, scores.tolist())
    for count, begun, highest in zip(
        range(1, len(scores) + 1), np.cumsum(begins), np.maximum.accumulate(scores), strict=True
    ):
        climb = max(0.0, math.log1p(max(highest - start, 0.0) / spread))
        assert begun <= share * count + climb / 0.15 + 1 + 1e-6


@settings(max_examples=30)
@given(alert_rules, adversarial, st.lists(st.integers(0, 2000), max_size=5))
def test_chunks_of_any_size_give_the_same_alerts(rule, scores, cuts):
    whole, watch, parts = rule.watch(rule.fit(TRAINING)), rule.watch(rule.fit(TRAINING)), []
    for part in np.split(scores, sorted(min(cut, len(scores)) for cut in cuts)):
        watch = rule.watch(watch.state())
        parts.append(watch.follow(part))
    assert np.array_equal(np.concatenate(parts), whole.follow(scores))
    assert np.array_equal(watch.state(), whole.state())


@settings(max_examples=50)
@given(alert_rules, trainings, adversarial, st.integers(0, 40))
@example(Budget(alerts_per_day=10, period=60), TRAINING, np.tile(np.repeat([0.0, 1e6], [20, 1]), 100), 0)
def test_there_are_no_more_events_than_alerts(rule, training, scores, merge_gap):
    judge = Judge(rule, rule.fit(training), Alerts(merge_gap=merge_gap), ScoreTail.fit(training))
    opened = [change.kind for change in judge.push(scores).changes].count("opened")
    _, begins = naive_alerts(rule, training, scores.tolist())
    assert opened <= sum(begins)


def test_a_fault_that_flickers_costs_one_alert():
    rule = Budget(alerts_per_day=10, period=60)
    watch = rule.watch(rule.fit(TRAINING))
    calm, flicker = np.random.default_rng(1).random(500), np.tile([50.0, 0.5, 0.6], 40)
    watch.push(calm)
    before = watch.threshold
    flags = watch.push(flicker)
    assert flags.sum() == 40
    once = rule.watch(rule.fit(TRAINING))
    once.push(calm)
    once.push(50.0)
    assert before < watch.threshold < once.threshold


def test_events_keep_to_a_budget_of_alerts_and_a_long_fault_is_one_of_them():
    random = np.random.default_rng(3)
    rule = Budget(alerts_per_day=5, period=60)
    scores = random.exponential(size=20 * 1440)
    scores[9000:9400] += 20.0
    state = rule.fit(random.exponential(size=10_000))
    judge = Judge(rule, state, Alerts(), ScoreTail.fit(TRAINING))
    changes = judge.push(scores).changes + judge.finish()
    events = [change.event for change in changes if change.kind == "closed"]
    assert [(event.start, event.stop) for event in events if event.start < 9400 and event.stop > 9000] == [(9000, 9400)]
    assert 60 <= len(events) <= 101


def test_it_begins_where_training_would_have_had_as_many_alerts():
    for alerts_per_day, pause in ((4, 30), (20, 7), (200, 0)):
        rule = Budget(alerts_per_day=alerts_per_day, period=60)
        start = rule.fit(TRAINING)[0]
        assert begun(TRAINING, start, pause) == int(alerts_per_day / 1440 * len(TRAINING))


def begun(scores, threshold, pause):
    """The number of alerts at a threshold."""
    flagged = np.flatnonzero(scores > threshold)
    return int((np.diff(flagged) - 1 > pause).sum()) + (len(flagged) > 0)


@settings(max_examples=50)
@given(st.sampled_from([1.0, 10.0, 60.0, 400.0]), st.integers(0, 99), st.integers(1, 300), st.booleans())
def test_no_threshold_above_the_first_one_has_too_many_alerts(alerts_per_day, seed, size, rounded):
    training = np.random.default_rng(seed).exponential(size=size).round(1 if rounded else 9)
    rule, share = Budget(alerts_per_day=alerts_per_day, period=60), alerts_per_day / 1440
    start = rule.fit(training)[0]
    pause, limit, lower = min(30, int(0.1 / share)), share * size, training[training < start]
    assert all(begun(training, score, pause) <= limit for score in training[training >= start])
    assert start == np.median(training) or begun(training, lower.max(), pause) > limit


def test_the_period_is_that_of_the_training_times_or_must_be_given():
    rule = Budget(alerts_per_day=3)
    with pytest.raises(InputError, match=r"Fit on readings with times, or pass period=SECONDS to the budget\."):
        rule.fit(TRAINING)
    assert np.array_equal(rule.fit(TRAINING, 60.0), Budget(alerts_per_day=3, period=60.0).fit(TRAINING))
    with pytest.raises(InputError, match=r"no more than the budget of 3 alerts\. Choose a smaller budget\."):
        rule.fit(TRAINING, DAY / 2)


def test_detectors_take_the_period_from_the_times():
    times = pl.datetime_range(datetime(2026, 1, 1), datetime(2026, 1, 2), "1m", eager=True)[:1000]
    values = np.random.default_rng(0).normal(size=(1000, 2))
    frame = pl.DataFrame({"time": times, "a": values[:, 0], "b": values[:, 1]})
    rule = Budget(alerts_per_day=20)
    detector = BASELINES["squared-norm"](threshold=rule).fit(frame)
    assert detector.threshold_state_[-1] == 20 / 1440
    with pytest.raises(InputError, match="needs the time between readings"):
        BASELINES["squared-norm"](threshold=rule).fit(values)


@pytest.mark.parametrize(
    "wrong, name",
    [
        ({"alerts_per_day": 0}, "alerts_per_day"),
        ({"alerts_per_day": math.inf}, "alerts_per_day"),
        ({"alerts_per_day": 3, "rate": 0.01}, "rate"),
        ({"alerts_per_day": 3, "period": -1}, "period"),
    ],
)
def test_an_invalid_budget_of_alerts_is_refused(wrong, name):
    with pytest.raises(ParameterError, match=f"'{name}' parameter must be"):
        Budget(**wrong)


# -- parameters ------------------------------------------------------------------------------------------------------


def test_a_budget_can_be_written_as_text_and_saved_by_name():
    assert THRESHOLDS["budget"] is Budget
    assert parse_threshold("budget:0.02") == Budget(0.02)
    assert parse_threshold("alerts-per-day:5") == Budget(alerts_per_day=5)
    with pytest.raises(ParameterError, match="Write it as alerts-per-day or alerts-per-day:NUMBER"):
        parse_threshold("alerts-per-day:many")
    for rule in (Budget(0.02, 7), Budget(alerts_per_day=5, period=60)):
        assert from_json(to_json(rule)) == rule


@pytest.mark.parametrize("patience", [-1, 1.5, True, None])
def test_an_invalid_patience_is_refused(patience):
    with pytest.raises(ParameterError, match="'patience' parameter must be"):
        Budget(patience=patience)


@pytest.mark.parametrize("rate", [0, 1, -0.1, math.nan, "0.1"])
def test_an_invalid_rate_is_refused(rate):
    with pytest.raises(ParameterError, match="'rate' parameter must be"):
        Budget(rate)


def test_training_scores_must_be_one_dimensional_and_not_empty():
    with pytest.raises(InputError, match="at least"):
        Budget().fit([])
    with pytest.raises(InputError, match="shape"):
        Budget().fit(np.ones((5, 2)))

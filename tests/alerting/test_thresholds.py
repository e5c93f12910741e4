"""Thresholds keep their promises on simulated scores, and a watch does not depend on how its stream is split."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import CensoredData, genpareto

from cometad.alerting.budget import Budget
from cometad.alerting.severity import Tail, fit_tail, predicted_above
from cometad.alerting.spot import HEAD, KEPT, DriftingSpot, MovingMean, Spot
from cometad.alerting.thresholds import THRESHOLDS, Conformal, Quantile, expected_per_day, parse_threshold
from cometad.errors import InputError, ParameterError
from contract import is_a_sentence

DRAWS = {
    "normal": lambda random, count: random.normal(size=count),
    "exponential": lambda random, count: random.exponential(size=count),
    "student": lambda random, count: random.standard_t(4, size=count),
    "pareto": lambda random, count: random.pareto(3, size=count),
}
# Few excesses in training, so that the stream reaches the number from which the shape is fitted.
SMALL = [Quantile(0.05), Conformal(0.05), Spot(0.01, 0.9), DriftingSpot(0.01, 0.9, 7)]

every_rule = pytest.mark.parametrize("rule", [*SMALL, Budget(0.01), Budget(alerts=1, per=100)], ids=str)
every_draw = pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)


def scores_of(seed, count):
    random = np.random.default_rng(seed)
    return np.where(random.random(count) < 0.03, 4.0, 1.0) * random.exponential(size=count)


def measured(rule, draw, seeds, training=10_000, stream=50_000):
    """The share of alarms among scores without any anomaly."""
    return np.mean([_one(rule, draw, seed, training, stream) for seed in range(seeds)])


def _one(rule, draw, seed, training, stream):
    random = np.random.default_rng(seed)
    return rule.watch(rule.fit(draw(random, training))).push(draw(random, stream)).mean()


# -- the papers as loops ---------------------------------------------------------------------------------------------


def naive_conformal(scores, rate):
    """The lowest score s of the calibration set with (1 + number of scores >= new) / (n + 1) <= rate for all new > s.

    Vovk et al. 2005: the p-value of a new score counts itself and the calibration scores that are at least as large.
    """
    for score in sorted(scores):
        as_large = sum(other > score for other in scores)  # for a new score just above this one
        if (1 + as_large) / (len(scores) + 1) <= rate * (1 + 1e-12):
            return score
    return math.inf


def naive_spot(scores, rate, level):
    """Siffer et al. 2017, POT: base, excesses, likelihood of Eq. 3 by a shrinking grid, threshold of Eq. 1."""
    ordered, place = sorted(scores), level * (len(scores) - 1)
    low = math.floor(place)
    base = ordered[low] + (place - low) * (ordered[low + 1] - ordered[low])
    excesses = [score - base for score in scores if score > base]
    shape, scale = 0.0, sum(excesses) / len(excesses)
    reach, stretch = 0.6, 0.6
    for _ in range(14):
        grid = [(shape + reach * i / 5, scale * math.exp(stretch * j / 5)) for i in range(-5, 6) for j in range(-5, 6)]
        shape, scale = max(grid, key=lambda tail: naive_likelihood(excesses, *tail))
        reach, stretch = 0.6 * reach, 0.6 * stretch
    return base + scale / shape * ((rate * len(scores) / len(excesses)) ** -shape - 1)


def naive_likelihood(excesses, shape, scale):
    total = -len(excesses) * math.log(scale)
    for excess in excesses:
        inside = 1 + shape * excess / scale
        if inside <= 0:
            return -math.inf
        total -= (1 + 1 / shape) * math.log(inside) if abs(shape) > 1e-9 else excess / scale
    return total


def naive_prediction(excesses, censored, share):
    """The excess whose survival has the mean `share` over a grid of shapes and log scales, weighted by likelihood."""
    center = math.log(np.mean(excesses))
    shapes = np.linspace(-0.9987, 2.0, 300)[:, None]  # none of them 0
    scales = np.exp(np.linspace(center - 2, center + 2, 300))

    def log_survival(excess):
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(1 + shapes * excess / scales > 0, -np.log(1 + shapes * excess / scales) / shapes, -np.inf)

    likelihood = np.zeros((300, 300))
    for excess, is_censored in zip(excesses, censored, strict=True):
        likelihood += log_survival(excess) * (1 if is_censored else 1 + shapes) - (0 if is_censored else np.log(scales))
    weights = np.exp(likelihood - likelihood.max())
    low, high = 0.0, 1e4
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        mean = (weights * np.exp(log_survival(middle))).sum() / weights.sum()
        low, high = (middle, high) if mean > share else (low, middle)
    return high


def naive_drifting_flags(scores, last, limit):
    """Siffer et al. 2017, DSPOT while its limit stays: only scores without an alarm enter the mean."""
    last, flags = list(last), []
    for score in scores:
        flags.append(score - sum(last) / len(last) > limit)
        if not flags[-1]:
            last = [*last[1:], score]
    return flags


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.sampled_from([0.02, 0.05, 0.1, 0.25, 1 / 3]))
@example([1, 2], 1 / 3)
def test_conformal_is_the_lowest_score_whose_p_value_is_small_enough(scores, rate):
    expected = naive_conformal(scores, rate)
    if math.isinf(expected):
        with pytest.raises(InputError, match="needs at least"):
            Conformal(rate).fit(scores)
    else:
        assert Conformal(rate).fit(scores)[0] == expected


@given(st.integers(1, 10_000))
def test_conformal_handles_a_rate_of_one_in_n_exactly(count):
    scores = np.arange(float(count))
    assert Conformal(1 / (count + 1)).fit(scores)[0] == count - 1


def test_conformal_requires_exactly_the_scores_its_rate_needs():
    assert Conformal(0.1).fit(np.arange(9.0))[0] == 8
    with pytest.raises(InputError, match="at least 9 training scores; there are 8"):
        Conformal(0.1).fit(np.arange(8.0))


@every_draw
def test_spot_is_the_formula_of_the_paper_at_the_most_likely_tail(draw):
    scores = draw(np.random.default_rng(3), 4000)
    rule = Spot(1e-3, 0.97, tail="likeliest")
    assert rule.watch(rule.fit(scores)).threshold == pytest.approx(naive_spot(scores.tolist(), 1e-3, 0.97), rel=5e-3)


def test_tail_above_is_the_quantile_of_the_distribution():
    for shape in (-1.0, -0.3, 1e-14, 0.0, 0.4):
        assert Tail(shape, 2.0).above(0.01) == pytest.approx(genpareto.isf(0.01, shape, scale=2.0))


@pytest.mark.parametrize("shape", [-0.4, 0.0, 0.3, 1.0])
@pytest.mark.parametrize("count", [40, 1000])
def test_the_tail_equals_scipys_with_and_without_censored_excesses(shape, count):
    excesses = genpareto.rvs(shape, size=count, random_state=np.random.default_rng(1))
    limit = np.quantile(excesses, 0.95)
    for censored in (np.zeros(count, bool), excesses > limit):
        sizes = np.where(censored, limit, excesses)
        data = CensoredData(uncensored=sizes[~censored], right=sizes[censored])
        expected, _, scale = genpareto.fit(data, 0.1, floc=0, scale=1.0)
        assert fit_tail(sizes, censored) == pytest.approx((expected, scale), abs=1e-3)


@pytest.mark.parametrize("shape", [-0.2, 0.0, 0.3])
@pytest.mark.parametrize("count", [100, 300])
def test_the_predicted_excess_equals_the_mean_over_a_grid_of_tails(shape, count):
    excesses = genpareto.rvs(shape, size=count, random_state=np.random.default_rng(1))
    limit = np.quantile(excesses, 0.95)
    for censored in (np.zeros(count, bool), excesses > limit):
        sizes = np.where(censored, limit, excesses)
        assert predicted_above(sizes, censored, 0.005) == pytest.approx(
            naive_prediction(sizes, censored, 0.005), rel=5e-3
        )


@pytest.mark.parametrize("shape", [-0.3, 0.0, 0.3])
def test_many_excesses_make_the_predicted_excess_that_of_the_likeliest_tail(shape):
    excesses = genpareto.rvs(shape, size=50_000, random_state=np.random.default_rng(0))
    censored = np.zeros(len(excesses), bool)
    likeliest = fit_tail(excesses, censored).above(0.01)
    assert likeliest < predicted_above(excesses, censored, 0.01) < 1.005 * likeliest


@pytest.mark.parametrize("count", [1, 2, 5, 19])
def test_the_next_of_a_few_exponential_excesses_is_above_the_predicted_one_as_often_as_it_should(count):
    """An exact law: the ratio of the next excess to the sum of the others does not depend on their scale."""
    random, exact = np.random.default_rng(0), np.zeros(count, bool)
    survivals = [np.exp(-predicted_above(random.exponential(size=count), exact, 0.1)) for _ in range(20_000)]
    assert np.mean(survivals) == pytest.approx(0.1, rel=0.05)


def test_drifting_spot_excludes_alarms_from_its_mean():
    random, rule = np.random.default_rng(0), DriftingSpot(1e-3, 0.98, depth=5)
    training = random.exponential(size=5000)
    state = rule.fit(training)
    base, limit = state[3 + rule.depth :][:2]
    # Four alarms in a row: if the mean included them, the last ones would go unnoticed.
    stream = np.where(np.arange(60) % 12 >= 8, 10.0, random.uniform(size=60))
    flags = rule.watch(state).push(stream)
    assert flags.tolist() == naive_drifting_flags(stream.tolist(), training[-5:].tolist(), base + limit)
    assert flags.sum() == 20


# -- laws ------------------------------------------------------------------------------------------------------------


@every_rule
@settings(max_examples=6)
@given(seed=st.integers(0, 2**32 - 1), cuts=st.lists(st.integers(0, 120), max_size=8))
def test_splitting_a_stream_into_chunks_changes_nothing(rule, seed, cuts):
    scores = scores_of(seed, 270)
    state = rule.fit(scores[:150])
    whole, cut = rule.watch(state), rule.watch(state)
    parts = [cut.push(chunk) for chunk in np.split(scores[150:], sorted(cuts))]
    assert np.array_equal(whole.push(scores[150:]), np.concatenate(parts))
    assert np.array_equal(whole.state(), cut.state())


@every_rule
@settings(max_examples=6)
@given(seed=st.integers(0, 2**32 - 1), pause=st.integers(0, 120))
def test_a_watch_resumes_from_its_state_bit_for_bit(rule, seed, pause):
    scores = scores_of(seed, 270)
    kept = rule.fit(scores[:150])
    before = kept.copy()
    watch = rule.watch(kept)
    watch.push(scores[150:][:pause])
    resumed = rule.watch(watch.state())
    assert resumed.threshold == watch.threshold
    assert np.array_equal(watch.push(scores[150:][pause:]), resumed.push(scores[150:][pause:]))
    assert np.array_equal(watch.state(), resumed.state())
    assert np.array_equal(kept, before)


@every_rule
def test_one_score_at_a_time_equals_many_at_once(rule):
    scores = scores_of(1, 400)
    state = rule.fit(scores[:150])
    one, many = rule.watch(state), rule.watch(state)
    thresholds = []
    for score in scores[150:]:
        thresholds.append(one.threshold)
        assert one.push(score).tolist() == [score > thresholds[-1]]
    assert many.follow(scores[150:]).tolist() == thresholds
    assert one.push([]).shape == (0,)


@pytest.mark.parametrize("kind", THRESHOLDS.values(), ids=THRESHOLDS)
@given(seed=st.integers(0, 2**32 - 1), rates=st.tuples(*[st.floats(0.004, 0.019)] * 2))
def test_a_lower_rate_never_has_a_lower_threshold(kind, seed, rates):
    scores = scores_of(seed, 500)
    strict, lax = (kind(rate).watch(kind(rate).fit(scores)).threshold for rate in sorted(rates))
    assert strict >= lax * (1 - 1e-12)  # except for rounding; both are positive


@given(st.lists(st.one_of(st.integers(-3, 3), st.floats(-1e6, 1e6)), min_size=30, max_size=200))
def test_the_threshold_of_spot_is_never_below_its_base(scores):
    rule = Spot(0.01, 0.5)
    state = rule.fit(scores)
    assert np.isfinite(state).all()
    assert rule.watch(state).threshold >= np.quantile(scores, 0.5)
    assert rule.watch(state).push(scores).dtype == bool


@pytest.mark.parametrize("kind", THRESHOLDS.values(), ids=THRESHOLDS)
@pytest.mark.parametrize("unit", [1e-9, 1e6])
def test_thresholds_scale_with_the_unit_of_the_scores(kind, unit):
    rule, scores = kind(), scores_of(5, 3000)
    plain, scaled = (rule.watch(rule.fit(values)).threshold for values in (scores, unit * scores))
    assert scaled == pytest.approx(unit * plain, rel=1e-6)


@pytest.mark.parametrize("kind", THRESHOLDS.values(), ids=THRESHOLDS)
def test_after_constant_training_only_strictly_higher_scores_are_flagged(kind):
    watch = kind().watch(kind().fit(np.full(1000, 0.1)))
    assert watch.push(np.full(2500, 0.1)).sum() == 0
    assert watch.push([0.1, np.nextafter(0.1, 1), 0.05]).tolist() == [False, True, False]


def test_memory_is_bounded_for_any_length_of_training_and_stream():
    rule, random = Spot(1e-3, 0.9), np.random.default_rng(0)
    watch = rule.watch(rule.fit(random.exponential(size=30_000)))
    assert len(watch.state()) == HEAD + KEPT
    watch.push(random.exponential(size=3000))
    assert len(watch.state()) == HEAD + KEPT


def test_the_moving_mean_is_the_mean_of_the_last_scores():
    scores = 1e6 + np.random.default_rng(0).normal(size=500)
    mean = MovingMean.of(scores[:9])
    for i in range(9, 500):
        mean.add(scores[i])
        assert mean.value == pytest.approx(scores[i - 8 : i + 1].mean(), abs=1e-8)


# -- tails that are hard to fit --------------------------------------------------------------------------------------


def test_few_or_equal_excesses_have_an_exponential_tail():
    none = np.zeros(30, bool)
    assert fit_tail(np.full(30, 2.0), none) == Tail(0.0, 2.0)
    assert fit_tail(np.array([1.0, 3.0]), none[:2]) == Tail(0.0, 2.0)
    assert fit_tail(np.array([1.0, 3.0, 5.0]), np.array([False, False, True])) == Tail(0.0, 4.5)


def test_the_predicted_excess_of_few_equal_or_no_excesses_is_finite():
    assert predicted_above(np.empty(0), np.empty(0, bool), 0.01) == 0.0
    assert predicted_above(np.array([2.0]), np.zeros(1, bool), 0.01) == pytest.approx(2.0 * 99)
    assert 9.0 < predicted_above(np.full(300, 2.0), np.zeros(300, bool), 0.01) < 9.5  # 2 log 100 = 9.2
    assert 3.0 < predicted_above(np.tile([1.0, 2.0, 3.0], 20), np.zeros(60, bool), 0.01) < 6.0


def test_a_tail_without_a_most_likely_shape_is_uniform_up_to_the_largest_excess():
    excesses = np.tile([1.0, 2.0, 3.0], 20)
    assert fit_tail(excesses, np.zeros(60, bool)) == Tail(-1.0, pytest.approx(3.0))


def test_spot_does_not_flag_the_highest_of_a_few_values():
    scores = np.zeros(10_000)
    scores[:150] = np.tile([0.1, 0.2, 0.3], 50)
    watch = Spot(1e-4).watch(Spot(1e-4).fit(scores))
    assert watch.push([0.1, 0.2, 0.3, 0.9]).tolist() == [False, False, False, True]


def test_a_long_fault_is_not_learned():
    random = np.random.default_rng(0)
    for rule in (Spot(), DriftingSpot()):
        watch = rule.watch(rule.fit(random.normal(size=5000)))
        before = watch.threshold
        assert watch.push(random.normal(loc=4 * before, size=5000)).all()
        assert watch.threshold < 2 * before


# -- promises --------------------------------------------------------------------------------------------------------


@every_draw
def test_conformal_keeps_its_rate_exactly_on_average_over_calibration_draws(draw):
    """The rate is within four standard errors of k / (n + 1) = 0.05; that of a plain quantile is not."""
    draws, fresh, random = 3000, 200, np.random.default_rng(0)
    rates = {Conformal(0.05): [], Quantile(0.05): []}
    for _ in range(draws):
        calibration, new = draw(random, 99), draw(random, fresh)
        for rule, found in rates.items():
            found.append(rule.watch(rule.fit(calibration)).push(new).mean())
    # The rate of one calibration set follows a Beta(5, 95); counting 200 new scores adds binomial variance.
    spread = 0.05 * 0.95 / 101
    error = math.sqrt((spread + (0.05 * 0.95 - spread) / fresh) / draws)
    conformal, quantile = (np.mean(found) for found in rates.values())
    assert abs(conformal - 0.05) < 4 * error
    assert quantile > 0.05 + 4 * error


@every_draw
def test_a_quantile_keeps_its_rate_within_a_factor_of_1_15(draw):
    assert 0.01 / 1.15 < measured(Quantile(0.01), draw, seeds=20) < 0.01 * 1.15


@every_draw
def test_spot_keeps_its_rate_within_a_factor_of_1_5(draw):
    assert 1e-3 / 1.5 < measured(Spot(1e-3), draw, seeds=2) < 1e-3 * 1.5


def test_spot_keeps_a_rate_too_low_to_count_in_training():
    """One in 10,000 from 5,000 scores, within a factor of 1.3 on average; the likeliest tail does not."""
    rates = {Spot(1e-4): [], Spot(1e-4, tail="likeliest"): []}
    for rule, found in rates.items():
        random = np.random.default_rng(0)
        found += [math.exp(-rule.watch(rule.fit(random.exponential(size=5000))).threshold) for _ in range(200)]
    predicted, likeliest = (np.mean(found) for found in rates.values())
    assert 1e-4 / 1.3 < predicted < 1e-4 * 1.3
    assert likeliest > 1e-4 * 1.5


def test_the_tail_of_spot_does_not_shrink_in_a_long_stream():
    """After ten times as many excesses as it remembers, it is still within a factor of 1.5."""
    rule, random = Spot(2e-3, 0.9), np.random.default_rng(0)
    watch = rule.watch(rule.fit(random.normal(size=10_000)))
    watch.push(random.normal(size=60_000))
    assert 2e-3 / 1.5 < watch.push(random.normal(size=60_000)).mean() < 2e-3 * 1.5


def test_under_a_slow_drift_drifting_spot_keeps_its_rate_and_spot_does_not():
    """Within a factor of 1.5 while the level rises by three standard deviations; Spot is more than ten times off."""
    random = np.random.default_rng(0)
    training, stream = random.normal(size=10_000), random.normal(size=60_000) + np.linspace(0, 3, 60_000)
    rates = {rule: rule.watch(rule.fit(training)).push(stream).mean() for rule in (Spot(1e-3), DriftingSpot(1e-3))}
    assert 1e-3 / 1.5 < rates[DriftingSpot(1e-3)] < 1e-3 * 1.5
    assert rates[Spot(1e-3)] > 1e-2


@pytest.mark.parametrize("rule", SMALL, ids=str)
def test_expected_alarms_per_day_are_the_rate_times_the_readings_per_day(rule):
    assert expected_per_day(rule, 10) == pytest.approx(rule.rate * 8640)
    with pytest.raises(ParameterError, match="period_seconds"):
        expected_per_day(rule, 0)


# -- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("quantile:0.01", Quantile(0.01)),
        ("conformal:1e-3", Conformal(1e-3)),
        ("spot:1e-4", Spot(1e-4)),
        ("drifting-spot:1e-5", DriftingSpot(1e-5)),
        ("spot", Spot()),
    ],
)
def test_a_rule_can_be_written_as_text(text, rule):
    assert parse_threshold(text) == rule


@pytest.mark.parametrize("text", ["", "sport:1e-4"])
def test_the_error_for_an_unknown_rule_lists_the_available_ones(text):
    with pytest.raises(ParameterError) as error:
        parse_threshold(text)
    assert is_a_sentence(str(error.value))
    assert all(name in str(error.value) for name in THRESHOLDS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("spot:", "Write it as spot or spot:RATE."),
        ("spot:x", "Write it as spot or spot:RATE."),
        ("spot:0.5", "a number above 0 and below 0.02. Got 0.5 instead."),
        ("quantile:1", "a number above 0 and below 1. Got 1.0 instead."),
        ("conformal:nan", "a number above 0 and below 1. Got nan instead."),
    ],
)
def test_a_rule_with_a_wrong_rate_is_refused_with_what_to_write(text, words):
    with pytest.raises(ParameterError) as error:
        parse_threshold(text)
    assert is_a_sentence(str(error.value))
    assert f"threshold {text!r}" in str(error.value)
    assert words in str(error.value)


@every_rule
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_scores_that_are_not_finite_are_refused_and_leave_the_watch_unchanged(rule, wrong):
    state = rule.fit(scores_of(0, 150))
    watch = rule.watch(state)
    with pytest.raises(InputError, match="position 1"):
        watch.push([9.0, wrong])
    assert np.array_equal(watch.state(), rule.watch(state).state())
    with pytest.raises(InputError, match="position 0"):
        rule.fit([wrong, 1.0])


@every_rule
def test_training_scores_must_be_one_dimensional_and_not_empty(rule):
    with pytest.raises(InputError, match="at least"):
        rule.fit([])
    with pytest.raises(InputError, match="shape"):
        rule.fit(np.ones((5, 2)))


@pytest.mark.parametrize("rate", [0, 1, -0.1, math.nan, "0.1", True])
@pytest.mark.parametrize("kind", THRESHOLDS.values(), ids=THRESHOLDS)
def test_an_invalid_rate_is_refused(kind, rate):
    with pytest.raises(ParameterError, match="'rate' parameter must be"):
        kind(rate=rate)


def test_an_invalid_level_or_depth_is_refused():
    for level in (0, 1, None):
        with pytest.raises(ParameterError, match="'level' parameter must be"):
            Spot(level=level)
    for depth in (0, 1.5, True):
        with pytest.raises(ParameterError, match="'depth' parameter must be"):
            DriftingSpot(depth=depth)
    with pytest.raises(ParameterError, match=r"below 0\.02"):
        Spot(rate=0.02)

"""Severity says how rarely normal readings score that high, whatever the history holds."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cometad.alerting.alerts import Alerts, find_events
from cometad.alerting.severity import ScoreTail, fit_tail, severity
from cometad.errors import InputError
from contract import is_a_sentence
from naive_alerts import naive_log_probability, naive_severity

histories = st.one_of(
    st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=200),
    st.lists(st.sampled_from([0.0, 1.0, 5.0]), min_size=1, max_size=200),
    st.builds(
        lambda seed, size: np.random.default_rng(seed).pareto(1.0, size), st.integers(0, 99), st.integers(1, 999)
    ),
)
every_history = [
    example([0.0]),
    example([1.0] * 7),
    example([0.0, 5e-324]),
    example([0.0, 0.0, 1e-200]),  # in these units, high scores overflow
    example([3.0, 4.0]),
    example([0.0, 1e-118]),  # a tail narrower than rounding errors
]


def over_histories(test):
    for case in every_history:
        test = case(test)
    return given(histories)(test)


def ladder(scores, tail):
    """Scores in order, from far below a history to far above it."""
    steps = np.concatenate([[-np.inf], np.linspace(-2e9, 2e9, 50), [1e300, np.inf]])
    return np.sort(np.concatenate([steps, scores, tail.start + np.geomspace(1e-6, 1e6, 50) * tail.scale]))


@over_histories
def test_severity_rises_with_the_score_from_its_least_to_1(scores):
    tail = ScoreTail.fit(scores)
    rungs = severity(ladder(scores, tail), tail)
    assert (np.diff(rungs) >= -1e-12).all()
    assert rungs[0] == severity(tail.center - 1.0, tail) <= math.log10(2) / 9
    assert rungs[-1] == 1.0


@over_histories
def test_severity_equals_its_formula(scores):
    tail = ScoreTail.fit(scores)
    rungs = ladder(scores, tail)
    assert tail.log_probability(rungs).tolist() == [naive_log_probability(score, tail) for score in rungs.tolist()]
    assert severity(rungs, tail).tolist() == [naive_severity(score, tail) for score in rungs.tolist()]


@given(st.integers(0, 99), st.floats(0.1, 5.0))
def test_no_finite_score_is_impossible_under_a_heavy_tail(seed, power):
    tail = ScoreTail.fit(np.random.default_rng(seed).pareto(power, size=500))
    assert 0.0 <= tail.shape <= 0.9
    assert np.isfinite(tail.log_probability([1e3, 1e100, 1e300])).all()


def test_each_tenfold_rarer_score_adds_a_ninth():
    tail = ScoreTail(center=0.7, base=4.0, start=3.0, share=math.exp(-3.0), shape=0.0, scale=1.0)
    assert severity(np.log([1e2, 1e3, 1e8, 1e9, 1e20]), tail) * 9 == pytest.approx([2, 3, 8, 9, 9])
    assert severity(0.0, tail) * 9 == pytest.approx(math.log10(2))  # half of all readings


def test_the_rarity_of_an_event_is_the_readings_between_peaks_like_it():
    tail = ScoreTail(center=0.7, base=4.0, start=3.0, share=math.exp(-3.0), shape=0.0, scale=1.0)
    (event,) = find_events([0.0, math.log(1e5), 0.0], 2.0, Alerts(), tail)
    assert event.rarity == 100_000
    assert event.as_json()["rarity"] == 100_000


@pytest.mark.parametrize("draw", ["exponential", "normal"])
@pytest.mark.parametrize("size", [2000, 50_000])
def test_normal_readings_reach_a_severity_about_as_often_as_it_says(draw, size):
    """Within a factor of 1.7 up to one in 1,000, over ten histories; far out it is cautious."""
    random = np.random.default_rng(3)
    drawn = getattr(random, draw)
    tails = [ScoreTail.fit(drawn(size=size)) for _ in range(10)]
    fresh = drawn(size=200_000)
    for power in (1, 2, 3):
        often = np.mean([(severity(fresh, tail) >= power / 9).mean() for tail in tails])
        assert 1 / 1.7 < often * 10**power < 1.7
    often = np.mean([(severity(fresh, tail) >= 4 / 9).mean() for tail in tails])
    assert often < 2e-4


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("size, high", [(1000, 10.0), (1000, 1e4), (50_000, 10.0), (50_000, 1e4)])
def test_faults_in_a_tenth_of_the_history_cost_less_than_half_of_a_severity(seed, size, high):
    random = np.random.default_rng(seed)
    clean = random.exponential(size=size)
    faulty = clean.copy()
    faulty[: size // 10] = high * (1 + random.random(size // 10))
    scores = np.array([5.0, 8.0, 12.0])
    assert (severity(scores, ScoreTail.fit(faulty)) > 0.5 * severity(scores, ScoreTail.fit(clean))).all()


@pytest.mark.parametrize("seed", range(3))
def test_a_tail_that_is_heavier_than_exponential_is_recognized(seed):
    """If its body is like that of normal scores; otherwise faults are suspected."""
    scores = np.random.default_rng(seed).standard_t(4, size=50_000)
    tail = ScoreTail.fit(scores)
    rare = 13.0337  # has a probability of 1e-4
    assert tail.shape > 0.1
    assert 10 ** (-9 * float(severity(rare, tail))) == pytest.approx(1e-4, rel=0.6)


def test_the_tail_has_the_lightest_shape_that_the_scores_allow():
    scores = np.random.default_rng(6).standard_t(3, size=4000)
    tail = ScoreTail.fit(scores)
    excess = scores[scores > tail.start] - tail.start
    likeliest = fit_tail(excess, np.zeros(len(excess), bool))
    assert tail.shape == pytest.approx(likeliest.shape - 1.645 * (1 + likeliest.shape) / math.sqrt(len(excess)))
    assert tail.scale / (1 - tail.shape) == pytest.approx(excess.mean())  # the mean of the excesses is kept


@pytest.mark.parametrize("share", [0.01, 1e-4, 1e-9])
def test_the_score_that_a_share_reaches_has_that_probability(share):
    for draw in (np.random.default_rng(1).exponential, np.random.default_rng(1).standard_cauchy):
        tail = ScoreTail.fit(draw(size=5000))
        assert float(tail.probability(tail.reached(share))) == pytest.approx(share)
    assert tail.reached(0.9) == tail.start  # it knows nothing below its start


@pytest.mark.parametrize("count, above", [(10_000, 200), (1000, 50), (60, 30), (1, 0)])
def test_a_tail_is_fitted_to_enough_scores(count, above):
    assert ScoreTail.fit(np.arange(float(count))).share == pytest.approx((above + 1) / (count + 1))


def test_severity_does_not_depend_on_the_units_of_the_scores():
    scores = np.random.default_rng(1).normal(size=5000)
    peaks = np.linspace(-1.0, 6.0, 20)
    plain = severity(peaks, ScoreTail.fit(scores))
    moved = severity(peaks * 1000 - 7, ScoreTail.fit(scores * 1000 - 7))
    assert plain == pytest.approx(moved, abs=1e-9)


def test_severity_does_not_depend_on_the_threshold():
    scores = np.random.default_rng(2).exponential(size=2000)
    assert ScoreTail.fit(scores, 60.0)._replace(base=0.5) == ScoreTail.fit(scores, 0.5)
    assert np.ptp([float(severity(7.0, ScoreTail.fit(scores, top))) for top in (0.5, 5.0, 60.0)]) == 0.0


def test_a_tail_can_be_rebuilt_from_its_six_numbers():
    tail = ScoreTail.fit(np.random.default_rng(5).normal(size=300), 2.0)
    state = np.array(tail)
    assert state.shape == (6,)
    assert ScoreTail(*state) == tail


@pytest.mark.parametrize("scores", [[], [[1.0]], [np.nan], [np.inf]])
def test_a_tail_without_usable_scores_is_refused(scores):
    with pytest.raises(InputError) as caught:
        ScoreTail.fit(scores)
    assert is_a_sentence(str(caught.value))

"""The fast metrics equal the loops in naive_metrics and obey the laws of metrics."""

import math
import operator

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive_metrics as naive
from cometad import metrics
from cometad.errors import InputError

ENOUGH = {"at_least": operator.ge, "more_than": operator.gt}


def law(*strategies, max_examples=60):
    """A property of generated input; without a deadline, because the first call compiles."""
    return lambda test: settings(deadline=None, max_examples=max_examples)(given(*strategies)(test))


@st.composite
def cases(draw, longest=28):
    """Labels with both classes, and scores with few distinct values (many ties) or many."""
    length = draw(st.integers(2, longest))
    labels = draw(st.lists(st.integers(0, 1), min_size=length, max_size=length).filter(lambda x: 0 < sum(x) < len(x)))
    levels = draw(st.sampled_from([1, 2, 4, 1000]))
    scores = draw(st.lists(st.integers(0, levels - 1), min_size=length, max_size=length))
    return labels, scores


def close(ours, theirs):
    return ours == pytest.approx(theirs, abs=1e-12, nan_ok=True)


# -- fast equals naive ------------------------------------------------------------------------------------------------


@law(cases())
def test_pointwise_areas_equal_the_loops(case):
    assert close(metrics.auc_roc(*case), naive.auc_roc(*case))
    assert close(metrics.auc_pr(*case), naive.auc_pr(*case))


@law(cases(), st.integers(-1, 5))
def test_f1_at_a_threshold_equals_the_loops(case, threshold):
    labels, scores = case
    found = metrics.f1_at(labels, scores, threshold)
    precision, recall = naive.precision_recall(labels, [score >= threshold for score in scores])
    assert close(found[1:3], (precision, recall))
    assert close(found.f1, 0.0 if math.isnan(precision) else naive.f1(precision, recall))


@law(cases(), st.sampled_from([0, 1, 20, 25, 33.3, 50, 60, 75, 100]), st.sampled_from(list(ENOUGH)))
def test_best_adjusted_f1_equals_the_loops_and_is_reached_at_its_threshold(case, k, share):
    found = metrics.best_adjusted_f1(*case, k=k, share=share)
    assert close(found.f1, naive.best_adjusted_f1(*case, k, ENOUGH[share]))
    assert close(metrics.adjusted_f1_at(*case, found.threshold, k, share), found)


@law(cases(), st.integers(-1, 5), st.sampled_from([0, 30, 50, 100]))
def test_adjusted_f1_at_a_threshold_equals_the_loops(case, threshold, k):
    found = metrics.adjusted_f1_at(*case, threshold, k)
    assert close(found.f1, naive.adjusted_f1_at(*case, threshold, k, operator.ge))


@law(cases())
def test_plain_best_f1_is_adjusted_f1_at_100(case):
    assert close(metrics.best_f1(*case), metrics.best_adjusted_f1(*case, k=100))


@law(cases(longest=14))
def test_the_curve_over_k_is_the_best_f1_for_each_k(case):
    curve = metrics.adjusted_f1_curve(*case)
    assert close(curve, [naive.best_adjusted_f1(*case, k, operator.ge) for k in range(101)])
    assert close(metrics.adjusted_f1_area(*case), sum(curve[:-1] + curve[1:]) / 200)


@law(cases())
def test_the_affiliation_curve_equals_the_loops_at_every_threshold(case):
    curve = metrics.affiliation_curve(*case)
    assert list(curve.thresholds) == naive.thresholds(case[1])
    expected = [naive.affiliation(*case, threshold) for threshold in curve.thresholds]
    assert close(curve.precision, [precision for precision, _ in expected])
    assert close(curve.recall, [recall for _, recall in expected])
    assert close(metrics.best_affiliation(*case).f1, max(naive.f1(*pair) for pair in expected))


@law(cases(), st.integers(-1, 5))
def test_affiliation_at_a_threshold_equals_the_loops(case, threshold):
    found = metrics.affiliation_at(*case, threshold)
    precision, recall = naive.affiliation(*case, threshold)
    assert close(found[1:3], (precision, recall))
    assert close(found.f1, 0.0 if math.isnan(precision) else naive.f1(precision, recall))


@law(cases(), st.integers(0, 70), st.sampled_from(list(metrics.FLAVORS)), max_examples=200)
def test_range_auc_equals_the_loops(case, window, flavor):
    assert close(metrics.range_auc(*case, window, flavor), naive.range_auc(*case, window, flavor))


@law(cases(), st.integers(0, 40), st.sampled_from(list(metrics.FLAVORS)))
def test_vus_equals_the_loops(case, max_window, flavor):
    assert close(metrics.vus(*case, max_window, flavor), naive.vus(*case, max_window, flavor))


@law(cases(), st.integers(0, 30), st.sampled_from(list(metrics.FLAVORS)), st.integers(2, 40))
def test_range_auc_with_ranks_equals_the_loops_at_those_thresholds(case, window, flavor, ranks):
    descending = sorted(case[1], reverse=True)
    cuts = [descending[int(i)] for i in np.linspace(0, len(descending) - 1, ranks)]
    assert close(metrics.range_auc(*case, window, flavor, ranks), naive.range_auc(*case, window, flavor, cuts))


@law(cases(), st.integers(-1, 5))
def test_events_equal_the_loops(case, threshold):
    found = metrics.events_at(*case, threshold)
    precision, recall, delays = naive.events(*case, threshold)
    assert close((found.precision, found.recall), (precision, recall))
    assert close(found.delays, [math.nan if delay is None else delay for delay in delays])
    known = [delay for delay in delays if delay is not None]
    assert close(found.mean_delay, sum(known) / len(known) if known else math.nan)
    assert close(found.f1, naive.f1(precision, recall) if known else 0.0)


@pytest.mark.parametrize("flavor", metrics.FLAVORS)
@pytest.mark.parametrize("window", [0, 7, 60])
def test_range_auc_equals_the_loops_on_a_longer_series(flavor, window):
    rng = np.random.default_rng(4)
    labels = np.repeat(rng.random(30) < 0.3, rng.integers(1, 12, 30)).astype(int)
    scores = rng.normal(size=len(labels)) + labels
    expected = naive.range_auc(list(labels), list(scores), window, flavor)
    assert close(metrics.range_auc(labels, scores, window, flavor), expected)


def test_a_window_far_wider_than_the_series_works():
    labels, scores = [0, 1, 0, 0, 1, 0], [3, 2, 1, 4, 5, 0]
    for flavor in metrics.FLAVORS:
        wide = metrics.range_auc(labels, scores, 10**9, flavor)
        assert wide == pytest.approx(metrics.range_auc(labels, scores, 10**8, flavor), abs=1e-6)


# -- laws -------------------------------------------------------------------------------------------------------------


@law(cases())
def test_only_the_order_of_scores_matters(case):
    labels, scores = case
    warped = [math.exp(score / 100) - 5 for score in scores]
    assert close(metrics.evaluate(labels, warped), metrics.evaluate(labels, scores))


@law(cases())
def test_perfect_scores_reach_one(case):
    values = metrics.evaluate(case[0], case[0])
    for name in ("f1_k0", "f1_k100", "aff_f1", "auc_roc", "auc_pr"):
        assert close(values[name], 1.0)
    for flavor in metrics.FLAVORS:  # with a ramp, the labels alone are not perfect scores
        assert close(metrics.range_auc(case[0], case[0], window=0, flavor=flavor), (1.0, 1.0))


@law(cases())
def test_every_metric_is_a_fraction(case):
    assert all(-1e-12 <= value <= 1 + 1e-12 for value in metrics.evaluate(*case).values())


@law(cases(), st.integers(0, 20))
def test_reversing_time_changes_nothing_if_the_definition_is_symmetric(case, window):
    labels, scores = case
    back = labels[::-1], scores[::-1]
    for flavor in ("symmetric", "vus"):
        assert close(metrics.range_auc(*case, window, flavor), metrics.range_auc(*back, window, flavor))
    assert close(metrics.best_affiliation(*case).f1, metrics.best_affiliation(*back).f1)
    assert close(metrics.best_adjusted_f1(*case, k=40), metrics.best_adjusted_f1(*back, k=40))


def test_the_classic_flavor_is_not_symmetric():
    labels, scores = [0, 0, 1, 0, 0], [0, 2, 1, 0, 0]
    assert metrics.range_auc(labels, scores, 2) != metrics.range_auc(labels[::-1], scores[::-1], 2)


@law(cases(), st.randoms(use_true_random=False))
def test_pointwise_metrics_ignore_the_order_of_time(case, random):
    pairs = list(zip(*case, strict=True))
    random.shuffle(pairs)
    shuffled = tuple(zip(*pairs, strict=True))
    for metric in (metrics.auc_roc, metrics.auc_pr, metrics.best_f1):
        assert close(metric(*shuffled), metric(*case))


@law(cases())
def test_constant_scores_equal_detecting_everything(case):
    labels = case[0]
    share = sum(labels) / len(labels)
    values = metrics.evaluate(labels, [3.0] * len(labels))
    assert values == metrics.reference(labels, draws=1).all_positive
    assert close((values["auc_roc"], values["auc_pr"]), (0.5, share))
    assert close((values["f1_k0"], values["f1_k100"]), (2 * share / (1 + share),) * 2)


@law(cases())
def test_with_an_oracle_threshold_no_scores_do_worse_than_detecting_everything(case):
    values, floor = metrics.evaluate(*case), metrics.reference(case[0], draws=1).all_positive
    oracles = [name for name, metric in metrics.METRICS.items() if metric.needs_oracle_threshold]
    assert oracles == ["f1_k0", "f1_k100", "aff_f1"]
    assert all(values[name] >= floor[name] - 1e-12 for name in oracles)


@law(cases())
def test_the_best_f1_falls_as_k_grows(case):
    assert (np.diff(metrics.adjusted_f1_curve(*case)) <= 1e-12).all()


# -- input ------------------------------------------------------------------------------------------------------------

LABELS = [0, 0, 1, 1, 0, 1, 0, 0, 0, 1]
SCORES = [0, 3, 5, 2, 1, 1, 0, 4, 0, 5]


@pytest.mark.parametrize("labels_as", [list, tuple, np.bool_, np.uint8, np.float32, pd.Series, pl.Series])
@pytest.mark.parametrize(
    "scores_as", [list, np.int8, np.uint64, np.float16, np.float32, np.float64, pd.Series, pl.Series, "pandas float32"]
)
def test_any_container_and_any_real_dtype_give_the_same_values(labels_as, scores_as):
    def held(values, kind):
        if kind == "pandas float32":
            return pd.Series(values, dtype="float32", index=range(5, 15))
        return np.array(values, dtype=kind) if isinstance(kind, type) and issubclass(kind, np.generic) else kind(values)

    assert metrics.evaluate(held(LABELS, labels_as), held(SCORES, scores_as)) == metrics.evaluate(LABELS, SCORES)


def test_nullable_and_strided_columns_are_read():
    nullable = pd.Series(LABELS, dtype="boolean")
    strided = np.repeat(np.array(SCORES), 2)[::2]
    assert metrics.evaluate(nullable, strided) == metrics.evaluate(LABELS, SCORES)


def test_the_input_is_not_modified():
    labels, scores = np.array(LABELS), np.array(SCORES, dtype=float)
    before = labels.copy(), scores.copy()
    metrics.report(labels, scores, draws=1)
    assert (labels == before[0]).all()
    assert (scores == before[1]).all()


@pytest.mark.parametrize("labels, scores", [([0, 1], [1, 2, 3]), ([], []), ([0, 0], [1, 2]), ([0, 1], ["a", "b"])])
def test_every_metric_refuses_bad_input(labels, scores):  # tests/golden/refused_calls.txt has the sentences
    for metric in (metrics.evaluate, metrics.auc_roc, metrics.best_affiliation, metrics.vus, metrics.report):
        with pytest.raises(InputError):
            metric(labels, scores)


# -- the table --------------------------------------------------------------------------------------------------------


def test_evaluate_agrees_with_each_metric_of_the_table():
    values = metrics.evaluate(LABELS, SCORES)
    assert list(values) == list(metrics.METRICS)
    assert close(values, {name: metric.function(LABELS, SCORES) for name, metric in metrics.METRICS.items()})
    assert all(type(value) is float for value in values.values())
    assert all(metric.higher_is_better for metric in metrics.METRICS.values())


def test_the_paper_protocol_is_classic_with_windows_of_once_and_twice_the_median_length():
    labels = [0] * 9 + [1] * 3 + [0] * 9 + [1] * 5 + [0] * 9 + [1] * 4 + [0] * 9
    scores = np.random.default_rng(2).normal(size=len(labels))
    values = metrics.evaluate(labels, scores)
    assert close((values["r_auc_roc"], values["r_auc_pr"]), metrics.range_auc(labels, scores, 4, "classic"))
    assert close((values["vus_roc"], values["vus_pr"]), metrics.vus(labels, scores, 8, "classic"))
    coarse = metrics.evaluate(labels, scores, "paper-250")
    assert close((coarse["vus_roc"], coarse["vus_pr"]), metrics.vus(labels, scores, 8, "classic", ranks=250))


def test_random_scores_reach_the_stated_floors():
    labels = np.zeros(4000, int)
    for start in range(100, 4000, 400):
        labels[start : start + 40] = 1
    random = metrics.reference(labels, draws=5).random
    for name, metric in metrics.METRICS.items():
        if metric.floor is not None:
            assert random[name] == pytest.approx(metric.floor, abs=0.05)
    assert random["auc_pr"] == pytest.approx(labels.mean(), abs=0.03)


def test_a_reference_depends_only_on_its_seed():
    first = metrics.reference(LABELS, draws=2, seed=1)
    assert first == metrics.reference(LABELS, draws=2, seed=1)
    assert first.random != metrics.reference(LABELS, draws=2, seed=2).random


def test_an_evaluation_has_every_value_of_the_table_and_is_ready_for_json():
    found = metrics.report(LABELS, SCORES, draws=3)
    values, references = metrics.evaluate(LABELS, SCORES), metrics.reference(LABELS, draws=3)
    assert [row.value for row in found.rows] == list(values.values())
    assert [row.random for row in found.rows] == list(references.random.values())
    assert [row.all_positive for row in found.rows] == list(references.all_positive.values())
    plain = found.as_dict()
    assert (plain["points"], plain["anomalous_points"], plain["segments"]) == (10, 4, 3)
    assert (plain["flavor"], plain["window"], plain["max_window"]) == ("classic", 1, 2)
    assert plain["rows"][0] == {
        "name": "f1_k0",
        "title": "F1 (K=0)",
        "value": values["f1_k0"],
        "random": references.random["f1_k0"],
        "all_positive": references.all_positive["f1_k0"],
        "higher_is_better": True,
        "needs_oracle_threshold": True,
    }


def test_250_ranks_are_too_coarse_for_rare_anomalies():
    rng = np.random.default_rng(0)
    labels = np.zeros(100_000, int)
    labels[5_000::10_000] = 1
    scores = rng.normal(size=len(labels)) + 8 * labels
    exact, coarse = metrics.vus(labels, scores, 0), metrics.vus(labels, scores, 0, ranks=250)
    assert exact.pr > 0.99
    assert coarse.pr < 0.6

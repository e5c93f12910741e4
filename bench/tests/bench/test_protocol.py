"""The protocol: configurations, nested choice, tests of difference, and what the report may claim."""

import itertools
import math
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import wilcoxon

from cometad import Comet
from cometad.errors import InputError
from cometad.metrics import evaluate
from cometad.scoring.scores import POOLING
from cometad.views import Forecast, Joint, Patterns
from cometad_bench.compare import Comparison, claim, compare, compared
from cometad_bench.configurations import MOST, configurations, labels
from cometad_bench.experiments import EXPERIMENTS, SIMPLE, Arm, Experiment
from cometad_bench.frame import family_means, frame_of
from cometad_bench.nested import choice, nested_choice
from cometad_bench.report import report
from cometad_bench.results import Results
from cometad_bench.runner import joined, run, run_with_workers
from cometad_bench.split import part_of
from cometad_bench.statistics import Interval, holm, rank_balance, signed_rank, stratified_interval
from cometad_bench.trial import untied, untied_vus_pr
from trials import frame, stored, trials


def table(figures, experiment="validate", **others):
    """Results from figures by arm, dataset and entity."""
    return trials(figures, experiment=experiment, at_threshold=None, fingerprint="f", **others)


# --- configurations ---------------------------------------------------------------------------------------------------


def test_every_configuration_builds_a_comet_and_no_two_are_equal():
    text = (files("cometad_bench") / "configurations.toml").read_text(encoding="utf-8")
    assert 0 < len(configurations()) == text.count("[[configuration]]") <= MOST
    built = [Comet(**parameters) for parameters in configurations().values()]
    described = {repr((one.views, one.pooling, tuple(one.smoothing))) for one in built}
    assert len(described) == len(built)


def test_the_default_is_one_of_the_configurations():
    default = Comet()
    assert default.pooling is None  # POOLING, because these datasets have at most 55 variables
    wanted = tuple(default.views), POOLING, tuple(default.smoothing)
    listed = [Comet(**parameters) for parameters in configurations().values()]
    assert wanted in [(tuple(one.views), one.pooling, tuple(one.smoothing)) for one in listed]


def test_views_of_one_kind_are_told_apart_by_their_first_field():
    assert labels((Patterns(8), Joint(), Patterns(64))) == ["patterns 8", "joint", "patterns 64"]
    assert labels((Forecast(4),)) == ["forecast"]


def test_select_and_validate_share_their_datasets_and_no_entity():
    select, validate = EXPERIMENTS["select"], EXPERIMENTS["validate"]
    assert select.datasets == validate.datasets == ("SMD", "ASD", "MSL", "SMAP", "SKAB", "plants")
    assert (select.part, validate.part) == ("select", "validate")


def test_validate_has_every_view_alone_every_one_left_out_and_every_simple_baseline_twice():
    arms = {arm.name: arm for arm in EXPERIMENTS["validate"].arms}
    assert len(arms) == len(EXPERIMENTS["validate"].arms)
    views = tuple(Comet().views)
    for view, name in zip(views, labels(views), strict=True):
        assert arms[f"only {name}"].changes["views"] == (view,)
        assert arms[f"without {name}"].changes["views"] == tuple(other for other in views if other != view)
    for name in SIMPLE:
        assert arms[name].detector == name
        assert name == "random" or arms[f"fair {name}"].changes["baseline"] == name
    for arm in arms.values():
        arm.build("SMD", 0, "cpu")


# --- statistics -------------------------------------------------------------------------------------------------------


def naive_holm(p_values):
    """For each hypothesis, the largest of the scaled p-values of those at least as significant."""
    order = sorted(p_values, key=p_values.get)
    return {
        name: max(
            min(1.0, (len(order) - order.index(other)) * p_values[other]) for other in order[: order.index(name) + 1]
        )
        for name in p_values
    }


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_equals_the_loop_version(values):
    p_values = {f"arm {i}": value for i, value in enumerate(values)}
    assert holm(p_values) == pytest.approx(naive_holm(p_values))
    assert list(holm(p_values)) == list(p_values)


def naive_signed_rank(differences):
    """The share of all sign patterns whose rank sum is at least as extreme; no zeros, no ties."""
    ranks = {value: place for place, value in enumerate(sorted(map(abs, differences)), 1)}
    seen = sum(ranks[abs(value)] * (1 if value > 0 else -1) for value in differences)
    sums = [sum(signs) for signs in itertools.product(*((rank, -rank) for rank in ranks.values()))]
    return sum(abs(total) >= abs(seen) for total in sums) / len(sums), seen


@settings(deadline=None)
@given(st.lists(st.integers(-40, 40).filter(bool), min_size=2, max_size=8, unique_by=abs))
def test_the_signed_rank_test_equals_the_loop_over_all_signs(differences):
    p, balance = naive_signed_rank(differences)
    assert signed_rank(differences) == pytest.approx(p)
    assert rank_balance(differences) == balance


def test_equal_entities_say_nothing_and_equal_arms_have_a_p_value_of_1():
    assert signed_rank([0.0] * 9) == 1.0
    assert rank_balance([0.0] * 9) == 0.0
    assert signed_rank([0.1, 0.0, 0.2, -0.3, 0.4]) == wilcoxon([0.1, 0.2, -0.3, 0.4]).pvalue


def naive_interval(differences, draws, rng):
    means = []
    for _ in range(draws):
        families = [np.mean([values[rng.integers(len(values))] for _ in values]) for values in differences.values()]
        means.append(np.mean(families))
    return np.quantile(means, 0.025), np.quantile(means, 0.975)


def test_the_interval_equals_the_loop_version_and_weighs_families_equally():
    rng = np.random.default_rng(0)
    differences = {"large": rng.normal(0.1, 0.05, size=40), "small": rng.normal(0.3, 0.2, size=5)}
    interval = stratified_interval(differences)
    assert interval.mean == pytest.approx((differences["large"].mean() + differences["small"].mean()) / 2)
    low, high = naive_interval(differences, 3000, rng)
    assert interval.low == pytest.approx(low, abs=0.01)
    assert interval.high == pytest.approx(high, abs=0.01)
    assert stratified_interval(differences) == interval


# --- nested choice ----------------------------------------------------------------------------------------------------


def naive_nested(figures):
    families = list(next(iter(figures.values())))
    chosen = {}
    for family in families:
        best, best_mean = None, -math.inf
        for arm, by_family in figures.items():
            mean = sum(by_family[other] for other in families if other != family) / (len(families) - 1)
            if mean > best_mean:
                best, best_mean = arm, mean
        chosen[family] = best
    return chosen


@given(st.integers(2, 5), st.integers(1, 5), st.randoms(use_true_random=False))
def test_the_nested_choice_equals_the_loop_version(families, arms, random):
    figures = {f"arm {i}": {f"family {j}": random.random() for j in range(families)} for i in range(arms)}
    nested = nested_choice(figures)
    assert nested.chosen == naive_nested(figures)
    assert nested.figures == {family: figures[arm][family] for family, arm in nested.chosen.items()}


def test_the_nested_figure_is_never_above_the_best_one_of_a_family_that_decides_alone():
    figures = {"lucky": {"MSL": 0.9, "SMD": 0.3, "ASD": 0.3}, "solid": {"MSL": 0.4, "SMD": 0.5, "ASD": 0.5}}
    nested = nested_choice(figures)
    assert nested.chosen == {"MSL": "solid", "SMD": "lucky", "ASD": "lucky"}
    assert np.mean(list(nested.figures.values())) < np.mean(list(figures[nested.best].values()))


def test_one_family_is_too_few_for_a_nested_choice():
    with pytest.raises(InputError, match="at least two families"):
        nested_choice({"a": {"MSL": 0.5}})


def test_family_means_weigh_entities_equally_and_leave_out_incomplete_arms():
    records = table({"a": {"SMD": [0.2, 0.4], "ASD": [0.5]}, "b": {"SMD": [0.2], "ASD": [0.5]}}, "select")
    assert family_means(frame_of(records), "auc_pr") == {"a": pytest.approx({"SMD": 0.3, "ASD": 0.5})}
    assert "they lack entities: b" in " ".join(choice(frame_of(records), "Choice")[0].footnotes)


# --- one arm against the others ---------------------------------------------------------------------------------------


@pytest.fixture
def figures():
    rng = np.random.default_rng(1)
    base = {"SMD": rng.uniform(0.4, 0.6, 12), "ASD": rng.uniform(0.4, 0.6, 10)}
    moved = {"near": (0.0, 0.05), "far": (-0.2, 0.05), "better": (0.2, 0.05)}
    others = {
        arm: {family: values + rng.normal(*change, len(values)) for family, values in base.items()}
        for arm, change in moved.items()
    }
    return {"comet": base, **others, "random": {family: 0 * values for family, values in base.items()}}


def test_each_arm_is_tested_over_entities_with_a_correction_for_all(figures):
    found = compare(frame(figures, at_threshold=None), "comet")
    gains = {
        arm: np.concatenate([figures["comet"][family] - figures[arm][family] for family in ("SMD", "ASD")])
        for arm in figures
        if arm != "comet"
    }
    expected = naive_holm({arm: wilcoxon(gain).pvalue for arm, gain in gains.items()})
    assert {arm: one.p for arm, one in found.items()} == pytest.approx(expected)
    verdicts = {arm: one.verdict for arm, one in found.items()}
    assert verdicts == {"near": "tie", "far": "ahead", "better": "behind", "random": "ahead"}


def test_a_mean_that_disagrees_with_the_ranks_is_a_tie():
    values = {"SMAP": np.full(30, 0.5), "SMD": np.array([0.5])}
    other = {"SMAP": 0.5 - np.arange(1, 31) / 1000, "SMD": np.array([0.9])}  # better on 30 entities, far worse on one
    found = compare(frame({"comet": values, "odd": other}, at_threshold=None), "comet")["odd"]
    assert found.p < 0.05
    assert found.difference.mean < 0
    assert found.verdict == "tie"


def test_the_claim_names_every_arm_that_ties_or_is_better():
    def one(verdict, p):
        return Comparison(Interval(0.1, 0.0, 0.2), p, verdict)

    everything = {"pca": one("ahead", 0.01), "knn": one("tie", 0.05), "hbos": one("behind", 0.01)}
    text = claim("comet", everything)
    assert "every" not in text
    assert "1 of 3 arms" in text
    assert "ties with knn; it is behind hbos" in text
    assert "every arm (1)" in claim("comet", {"pca": one("ahead", 0.01)})
    incomplete = claim("comet", {"pca": one("ahead", 0.01)}, ["kmeans"])
    assert "every" not in incomplete
    assert "missing: kmeans" in incomplete


def test_arms_with_identical_figures_are_tested_once(figures):
    alone = compare(frame(figures, at_threshold=None), "comet")
    same = {"copy": figures["comet"], **figures, "again": figures["far"]}
    assert compare(frame(same, at_threshold=None), "comet") == alone
    shown = compared(frame(same, at_threshold=None), "Validate", "comet")[0]
    assert [row.arm for row in shown.groups[0].rows] == ["comet", *alone_order(figures)]
    assert any("identical in every trial: comet and copy, far and again." in note for note in shown.footnotes)
    assert not any("lack entities" in note for note in shown.footnotes)


def alone_order(figures):
    return [row.arm for row in compared(frame(figures, at_threshold=None), "Validate", "comet")[0].groups[0].rows[1:]]


def test_an_incomplete_base_arm_is_refused():
    records = table({"comet": {"SMD": [0.5]}, "pca": {"SMD": [0.4, 0.4]}})
    with pytest.raises(InputError, match="Run the missing trials"):
        compare(frame_of(records), "comet")


# --- ties of scores ---------------------------------------------------------------------------------------------------


def test_breaking_ties_keeps_the_order_of_distinct_scores():
    scores = np.random.default_rng(0).integers(5, size=200).astype(float)
    ranks = untied(scores)
    assert sorted(ranks) == list(range(200))
    assert all(ranks[i] < ranks[j] for i in range(200) for j in range(200) if scores[i] < scores[j])
    np.testing.assert_array_equal(ranks, untied(scores))


def test_constant_scores_gain_nothing_from_being_constant():
    labels = np.arange(2000) % 400 > 380
    constant = np.zeros(2000)
    metrics = evaluate(labels, constant)
    broken = untied_vus_pr(labels, constant, metrics)
    assert broken == evaluate(labels, untied(constant))["vus_pr"]
    assert broken < metrics["vus_pr"]
    distinct = np.random.default_rng(0).random(2000)
    assert untied_vus_pr(labels, distinct, evaluate(labels, distinct)) == evaluate(labels, distinct)["vus_pr"]


# --- from the runner to the report ------------------------------------------------------------------------------------


def write_skab(folder, names):
    """Small files in the layout of SKAB."""
    rng = np.random.default_rng(0)
    for name in names:
        values = rng.normal(size=(700, 2))
        anomaly = np.zeros(700, int)
        anomaly[500:540] = 1
        values[500:540] += 5
        lines = [f"t;{a};{b};{label};0" for (a, b), label in zip(values, anomaly, strict=True)]
        path = folder / "SKAB" / "data" / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(["datetime;a;b;anomaly;changepoint", *lines]) + "\n")
    return folder


NAMES = [f"valve1/{i}" for i in range(6)]


@pytest.fixture
def data(tmp_path):
    return write_skab(tmp_path / "data", NAMES)


def test_an_experiment_on_one_part_runs_on_its_entities_only(data, tmp_path, monkeypatch):
    arms = (Arm("comet", "comet", {"views": (Forecast(2),)}), Arm("fair knn", "fair", {"baseline": "knn"}))
    parts = {}
    for part in ("select", "validate"):
        tiny = Experiment("A tiny one", "entity", ("SKAB",), arms, seeds=(0,), part=part)
        monkeypatch.setitem(EXPERIMENTS, "tiny", tiny)
        assert run("tiny", data_dir=data, folder=tmp_path / part).failed == []
        records = Results(tmp_path / part / "tiny.jsonl").read()
        parts[part] = {record["entity"] for record in records}
        assert {part_of("SKAB", entity) for entity in parts[part]} == {part}
    assert sorted(parts["select"] | parts["validate"]) == NAMES
    assert all(record["untied"]["vus_pr"] > 0 for record in records)
    assert all(record["metrics"]["auc_pr"] > 0.5 for record in records)


def test_synthetic_plants_can_be_selected_by_name(tmp_path, monkeypatch):
    arms = (Arm("squared-norm", "squared-norm"),)
    tiny = Experiment("A tiny one", "entity", ("plants",), arms, seeds=(0,), part="validate")
    monkeypatch.setitem(EXPERIMENTS, "tiny", tiny)
    outcome = run("tiny", datasets=["plants"], entities=["seed-1"], folder=tmp_path)
    assert (outcome.done, outcome.failed) == (1, [])


def test_without_the_base_arm_every_arm_is_tested_against_the_best(figures, tmp_path):
    renamed = {"near": "pca", "far": "knn", "better": "vtt", "random": "random"}
    stored(tmp_path / "entity.jsonl", table({arm: figures[name] for name, arm in renamed.items()}, "entity"))
    report(["entity"], folder=tmp_path)
    text = (tmp_path / "entity.md").read_text()
    assert "comet lacks trials, so the arms are tested against vtt, the best by mean AUC-PR, which favors it." in text
    assert "One model per entity: every arm against vtt**" in text


def test_the_report_of_an_unfinished_validate_compares_nothing(tmp_path):
    stored(tmp_path / "validate.jsonl", table({"comet": {"SMD": [0.5]}, "pca": {"SMD": [0.4, 0.4]}}))
    report(["validate"], folder=tmp_path)
    assert "comet lacks some trials, so no arm was compared" in (tmp_path / "validate.md").read_text()


# --- several processes ------------------------------------------------------------------------------------------------


def test_several_processes_share_the_trials_and_each_runs_once(data, tmp_path, monkeypatch):
    monkeypatch.setenv("COMETAD_THREADS", "3")  # processes that share a machine use one thread each all the same
    arms = ["pca", "squared-norm"]
    options = {"datasets": ["SKAB"], "arms": arms, "data_dir": data, "folder": tmp_path / "results"}
    outcome = run_with_workers("validate", workers=2, **options)
    records = Results(tmp_path / "results" / "validate.jsonl").read()
    entities = [name for name in NAMES if part_of("SKAB", name) == "validate"]
    assert sorted((record["entity"], record["arm"]) for record in records) == sorted(itertools.product(entities, arms))
    assert (outcome.done, outcome.failed, outcome.elsewhere) == (len(records), [], 0)
    assert {record["threads"] for record in records} == {1}
    again = joined([run("validate", **options)])
    assert (again.done, again.done_before) == (0, len(records))

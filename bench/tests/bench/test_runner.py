"""The benchmark runner: which trials run, are skipped, recorded, shared or refused."""

import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numba
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from cometad import Comet, NetworkComet
from cometad.baselines import BASELINES
from cometad.baselines.simple import SquaredNorm
from cometad.cli.paths import is_ours
from cometad.cli.verbs import main
from cometad.datasets.dataset import Dataset, concatenate
from cometad.errors import CometadError, InputError, ParameterError
from cometad.fleet.engines import SerialEngine
from cometad.metrics import METRICS, evaluate
from cometad.network import Epochs, NoAdaptation, OneCycle
from cometad.presets import ABLATIONS
from cometad.registry import describe
from cometad_bench import experiments, runner
from cometad_bench.datasets.readers import load
from cometad_bench.drift.experiment import compare, settings_of
from cometad_bench.embedding import KINDS, sampled
from cometad_bench.experiments import EXPERIMENTS, Arm, Experiment, groups
from cometad_bench.published import published
from cometad_bench.report import report
from cometad_bench.results import Results, identity, latest
from cometad_bench.runner import results_of, run
from cometad_bench.trial import Fitting, at_threshold, attempts, built, detection, source_fingerprint, training_series
from contract import waves
from trials import stored, trial

SMALL = {"schedule": Epochs(1), "codebook_size": 16, "dim": 8, "core_dim": 4}
FAST = Experiment(
    "A fast one",
    "entity",
    ("ASD",),
    (
        Arm("comet-paper", "comet-paper", SMALL),
        Arm("w/o TTA", "comet-paper", {**SMALL, "adaptation": NoAdaptation()}),
        Arm("pca", "pca"),
        Arm("random", "random"),
        Arm("all-positive", "all-positive"),
    ),
    seeds=(0, 1),
)


def write_asd(folder, entities=("omi-1", "omi-2")):
    """Small files in the layout of ASD."""
    rng = np.random.default_rng(0)
    for entity in entities:
        (folder / "ASD" / entity).mkdir(parents=True)
        train, test = rng.normal(size=(2, 700, 3))
        labels = np.zeros(700, int)
        labels[300:320] = 1
        test[300:320] += 6
        for name, array in (("train", train), ("test", test), ("test_label", labels)):
            np.save(folder / "ASD" / entity / f"{name}.npy", array)
    return folder


@pytest.fixture
def data(tmp_path):
    return write_asd(tmp_path / "data")


@pytest.fixture
def fast(monkeypatch, data):
    """Run a small experiment on small files, in this process, so that tests can break it."""
    monkeypatch.setitem(EXPERIMENTS, "fast", FAST)
    options = {"data_dir": data, "folder": data.parent / "results", "isolate": False}
    return lambda **more: run("fast", **(options | more))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return the results folder of the whole small experiment and the outcome of its run; do not change it."""
    place = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EXPERIMENTS, "fast", FAST)
        yield place / "results", run("fast", data_dir=write_asd(place / "data"), folder=place / "results")


def test_every_trial_has_a_result_with_everything_needed_to_repeat_it(finished):
    folder, outcome = finished
    assert (outcome.done, outcome.done_before, outcome.failed) == (2 * 2 * 5, 0, [])
    lines = results_of("fast", folder).read()
    assert {(line["entity"], line["arm"], line["seed"]) for line in lines} == {
        (entity, arm.name, seed) for entity in ("omi-1", "omi-2") for arm in FAST.arms for seed in (0, 1)
    }
    for line in lines:
        assert set(line["metrics"]) == set(METRICS)
        assert line["peak_bytes"] >= line["start_bytes"] > 2**20
        assert line["fit_seconds"] >= 0
        assert line["versions"]["numpy"] == np.__version__
        assert line["source"] == source_fingerprint()
        assert re.match(r"\d+\.\d+\.\d+", line["versions"]["cometad"])
        assert (line["parameters"] is not None) == line["detector"].startswith("comet")
        assert line["hyper_parameters"]["seed"] == line["seed"]


@pytest.mark.parametrize("packed", [False, True])
def test_trials_that_have_a_result_are_skipped(packed, fast, data):
    results = results_of("fast", data.parent / "results")
    fast(seeds=[0], arms=["pca", "random"])
    before = results.read()
    if packed:
        results.pack()
    outcome = fast(arms=["pca", "random"])
    assert (outcome.done, outcome.done_before) == (4, 4)
    lines = results.read()
    assert lines[:4] == before
    assert [line["seed"] for line in lines] == [0] * 4 + [1] * 4


def test_different_data_or_parameters_make_a_different_trial(fast, data, monkeypatch):
    fast(arms=["pca"], entities=["omi-1"], seeds=[0])
    test = np.load(data / "ASD" / "omi-1" / "test.npy")
    np.save(data / "ASD" / "omi-1" / "test.npy", test + 1e-9)
    assert fast(arms=["pca"], entities=["omi-1"], seeds=[0]).done == 1
    changed = Experiment("", "entity", ("ASD",), (Arm("pca", "pca", {"variance_share": 0.5}),), seeds=(0,))
    monkeypatch.setitem(EXPERIMENTS, "fast", changed)
    assert fast(entities=["omi-1"]).done == 1


class Broken(SquaredNorm):
    """Fails to fit as long as `broken` is set."""

    broken = True

    def fit(self, X, y=None):
        if Broken.broken:
            raise MemoryError("no room\nfor more")
        return super().fit(X)


def test_a_failed_trial_is_recorded_and_rerun_only_on_request(fast, data, monkeypatch):
    monkeypatch.setitem(experiments.BASELINES, "pca", Broken)
    outcome = fast(seeds=[0], arms=["pca", "random"], entities=["omi-1"])
    assert outcome.done == 1
    assert [failed["error"] for failed in outcome.failed] == ["MemoryError: no room"]
    again = fast(seeds=[0], arms=["pca", "random"], entities=["omi-1"])
    assert (again.done_before, again.failed_before, again.done, again.failed) == (1, 1, 0, [])
    monkeypatch.setattr(Broken, "broken", False)
    assert fast(seeds=[0], arms=["pca"], entities=["omi-1"], retry=True).done == 1
    lines = results_of("fast", data.parent / "results").read()
    assert [line["error"] is None for line in lines if line["arm"] == "pca"] == [False, True]
    assert [line["error"] for line in latest(lines) if line["arm"] == "pca"] == [None]


def test_a_trial_that_fails_again_is_tried_once_per_run(fast, data, monkeypatch):
    monkeypatch.setitem(experiments.BASELINES, "pca", Broken)
    asked = {"arms": ["pca", "pca"], "seeds": [0, 0], "entities": ["omi-1"]}
    fast(**asked)
    assert len(fast(**asked, retry=True).failed) == 1
    assert len(results_of("fast", data.parent / "results").read()) == 2


def test_a_trial_that_failed_in_another_process_meanwhile_is_not_retried(fast, data, monkeypatch):
    monkeypatch.setitem(experiments.BASELINES, "pca", Broken)
    results = results_of("fast", data.parent / "results")
    first, second = ("omi-1", "omi-2")
    fast(arms=["pca"], seeds=[0])
    lines = {line["entity"]: line for line in results.read()}

    def fit(self, X, y=None):  # while the first trial runs, another process tries the second
        results.append(lines[second])
        raise MemoryError("no room")

    monkeypatch.setattr(Broken, "fit", fit)
    outcome = fast(arms=["pca"], seeds=[0], retry=True)
    assert [failed["entity"] for failed in outcome.failed] == [first]


def test_nan_is_a_failure_and_the_other_trials_run(fast, monkeypatch):
    figures = dict.fromkeys(METRICS, 0.5)
    monkeypatch.setattr("cometad_bench.trial.evaluate", lambda labels, scores: figures | {"vus_pr": float("nan")})
    outcome = fast(arms=["pca", "random"], seeds=[0], entities=["omi-1"])
    assert [failed["error"][:10] for failed in outcome.failed] == ["ValueError"] * 2


def test_progress_starts_with_the_count_and_ends_with_the_total(fast, data, capsys):
    fast(arms=["random"], seeds=[0], verbose=True)
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first == "trial 0/2 2 to run"
    assert re.fullmatch(r"trial 2/2 0 failed, about 0 s left; last: ASD omi-2 random, seed 0", last)
    fast(arms=["random"], seeds=[0], verbose=True)
    assert capsys.readouterr().err.splitlines()[-1] == "trial 2/2 nothing left to run"


def test_a_missing_dataset_is_reported_with_how_to_obtain_it_and_the_others_run(fast):
    sentences = []
    outcome = fast(datasets=["PSM", "ASD"], arms=["random"], seeds=[0], notify=sentences.append)
    assert outcome.done == 2
    assert list(outcome.absent) == ["PSM"]
    assert sentences == [f"Dataset PSM was not found. {outcome.absent['PSM']}"]


def test_arms_that_need_too_much_memory_are_reported_before_anything_runs(fast, monkeypatch):
    def refuse(self, variables):
        raise ParameterError(f"{variables} variables are too many. Use fewer.")

    monkeypatch.setattr(SquaredNorm, "check_memory", refuse, raising=False)
    monkeypatch.setitem(
        EXPERIMENTS, "fast", Experiment("", "entity", ("ASD",), (Arm("norm", "squared-norm"), Arm("random", "random")))
    )
    sentences = []
    outcome = fast(seeds=[0], notify=sentences.append)
    assert sentences == ["norm on ASD will not run. 19 variables are too many. Use fewer."]
    assert (outcome.done, list(outcome.refused)) == (2, [("ASD", "norm")])


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"arms": ["knm"]}, "Unknown arm 'knm'. Available: comet-paper,"),
        ({"datasets": ["PMS"]}, "Unknown dataset 'PMS'"),
        ({"datasets": ["plant"]}, "Unknown dataset 'plant'"),
        ({"entities": ["omi-9"]}, "Unknown entity 'omi-9'. Did you mean omi-2? Available: omi-1, omi-2."),
        ({"device": "tpu"}, "Unknown device 'tpu'"),
        ({"folder": "/proc/nowhere"}, "Cannot write"),
    ],
)
def test_invalid_input_is_refused_before_the_first_trial(fast, data, asked, words):
    with pytest.raises(CometadError, match=re.escape(words)):
        fast(**asked)
    assert not list((data.parent / "results").glob("*.jsonl")) or not results_of("fast", data.parent / "results").read()


def test_an_unknown_experiment_names_the_known_ones(capsys):
    assert main(["bench", "run", "mian"]) == 2
    assert "Unknown experiment 'mian'. Did you mean main? Available: main, ablation" in capsys.readouterr().err


def test_an_experiment_on_whole_datasets_takes_no_entities(data):
    with pytest.raises(ParameterError, match="main uses whole datasets"):
        run("main", entities=["omi-1"], datasets=["ASD"], data_dir=data, folder=data.parent / "results")


def test_an_entity_may_belong_to_a_missing_dataset(fast):
    assert list(fast(datasets=["PSM"], entities=["machine-1-1"]).absent) == ["PSM"]


def test_the_command_exits_with_2_if_no_dataset_is_available(tmp_path, capsys):
    command = ["bench", "run", "main", "--data-dir", str(tmp_path), "--results", str(tmp_path / "results")]
    assert main(command) == 2
    output = capsys.readouterr().err
    assert "Dataset MSL was not found." in output
    assert "None of the datasets is available, so nothing was run." in output


def test_the_command_prints_a_summary_and_exits_with_1_after_failures(data, monkeypatch, capsys):
    monkeypatch.setitem(EXPERIMENTS, "fast", FAST)
    np.save(data / "ASD" / "omi-2" / "train.npy", np.zeros((1, 3)))
    folder = str(data.parent / "results")
    command = ["bench", "run", "fast", "--data-dir", str(data), "--results", folder, "--arm", "pca", "--seed", "0"]
    assert main(command) == 1
    printed = capsys.readouterr()
    assert "Trials: 1 done, 0 done before, 1 failed." in printed.out
    assert "cometad: pca on ASD omi-2, seed 0: The series has 1 reading, fewer than" in printed.err
    assert main(command) == 0
    assert "Trials: 0 done, 1 done before, 0 failed. 1 failed before; --retry runs it again." in capsys.readouterr().out


def test_an_engine_of_a_fleet_gives_the_same_results(data, monkeypatch, finished):
    monkeypatch.setitem(EXPERIMENTS, "fast", FAST)
    folder = data.parent / "results"
    asked = {"data_dir": data, "folder": folder, "arms": ["pca", "random"], "seeds": [0]}
    outcome = run("fast", engine=SerialEngine(), **asked)
    assert (outcome.done, outcome.failed) == (4, [])
    assert not list(folder.glob("*.lock"))
    ours = {(one["entity"], one["arm"]): one["metrics"] for one in Results(folder / "fast.jsonl").read()}
    others = Results(finished[0] / "fast.jsonl").read()
    theirs = {(one["entity"], one["arm"]): one["metrics"] for one in others if one["seed"] == 0}
    assert ours == {name: theirs[name] for name in ours}
    assert run("fast", engine=SerialEngine(), **asked).done_before == 4


# --- shared training runs --------------------------------------------------------------------------------------------


def plant(rows=600):
    rng = np.random.default_rng(3)
    train, test = rng.normal(size=(2, rows, 3))
    labels = np.zeros(rows, bool)
    labels[200:220] = True
    return Dataset("MSL", "T-1", train, test, labels, ("a", "b", "c"))


def test_arms_that_share_a_training_run_score_as_if_trained_separately():
    dataset = plant()
    arms = [Arm(name, "comet-paper", {**SMALL, **changes}) for name, changes in ABLATIONS.items()]
    assert sorted(len(group) for group in groups(arms)) == [1, 7]
    for group in groups(arms):
        fitting = Fitting(dataset, "cpu")
        for arm in group:
            shared, alone = fitting(arm, 5)[0], arm.build("MSL", 5, "cpu").fit(dataset.train)
            assert shared.get_params(deep=False) == alone.get_params(deep=False)
            assert shared.threshold_ == alone.threshold_
            assert np.array_equal(shared.decision_function(dataset.test), alone.decision_function(dataset.test))


def test_the_ablation_trains_twice_per_seed(monkeypatch):
    trained = []
    fit = NetworkComet.fit
    monkeypatch.setattr(NetworkComet, "fit", lambda self, X: trained.append(self.seed) or fit(self, X))
    dataset = plant()
    for group in groups(
        [Arm(arm.name, arm.detector, {**SMALL, **arm.changes}) for arm in EXPERIMENTS["ablation"].arms[:9]]
    ):
        plans = [runner.planned("ablation", dataset, arm, 0, "cpu") for arm in group]
        assert all(record["error"] is None for record in attempts(detection, group, dataset, "cpu", plans))
    assert trained == [0, 0]


def test_rescoring_refuses_a_training_parameter():
    detector = Comet.paper(**SMALL).fit(plant().train)
    with pytest.raises(ParameterError, match="'dim' affects training"):
        detector.with_scoring(plant().train, dim=4)


# --- figures ----------------------------------------------------------------------------------------------------------


def test_figures_equal_those_of_a_detector_used_directly():
    dataset = plant()
    arm = Arm("pca", "pca")
    (record,) = attempts(detection, [arm], dataset, "cpu", [runner.planned("x", dataset, arm, 0, "cpu")])
    detector = arm.build("MSL", 0, "cpu").fit(dataset.train)
    assert record["metrics"] == evaluate(dataset.labels, detector.decision_function(dataset.test))
    predicted = detector.predict(dataset.test).astype(bool)
    found = record["at_threshold"]
    assert found["precision"] == (predicted & dataset.labels).sum() / predicted.sum()
    assert found["recall"] == (predicted & dataset.labels).sum() / dataset.labels.sum()


def test_false_alarms_are_counted_as_runs_and_per_day():
    labels, scores = np.zeros(2880, bool), np.zeros(2880)
    labels[100:200] = True
    scores[150] = scores[300:310] = scores[400] = scores[500] = 1.0
    found = at_threshold(labels, scores, 0.5, period=60)
    assert (found["alarms"], found["false_alarms"], found["false_alarms_per_day"]) == (4, 3, 1.5)
    assert (found["anomalies"], found["anomalies_found"]) == (1, 1)


def test_without_alarms_there_is_no_precision():
    assert at_threshold(np.array([False, True]), np.zeros(2), 0.5, period=1)["precision"] is None


# --- several processes, and interruptions -----------------------------------------------------------------------------


def test_a_run_leaves_no_job_lock_behind(fast, data):
    fast(arms=["random"])
    assert [path.name for path in (data.parent / "results" / ".locks").iterdir()] == ["fast-append.lock"]


def test_a_job_claimed_by_another_process_is_left_to_it(fast, data):
    results = results_of("fast", data.parent / "results")
    plan = runner.planned("fast", load("ASD", data)[0], Arm("random", "random"), 0, "cpu")
    with runner.claimed(results, runner.Job((plan,), iter)) as mine:
        assert mine
        outcome = fast(arms=["random"], seeds=[0])
    assert (outcome.done, outcome.elsewhere) == (1, 1)
    assert fast(arms=["random"], seeds=[0]).done == 1


def test_an_interrupted_run_keeps_its_finished_trials_and_can_resume(data):
    folder = data.parent / "results"
    command = [sys.executable, "-m", "cometad", "bench", "run", "entity", "--dataset", "ASD", "--arm", "random"]
    # The second arm trains for long enough to be interrupted.
    command += ["--arm", "lstm-ae", "--data-dir", str(data), "--results", str(folder)]
    command += [word for seed in "01234" for word in ("--seed", seed)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1"})
    path = folder / "entity.jsonl"
    deadline = time.monotonic() + 120
    while not (path.exists() and path.read_text().count("\n")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130
    assert "finished trials are kept. Run the same command to continue." in output
    assert 1 <= len(Results(path).read()) < 20
    outcome = run("entity", datasets=["ASD"], arms=["random"], data_dir=data, folder=folder, seeds=[0])
    assert outcome.done_before + outcome.done == 2


# --- the report -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reported(finished):
    """The files of a report, by name."""
    folder, _ = finished
    return {path.name: path for path in report(["fast"], folder=folder)}


def test_a_report_has_its_tables_in_three_formats_and_the_ranks(reported):
    assert set(reported) == {"fast.md", "fast.html", "fast.tex", "fast-ranks.png", "fast-cost.png"}
    text = reported["fast.md"].read_text()
    for arm in FAST.arms:
        assert f"| {arm.name} |" in text
    assert r"Aff-F1\*" in text
    assert "oracle threshold" in text
    assert "false alarms per day" in text
    assert reported["fast.tex"].read_text().count(r"\begin{longtable}") == 4
    assert reported["fast-ranks.png"].read_bytes().startswith(b"\x89PNG")


def test_a_report_names_the_trials_that_failed(tmp_path):
    results, error = results_of("main", tmp_path), "MemoryError: no room for <all>"
    results.append(line_of("main", "vtt") | {"error": "another one"})
    results.append(line_of("main", "vtt") | {"error": error})
    with pytest.raises(InputError, match=r"There are no results of main in .*; all trials failed, rerun them"):
        report(["main"], folder=tmp_path)
    for seed, arm in ((0, "pca"), (1, "pca"), (1, "vtt")):
        results.append(line_of("main", arm, seed) | {"error": None if arm == "pca" else error})
    report(["main"], folder=tmp_path)
    assert f"missing from the tables below: vtt on MSL (2: {error})." in (tmp_path / "main.md").read_text()
    assert "vtt on MSL (2: MemoryError: no room for &lt;all&gt;)." in (tmp_path / "main.html").read_text()
    for seed in (0, 1):
        results.append(line_of("main", "vtt", seed))
    report(["main"], folder=tmp_path)
    assert "Failed" not in (tmp_path / "main.md").read_text()


def test_a_report_names_results_that_do_not_say_what_code_they_came_from(tmp_path, reported):
    known = {"source": "1f0a", "versions": {"cometad": "0.2.0"}}
    results = results_of("main", tmp_path)
    for arm, facts in (("pca", known), ("knn", {}), ("hbos", known | {"versions": {"cometad": "not installed"}})):
        results.append(line_of("main", arm) | facts)
    results.append(line_of("main", "hbos", seed=1) | known)
    report(["main"], folder=tmp_path)
    text = (tmp_path / "main.md").read_text()
    assert "\nResults without a fingerprint of the source: knn.\n" in text
    assert "\nResults without the installed version of cometad: knn, hbos (1 of 2 trials).\n" in text
    assert "Results without" not in reported["fast.md"].read_text()


def test_the_page_of_a_report_needs_no_other_file(reported):
    page = reported["fast.html"].read_text()
    assert page.count("<table ") == 4
    assert 'src="data:image/png;base64,' in page
    assert "://" not in page


def line_of(experiment, arm, seed=0):
    """A result line on MSL."""
    return trial(arm, 0.123, seed=seed, experiment=experiment, parameters=5)


@pytest.mark.parametrize("arms", [("random", "random"), ("pca", "knn")], ids=["no detector", "no detector with both"])
def test_a_report_without_arms_to_rank_has_its_tables_and_no_ranks(arms, tmp_path):
    for arm, dataset in zip(arms, ("MSL", "SMAP"), strict=True):
        results_of("main", tmp_path).append(line_of("main", arm) | {"dataset": dataset})
    written = [path.name for path in report(["main"], folder=tmp_path)]
    assert written == ["main.md", "main.html", "main.tex"]


@pytest.mark.parametrize("name", ["sensitivity", "efficiency"])
def test_a_report_with_only_no_skill_references_states_what_is_missing(name, tmp_path):
    for arm in ("random", "all-positive"):
        results_of(name, tmp_path).append(line_of(name, arm))
    report([name], folder=tmp_path)
    for ending in ("md", "html"):
        text = (tmp_path / f"{name}.{ending}").read_text()
        assert "nothing to compare yet" in text
        assert f"cometad bench run {name}." in text
    results_of(name, tmp_path).append(line_of(name, {"sensitivity": "codebook 16", "efficiency": "usad"}[name]))
    report([name], folder=tmp_path)
    assert "nothing to compare" not in (tmp_path / f"{name}.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["report", "main"], "There are no results of main in"),
        (["report", "mian"], "Unknown experiment 'mian'"),
        (["report", "main", "--metric", "auc"], "Unknown metric 'auc'"),
    ],
)
def test_a_report_without_results_is_refused(arguments, words, tmp_path, capsys):
    assert main(["bench", *arguments, "--results", str(tmp_path)]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("ending", [".md", ".html", ".tex", "-MSL.png"])
def test_a_report_replaces_its_own_files_only(ending, tmp_path, capsys):
    for arm in ("usad", "random", "all-positive"):
        results_of("efficiency", tmp_path).append(line_of("efficiency", arm, seed=42))
    command = ["bench", "report", "efficiency", "--results", str(tmp_path)]
    for _ in range(2):
        assert main(command) == 0
    theirs = tmp_path / f"efficiency{ending}"
    assert theirs.exists()
    if ending.endswith("png"):
        Figure().savefig(theirs)  # matplotlib's own, drawn by somebody else
    else:
        theirs.write_text("My own notes.\n")
    before = {path: path.read_bytes() for path in tmp_path.glob("efficiency*")}
    assert main(command) == 2
    assert f"efficiency{ending}' exists and is not a" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.glob("efficiency*")} == before
    assert main([*command, "--force"]) == 0
    assert theirs.read_bytes() != before[theirs]


def test_the_committed_figures_are_recognized_as_ours():
    pictures = sorted((Path(__file__).parents[2] / "results").glob("*.png"))
    assert pictures
    assert [path.name for path in pictures if not is_ours(path, "picture")] == []


@pytest.fixture
def quick_umap(monkeypatch):
    """UMAP without compilation, which takes longer than any test here, and with few epochs instead."""
    with monkeypatch.context() as patch:
        patch.setattr(numba.config, "DISABLE_JIT", True)
        umap = pytest.importorskip("umap")
    monkeypatch.setattr(umap, "UMAP", partial(umap.UMAP, n_epochs=5))


@pytest.mark.usefixtures("quick_umap")
def test_embeddings_are_laid_out_and_drawn(monkeypatch, data):
    small = Arm("comet-paper", "comet-paper", SMALL)
    monkeypatch.setitem(
        EXPERIMENTS, "embedding", Experiment("E", "embedding", ("ASD",), (small,), seeds=(0,), report="embedding")
    )
    monkeypatch.setattr("cometad_bench.embedding.EACH", 30)
    folder = data.parent / "results"
    assert run("embedding", data_dir=data, folder=folder, isolate=False).done == 1  # with UMAP as patched
    (line,) = results_of("embedding", folder).read()
    points = line["points"]
    assert set(points["kind"]) == {"train normal", "test normal", "test anomaly", "code"}
    assert set(points["patch"]) == {2, 4, 6}
    assert [path.name for path in report(["embedding"], folder=folder)] == [
        "embedding-ASD.png",
        "embedding.md",
        "embedding.html",
    ]


def test_embeddings_of_two_seeds_are_two_files_and_those_of_one_seed_are_named_after_the_dataset(tmp_path):
    points = {"x": [0.0, 1.0], "y": [0.0, 1.0], "patch": [2, 2], "kind": ["code", "train normal"]}
    where = (("SMAP", 0), ("MSL", 0), ("MSL", 1))
    records = [trial("comet-paper", 0, name, seed=seed, experiment="embedding", points=points) for name, seed in where]
    written = report(["embedding"], folder=stored(tmp_path / "embedding.jsonl", records))
    pictures = [path.name for path in written if path.suffix == ".png"]
    assert pictures == ["embedding-SMAP.png", "embedding-MSL-seed-0.png", "embedding-MSL-seed-1.png"]
    assert "comet-paper; seed 1." in (tmp_path / "embedding.md").read_text()


def test_sampled_embeddings_of_anomalies_are_from_labeled_patches():
    dataset = plant()
    detector = Comet.paper(**SMALL).fit(dataset.train)
    vectors, scales, kinds = sampled(detector, dataset, np.random.default_rng(0))
    scale = next(iter(detector.network_))
    window = detector.scaling_(dataset.test)[200:300]
    inside = scale.embed(torch.as_tensor(window[None])).detach().numpy()[0]  # (patch, variable, dim)
    under = inside[:20].reshape(-1, inside.shape[-1])  # patches of 2 that begin at steps 200 to 219
    found = vectors[(scales == 0) & (kinds == KINDS.index("test anomaly"))]
    distances = np.abs(found[:, None] - under[None]).max(axis=2)
    assert (distances.min(axis=1) < 1e-5).mean() > 0.9  # the patch that begins at 199 is in another window


# --- drift ------------------------------------------------------------------------------------------------------------


def test_a_drift_trial_measures_one_detector_with_and_without_adaptation(monkeypatch, data):
    arms = (Arm("comet", "network", {"schedule": OneCycle(5), "codebook_size": 16, "test_batch": 4, "window": 32}),)
    small = Experiment("D", "drift", ("ASD",), arms, seeds=(0,), report="drift", entities={"ASD": ("omi-2",)})
    monkeypatch.setitem(EXPERIMENTS, "drift", small)
    rng = np.random.default_rng(0)
    np.save(data / "ASD" / "omi-2" / "train.npy", rng.normal(size=(2000, 3)))
    folder = data.parent / "results"
    outcome = run("drift", data_dir=data, folder=folder)
    assert (outcome.done, outcome.failed) == (len(settings_of("omi-2")), [])
    lines = results_of("drift", folder).read()
    assert {line["entity"] for line in lines} == {"omi-2"}
    assert [line["setting"]["drift"] for line in lines] == [setting["drift"] for setting in settings_of("omi-2")]
    for line in lines:
        assert line["adapting"]["steps"] > 0 == line["fixed"]["steps"]
        assert line["moved"] == compare(line["adapting"], line["fixed"])
    assert run("drift", data_dir=data, folder=folder).done_before == len(settings_of("omi-2"))
    assert {path.name for path in report(["drift"], folder=folder)} == {
        "drift.md",
        "drift.html",
        "drift.tex",
        "drift-1.png",
    }
    text = (folder / "drift.md").read_text()
    assert "| dataset | drift |" in text
    assert "| offset, 30 % faults |" in text


# --- the paper's own tables -------------------------------------------------------------------------------------------

PAPER = sorted(Path(__file__).parents[4].glob("shared/paper/*.txt"))


@pytest.mark.skipif(not PAPER, reason="the source of the paper is not next to the checkout")
def test_published_figures_are_the_rows_of_the_papers_tables():
    source = re.sub(r"\\(textbf|underline|uline)\{([^{}]*)\}", r"\2", PAPER[0].read_text(encoding="utf-8"))
    rows = re.sub(r"\s+", "", source)
    lines = [line for name in EXPERIMENTS for line in published(name)]
    assert len(lines) == 175 + 15  # three arms on five datasets are shown in two experiments
    for line in lines:
        figures = "&".join(f"{100 * line['metrics'][name]:.2f}" for name in METRICS)
        assert f"&{figures}\\\\" in rows, line


def joined():
    return concatenate(
        [
            Dataset("MSL", f"{i}", waves(n, 2), waves(90, 2), np.arange(90) > 70, ("a", "b"))
            for i, n in enumerate((75, 61))
        ]
    )


@pytest.mark.parametrize("name", ["comet-paper", "usad, converged"])
def test_where_entities_are_joined_the_end_of_each_is_held_out(name):
    dataset = joined()
    arm = Arm(name, name.partition(",")[0])
    detector, series = built(arm, dataset, 0, "cpu"), training_series(arm, dataset)
    kept = [int(0.9 * 75), int(0.9 * 61)]
    assert detector.validation_share == 75 + 61 - sum(kept)
    assert np.array_equal(series[: kept[0]], dataset.train[: kept[0]])
    assert np.array_equal(series[kept[0] : sum(kept)], dataset.train[75 : 75 + kept[1]])
    assert np.array_equal(
        series[sum(kept) :], np.concatenate([dataset.train[kept[0] : 75], dataset.train[75 + kept[1] :]])
    )


def test_a_detector_that_holds_nothing_out_gets_the_series_in_its_order():
    arm = Arm("pca", "pca")
    assert np.array_equal(training_series(arm, joined()), joined().train)


def test_the_device_and_parameters_that_came_later_are_not_part_of_a_trial():
    def name(**parameters):
        return identity(trial("pca", hyper_parameters=parameters))

    ema, rule = {"kind": "EmaMinMax", "momentum": 0.75}, {"kind": "Quantile", "rate": 0.01}
    assert name(device="cpu", seed=0) == name(device="cuda", seed=0) != name(device="cpu", seed=1)
    assert (
        name(normalization=ema)
        == name(normalization=ema | {"windows": None})
        != name(normalization=ema | {"windows": 4})
    )
    now = {name: describe(value) for name, value in BASELINES["pca"]().get_params(deep=False).items()}
    old = {name: value for name, value in now.items() if name not in ("threshold", "gaps")}
    assert now["threshold"] == rule
    assert name(**old, threshold_quantile=0.99) == name(**now) != name(**old, threshold_quantile=0.999)

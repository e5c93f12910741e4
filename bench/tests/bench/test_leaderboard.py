"""TSB-AD-M from its files to the table with the published figures."""

from collections import defaultdict

import numpy as np
import polars as pl
import pytest

import naive_metrics as naive
import trials
from cometad import BASELINES
from cometad.cli import main
from cometad.metrics import evaluate
from cometad.metrics import tsb_ad as tsb_ad_protocol
from cometad_bench.datasets.readers import READERS, load
from cometad_bench.datasets.tsb_ad import source_of
from cometad_bench.frame import frame_of
from cometad_bench.leaderboard import leaderboard, published_methods, series_means, standings
from cometad_bench.results import Results
from cometad_bench.runner import run
from tsb_files import NAMES, table, write_archive


def result(arm, entity, value, seed=0, dataset="TSB-AD-M", **more):
    return trials.trial(arm, value, dataset, entity, seed, fit_seconds=1.0, **more)


def only(records):
    """The standing of the only arm, and its VUS-PR by series and by source."""
    series = series_means(frame_of(records))
    (one,) = standings(series).to_dicts()
    by_source = series.group_by("source").agg(pl.col("vus_pr").mean())
    return one, dict(series.select("entity", "vus_pr").iter_rows()), dict(by_source.iter_rows())


FIGURES = {"001_MSL_id_1": 0.2, "002_MSL_id_2": 0.4, "003_TAO_id_1": 0.9}


# --- the figures ------------------------------------------------------------------------------------------------------


def test_the_macro_mean_counts_each_source_once():
    records = [result("pca", entity, value) for entity, value in FIGURES.items()]
    one, _, sources = only(records)
    assert sources == pytest.approx({"MSL": 0.3, "TAO": 0.9})
    assert (one["mean"], one["macro"], one["vus_roc"], one["auc_pr"]) == pytest.approx((0.5, 0.6, 0.5, 0.5))


def test_a_series_is_the_mean_over_its_seeds_and_failures_do_not_count():
    records = [result("pca", "001_MSL_id_1", value, seed) for seed, value in enumerate((0.2, 0.6))]
    records.append(result("pca", "003_TAO_id_1", 0.9, error="MemoryError"))
    one, series, _ = only(records)
    assert series == pytest.approx({"001_MSL_id_1": 0.4})
    assert one["seconds"] == 1.5


def test_published_methods_have_a_source_and_plausible_figures():
    published = published_methods("TSB-AD-M")
    assert len({one["method"] for one in published}) == len(published) > 30
    for one in published:
        assert one["source"].startswith("https://")
        assert 0.05 < one["mean"] < 0.6
        assert one["macro"] is None or abs(one["macro"] - one["mean"]) < 0.08
        assert (one["macro"] is None) == ("two decimals" in one["source"])
    figures = {one["method"]: round(one["mean"], 2) for one in published}
    assert (figures["AxonAD"], figures["PaAno"], figures["KMeansAD"], figures["CNN"]) == (0.5, 0.43, 0.29, 0.31)


def test_our_arms_stand_among_the_published_methods():
    records = [result("comet", f"{i:03d}_MSL_id_{i}", 0.47) for i in range(180)]
    records += [result("pca", f"{i:03d}_MSL_id_{i}", 0.1) for i in range(179)]
    _, first, second = leaderboard(frame_of(records), "Leaderboard")
    (group,) = first.groups
    rows = group.rows
    means = [row.cells[0].value for row in rows]
    assert means == sorted(means, reverse=True)
    labels = [row.label for row in rows]
    assert labels[:3] == ["SHADE (published)", "AxonAD (published)", "comet"]
    assert "pca (179 of 180 series)" in labels
    (axon,) = [row for row in rows if row.arm == "AxonAD"]
    assert [first.columns[i].shown(axon.cells[i].value) for i in (0, 1)] == ["0.495", "0.425"]
    assert any(note.startswith("PaAno, KAN-AD") and "arxiv.org/abs/2602.01359" in note for note in first.footnotes)
    assert [row.cells[0].value for row in second.groups[0].rows] == pytest.approx([0.47, 0.1])


def test_part_of_the_series_is_not_compared_with_published_figures():
    records = [result("comet", entity, value) for entity, value in FIGURES.items()]
    records.append(result("pca", "003_TAO_id_1", 0.99))  # higher, but on one series only
    headline, warning, table, _ = leaderboard(frame_of(records), "Leaderboard")
    ours, published = table.groups
    assert [row.label for row in ours.rows] == ["pca (1 of 3 series)", "comet"]
    assert published.name == "published, all 180 series"
    assert published.rows[0].label == "SHADE"
    assert "comet has the best mean VUS-PR of our arms: 0.500 over 3 series, and 0.600 over 2 sources." in headline
    assert warning.startswith("These are 3 of the 180 series of TSB-AD-M")
    everything = [result("comet", f"{i:03d}_MSL_id_{i}", 0.4) for i in range(180)]
    assert sum(isinstance(one, str) for one in leaderboard(frame_of(everything), "Leaderboard")) == 1


# --- from the files to the report -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_archive(tmp_path_factory.mktemp("data"))


def test_one_command_runs_the_archive_and_prints_the_leaderboard(data, tmp_path, capsys):
    results = tmp_path / "results"
    command = ["bench", "run", "tsb-ad-m", "--data-dir", str(data), "--results", str(results), "--report"]
    command += [word for arm in ("comet", "squared-norm", "random") for word in ("--arm", arm)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "Trials: 12 done" in printed
    assert "over 4 series, and" in printed
    assert "over 3 sources" in printed
    assert "These are 4 of the 180 series" in printed
    assert "| AxonAD | 0.495 | 0.425 |" in printed
    assert printed.index("| comet |") < printed.index("| random |")
    assert (results / "tsb-ad-m.html").exists()

    records = Results(results / "tsb-ad-m.jsonl").read()
    datasets = {dataset.entity: dataset for dataset in load("TSB-AD-M", data)}
    by_source = defaultdict(list)
    for record in records:
        dataset = datasets[record["entity"]]
        assert record["window"] == naive.sliding_window(dataset.test[:, 0]) == 25
        assert set(record["metrics"]) == set(evaluate([0, 1], [0, 1]))
        if record["arm"] == "squared-norm":
            scores = BASELINES["squared-norm"](seed=0).fit(dataset.train).decision_function(dataset.test)
            cuts = np.sort(scores)[::-1][np.linspace(0, len(scores) - 1, 250).astype(int)]
            labels = dataset.labels.astype(int).tolist()
            areas = [naive.range_auc(labels, scores.tolist(), width, "vus", cuts) for width in (0, 25)]
            surface = evaluate(labels, scores, tsb_ad_protocol(0))["vus_pr"], record["metrics"]["r_auc_pr"]
            assert surface == pytest.approx([pr for _, pr in areas], abs=1e-12)
            by_source[source_of(record["entity"])].append(record["metrics"]["vus_pr"])
    macro = np.mean([np.mean(values) for values in by_source.values()])
    mean = np.mean([value for values in by_source.values() for value in values])
    assert f"| squared-norm | {mean:.3f} | {macro:.3f} |" in printed

    assert main(command) == 0  # nothing left to run, the same report
    again = capsys.readouterr().out
    assert "0 done, 12 done before" in again
    assert again.partition("\n\n")[2] == printed.partition("\n\n")[2]


def test_a_report_does_not_replace_a_file_of_someone_else(data, tmp_path, capsys):
    notes = tmp_path / "tsb-ad-m.md"
    notes.write_text("my notes")
    command = ["bench", "run", "tsb-ad-m", "--data-dir", str(data), "--results", str(tmp_path), "--arm", "random"]
    assert main([*command, "--report"]) == 2
    assert "--force" in capsys.readouterr().err
    assert notes.read_text() == "my notes"
    assert not (tmp_path / "tsb-ad-m.jsonl").exists()  # refused before the first trial
    assert main(command) == 0
    assert main([*command, "--report", "--force"]) == 0
    assert "AxonAD" in notes.read_text()


def test_ties_are_broken_for_the_untied_figure(data, tmp_path):
    run("tsb-ad-m", arms=["all-positive", "squared-norm"], data_dir=data, folder=tmp_path)
    for record in Results(tmp_path / "tsb-ad-m.jsonl").read():
        has_ties = record["arm"] == "all-positive"
        assert (record["untied"]["vus_pr"] != pytest.approx(record["metrics"]["vus_pr"], abs=1e-9)) == has_ties


def test_files_are_opened_one_at_a_time_and_once(data, tmp_path, monkeypatch):
    seen = []
    reader = READERS["TSB-AD-M"]
    original = reader.read("TSB-AD-M", data / "TSB-AD-M")[0].parse

    def counted(stored):
        seen.append(stored.entity)
        return original(stored)

    monkeypatch.setattr("cometad_bench.datasets.tsb_ad._dataset", counted)
    arms = ["random", "squared-norm", "sensor-range"]
    outcome = run("tsb-ad-m", arms=arms, data_dir=data, folder=tmp_path, isolate=False)  # another process would count
    assert (outcome.done, outcome.failed) == (12, [])
    assert seen == ["001_Genesis_id_1", "002_MSL_id_1", "003_MSL_id_2", "116_TAO_id_1"]


def test_one_damaged_file_fails_alone(tmp_path):
    folder = write_archive(tmp_path / "data")
    (folder / "TSB-AD-M" / NAMES[1]).write_text("a,b,Label\n1,2,3\n")
    outcome = run("tsb-ad-m", arms=["random", "pca"], data_dir=folder, folder=tmp_path)
    assert outcome.done == 6
    assert [(record["entity"], record["arm"]) for record in outcome.failed] == [
        *(("002_MSL_id_1", "random"), ("002_MSL_id_1", "pca"))
    ]
    assert all("values other than 0 and 1. Download it again." in record["error"] for record in outcome.failed)


def test_series_can_be_selected_by_name(data, tmp_path):
    outcome = run("tsb-ad-m", entities=["116_TAO_id_1"], arms=["pca"], data_dir=data, folder=tmp_path)
    assert (outcome.requested, outcome.done) == (1, 1)


def test_other_experiments_read_stored_series_too(data, tmp_path):
    outcome = run("entity", datasets=["TSB-AD-M"], arms=["pca"], seeds=[0], data_dir=data, folder=tmp_path)
    assert (outcome.done, outcome.failed) == (4, [])
    assert all(record["at_threshold"] for record in Results(tmp_path / "entity.jsonl").read())


def test_the_protocol_takes_other_datasets(tmp_path):
    values = table(400)
    for server in ("omi-1", "omi-2"):
        folder = tmp_path / "ASD" / server
        folder.mkdir(parents=True)
        np.save(folder / "train.npy", values[:300, :-1])
        np.save(folder / "test.npy", values[300:, :-1])
        np.save(folder / "test_label.npy", values[300:, -1])
    options = {"datasets": ["ASD"], "arms": ["pca"], "data_dir": tmp_path, "folder": tmp_path / "results"}
    assert run("tsb-ad-m", **options).done == 2
    _, _, sources = only(Results(tmp_path / "results" / "tsb-ad-m.jsonl").read())
    assert list(sources) == ["ASD"]

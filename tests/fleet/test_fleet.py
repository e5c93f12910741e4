"""A fleet: one detector for each entity, equal to single fits to the bit, and nothing done twice."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cometad import BASELINES, Comet, Fleet, Quantile
from cometad.alerting.alerts import Alerts
from cometad.alerting.severity import meaning
from cometad.errors import CometadError, ModelFileError, OutputError, ParameterError
from cometad.fleet.engines import SerialEngine, TaskOutcome
from cometad.fleet.jobs import page_of_entity
from cometad.fleet.storage import JOURNAL, MANIFEST, Entry, FleetFolder, writing
from fleet_case import machine_rows, machines

NAMES = ["000", "001", "002", "003"]


@pytest.fixture(scope="module")
def table():
    return machines(4)


@pytest.fixture(scope="module")
def fleet(table, tmp_path_factory):
    """A fleet fitted by two processes from a CSV file."""
    folder = tmp_path_factory.mktemp("fleet")
    table.write_csv(folder / "history.csv")
    return Fleet.fit(folder / "history.csv", by="machine", folder=folder / "fleet", workers=2)


def single(table, name, detector=None):
    """The bytes of a single fit."""
    own = table.filter(pl.col("machine") == name).drop("machine")
    return (detector or Comet()).fit(own).to_bytes()


def quick(data, folder, **options):
    """A fleet of quick detectors, in this process."""
    options = {"engine": "serial", "detector": BASELINES["squared-norm"](), **options}
    return Fleet.fit(data, folder=folder, **options)


@pytest.fixture
def made(table, tmp_path):
    """A quick fleet of its own."""
    return quick(table, tmp_path / "fleet", by="machine")


def test_every_detector_equals_a_single_fit_to_the_bit(fleet, table):
    assert list(fleet) == NAMES  # text, not 0, 1, 2, 3
    assert [fleet.content(name) for name in fleet] == [single(table, name) for name in NAMES]


def test_a_fleet_is_a_mapping_that_loads_detectors_when_asked(fleet):
    assert len(fleet) == 4
    assert "002" in fleet
    assert "2" not in fleet
    assert fleet["002"].names_ == ("flow", "level")
    with pytest.raises(KeyError):
        fleet["nobody"]
    with pytest.raises(TypeError, match="A fleet has no option 'worker'"):
        fleet.score({}, worker=2)


def test_scores_equal_those_of_the_single_detector(fleet):
    fresh = machines(4, rows=120, seed=7)
    scores = fleet.score(fresh, engine="serial")
    for name, detector in fleet.items():
        own = fresh.filter(pl.col("machine") == name).drop("machine")
        rows = scores.filter(pl.col("entity") == name)
        assert np.array_equal(rows["score"].to_numpy(), detector.decision_function(own))
        assert np.array_equal(rows["anomaly"].to_numpy(), detector.predict(own))
        assert rows["time"].to_list() == own["time"].to_list()


@pytest.mark.parametrize("kind", ["parquet", "partitioned", "folder", "flat folder", "frame", "mapping", "pandas"])
def test_the_same_readings_in_any_form_give_the_same_fleet(kind, table, fleet, tmp_path):
    data, by = tmp_path / "data", "machine"
    data.mkdir()
    own = {name: rows.drop("machine") for (name,), rows in table.partition_by("machine", as_dict=True).items()}
    if kind == "parquet":
        data = data / "history.parquet"
        table.write_parquet(data)
    elif kind == "partitioned":
        for name, rows in own.items():
            (data / f"machine={name}").mkdir()
            rows[:150].write_parquet(data / f"machine={name}" / "part-0.parquet")
            rows[150:].write_parquet(data / f"machine={name}" / "part-1.parquet")
    elif kind == "folder":
        by = None
        for name, rows in own.items():
            rows.write_csv(data / f"{name}.csv")
    elif kind == "flat folder":
        table[:500].write_parquet(data / "2.parquet")
        table[500:].write_parquet(data / "10.parquet")
    else:
        data = {"frame": table, "pandas": table.to_pandas(), "mapping": own}[kind]
    made = Fleet.fit(data, by=by, folder=tmp_path / "fleet", engine="serial")
    assert [made.content(name) for name in made] == [fleet.content(name) for name in NAMES]


def test_the_same_command_on_a_finished_fleet_does_nothing(table, tmp_path):
    table.write_parquet(tmp_path / "history.parquet")
    quick(tmp_path / "history.parquet", tmp_path / "fleet", by="machine")
    before = (tmp_path / "fleet" / MANIFEST).stat().st_mtime_ns
    again = quick(tmp_path / "history.parquet", tmp_path / "fleet", by="machine")
    assert again.run.sentence() == "4 entities: 4 done before."
    assert (tmp_path / "fleet" / MANIFEST).stat().st_mtime_ns == before


def test_only_an_entity_whose_readings_changed_is_fitted_again(table, tmp_path):
    quick(table, tmp_path / "fleet", by="machine")
    factor = pl.when(pl.col("machine") == "001").then(2.0).otherwise(1.0)
    changed = table.with_columns(flow=factor * pl.col("flow"))
    before = Fleet.load(tmp_path / "fleet").entries
    again = quick(changed, tmp_path / "fleet", by="machine")
    assert again.run.sentence() == "4 entities: 1 fitted, 3 unchanged."
    assert [name for name in NAMES if again.entries[name].sha256 != before[name].sha256] == ["001"]


def test_a_new_entity_is_added_and_an_absent_one_kept(table, tmp_path):
    quick(table.filter(pl.col("machine") != "003"), tmp_path / "fleet", by="machine")
    again = quick(table.filter(pl.col("machine") != "000"), tmp_path / "fleet", by="machine")
    assert (again.run.fitted, again.run.unchanged, again.run.absent) == (1, 2, 1)
    assert list(again) == NAMES


def test_other_parameters_are_refused_unless_everything_is_fitted_again(table, tmp_path):
    quick(table, tmp_path / "fleet", by="machine")
    other = BASELINES["squared-norm"](threshold=Quantile(rate=0.2))
    with pytest.raises(ParameterError, match=r"was fitted with threshold=.*another folder, or refit everything"):
        quick(table, tmp_path / "fleet", by="machine", detector=other)
    with pytest.raises(ParameterError, match=r"was fitted with pool=0, not 7\."):
        quick(table, tmp_path / "fleet", by="machine", pool=7)
    again = quick(table, tmp_path / "fleet", by="machine", detector=other, refit=True)
    assert again.run.fitted == 4
    assert again["000"].threshold == Quantile(rate=0.2)


def test_an_interrupted_refit_leaves_no_mixture_behind(table, tmp_path):
    table.write_parquet(tmp_path / "history.parquet")
    place = {"data": tmp_path / "history.parquet", "folder": tmp_path / "fleet", "by": "machine"}
    quick(**place)

    class Interrupted(SerialEngine):
        def run(self, function, tasks):
            for outcome in super().run(function, tasks):
                yield outcome
                if outcome.number == 1:
                    raise KeyboardInterrupt

    other = BASELINES["squared-norm"](threshold=Quantile(rate=0.2))
    with pytest.raises(KeyboardInterrupt):
        quick(**place, detector=other, refit=True, engine=Interrupted())
    again = quick(**place, detector=other)
    assert (again.run.before, again.run.fitted) == (2, 2)
    assert {again[name].threshold.rate for name in again} == {0.2}


def test_an_entity_that_fails_is_recorded_with_its_reason_and_stops_nobody(table, tmp_path):
    data = {"good/one": machine_rows(300, 1), "short": machine_rows(1, 2), "text": {"flow": ["on"] * 300}}
    frames = {name: pl.DataFrame(columns) for name, columns in data.items()}
    made = Fleet.fit(frames, folder=tmp_path / "fleet", engine="serial")
    assert list(made) == ["good/one"]
    assert "has 1 reading, fewer than the views need" in made.entries["short"].error
    assert "'flow'" in made.entries["text"].error
    assert Fleet.load(tmp_path / "fleet").entries["short"].status == "failed"


def test_an_entity_whose_workers_died_is_recorded_with_the_reason(table, tmp_path):
    class Dying(SerialEngine):
        def run(self, function, tasks):
            for outcome in super().run(function, tasks):
                yield outcome if outcome.number != 1 else TaskOutcome(1, None, "All 3 attempts failed.")

    made = quick(table, tmp_path / "fleet", by="machine", engine=Dying(), pool=400)
    assert made.run.failed == {"001": "All 3 attempts failed."}
    assert list(made) == ["000", "002", "003"]


def test_failed_entities_are_tried_again_only_on_request(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    pl.DataFrame(machine_rows(300, 1)).write_csv(folder / "good.csv")
    pl.DataFrame(machine_rows(1, 1)).write_csv(folder / "short.csv")
    runs = [
        Fleet.fit(folder, folder=tmp_path / "fleet", engine="serial", retry=retry).run for retry in (False, False, True)
    ]
    assert [(run.fitted, len(run.failed), run.failed_before) for run in runs] == [(1, 1, 0), (0, 0, 1), (0, 1, 0)]


def test_entities_may_have_different_columns_and_check_names_them(table, tmp_path):
    frames = {name: pl.DataFrame(machine_rows(300, 1)) for name in "abc"}
    frames["d"] = frames["a"].rename({"level": "height"})
    made = quick(frames, tmp_path / "fleet")
    assert made["d"].names_ == ("flow", "height")
    assert made.check().different == {"d": "lacks 'level' and also has 'height'"}
    found = made.check({"a": frames["a"], "new": frames["a"]})
    assert (found.unknown, found.silent) == (["new"], ["b", "c", "d"])


def test_a_replaced_detector_is_there_at_once_and_after_loading(made, table, tmp_path):
    other = Comet().fit(machines(1).drop("machine"))
    made.replace("002", other)
    assert made.content("002") == Fleet.load(tmp_path / "fleet").content("002") == other.to_bytes()
    assert made.content("001") == single(table, "001", BASELINES["squared-norm"]())


def test_a_replaced_detector_is_kept_until_its_readings_change(table, tmp_path):
    data = tmp_path / "history.parquet"
    table.write_parquet(data)
    made = quick(data, tmp_path / "fleet", by="machine")
    made.replace("001", made["002"])
    own = made.content("001")
    os.utime(data, (0, 0))
    again = quick(data, tmp_path / "fleet", by="machine")
    assert again.run.unchanged == 4
    assert again.content("001") == own
    table.with_columns(pl.col("flow") + 1).write_parquet(data)
    assert quick(data, tmp_path / "fleet", by="machine").content("001") != own


def test_a_removed_entity_is_gone_and_the_others_stay(made, tmp_path):
    made.remove("001")
    assert list(made) == list(Fleet.load(tmp_path / "fleet")) == ["000", "002", "003"]
    assert made.check().damaged == {}
    with pytest.raises(ParameterError, match="Unknown entity '001'"):
        made.remove("001")


def test_packs_are_rewritten_when_most_of_them_is_waste(table, tmp_path, monkeypatch):
    monkeypatch.setattr("cometad.fleet.storage.WASTE", 10_000)
    made = quick(table, tmp_path / "fleet", by="machine")
    reader = Fleet.load(tmp_path / "fleet")
    wanted = {name: made.content(name) for name in NAMES if name != "000"}
    for _ in range(12):
        made.replace("000", made["001"])
    size = sum(pack.stat().st_size for pack in FleetFolder(tmp_path / "fleet").packs().values())
    assert size < 3 * sum(entry.length for entry in made.entries.values())
    assert {name: reader.content(name) for name in wanted} == wanted  # opened before they were moved


def test_a_full_pack_is_followed_by_the_next(table, tmp_path, monkeypatch):
    monkeypatch.setattr("cometad.fleet.storage.PACK", 1)
    made = quick(table, tmp_path / "fleet", by="machine")
    assert len(FleetFolder(tmp_path / "fleet").packs()) == 4
    assert made.check().damaged == {}


@pytest.mark.parametrize("damage", ["flipped", "cut off", "deleted"])
def test_a_damaged_pack_is_detected(made, damage, tmp_path):
    (pack,) = FleetFolder(tmp_path / "fleet").packs().values()
    content = bytearray(pack.read_bytes())
    entry = made.entries["003"]
    if damage == "flipped":
        content[entry.offset + 100] ^= 1
        pack.write_bytes(content)
    elif damage == "cut off":
        pack.write_bytes(content[: entry.offset + 10])
    else:
        pack.unlink()
    found = Fleet.load(tmp_path / "fleet").check().damaged
    assert "003" in found
    assert ("000" in found) == (damage == "deleted")
    with pytest.raises(ModelFileError, match=r"damaged|Cannot read"):
        Fleet.load(tmp_path / "fleet")["003"]


@pytest.mark.parametrize(
    "name, content, words",
    [
        ("fleet.json", b"PAR1 no", "is damaged"),
        ("fleet.json", b'{"format": 9}', "was written by a newer cometad"),
        (MANIFEST, b"PAR1 no", "is damaged"),
        (JOURNAL, b'{"name"\n{}\n', "is damaged"),  # not its last line
    ],
)
def test_a_damaged_or_newer_fleet_is_refused(made, name, content, words, tmp_path):
    (tmp_path / "fleet" / name).write_bytes(content)
    with pytest.raises(ModelFileError, match=words):
        Fleet.load(tmp_path / "fleet")


def test_two_processes_cannot_write_one_fleet(made, table, tmp_path):
    with writing(made.folder), pytest.raises(OutputError, match="Another process is writing"):
        quick(table, tmp_path / "fleet", by="machine")


def test_a_process_that_comes_second_leaves_the_folder_of_the_first_alone(table, tmp_path, monkeypatch):
    first = FleetFolder(tmp_path / "fleet")

    @contextmanager
    def second(folder):
        with writing(first), writing(folder) as writer:  # the first one creates the folder in the meantime
            yield writer

    monkeypatch.setattr("cometad.fleet.fitting.writing", second)
    with pytest.raises(OutputError, match="Another process is writing"):
        quick(table, tmp_path / "fleet", by="machine")
    assert (tmp_path / "fleet").is_dir()


def test_a_report_that_fails_stops_no_other(table, tmp_path):
    files = tmp_path / "each"
    files.mkdir()
    for name in ("000", "001", "002"):
        table.filter(pl.col("machine") == name).drop("machine").write_csv(files / f"{name}.csv")
    fleet = quick(files, tmp_path / "fleet")

    class Losing(SerialEngine):
        def run(self, function, tasks):
            if function is page_of_entity:
                (files / "001.csv").unlink()
            return super().run(function, tasks)

    written = fleet.report(files, tmp_path / "all.html", engine=Losing())
    assert written.pages == 2
    assert {line.name: line.no_report for line in written.lines}["001"].startswith("'")
    assert "(no report: " in (tmp_path / "all.html").read_text()


def test_the_overview_counts_alerts_and_notices_and_ranks_by_the_worst_alert(fleet, tmp_path):
    fresh = machines(4, rows=200, seed=7)
    broken = (pl.col("machine") == "002") & (pl.col("time").dt.hour() == 1)
    fresh = fresh.with_columns(pl.when(broken).then(9.0).otherwise("flow").alias("flow"))
    written = fleet.report(fresh, tmp_path / "all.html", engine="serial", most=1)
    first, *others = written.lines
    assert first.name == "002"
    assert first.severity > max(line.severity for line in others)
    assert first.meaning == meaning(first.severity, period=60.0)
    assert first.when.endswith(" UTC")
    alarmed = sum(line.alerts > 0 for line in written.lines)
    assert written.headline == f"{alarmed} of 4 entities have alerts; worst: 002"
    assert "<th>alerts</th><th>notices</th>" in (tmp_path / "all.html").read_text()
    assert first.meaning in (tmp_path / "all.html").read_text()
    (tmp_path / "other-entities").mkdir()
    (tmp_path / "other-entities" / "notes.txt").touch()
    with pytest.raises(OutputError, match="exists and has other content"):
        fleet.report(fresh, tmp_path / "other.html", engine="serial")
    quiet = fleet.report(fresh, tmp_path / "all.html", engine="serial", most=0, alerts=Alerts(alert_from=1.0))
    assert all((line.alerts > 0) == (line.severity == 1.0) for line in quiet.lines)
    counts = {line.name: line.alerts + line.notices for line in written.lines}
    assert {line.name: line.alerts + line.notices for line in quiet.lines} == counts


def test_a_reader_misses_nothing_while_a_writer_folds_its_journal(made, tmp_path):
    content = made.content("000")

    class Slow(FleetFolder):
        folded = False

        def _journaled(self):
            if not self.folded:
                self.folded = True
                writer.settle()  # between the manifest and the journal
            return super()._journaled()

    with writing(made.folder) as writer:
        writer.add(Entry("new", "fitted"), content)
        writer.flush()
        assert "new" in Slow(tmp_path / "fleet").entries()


def test_two_fleets_in_memory_see_what_the_other_changed(made, tmp_path):
    other = Fleet.load(tmp_path / "fleet")
    made.remove("001")
    with pytest.raises(CometadError, match="Unknown entity '001'"):
        other.remove("001")


def test_what_a_killed_process_left_behind_is_cut_off(made, tmp_path):
    (pack,) = made.folder.packs().values()
    with pack.open("ab") as file:
        file.write(b"half a detector")
    row = json.dumps({"name": "000", "status": "failed"})[:-5]
    (tmp_path / "fleet" / JOURNAL).write_text(row)  # a line that was not finished
    assert Fleet.load(tmp_path / "fleet").entries["000"].is_fitted
    made.replace("001", made["002"])
    assert Fleet.load(tmp_path / "fleet").check().damaged == {}


def run_in_process(data, folder, **options):
    """Start a run of two workers in a process of its own, which keeps every second result at once."""
    script = "import sys\nimport cometad.fleet.storage as storage\nfrom cometad import Fleet\nstorage.BATCH = 2"
    code = f"{script}\nFleet.fit(sys.argv[1], by='machine', folder=sys.argv[2], workers=2)"
    return subprocess.Popen([sys.executable, "-c", code, str(data), str(folder)], stderr=subprocess.DEVNULL, **options)


def wait_for(condition, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_run_goes_on_where_it_stopped(number, tmp_path):
    table = machines(30, rows=600)
    data, folder = tmp_path / "history.parquet", tmp_path / "fleet"
    table.write_parquet(data)
    process = run_in_process(data, folder, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    wait_for(lambda: (folder / JOURNAL).exists() or process.poll() is not None)
    os.kill(process.pid, number)
    process.wait(timeout=60)
    done = Fleet.load(folder)
    assert 0 < len(done) < 30
    again = Fleet.fit(data, by="machine", folder=folder, workers=2)
    assert again.run.before == len(done)
    assert again.run.before + again.run.fitted == len(again) == 30
    assert not (folder / JOURNAL).exists()
    for name in ("000", "029", next(iter(done))):
        assert again.content(name) == single(table, name)


def test_a_full_disk_is_one_sentence_and_nothing_is_lost(tmp_path):
    table = machines(30)
    data, folder = tmp_path / "history.parquet", tmp_path / "fleet"
    table.write_parquet(data)
    code = (
        "import polars, resource, sys\nfrom cometad import BASELINES, CometadError, Fleet\n"
        "import cometad.fleet.storage as storage\nstorage.BATCH = 5\n"
        "if sys.argv[3] == 'full':\n    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))\n"
        "table = polars.read_parquet(sys.argv[1])\n"  # as an object: no scratch file of the whole table
        "try:\n    fleet = Fleet.fit(table, by='machine', folder=sys.argv[2], engine='serial', "
        "detector=BASELINES['squared-norm']())\n"
        "    print(fleet.run.sentence())\nexcept CometadError as error:\n    print(error)"
    )
    command = [sys.executable, "-c", code, str(data), str(folder)]
    printed = subprocess.run([*command, "full"], capture_output=True, text=True, check=True, timeout=60).stdout
    assert "File too large" in printed
    assert printed.count("\n") == 1
    kept = Fleet.load(folder)
    assert 0 < len(kept) < 30
    assert kept.check().damaged == {}
    printed = subprocess.run([*command, "now"], capture_output=True, text=True, check=True, timeout=60).stdout
    assert printed == f"30 entities: {30 - len(kept)} fitted, {len(kept)} unchanged.\n"


def test_bad_data_is_refused_in_one_sentence_and_writes_nothing(made, table, tmp_path):
    table.write_csv(tmp_path / "table.csv")
    table.with_columns(machine=pl.lit(None, pl.String)).write_csv(tmp_path / "unnamed.csv")
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").touch()
    (tmp_path / "twice").mkdir()
    table.write_csv(tmp_path / "twice" / "pump.csv")
    table.write_parquet(tmp_path / "twice" / "pump.parquet")
    cases = [
        ({"data": tmp_path / "table.csv"}, "Name the column with its entities"),
        ({"data": tmp_path / "table.csv", "by": "pump"}, "has no column 'pump'"),
        ({"data": tmp_path / "unnamed.csv", "by": "machine"}, "is empty in row 2 of .*Every row needs an entity"),
        ({"data": tmp_path / "none.csv", "by": "machine"}, "does not exist"),
        ({"data": tmp_path / "empty"}, "folder without tables"),
        ({"data": tmp_path / "twice"}, "Two files .* the same entity 'pump'"),
        ({"data": "-"}, "not from standard input"),
        ({"data": table}, "by=COLUMN"),
        ({"data": 7}, "Cannot read a fleet from a int"),
        ({"data": {"": table}}, "must be non-empty text"),
        ({"data": tmp_path, "folder": tmp_path / "inside"}, "inside its own data"),
        ({"data": made.folder.path / MANIFEST, "folder": made.folder.path, "by": "name"}, "is inside the fleet"),
        ({"data": table, "by": "machine", "folder": tmp_path / "notes"}, "is not the folder of a fleet"),
        ({"data": table, "by": "machine", "detector": Comet(pooling=0)}, "'pooling' parameter"),
        ({"data": tmp_path / "table.csv", "by": "machine", "resample": "often"}, "Cannot read the period"),
    ]
    for options, words in cases:
        folder = options.pop("folder", tmp_path.parent / "never")
        with pytest.raises(CometadError, match=words):
            quick(options.pop("data"), folder, **options)
        assert not Path(tmp_path.parent / "never").exists(), words
    with pytest.raises(ModelFileError, match=r"is not the folder of a fleet\. Create one"):
        Fleet.load(tmp_path / "empty")

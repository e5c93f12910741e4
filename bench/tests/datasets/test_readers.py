"""The readers: official layouts, damaged files, and where the data folder is."""

import io
import lzma
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from cometad.datasets.dataset import Dataset, concatenate
from cometad.errors import InputError, ParameterError
from cometad_bench.datasets import readers
from cometad_bench.datasets.readers import (
    READERS,
    check,
    counts,
    find_data_dir,
    load,
    load_concatenated,
    period,
    status,
)

SHARED = Path(__file__).parents[4] / "shared" / "data"
needs_archives = pytest.mark.skipif(not SHARED.is_dir(), reason=f"the benchmark archives are not in {SHARED}")

NASA_TABLE = """chan_id,spacecraft,anomaly_sequences,class,num_values
P-2,SMAP,"[[2, 4]]",[point],8
P-2,SMAP,"[[3, 5]]",[point],8
A-1,SMAP,"[[0, 0], [6, 7]]","[point, contextual]",8
M-1,MSL,"[[1, 2]]",[point],8
"""


def npy(values):
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def write(folder, files):
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def pack(archive, files):
    """Write the files to an archive."""
    with tarfile.open(archive, "w:xz") as tar:
        for path, content in files.items():
            content = content if isinstance(content, bytes) else content.encode()
            member = tarfile.TarInfo(path)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return archive


def nasa_files(rows=8):
    rng = np.random.default_rng(0)
    files = {"labeled_anomalies.csv": NASA_TABLE}
    for channel, width in {"A-1": 3, "P-2": 3, "M-1": 4, "T-10": 3}.items():
        for part in ("train", "test"):
            files[f"{part}/{channel}.npy"] = npy(rng.random((rows, width)))
    return {f"nasa/{path}": content for path, content in files.items()}


def smd_files():
    def table(rows):
        return "\n".join(",".join(map(str, row)) for row in rows) + "\n"

    files = {"LICENSE": "MIT", "notes.txt": "not a machine"}
    for machine in ("machine-1-1", "machine-1-2"):
        files[f"train/{machine}.txt"] = table([[0.25, 1, 2]] * 4)
        files[f"test/{machine}.txt"] = table([[0.5, 1, 2]] * 6)
        files[f"test_label/{machine}.txt"] = table([[0], [1], [1], [0], [1], [0]])
        files[f"interpretation_label/{machine}.txt"] = "1-3:1,3\n4-5:2\n"
    return {f"ServerMachineDataset/{path}": content for path, content in files.items()}


def swat_files():
    header = " Timestamp, FIT101 ,LIT101, MV101,Normal/Attack\n"
    normal = (
        "P1,,,,\n" + header + "22/12/2015 4:00:00 PM, 2.5,522.8,1,Normal\n22/12/2015 4:00:01 PM,2.6,523.0,2,Normal\n"
    )
    attack = header + (
        "28/12/2015 10:00:00 AM,2.4,522.9,2,Normal\n"
        "28/12/2015 10:00:01 AM,,523.5,2,Attack\n"
        "28/12/2015 10:00:02 AM,2.2,523.6,2,A ttack\n"
    )
    return {"SWaT/SWaT_Dataset_Normal_v1.csv": normal, "SWaT/SWaT_Dataset_Attack_v0.csv": attack}


def wadi_files(prefix="", above=""):
    blank = ",".join(prefix + name for name in readers.WADI_BLANK)
    normal = (
        f"{above}Row,Date,Time,{prefix}1_AIT_001_PV,{prefix}1_FS_001_PV,{blank}\n"
        "1,9/25/2017,00:00.0,,0.5,,,,\n2,9/25/2017,00:01.0,171.2,,,,,\n3,9/25/2017,00:02.0,171.4,0.7,,,,\n"
    )
    # As in the official file: another column order, spaces after names, a row above the header, empty rows at the end.
    attack = (
        ",,,,,,,,,\n"
        f'Row ,Date ,Time,1_FS_001_PV,1_AIT_001_PV,{blank},"Attack LABLE (1:No Attack, -1:Attack)"\n'
        "1,10/9/17,00:00.0,0.1,164.1,,,,,1\n2,10/9/17,00:01.0,,164.2,,,,,-1\n,,,,,,,,,\n,,,,,,,,,\n"
    )
    return {"WADI/WADI_14days_new.csv": normal, "WADI/WADI_attackdataLABLE.csv": attack}


def psm_files():
    return {
        "PSM/train.csv": "timestamp_(min),feature_0,feature_1\n0,1,2\n1,,3\n2,4,5\n",
        "PSM/test.csv": "timestamp_(min),feature_0,feature_1\n3,1,2\n4,6,\n5,7,8\n",
        "PSM/test_label.csv": "timestamp_(min),label\n3,0\n4,1\n5,1\n",
    }


def skab_files(rows=405):
    header = "datetime;Current;Volume Flow RateRMS;anomaly;changepoint\r\n"
    lines = [f"2020-03-09 10:14:33;{i};0.5;{float(i in (3, 402, 403))};0.0\r\n" for i in range(rows)]
    table = header + "".join(lines)
    paths = ("valve1/0", "valve1/10", "valve1/2", "valve2/0", "other/1", "anomaly-free/anomaly-free")
    return {"SKAB/README.md": "notes", **{f"SKAB/data/{path}.csv": table for path in paths}}


def entity(test_rows=4, causes=None, **fields):
    labels = np.zeros(test_rows, dtype=bool)
    arrays = {"train": np.zeros((3, 2)), "test": np.ones((test_rows, 2)), "labels": labels, "names": ("a", "b")}
    return Dataset("plant", "pump", **{**arrays, **fields}, causes=causes)


# --- the official archives --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def smd():
    return load("SMD", SHARED)


@needs_archives
@pytest.mark.parametrize("name", ["ASD", "MSL", "SKAB", "SMAP"])
def test_the_official_files_have_the_published_counts(name):
    result = check(name, SHARED)
    assert result.found == result.published
    assert result.agrees


@needs_archives
@pytest.mark.parametrize(("name", "channels", "width"), [("SMAP", 54, 25), ("MSL", 27, 55)])
def test_channels_are_concatenated_in_sorted_order(name, channels, width):
    parts, whole = load(name, SHARED), load_concatenated(name, SHARED)
    assert [part.entity for part in parts] == sorted(part.entity for part in parts)
    assert len(whole.train_seams) == len(whole.test_seams) == channels
    assert whole.test.shape[1] == width
    for part, train_seam, test_seam in zip(parts, whole.train_seams, whole.test_seams, strict=True):
        np.testing.assert_array_equal(whole.train[train_seam : train_seam + len(part.train)], part.train)
        np.testing.assert_array_equal(whole.labels[test_seam : test_seam + len(part.test)], part.labels)


@needs_archives
@pytest.mark.parametrize(("name", "trained", "held_out"), [("SMAP", 124_184, 13_820), ("MSL", 52_473, 5_844)])
def test_a_tenth_of_each_channel_gives_the_counts_of_the_paper(name, trained, held_out):
    whole = load_concatenated(name, SHARED)
    series, count = whole.held_out_last(0.1)
    assert (len(series) - count, count) == (trained, held_out)


@needs_archives
def test_the_official_channel_p_2_has_the_union_of_its_two_rows():
    channel = next(part for part in load("SMAP", SHARED) if part.entity == "P-2")
    np.testing.assert_array_equal(np.flatnonzero(channel.labels), np.arange(5300, 6576))


@needs_archives
def test_smd_has_twelve_machines_of_thirty_eight_variables(smd):
    assert counts(smd) == readers.Counts(12, 299_383, 299_390, 38, 5.03)
    assert all(np.isfinite(machine.train).all() for machine in smd)


@needs_archives
def test_the_causes_of_every_smd_machine_match_its_labels_exactly(smd):
    for machine in smd:
        covered = np.zeros_like(machine.labels)
        for (start, stop), variables in machine.causes:
            covered[start:stop] = True
            assert set(variables) <= set(range(38))
        np.testing.assert_array_equal(covered, machine.labels, machine.entity)


# --- small files in the official layouts ------------------------------------------------------------------------------


def test_channel_p_2_has_the_union_of_its_two_rows(tmp_path):
    first, second = load("SMAP", write(tmp_path, nasa_files()))
    assert (first.entity, second.entity) == ("A-1", "P-2")
    assert np.flatnonzero(first.labels).tolist() == [0, 6, 7]  # ranges include their last time step
    assert np.flatnonzero(second.labels).tolist() == [2, 3, 4, 5]
    assert [part.entity for part in load("MSL", tmp_path)] == ["M-1"]  # T-10 has no row


@pytest.mark.parametrize(
    ("name", "archive", "files"),
    [("SMAP", "nasa-smap-msl.tar.xz", nasa_files()), ("SMD", "ServerMachineDataset.tar.xz", smd_files())],
)
def test_data_folder_archive_and_dataset_folder_give_the_same_data(tmp_path, name, archive, files):
    folder = write(tmp_path / "unpacked", files)
    pack(tmp_path / archive, files)
    from_folder, from_archive = load(name, folder), load(name, tmp_path)
    from_inside = load(name, folder / READERS[name].folder)
    prints = [[part.fingerprint for part in parts] for parts in (from_folder, from_archive, from_inside)]
    assert prints[0] == prints[1] == prints[2]
    assert [part.causes for part in from_folder] == [part.causes for part in from_archive]


def test_an_archive_is_read_without_unpacking(tmp_path):
    pack(tmp_path / "nasa-smap-msl.tar.xz", nasa_files())
    load("MSL", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["nasa-smap-msl.tar.xz"]


def test_smd_causes_count_variables_from_zero_and_exclude_the_stop(tmp_path):
    machine = load("SMD", write(tmp_path, smd_files()))[0]
    assert machine.causes == (((1, 3), (0, 2)), ((4, 5), (1,)))
    assert machine.labels.tolist() == [False, True, True, False, True, False]


def test_asd_servers_come_in_sorted_order(tmp_path):
    parts = {"train": np.zeros((3, 2), np.float32), "test": np.ones((2, 2)), "test_label": np.array([0, 1], np.int8)}
    names = ("omi-2", "omi-10")
    write(tmp_path, {f"ASD/{name}/{part}.npy": npy(array) for name in names for part, array in parts.items()})
    servers = load("ASD", tmp_path)
    assert [server.entity for server in servers] == ["omi-10", "omi-2"]
    assert servers[0].train.dtype == np.float64
    assert servers[0].labels.tolist() == [False, True]


def test_skab_trains_on_the_first_400_rows_of_each_experiment(tmp_path):
    experiments = load("SKAB", write(tmp_path, skab_files()))
    assert [part.entity for part in experiments] == ["other/1", "valve1/0", "valve1/10", "valve1/2", "valve2/0"]
    first = experiments[0]
    assert first.names == ("Current", "Volume Flow RateRMS")
    assert first.train[:, 0].tolist() == list(range(400))
    assert first.test.tolist() == [[i, 0.5] for i in range(400, 405)]
    assert first.labels.tolist() == [False, False, True, True, False]


def test_the_readers_of_arrays_and_numbers_need_no_polars(tmp_path):
    files = {**smd_files(), **skab_files(), **nasa_files()}
    write(tmp_path, files)
    code = (
        "import sys; sys.modules['polars'] = None\n"
        "from cometad_bench import runner\n"
        "from cometad_bench.plants import plant_family\n"
        "from cometad_bench.datasets.readers import load\n"
        f"print(*(len(load(name, {str(tmp_path)!r})) for name in ('SMD', 'SKAB', 'SMAP', 'MSL')), len(plant_family()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["2", "5", "2", "1", "10"], done.stderr


def test_psm_drops_incomplete_rows_together_with_their_labels(tmp_path):
    (psm,) = load("PSM", write(tmp_path, psm_files()))
    assert psm.names == ("feature_0", "feature_1")
    assert psm.train.tolist() == [[1, 2], [4, 5]]
    assert psm.test.tolist() == [[1, 2], [7, 8]]
    assert psm.labels.tolist() == [False, True]


def test_swat_finds_its_header_below_the_stages_and_accepts_both_spellings_of_attack(tmp_path):
    (swat,) = load("SWaT", write(tmp_path, swat_files()))
    assert swat.names == ("FIT101", "LIT101", "MV101")
    assert swat.train.tolist() == [[2.5, 522.8, 1], [2.6, 523.0, 2]]
    assert swat.labels.tolist() == [False, True, True]
    assert swat.test[:, 0].tolist() == [2.4, 2.4, 2.2]  # an empty cell is filled with the value before it


@pytest.mark.parametrize("prefix", ["", r"\\WIN-25J4RO10SBF\LOG_DATA\SUTD_WADI\LOG_DATA" + "\\"])
@pytest.mark.parametrize("above", ["", "made by,,,,,,,,\n,,,,,,,,\n"])
def test_wadi_drops_blank_columns_and_rows_and_matches_columns_by_name(tmp_path, prefix, above):
    (wadi,) = load("WADI", write(tmp_path, wadi_files(prefix, above)))
    assert wadi.names == ("1_AIT_001_PV", "1_FS_001_PV")
    assert wadi.train.tolist() == [[171.2, 0.5], [171.2, 0.5], [171.4, 0.7]]
    assert wadi.test.tolist() == [[164.1, 0.1], [164.2, 0.1]]
    assert wadi.labels.tolist() == [False, True]


def test_the_first_release_of_wadi_is_read_if_the_second_is_missing(tmp_path):
    write(tmp_path, wadi_files())
    (tmp_path / "WADI/WADI_14days_new.csv").rename(tmp_path / "WADI/WADI_14days.csv")
    assert load("WADI", tmp_path)[0].train.shape == (3, 2)


# --- damaged files and files of other kinds --------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9])
def test_a_truncated_archive_is_refused(tmp_path, kept):
    archive = pack(tmp_path / "nasa-smap-msl.tar.xz", nasa_files(rows=2000))
    content = archive.read_bytes()
    archive.write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(InputError, match="damaged, truncated or not a"):
        load("SMAP", tmp_path)


@pytest.mark.parametrize("content", [b"", b"hello", lzma.compress(b"hello"), lzma.compress(b"x" * 5000)])
def test_a_file_that_is_not_an_archive_is_refused(tmp_path, content):
    (tmp_path / "nasa-smap-msl.tar.xz").write_bytes(content)
    with pytest.raises(InputError):
        load("SMAP", tmp_path)


def test_the_archive_of_another_dataset_is_refused(tmp_path):
    pack(tmp_path / "nasa-smap-msl.tar.xz", smd_files())
    with pytest.raises(InputError, match=r"has no file 'labeled_anomalies.csv'"):
        load("SMAP", tmp_path)


ATTACK, SMD = "SWaT/SWaT_Dataset_Attack_v0.csv", "ServerMachineDataset"
REFUSED = [
    ("SKAB", {"SKAB/data/valve1/0.csv": "time;Current;anomaly\n1;2;0\n"}, "is not a table of SKAB"),
    ("SKAB", {"SKAB/data/valve1/0.csv": "datetime;Current;anomaly;changepoint\n1;x;0;0\n"}, "numbers per line"),
    ("PSM", psm_files() | {"PSM/test_label.csv": "timestamp_(min),label\n3,0\n"}, "3 test rows but 1 labels"),
    ("SWaT", {ATTACK: swat_files()[ATTACK] + ",2.2,523.6,2,Maybe\n"}, "value 'Maybe'; expected one of Normal, Attack"),
    ("SWaT", {ATTACK: swat_files()[ATTACK].replace("LIT101", "LIT301")}, "has no column 'LIT101'"),
    *(
        ("WADI", {"WADI/WADI_14days_new.csv": text}, words)
        for text, words in (
            ("Row,Date,Time,a\n1,x,y,word\n", "not numbers"),
            ("Row,Date,Time,a\n1,x,y,2,3\n", "more than 4 cells"),
            ("Row,Date,Time,a,b\n1,x,y,2,\n", "Column 'b' of .* is empty"),
            ("Row,Date,Time,a,a\n1,x,y,2,2\n", "two columns named 'a'"),
            ("Date;Time;a\nx;y;2\n", "None of the first 10 rows"),
        )
    ),
    *(
        ("SMAP", {"nasa/test/P-2.npy": content}, "test/P-2.npy")
        for content in (b"no array", b"", npy(np.zeros(8)), npy(np.array(["a"])), npy(np.zeros((8, 3)))[:-9])
    ),
    ("SMAP", {"nasa/test/P-2.npy": npy(np.array([{}], dtype=object))}, r"damaged or not a \.npy file"),  # not unpickled
    ("SMAP", {"nasa/labeled_anomalies.csv": "a,b\n1,2\n"}, "is not the table from telemanom"),
    *(("SMD", {f"{SMD}/test/machine-1-1.txt": text}, "test/machine-1-1") for text in ("0.5,x,2\n", "1,2\n0.5\n")),
    ("SMD", {f"{SMD}/interpretation_label/machine-1-1.txt": "1..3=2\n"}, "start-stop:variables"),
    ("SMD", {f"{SMD}/train/machine-1-3.txt": "1,2\n"}, "has no file 'test/machine-1-3.txt'"),
]
OFFICIAL = {"PSM": psm_files, "SWaT": swat_files, "WADI": wadi_files, "SMAP": nasa_files, "SMD": smd_files}


@pytest.mark.parametrize(("name", "files", "words"), REFUSED)
def test_damaged_and_foreign_files_are_refused_by_name(name, files, words, tmp_path):
    write(tmp_path, OFFICIAL.get(name, dict)() | files)
    with pytest.raises(InputError, match=words):
        load(name, tmp_path)


# --- finding the data -------------------------------------------------------------------------------------------------


def test_the_error_for_an_unknown_dataset_lists_the_known_ones():
    for ask in (load, status, check):
        with pytest.raises(
            ParameterError,
            match=r"Did you mean PSM\? Available: ASD, MSL, PSM, SKAB, SMAP, SMD, SWaT, TSB-AD-M, WADI\.",
        ):
            ask("PMS")


def test_every_reader_documents_its_labels_and_how_to_get_the_data(tmp_path):
    assert list(READERS) == sorted(READERS)
    for name, reader in READERS.items():
        assert "Labels:" in reader.read.__doc__
        assert not status(name, tmp_path).found
        with pytest.raises(InputError, match="are not in") as refused:
            load(name, tmp_path)
        assert str(refused.value).endswith(status(name, tmp_path).how_to_get)


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        *(("ASD", 300), ("MSL", 60), ("PSM", 60), ("SKAB", 1), ("SMAP", 60), ("SMD", 60), ("SWaT", 1), ("WADI", 1)),
        ("synthetic", 60),
    ],
)
def test_the_period_of_a_dataset_is_as_published(name, seconds):
    assert period(name) == seconds


@pytest.mark.parametrize("cell", ["", " ", "NA", "n/a", "NaN", "null", "None"])
def test_missing_values_are_written_as_in_any_other_table(tmp_path, cell):
    write(tmp_path, {**psm_files(), "PSM/train.csv": f"timestamp_(min),feature_0,feature_1\n0,1,2\n1,{cell},3\n"})
    assert load("PSM", tmp_path)[0].train.tolist() == [[1, 2]]


def test_status_finds_files_without_opening_them(tmp_path):
    (tmp_path / "nasa-smap-msl.tar.xz").write_bytes(b"not an archive")
    assert [name for name in READERS if status(name, tmp_path).found] == ["MSL", "SMAP"]
    assert status("MSL", tmp_path).location == tmp_path / "nasa-smap-msl.tar.xz"


def test_the_argument_precedes_the_environment_variable_which_precedes_the_shared_folder(tmp_path, monkeypatch):
    given, named, shared = tmp_path / "given", tmp_path / "named", tmp_path / "shared" / "data"
    for folder in (given, named, shared, tmp_path / "checkout"):
        folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "checkout")
    monkeypatch.setenv("COMETAD_DATA", str(named))
    assert find_data_dir(given) == given
    assert find_data_dir() == named
    monkeypatch.delenv("COMETAD_DATA")
    assert find_data_dir().resolve() == shared.resolve()
    monkeypatch.setenv("COMETAD_DATA", "")
    assert find_data_dir().resolve() == shared.resolve()
    shared.rmdir()
    with pytest.raises(InputError, match="set COMETAD_DATA"):
        find_data_dir()
    assert not status("PSM").found
    monkeypatch.delenv("COMETAD_DATA")
    with pytest.raises(InputError, match="set COMETAD_DATA"):
        find_data_dir()


# --- datasets ---------------------------------------------------------------------------------------------------------


def test_the_fingerprint_depends_on_values_names_and_shapes_only():
    base = entity()
    assert base.fingerprint == entity().fingerprint
    assert base.fingerprint == entity(train=np.asfortranarray(np.zeros((3, 2)))).fingerprint
    assert base.fingerprint == entity(train=np.zeros((3, 2), dtype=">f8")).fingerprint
    others = [
        entity(test_rows=5),
        entity(names=("a", "c")),
        entity(train=np.eye(3, 2)),
        entity(labels=np.ones(4, dtype=bool)),
    ]
    assert len({other.fingerprint for other in [base, *others]}) == 5


def test_concatenation_shifts_the_causes_to_the_rows_of_their_entity():
    whole = concatenate([entity(causes=(((1, 2), (0,)),)), entity(causes=(((0, 3), (1,)),))])
    assert whole.causes == (((1, 2), (0,)), ((4, 7), (1,)))
    assert concatenate([entity(causes=()), entity()]).causes is None


def test_mismatched_parts_are_refused():
    with pytest.raises(InputError, match="do not match"):
        entity(labels=np.zeros(3, dtype=bool))
    with pytest.raises(InputError, match="different variables"):
        concatenate([entity(), entity(names=("a", "c"))])
    with pytest.raises(InputError, match="no entities"):
        concatenate([])

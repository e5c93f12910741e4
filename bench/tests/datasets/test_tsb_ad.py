"""The reader of TSB-AD-M: the format of its files, what is refused, and that files stay on disk."""

import gc
import weakref

import numpy as np
import pytest

from cometad.cli import main
from cometad.errors import InputError
from cometad_bench.datasets.readers import READERS, Counts, check, entities, load, status
from cometad_bench.datasets.stored import StoredDataset, opened
from cometad_bench.datasets.tsb_ad import TUNING
from tsb_files import NAMES, ROWS, table, write_archive, write_table

NAME = "057_SMD_id_1_Facility_tr_5_1st_6.csv"


def written(folder, text, name=NAME):
    """A data folder with one file that holds this text."""
    path = folder / "TSB-AD-M" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return folder


def lines(rows=8, header="a,b,Label", end="\n"):
    return [header + end, *(f"{i},0.5,{int(i == 6)}{end}" for i in range(rows))]


def test_the_first_rows_train_and_the_whole_series_is_the_test(tmp_path):
    datasets = load("TSB-AD-M", write_archive(tmp_path))
    assert [dataset.entity for dataset in datasets] == [
        *("001_Genesis_id_1", "002_MSL_id_1", "003_MSL_id_2", "116_TAO_id_1")
    ]
    first = datasets[0]
    values = table(420, variables=2)
    assert first.names == ("0", "1")
    assert np.array_equal(first.test, values[:, :-1])
    assert np.array_equal(first.train, values[:300, :-1])
    assert np.array_equal(first.labels, values[:, -1] > 0)
    assert datasets[-1].labels[:300].any()
    assert [dataset.train.shape for dataset in datasets] == [(300, 2), (300, 3), (250, 4), (300, 6)]


def test_a_folder_of_series_can_be_the_data_folder(tmp_path):
    assert len(load("TSB-AD-M", write_archive(tmp_path) / "TSB-AD-M")) == 4


def test_twenty_series_are_for_tuning():
    assert len(TUNING) == 200 - READERS["TSB-AD-M"].published.entities


def test_incomplete_rows_are_dropped_before_the_split(tmp_path):
    rows = lines(12, end="\r\n")
    rows[1:4] = [",0.5,0\r\n", "1,,0\r\n", "2,NaN,0\r\n"]
    rows[-1] = "9,9,"
    (dataset,) = load("TSB-AD-M", written(tmp_path, "".join(rows) + "\r\n"))
    assert dataset.train[:, 0].tolist() == [3, 4, 5, 6, 7]
    assert dataset.test[:, 0].tolist() == list(range(3, 11))
    assert np.flatnonzero(dataset.labels).tolist() == [3]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("".join(lines(header="a,b,label")), r"The last column of '.*' is 'label', not 'Label'. Download it again"),
        ("".join(lines(header="a,Label")), r"single variable. Use the files of TSB-AD-M, not those of TSB-AD-U"),
        ("".join(lines(header="a,b,c,Label")), "has 4 columns, but its rows have 3"),
        ("".join([*lines(), "1,2\n"]), "does not have 3 numbers per line"),
        ("".join([*lines(), "1,off,0\n"]), "does not have 3 numbers per line"),
        ("".join([*lines(), "1,1,2\n"]), "values other than 0 and 1"),
        ("".join(lines(5)), "promises 5 training rows but has 5 complete rows"),
        ("a,b,Label\n", "promises 5 training rows but has 0 complete rows"),
        ("", r"The last column of '.*' is ''"),
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path, text, words):
    folder = written(tmp_path, text)
    with pytest.raises(InputError, match=words) as refused:
        load("TSB-AD-M", folder)
    assert NAME in str(refused.value)
    with pytest.raises(InputError, match=words):
        opened(entities("TSB-AD-M", folder)[0])


@pytest.mark.parametrize(
    "name",
    [
        "SMD_id_1_Facility_tr_5_1st_6.csv",
        "057_SMD_id_1_Facility_tr_5.csv",
        "057_SMD_id_one_Facility_tr_5_1st_6.csv",
        "057_SMD_id_1_Facility_tr_-5_1st_6.csv",
        "057_SMD_1_Facility_tr_5_1st_6.csv",
    ],
)
def test_a_file_with_another_name_is_refused(tmp_path, name):
    folder = written(written(tmp_path, "".join(lines())), "", name)
    with pytest.raises(InputError, match=r"is not named NNN_SOURCE_id_K_FAMILY_tr_T_1st_F.csv.*Use the official name"):
        entities("TSB-AD-M", folder)


def test_the_same_series_twice_is_refused(tmp_path):
    folder = written(written(tmp_path, ""), "", NAME.replace("tr_5", "tr_50"))
    with pytest.raises(InputError, match=r"are the same series. Remove one of them"):
        load("TSB-AD-M", folder)


def test_a_folder_with_nothing_but_tuning_series_has_no_entity(tmp_path):
    write_table(tmp_path, NAMES[3], table(400))
    for read in (load, entities, check):
        with pytest.raises(InputError, match=r"contains no entity of TSB-AD-M. Unpack"):
            read("TSB-AD-M", tmp_path)


def test_listing_opens_no_file_and_only_one_series_stays_in_memory(tmp_path):
    folder = write_archive(tmp_path)
    listed = entities("TSB-AD-M", folder)
    assert all(isinstance(stored, StoredDataset) for stored in listed)
    first = opened(listed[0])
    assert opened(listed[0]) is first
    assert first.fingerprint == load("TSB-AD-M", folder)[0].fingerprint
    alive = weakref.ref(first)
    del first
    opened(listed[1])
    gc.collect()
    assert alive() is None


def test_the_fingerprint_of_a_stored_series_is_that_of_its_file(tmp_path):
    before = [stored.fingerprint for stored in entities("TSB-AD-M", write_archive(tmp_path))]
    assert len(set(before)) == len(before)
    write_table(tmp_path, NAMES[1], table(351, variables=3, seed=1))
    after = [stored.fingerprint for stored in entities("TSB-AD-M", tmp_path)]
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, False, True, True]


def test_a_stored_series_that_vanished_is_named(tmp_path):
    (stored, *_) = entities("TSB-AD-M", write_archive(tmp_path))
    stored.path.unlink()
    with pytest.raises(InputError, match=r"Cannot read .*001_Genesis"):
        _ = stored.fingerprint
    with pytest.raises(InputError, match=r"Cannot read .*001_Genesis"):
        opened(stored)


def test_the_counts_are_over_all_series(tmp_path, capsys):
    folder = write_archive(tmp_path)
    assert check("TSB-AD-M", folder).found == Counts(4, 1150, 4 * ROWS, variables=6, anomaly_percent=6.29)
    assert status("TSB-AD-M", folder).found
    assert main(["data", "check", "TSB-AD-M", "--data-dir", str(folder)]) == 0
    assert "4 / 180" in capsys.readouterr().out


def test_the_command_line_lists_the_archive(tmp_path, capsys):
    assert main(["data", "list", "--data-dir", str(write_archive(tmp_path))]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if " TSB-AD-M " in line]
    assert "TSB-AD-M" in row.split("│")[2]

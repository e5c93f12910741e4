import gzip
import math
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cometad.data.tables import read_table, write_table
from cometad.detector import as_series
from cometad.errors import InputError, OutputError, ParameterError


@pytest.fixture
def csv_file(tmp_path):
    def write(text: str, name: str = "plant.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


def test_numbers_come_as_floats_and_names_without_spaces(csv_file):
    frame = read_table(csv_file(" flow , level,on\n1, 2.5,true\n3, 4.5 ,false\n"))
    assert frame.columns == ["flow", "level", "on"]
    assert frame.rows() == [(1.0, 2.5, 1.0), (3.0, 4.5, 0.0)]


def test_the_same_table_comes_from_every_format(csv_file, tmp_path):
    text = "time,flow\n2024-03-01T00:00:00,1.5\n2024-03-01T00:01:00,2.5\n"
    frame = read_table(csv_file(text))
    (tmp_path / "plant.csv.gz").write_bytes(gzip.compress(text.encode()))
    csv_file(text.replace(",", "\t"), "plant.tsv")
    write_table(tmp_path / "plant.parquet", frame)
    write_table(tmp_path / "again.csv", frame)
    for name in ("plant.csv.gz", "plant.tsv", "plant.parquet", "again.csv"):
        assert read_table(tmp_path / name).equals(frame), name


def test_a_byte_order_mark_is_no_part_of_a_name(csv_file):
    assert read_table(csv_file(b"\xef\xbb\xbfflow,level\r\n1,2\r\n")).columns == ["flow", "level"]


# --- times ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header, first, second",
    [
        ("Timestamp", "2024-03-01 04:10", "2024-03-01 04:11"),
        ("when", "2024/03/01 04:10:00", "2024/03/01 04:11:00.000"),
        ("", "2024-03-01T04:10:00", "2024-03-01T04:11:00"),  # a pandas index
    ],
)
def test_a_column_of_dates_is_the_time(csv_file, header, first, second):
    series = as_series(read_table(csv_file(f"{header},flow\n{first},1\n{second},2\n")))
    assert series.names == ("flow",)
    assert series.times.tolist() == [datetime(2024, 3, 1, 4, 10), datetime(2024, 3, 1, 4, 11)]


@pytest.mark.parametrize("text", ["2024-03-01T04:10:00+01:00", "2024-03-01T03:10:00Z", "1709262600", "1709262600000"])
def test_times_with_a_zone_and_epochs_are_utc(csv_file, tmp_path, text):
    frame = read_table(csv_file(f"time,flow\n{text},1\n"))
    assert frame["time"][0] == datetime(2024, 3, 1, 3, 10, tzinfo=UTC)
    write_table(tmp_path / "out.csv", frame)
    assert "2024-03-01T03:10:00+00:00" in (tmp_path / "out.csv").read_text()


def test_a_given_time_column_is_taken_whatever_its_name(csv_file):
    frame = read_table(csv_file("clock,flow\n1709262600,1\n1709262601,2\n"), time_column="clock")
    assert as_series(frame).names == ("flow",)


@pytest.mark.parametrize(("header", "given"), [("timestamp_(min)", None), ("minute", "minute")])
def test_a_clock_without_dates_is_refused_and_can_be_dropped(csv_file, header, given):
    path = csv_file(f"{header},flow\n0,1\n1,2\n")
    with pytest.raises(InputError, match="holds numbers that are no dates"):
        read_table(path, time_column=given)
    assert read_table(path, drop=[header]).columns == ["flow"]


def test_numbers_that_do_not_count_are_a_variable_whatever_its_name(csv_file):
    assert as_series(read_table(csv_file("time_on,flow\n3,1\n1,2\n"))).names == ("time_on", "flow")


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("time,flow\n2024-03-01,1\nnoon,2\n", "says 'noon' at time step 1"),
        ("time,flow\n01/03/2024 04:10,1\n", "Write times like 2024-03-01 04:10:00"),
        ("time,flow\n2024-03-01,1\n,2\n", "has empty cells"),
        ("time,flow\n2024-03-01T00:00,1\n2024-03-02T00:00Z,2\n", "a time zone in some rows only"),
        ("time,flow\n2024-03-01,1\n2024-03-01,2\n", "stands twice"),
        ("time,flow\n2024-03-02,1\n2024-03-01,2\n", "comes after a later one"),
        ("date,time,flow\n2024-03-01,2024-03-01,1\n", "more than one time: date, time"),
    ],
)
def test_bad_times_are_refused(csv_file, text, sentence):
    with pytest.raises(InputError, match=sentence):
        as_series(read_table(csv_file(text)))


# --- bad cells --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", ["", "NA", "nan", "null"])
def test_an_empty_cell_is_named_by_variable_and_time_step(csv_file, cell):
    frame = read_table(csv_file(f"flow,level\n1,2\n3,{cell}\n"))
    assert math.isnan(frame["level"][1])
    with pytest.raises(InputError, match="Variable 'level' is nan at time step 1"):
        as_series(frame)


def test_an_empty_column_is_missing_not_text(csv_file):
    with pytest.raises(InputError, match="Variable 'level' is nan at time step 0"):
        as_series(read_table(csv_file("flow,level\n1,\n3,\n")))


def test_infinity_is_named(csv_file):
    with pytest.raises(InputError, match="Variable 'level' is inf at time step 1"):
        as_series(read_table(csv_file("flow,level\n1,2\n3,inf\n")))


def test_nulls_in_parquet_become_nan(tmp_path):
    pl.DataFrame({"flow": [1, None], "on": [True, None], "none": [None, None]}).write_parquet(
        tmp_path / "plant.parquet"
    )
    frame = read_table(tmp_path / "plant.parquet")
    np.testing.assert_array_equal(frame.to_numpy(), [[1, 1, math.nan], [math.nan] * 3])


def test_a_word_makes_its_column_not_numeric_even_in_the_last_row(csv_file):
    text = "flow,level\n" + "1,2\n" * 3000 + "1,high\n"
    with pytest.raises(InputError, match="Column 'level' is not numeric"):
        as_series(read_table(csv_file(text)))


# --- bad files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, content, sentence",
    [
        ("a.csv", b"", "is empty"),
        ("a.csv", b"flow,level\n", "a header but no readings"),
        ("a.csv", b"1.5,2\n3,4\n", "holds numbers, not names"),
        ("a.csv", b"flow,flow\n1,2\n", "two columns named 'flow'"),
        ("a.csv", b",flow\n0,2\n1,3\n", "index=False"),
        ("a.csv", b"flow,level\n1,2,3\n", "cannot be read"),
        ("a.csv", b"flow,\xb0C\n1,2\n", "cannot be read"),
        ("a.csv", b"PAR1\x15\x00\n\x00\x01", "not a text file"),
        ("a.csv.gz", b"flow\n1\n", "cannot be read"),
        ("a.parquet", b"flow,level\n1,2\n", "Pass a whole Parquet file"),
        ("a.parquet", b"", "Pass a whole Parquet file"),
        ("a.xlsx", b"PK", "does not end in .csv, .csv.gz, .tsv or .parquet"),
    ],
)
def test_foreign_files_are_refused(csv_file, name, content, sentence):
    with pytest.raises(InputError, match=sentence):
        read_table(csv_file(content, name))


def test_a_part_of_a_parquet_file_is_refused(tmp_path):
    path = tmp_path / "plant.parquet"
    pl.DataFrame({"flow": np.arange(1000.0)}).write_parquet(path)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(InputError, match="Pass a whole Parquet file"):
        read_table(path)


def test_absent_files_and_folders_are_refused(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_table(tmp_path / "plant.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        read_table(tmp_path / "folder.csv")


def test_unknown_columns_list_the_known_ones(csv_file):
    path = csv_file("flow,level\n1,2\n")
    with pytest.raises(InputError, match=r"no column 'time' in .*; there are flow, level"):
        read_table(path, time_column="time")
    with pytest.raises(InputError, match=r"no column 'label' in .*; there are flow, level"):
        read_table(path, drop=["label"])


def test_a_table_is_written_whole_or_not_at_all(tmp_path):
    frame = pl.DataFrame({"score": [0.1]})
    with pytest.raises(OutputError):
        write_table(tmp_path / "nowhere" / "scores.csv", frame)
    with pytest.raises(ParameterError, match=r"does not end in \.csv or \.parquet"):
        write_table(tmp_path / "scores.txt", frame)
    assert list(tmp_path.iterdir()) == []

"""Tables from files and folders: their times, cells, rows, places and chunks; and tables that are written."""

import gzip
import math
import os
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cometad.data.dialect import Dialect
from cometad.data.tables import TableReader, read_table, table_chunks
from cometad.data.writing import csv_text, csv_texts, write_chunks, write_table
from cometad.errors import InputError, OutputError, ParameterError
from cometad.series import as_series
from tables_case import read, refused


@pytest.fixture
def csv_file(tmp_path):
    def write(text: str | bytes, name: str = "plant.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


@pytest.fixture
def parquet_file(tmp_path):
    def write(columns, name: str = "plant.parquet") -> Path:
        pl.DataFrame(columns).write_parquet(tmp_path / name)
        return tmp_path / name

    return write


def test_numbers_become_floats_and_names_lose_spaces(csv_file):
    frame = read_table(csv_file(" flow , level,on\n1, 2.5,true\n3, 4.5 ,false\n"))
    assert frame.columns == ["flow", "level", "on"]
    assert frame.rows() == [(1.0, 2.5, 1.0), (3.0, 4.5, 0.0)]


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


def test_a_given_time_column_may_have_any_name(csv_file):
    frame = read_table(csv_file("clock,flow\n1709262600,1\n1709262601,2\n"), time_column="clock")
    assert as_series(frame).names == ("flow",)


@pytest.mark.parametrize(("header", "given"), [("timestamp_(min)", None), ("minute", "minute")])
def test_a_counter_instead_of_dates_is_refused_and_can_be_dropped(csv_file, header, given):
    path = csv_file(f"{header},flow\n0,1\n1,2\n")
    refused(path, "holds numbers that are not dates", time_column=given)
    assert read_table(path, drop=[header]).columns == ["flow"]


def test_numbers_that_do_not_count_up_are_a_variable(csv_file):
    assert as_series(read_table(csv_file("time_on,flow\n3,1\n1,2\n"))).names == ("time_on", "flow")


def _timed(times, values=range(99)):
    return "time,flow\n" + "".join(f"{time},{value}\n" for time, value in zip(times, values, strict=False))


DATES = [f"2024-03-01T00:{i:02}" for i in range(8)]
EPOCHS = [1709262600 + i for i in range(8)]


@pytest.mark.parametrize(
    "text, sentence",
    [
        (_timed([*DATES, "noon"]), "has 'noon' in row 10 of "),
        (_timed(["01/03/2024 04:10"]), "Write times like 2024-03-01 04:10:00"),
        (_timed([*DATES, ""]), "has empty cells"),
        (_timed([1709262600, "NaN"]), "The time column 'time' has empty cells"),
        (_timed([*DATES, "2024-03-01T00:08Z"]), "a time zone in some rows only"),
        (_timed([*EPOCHS, "2024-03-01T04:08Z"]), "has '1709262600' in row 2 of "),
        (_timed([*EPOCHS, 1709262608000]), "not dates (the first is 1709262600)"),
        (_timed(range(9)), "not dates (the first is 0)"),
        ("date,time,flow\n2024-03-01,2024-03-01,1\n", "more than one time column: date, time"),
    ],
)
def test_bad_times_are_refused(csv_file, text, sentence):
    refused(csv_file(text), sentence)


@pytest.mark.parametrize(("second", "words"), [("2024-03-02", "appears twice"), ("2024-03-01", "is earlier than the")])
def test_times_out_of_order_are_refused(csv_file, second, words):
    refused(csv_file(_timed(["2024-03-02", second])), words, sizes=[None])


@pytest.mark.parametrize("start", [-(2**62), 2**62], ids=["before year 1", "after 9999"])
def test_times_that_no_calendar_has_are_refused(parquet_file, start):
    path = parquet_file({"time": pl.Series([0, start]).cast(pl.Datetime("us")), "flow": [1.0, 2.0]})
    refused(path, f"'time' has a time outside the years 1 to 9999 in row 2 of '{path}'.")


@pytest.mark.parametrize("day", [date(1, 1, 3), date(9999, 12, 30)])
@pytest.mark.parametrize("dtype", [pl.Date, pl.Datetime("ms"), pl.Datetime("us")])
def test_the_first_and_the_last_days_of_the_calendar_are_times(parquet_file, day, dtype):
    path = parquet_file({"time": pl.Series([day]).cast(dtype), "flow": [1.0]})
    assert read_table(path)["time"].dt.year().to_list() == [day.year]


# --- cells ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("flow,level\n1,\n3,\n", "Variable 'level' is nan at time step 0"),  # missing, not text
        ("flow,level\n3,inf\n", "Variable 'level' is inf at time step 0"),
        (_timed(DATES, [*range(7), "high"]), "Column 'flow' is not numeric"),
        (_timed(DATES, [*range(7), "true"]), "Column 'flow' is not numeric"),
        ("flow,level\n" + "1,2\n" * 3000 + "1,high\n", "Column 'level' is not numeric"),
        (_timed(DATES, [*range(7), "8,8"]), "plant.csv' has 3 cells, but the header has 2 ('2024-03-01T00:07,8,8')"),
        ("flow,level\n1,2\n3\n", "plant.csv' has 1 cell, but the header has 2"),
    ],
)
def test_bad_cells_are_refused(csv_file, text, sentence):
    refused(csv_file(text), sentence)


def test_digits_of_other_scripts_are_text(csv_file):
    assert read_table(csv_file("flow\n1\n\u0661\n"))["flow"].to_list() == ["1", "\u0661"]


INTEGERS = [pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.Int128, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_of_every_type_are_numbers(parquet_file, dtype):
    frame = read(parquet_file({"flow": pl.Series([1, None, 100], dtype=dtype)}))
    assert frame["flow"].fill_nan(None).to_list() == [1.0, None, 100.0]


def test_nulls_in_parquet_become_nan(parquet_file):
    frame = read_table(parquet_file({"flow": [1, None], "on": [True, None], "none": [None, None]}))
    np.testing.assert_array_equal(frame.to_numpy(), [[1, 1, math.nan], [math.nan] * 3])


# --- bad files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, content, sentence",
    [
        ("a.csv", b"", "is empty"),
        ("a.csv", b"flow,level\n", "a header but no readings"),
        ("a.csv", b"1.5,2\n3,4\n", "holds '1.5', which is a number, not a name"),
        ("a.csv", b"flow,flow\n1,2\n", "two columns named 'flow'"),
        ("a.csv", b",flow\n0,2\n1,3\n", "index=False"),
        ("a.csv", b"PAR1\x15\x00\n\x00\x01", "is a Parquet file. Rename it: its name must end in .parquet"),
        ("a.csv", b"\x1f\x8b\x08", "is compressed with gzip. Rename it: its name must end in .csv.gz"),
        ("a.tsv", b"\x28\xb5\x2f\xfd", "is compressed with Zstandard. Rename it: its name must end in .csv.zst"),
        ("a.csv", b"PK\x03\x04\x00", "is a ZIP archive or a spreadsheet. Save the table as CSV or Parquet"),
        ("a.csv", b"flow\n\0\n", "not a text file"),
        ("a.csv.gz", b"flow\n1\n", "cannot be read"),
        (
            "a.csv.gz",
            gzip.compress(np.random.default_rng(0).bytes(9999).hex(sep="\n").encode())[:-99],
            "cannot be read",
        ),
        ("a.parquet", b"flow,level\n1,2\n", "Pass a complete Parquet file"),
        ("a.parquet", b"", "Pass a complete Parquet file"),
        ("a.xlsx", b"PK", "does not end in .csv, .csv.gz, .csv.zst, .tsv or .parquet"),
    ],
)
def test_foreign_and_damaged_files_are_refused(csv_file, name, content, sentence):
    refused(csv_file(content, name), sentence)


def test_a_truncated_parquet_file_is_refused(parquet_file):
    path = parquet_file({"flow": np.arange(1000.0)})
    path.write_bytes(path.read_bytes()[:-50])
    refused(path, "Pass a complete Parquet file")


def test_a_parquet_file_that_makes_polars_panic_is_damaged(parquet_file, monkeypatch):
    def panic(*args, **kwargs):
        raise pl.exceptions.PanicException("called `Result::unwrap()` on an `Err` value")

    monkeypatch.setattr(pl, "read_parquet", panic)
    path = parquet_file({"flow": [1.0]})
    refused(path, f"'{path}' is damaged. Pass a complete Parquet file.", sizes=[None])


def test_missing_files_and_folders_are_refused_before_the_first_chunk(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    for name, words in (("plant.csv", "does not exist"), ("folder.csv", "is a folder")):
        for function in (read_table, table_chunks):
            with pytest.raises(InputError, match=words):
                function(tmp_path / name)


@pytest.mark.parametrize("option", [{"time_column": "label"}, {"drop": ["label"]}])
def test_an_unknown_column_lists_the_available_ones(csv_file, option):
    refused(csv_file("flow,level\n1,2\n"), "has no column 'label'. Available: flow, level", **option)


# --- formats, in chunks -----------------------------------------------------------------------------------------------

CELLS = {
    "plain": "time,flow,on\n" + "".join(f"2024-03-01T00:{i:02},{i}{'.5' * (i > 6)},true\n" for i in range(10)),
    "a zone": "time,flow\n" + "".join(f"2024-03-01T00:{i:02}+01:00, {i}\n" for i in range(10)),
    "epochs": "time,flow\n" + "".join(f"{1709262600 + i},nan\n" for i in range(10)),
    "blank rows": "flow,level\n1,2\n\n  \n3,\n\r\n4,5\n\n\n",
    "blank rows with times": "\n\ntime,flow\n\n2024-03-01T00:00,1\n\n\n2024-03-01T00:01,2\n\n\n",
    "a separator at the end of some rows": "flow,level\n1,2,\n3,4\n5,6,\n",
    "quotation marks within cells": 'flow,5" pipe\n1,b\n3,4" wide\n5,"6"" wide"\n7,"a\n8"\n',
    "a quoted line break": 'flow,note\n1,"a\n\nb"\n2,"c\nd"\n3,e\n',
    "a clock that falls in the end": "time_on,flow\n" + "".join(f"{i},1\n" for i in [*range(9), 7.5]),
    "a variable named like a clock": "time_on,flow\n" + "".join(f"{i},1\n" for i in [3, 1, 4, 5, 6, 7, 8]),
    "no line break at the end": "flow\r\n1\r\n2\r\n3",
}


@pytest.mark.parametrize("text", CELLS.values(), ids=CELLS)
def test_the_chunks_make_up_the_table(csv_file, text):
    whole = read_table(csv_file(text))
    for rows in (1, 2, 3, 7, 100):
        chunks = list(table_chunks(csv_file(text), rows=rows))
        assert pl.concat(chunks).equals(whole)
        assert "".join(csv_texts(chunks)) == csv_text(whole)


@pytest.mark.parametrize("name", ["plant.csv", "plant.tsv", "plant.csv.gz", "plant.parquet"])
def test_every_format_gives_the_same_table_in_chunks_too(csv_file, tmp_path, name):
    whole = read_table(csv_file(CELLS["plain"]))
    csv_file(CELLS["plain"].replace(",", "\t"), "plant.tsv")
    csv_file(gzip.compress(CELLS["plain"].encode()), "plant.csv.gz")
    write_chunks(tmp_path / "plant.parquet", (whole[step : step + 3] for step in range(0, 10, 3)))
    assert read(tmp_path / name).equals(whole)
    assert [len(chunk) for chunk in table_chunks(tmp_path / name, rows=4)] == [4, 4, 2]
    write_chunks(tmp_path / "again.csv", table_chunks(tmp_path / name, rows=4))
    assert (tmp_path / "again.csv").read_text() == csv_text(whole)


# --- writing ----------------------------------------------------------------------------------------------------------


def test_a_table_is_written_completely_or_not_at_all(tmp_path):
    def parts():
        yield pl.DataFrame({"score": [0.1]})
        raise InputError("No more.")

    for name in ("scores.csv", "scores.parquet"):
        with pytest.raises(InputError, match="No more"):
            write_chunks(tmp_path / name, parts())
    with pytest.raises(OutputError):
        write_table(tmp_path / "nowhere" / "scores.csv", pl.DataFrame({"score": [0.1]}))
    with pytest.raises(ParameterError, match=r"does not end in \.csv, \.parquet or \.jsonl"):
        write_table(tmp_path / "scores.txt", pl.DataFrame({"score": [0.1]}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["=1+1", "+a", "-a", "@a"])
def test_a_name_is_never_written_as_a_formula(name):
    assert csv_text(pl.DataFrame({"variable": [name, "flow", None]})) == f"variable\n'{name}\nflow\n\n"
    assert csv_text(pl.DataFrame({name: [-1.5]})) == f"'{name}\n-1.5\n"


# --- places -----------------------------------------------------------------------------------------------------------

PLACES = {
    "plain": ("flow,level\n1,2\n3,Bad\n", 3),
    "blank rows": ("flow,level\n\n1,2\n\n\n3,Bad\n", 6),
    "blank rows on top": ("\n\nflow,level\n1,2\n3,Bad\n", 5),
    "a separator line": ("sep=;\nflow;level\n1;2\n3;Bad\n", 4),
    "quoted line breaks": ('"flow\nrate",level\n"1","2"\n"\n\n","2"\n3,Bad\n', 7),
    "old line breaks": ("flow,level\r1,2\r3,Bad\r", 3),
    "a later line break": ("flow,level\r\n1,2\r\n3,Bad", 3),
}


def everything_but_nan(frame):
    return frame.fill_nan(0.0)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("name", PLACES)
def test_a_bad_cell_is_named_with_its_line_in_the_file(csv_file, name, encoding):
    text, line = PLACES[name]
    path = csv_file(text.encode(encoding))
    refused(path, f"Column 'level' is not numeric: it has 'Bad' in row {line} of '{path}'", everything_but_nan)


def test_without_a_header_the_first_row_is_row_1(csv_file):
    refused(csv_file("1,2\n3,Bad\n"), "it has 'Bad' in row 2 of", dialect=Dialect(header=False))


def test_a_bad_cell_in_a_folder_is_named_with_its_file(csv_file, tmp_path):
    path = csv_file("time,flow\n2024-03-02,1\n2024-03-03,Bad\n", "a.csv")
    csv_file("time,flow\n2024-03-01,1\n", "b.csv")
    refused(tmp_path, f"it has 'Bad' in row 3 of '{path}'")


def test_rows_of_a_parquet_file_are_counted_from_1(parquet_file):
    path = parquet_file({"flow": ["1", "2", "Bad"]})
    refused(path, f"it has 'Bad' in row 3 of '{path}'", sizes=[None, 2, 3])


def test_text_in_a_column_that_is_not_selected_is_accepted(csv_file):
    reader = TableReader(csv_file("flow,note\n1,on\n"))
    assert reader.whole(lambda frame: frame.select("flow")).rows() == [(1.0,)]


# --- rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "last, sentence",
    [
        ('3,"a\\"b"\n', "has text after a closing quotation mark"),
        ('3,"a"b\n4,"c"\n', "has text after a closing quotation mark"),
        ('3,"a\n4,b\n', "has a quotation mark that is never closed"),
        ('3,"a\n' + "4,b\n" * 99999, "has a quotation mark that is never closed"),
        ('3,a\rb\n4,"c"\n', "has a carriage return within a cell"),
        ("3\n", "has 1 cell, but the header has 2 ('3')"),
        ("3,4,5\n", "has 3 cells, but the header has 2 ('3,4,5')"),
    ],
)
def test_a_malformed_row_is_refused_with_its_line(csv_file, last, sentence):
    path = csv_file('flow,note\n1,"x\ny"\n\n2,z\n' + last)
    refused(path, f"Row 6 of '{path}' {sentence}", lambda frame: frame.select("flow"))


def test_no_reading_is_lost_at_an_escaped_quotation_mark(csv_file):
    text = "flow,note\n" + "".join(f'{i},"a\\"b"\n' if i in (3, 6) else f"{i},x\n" for i in range(9))
    path = csv_file(text)
    refused(path, f"Row 5 of '{path}' has text after a closing quotation mark", lambda frame: frame.select("flow"))


def test_a_parser_that_loses_rows_is_noticed(csv_file, monkeypatch):
    whole = pl.read_csv
    monkeypatch.setattr(pl, "read_csv", lambda *given, **more: whole(*given, **more)[1:])
    with pytest.raises(InputError, match=r"cannot be read \(2 rows became 1\)"):
        read_table(csv_file("flow\n1\n2\n"))


def test_blank_lines_are_no_readings_and_tabs_are_cells(csv_file):
    assert read_table(csv_file("flow,level\n1,2\n\n \n3,4\n\n\n")).rows() == [(1.0, 2.0), (3.0, 4.0)]
    assert len(read_table(csv_file("flow\tlevel\n1\t2\n\t\n3\t4\n"))) == 3
    assert read_table(csv_file('flow\n1\n\n""\nNA\n2\n'))["flow"].is_nan().to_list() == [False, True, True, False]


def test_quotation_marks_within_cells_are_text(csv_file):
    frame = read_table(csv_file('time,5" a,b\n2024-03-01,1,4" x\n2024-03-02,2,"6"" y"\n'))
    assert frame.columns == ["time", '5" a', "b"]
    assert frame["b"].to_list() == ['4" x', '6" y']


def test_a_column_may_be_called_like_a_format(csv_file):
    assert read_table(csv_file("PAR1,PK\n1,2\n")).columns == ["PAR1", "PK"]


# --- folders ----------------------------------------------------------------------------------------------------------


def _day(day: int) -> pl.DataFrame:
    return pl.DataFrame({"time": [datetime(2026, 1, day, hour) for hour in range(3)], "flow": [float(day), 2.0, 3.0]})


def test_a_folder_is_read_in_order_of_time(tmp_path):
    _day(3).write_csv(tmp_path / "a.csv")
    _day(1).select("flow", "time").write_csv(tmp_path / "b.csv")
    (tmp_path / "notes.md").write_text("not a table")
    for path in (tmp_path, tmp_path / "*.csv"):
        assert read(path).select("time", "flow").equals(pl.concat([_day(1), _day(3)]))


@pytest.mark.parametrize("names", [("a.parquet", "b.csv"), ("b.csv", "a.parquet"), ("b.parquet", "a.parquet")])
def test_text_and_parquet_files_are_one_series(tmp_path, names):
    for day, name in enumerate(names, 1):
        write_table(tmp_path / name, _day(day))
    assert read(tmp_path).equals(pl.concat([_day(1), _day(2)]))


def test_files_with_other_columns_are_refused(csv_file, tmp_path):
    csv_file("flow,level\n1,2\n", "a.csv")
    csv_file("flow\n1\n", "b.csv")
    refused(tmp_path, "b.csv' lacks the column 'level'")


def test_files_are_put_in_order_by_their_first_rows_alone(csv_file, tmp_path, monkeypatch):
    for day in (2, 1):
        csv_file("time,flow\n" + "".join(f"2024-03-0{day}T00:00:{i:02},{i}\n" for i in range(60)), f"{3 - day}.csv")
    parsed = []
    whole = pl.read_csv
    monkeypatch.setattr(pl, "read_csv", lambda *given, **more: parsed.append(1) or whole(*given, **more))
    assert read_table(tmp_path)["time"].is_sorted()
    assert len(parsed) == 4  # one row of each file, then each file


def test_a_file_without_readings_adds_nothing_to_its_folder(csv_file, tmp_path):
    csv_file("time,flow\n2024-03-02,1\n", "a.csv")
    csv_file("time,flow\n", "b.csv")
    csv_file("time,flow\n2024-03-01,2\n", "c.csv")
    assert read_table(tmp_path)["flow"].to_list() == [2.0, 1.0]
    (tmp_path / "a.csv").unlink()
    (tmp_path / "c.csv").unlink()
    csv_file("time,flow\n", "d.csv")
    refused(tmp_path, "a header but no readings")


def test_a_folder_without_times_is_in_natural_order_with_a_note(csv_file, tmp_path, caplog):
    for day in (10, 2, 1):
        csv_file(f"flow\n{day}\n", f"day{day}.csv")
    caplog.set_level("INFO", "cometad")
    assert read_table(tmp_path)["flow"].to_list() == [1, 2, 10]
    assert read_table(tmp_path / "day*.csv")["flow"].to_list() == [1, 2, 10]
    notes = [record.getMessage() for record in caplog.records]
    assert len(notes) == 2
    assert all("in order of their names" in note and "'day10.csv' the last" in note for note in notes)


def test_broken_links_in_a_folder_are_left_out_with_a_note(csv_file, tmp_path, caplog):
    csv_file("time,flow\n2024-03-01,1\n", "day1.csv")
    (tmp_path / "day2.csv").symlink_to("nowhere.csv")
    (tmp_path / "day3.csv").symlink_to("day3.csv")
    assert read_table(tmp_path)["flow"].to_list() == [1]
    names = [f"'{tmp_path / name}' is a broken link and was left out." for name in ("day2.csv", "day3.csv")]
    assert [record.getMessage() for record in caplog.records] == names


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "device"])
def test_a_pipe_or_a_device_is_no_file(tmp_path, make):
    make(tmp_path / "plant.csv")
    with pytest.raises(InputError, match=r"is a pipe or a device\. To read it, send it on standard input and pass -"):
        read_table(tmp_path / "plant.csv")


@pytest.mark.parametrize("name", ["/dev/stdin", "/dev/fd/63", "/proc/self/fd/0"])
def test_standard_input_has_its_own_name(name):
    with pytest.raises(InputError, match="standard input and pass -"):
        read_table(name)


def test_paths_that_cannot_be_followed_are_refused(tmp_path):
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    for name, words in (("loop.csv", "Too many levels of symbolic links"), ("n" * 300 + ".csv", "File name too long")):
        with pytest.raises(InputError, match=f"cannot be read .{words}"):
            read_table(tmp_path / name)

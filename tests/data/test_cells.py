"""Files and streams follow the same rules for headers, missing values, numbers and times."""

import math

import pytest

from cometad.data.cells import EPOCH_UNITS, MISSING, clean_header, epoch_unit, parse_number
from cometad.data.tables import read_table, table_chunks
from cometad.data.text import Layout, readings
from cometad.errors import InputError

LAYOUT = Layout(["flow", "level"], named=True, time_column=None, gaps=True)


def from_file(tmp_path, text):
    path = tmp_path / "plant.csv"
    path.write_text(text)
    return read_table(path).rows()


def from_stream(text):
    return [tuple(reading.values) for reading in readings(text.splitlines(), "csv", LAYOUT)]


@pytest.mark.parametrize("cell", [*MISSING, *(marker.upper() for marker in MISSING), " NA "])
def test_a_missing_cell_is_nan_in_a_file_and_in_a_stream(tmp_path, cell):
    text = f"flow,level\n1,2\n3,{cell}\n"
    for rows in (from_file(tmp_path, text), from_stream(text)):
        assert rows[0] == (1.0, 2.0)
        assert rows[1][0] == 3.0
        assert math.isnan(rows[1][1])
    assert math.isnan(parse_number(cell))


@pytest.mark.parametrize("cell", ["1.5", " 1.5 ", "-2", "1e3", "+4"])
def test_a_number_is_the_same_in_a_file_and_in_a_stream(tmp_path, cell):
    text = f"flow,level\n1,2\n3,{cell}\n"
    assert from_file(tmp_path, text) == from_stream(text) == [(1.0, 2.0), (3.0, float(cell))]


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("1.5,2", "is a number, not a name"),
        ("2024-01-01,1.5,2.5", "'2024-01-01', which is a time, not a name"),
        ("NA,1.5,", "'1.5', which is a number, not a name"),
        ("flow, flow", "has two columns named 'flow'"),
        ("time,1,1", "has two columns named '1'"),
    ],
)
def test_a_bad_header_is_refused_in_a_file_and_in_a_stream(tmp_path, header, words):
    for read in (lambda text: from_file(tmp_path, text), from_stream):
        with pytest.raises(InputError, match=words):
            read(f"{header}\n1,2\n")


@pytest.mark.parametrize(("header", "given"), [("time,1,2", None), ("when,1,2", "when"), ("1,2.5,Timestamp", None)])
def test_sensors_may_have_numbers_as_names_next_to_a_named_time(tmp_path, header, given):
    text = f"{header}\n2024-03-01T04:10,2024-03-01T04:10,2024-03-01T04:10\n"
    (tmp_path / "plant.csv").write_text(text)
    assert read_table(tmp_path / "plant.csv", time_column=given).columns == header.split(",")
    [chunk] = table_chunks(tmp_path / "plant.csv", time_column=given)
    assert chunk.columns == header.split(",")


def test_a_stream_may_have_numbers_as_names_next_to_a_named_time():
    for header, given in (("time,1,2", None), ("when,1,2", "when")):
        lines = [header, "2024-03-01T04:10,1.5,2.5"]
        [reading] = readings(lines, "csv", Layout(["1", "2"], named=True, time_column=given))
        assert reading.values == [1.5, 2.5]


def test_names_in_a_header_lose_surrounding_spaces():
    assert clean_header([" flow", "level "], "Line 1") == ["flow", "level"]


@pytest.mark.parametrize("cell", ["1_000", "high", [3], {}, "1,5"])
def test_anything_else_is_not_a_number(cell):
    with pytest.raises(ValueError, match=r".*"):
        parse_number(cell)


@pytest.mark.parametrize(("unit", "per_second"), EPOCH_UNITS.items())
def test_epoch_units_cannot_be_confused(unit, per_second):
    for second in (1_000_000_000, 1_709_262_600, 9_999_999_999):
        assert epoch_unit(second * per_second, second * per_second) == per_second, unit

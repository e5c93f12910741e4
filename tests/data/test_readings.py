"""The rules of reading, through all ways in: a file, a stream, the body of a request and a followed folder."""

import math
from contextlib import closing
from datetime import UTC, datetime

import pytest

from cometad.connect.bodies import parse_body
from cometad.connect.file_source import FolderPlace, FollowedFolder
from cometad.data.cells import EPOCH_UNITS, MISSING, StreamDates, StreamNumbers, epoch_unit, number_or_none
from cometad.data.columns import Matching
from cometad.data.dialect import Dialect
from cometad.data.tables import TableReader
from cometad.data.text import Layout, readings
from cometad.errors import InputError, ParameterError
from cometad.series import as_series
from contract import is_a_sentence

LAYOUT = Layout(["flow", "level"], named=True)
GAPS = LAYOUT._replace(gaps=True)


def from_file(text, layout, folder):
    path = folder / "plant.csv"
    path.write_text(text)
    reader = TableReader(path, layout.time_column, (), layout.dialect, variables=layout.names)
    series = as_series(reader.whole(Matching(layout.names, layout.gaps)), missing=layout.gaps)
    times = [None] * len(series) if series.times is None else (series.times.astype("datetime64[us]").astype(int) / 1e6)
    return list(map(tuple, series.values.tolist())), list(times)


def from_stream(text, layout, folder=None, form="csv", numbers=None):
    found = list(readings(text.split("\n"), form, layout, numbers))
    dates = StreamDates(layout.dialect.date_order)
    return [tuple(one.values) for one in found], [dates.seconds(one.time, one.line) for one in found]


def of_batch(batch, layout):
    dates = StreamDates(layout.dialect.date_order)
    return list(map(tuple, batch.values.tolist())), list(map(dates.seconds, batch.times, batch.lines))


def from_body(text, layout, folder):
    return of_batch(parse_body(text.encode(), "csv", "pump", layout), layout)


def from_folder(text, layout, folder):
    (folder / "followed").mkdir(exist_ok=True)
    (folder / "followed" / "plant.csv").write_text(text)
    place = FolderPlace(folder / "followed", pattern=False, folder=True, by_time=False)
    with closing(FollowedFolder(place, "pump", lambda name: layout, None, follow=False)) as followed:
        piece = next(followed.pieces())
    if piece.rejected:
        raise InputError(piece.rejected[0].reason)
    return of_batch(piece.batches[0], layout)


@pytest.fixture(params=[from_file, from_stream, from_body, from_folder], ids=lambda way: way.__name__[5:])
def way(request, tmp_path):
    """Read a text: the values of its readings, and their times in seconds since 1970."""
    return lambda text, layout=LAYOUT: request.param(text, layout, tmp_path)


@pytest.fixture
def refused(way):
    """Check that a text is refused in a sentence with these words."""

    def check(text, words, layout=LAYOUT):
        with pytest.raises(InputError, match=words) as caught:
            way(text, layout)
        assert is_a_sentence(str(caught.value))

    return check


# -- numbers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", [*MISSING, *(marker.upper() for marker in MISSING), " NA "])
def test_a_missing_cell_is_nan(way, cell):
    ((first, second), _) = way(f"flow,level\n1,2\n3,{cell}\n", GAPS)
    assert first == (1.0, 2.0)
    assert second[0] == 3.0
    assert math.isnan(second[1])


@pytest.mark.parametrize("cell", ["1.5", " 1.5 ", "-2", "1e3", "+4", "9007199254740992", "100000000000000000000"])
def test_a_number_is_the_float_nearest_to_it(way, cell):
    assert way(f"flow,level\n1,2\n3,{cell}\n")[0] == [(1.0, 2.0), (3.0, float(cell))]


@pytest.mark.parametrize("cell", ["high", "1_000", "1 234", "1.234,5", "0x10"])
def test_anything_else_is_no_number(refused, cell):
    refused(f"flow;level\n1;2\n3;{cell}\n", r"'level' is not numeric: it has |Line 3: variable 'level' is '")
    assert number_or_none(cell) is None


@pytest.mark.parametrize("cell", ["9007199254740993", " -9007199254740993 "])
def test_an_integer_that_a_float_rounds_is_refused(refused, cell):
    refused(f"flow,level\n{cell},1\n", r"9007199254740993.*, an integer too large to be exact")


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_separator_and_decimal_comma_are_recognized(way, separator):
    text = "flow;level;note (l/s, raw)\n1,5;-,25;a\n3;4,5e3;b;\n".replace(";", separator)
    assert way(text)[0] == [(1.5, -0.25), (3.0, 4500.0)]
    assert way(f"sep={separator}\n{text}")[0] == [(1.5, -0.25), (3.0, 4500.0)]


@pytest.mark.parametrize("cells", [("1,5", "1.5"), ("1.5", "1,5")])
def test_one_decimal_mark_is_used_throughout(refused, cells):
    text = f"flow;level\n1;2\n{cells[0]};2\n1;{cells[1]}\n"
    refused(text, f"Line 4: variable 'level' is '{cells[1]}', .* before it have|point and with a decimal comma: '1.5'")


def test_a_given_decimal_mark_decides(way, refused):
    layout = LAYOUT._replace(dialect=Dialect(decimal=","))
    assert way("flow;level\n1,234;,5e1\n", layout)[0] == [(1.234, 5.0)]
    for cell in ("1.234", "1.234,5", "5,", "1,5,3"):
        refused(f"flow;level\n1,5;{cell}\n", "'level' is", layout)


def test_true_and_false_are_numbers_if_all_are(way, refused):
    assert way("flow,level\n1,TRUE\n2,false\n")[0] == [(1.0, 1.0), (2.0, 0.0)]
    for cells in (("TRUE", "7"), ("7", "TRUE")):
        refused("flow,level\n1,{}\n2,{}\n".format(*cells), "'level' is")


@pytest.mark.parametrize(
    "rows", ["1,-999\n2,-999.0\n3, -9.99e2\n4,Bad\n", "1,5;-999\n2;-999,0\n3;-9,99e2\n4; bad\n"], ids=["point", "comma"]
)
@pytest.mark.parametrize("marker", ["-999", "-999.0", "-999,0"])
def test_a_number_as_missing_marker_means_that_value_however_it_is_written(way, refused, rows, marker):
    text = f"flow{';' if ';' in rows else ','}level\n{rows}"
    layout = GAPS._replace(dialect=Dialect(missing=("Bad", marker)))
    assert all(math.isnan(level) for _, level in way(text, layout)[0])


def test_a_boolean_as_missing_marker_is_no_number(way):
    layout = GAPS._replace(dialect=Dialect(missing=("False",)))
    assert [str(level) for _, level in way("flow,level\n1,true\n2,FALSE\n", layout)[0]] == ["1.0", "nan"]


# -- rows and headers -----------------------------------------------------------------------------------------------


def test_blank_lines_and_separators_at_the_end_are_skipped(way):
    assert way("\nflow,level\n1,2,\n\n  \n3,4\n\n")[0] == [(1.0, 2.0), (3.0, 4.0)]


@pytest.mark.parametrize(("row", "count"), [("3,4,5", "3 cells"), ("3", "1 cell")])
def test_a_row_with_other_cells_than_the_header_is_refused(refused, row, count):
    refused(f"flow,level\n1,2\n{row}\n", f"(Row 3 of '.*'|Line 3) has {count}, but the header has 2")


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("1.5,2", "is a number, not a name"),
        ("1,5;2,5", "is a number, not a name"),
        ("31.12.2026;2", "is a time, not a name"),
        ("04:10,flow", "is a time, not a name"),
        ("OK,1", "is a number, not a name"),
        ("2024-01-01,1.5,2.5", "'2024-01-01', which is a time, not a name"),
        ("NA,1.5,", "'1.5', which is a number, not a name"),
        ("flow, flow", "has two columns named 'flow'"),
        ("time,1,1", "has two columns named '1'"),
    ],
)
def test_a_bad_header_is_refused(refused, header, words):
    refused(f"{header}\n1,2,3\n", words)


@pytest.mark.parametrize(("header", "given"), [("time, 1,2 ", None), ("when,1,2", "when"), ("1,2,Timestamp", None)])
def test_sensors_may_have_numbers_as_names_next_to_a_named_time(way, header, given):
    cells = {"1": "1.5", "2": "2.5"}
    row = ",".join(cells.get(name.strip(), "2024-03-01T04:10") for name in header.split(","))
    values, seconds = way(f"{header}\n{row}\n", Layout(["1", "2"], named=True, time_column=given))
    assert values == [(1.5, 2.5)]
    assert seconds == [1709266200.0]


def test_columns_are_matched_by_name_and_others_ignored(way):
    assert way("note,level,time,flow\nhigh,2,2026-03-05,1\n")[0] == [(1.0, 2.0)]


# -- times ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-03-05T00:00:01.5", datetime(2026, 3, 5, 0, 0, 1, 500_000)),
        ("2026/03/05 00:00", datetime(2026, 3, 5)),
        ("2026-3-5 1:02", datetime(2026, 3, 5, 1, 2)),
        ("2026.12.31 23:59", datetime(2026, 12, 31, 23, 59)),
        ("05.03.2026 00:00", datetime(2026, 3, 5)),
        ("13/03/2026", datetime(2026, 3, 13)),
        ("31-12-2026 23:59:00,000", datetime(2026, 12, 31, 23, 59)),
        ("12/31/2026 11:59 PM", datetime(2026, 12, 31, 23, 59)),
        ("12/31/2026 11:59:00 pm", datetime(2026, 12, 31, 23, 59)),
        ("01/01/2026 12:00 AM", datetime(2026, 1, 1)),
        ("2026-03-05 00:00 UTC", datetime(2026, 3, 5)),
        ("2026-03-05 01:00+01:00", datetime(2026, 3, 5)),
        *((str(1772668800 * 10**digits), datetime(2026, 3, 5)) for digits in (0, 3, 6, 9)),
    ],
)
def test_a_time_is_recognized_however_it_is_written(way, text, moment):
    assert way(f"time;flow;level\n{text};1;2\n")[1] == [moment.replace(tzinfo=UTC).timestamp()]


def test_a_column_of_dates_is_the_time_whatever_its_name(way):
    assert way("Zeit,flow,level\n05.03.2026,1,2\n")[1] == [datetime(2026, 3, 5, tzinfo=UTC).timestamp()]
    assert way("number,flow,level\n20260305,1,2\n")[1] == [None]


@pytest.mark.parametrize("text", ["noon", "31/12/25", "5 Mar 2026", "24:00", "2026-03", "１２"])
def test_what_is_no_time_is_refused(refused, text):
    refused(f"time,flow,level\n2026-03-05,1,2\n{text},1,2\n", f"'{text}' (is not a time|in row 3 of)")


@pytest.mark.parametrize(("order", "month"), [("day-first", 2), ("month-first", 1)])
def test_a_date_that_may_be_two_days_needs_its_order(way, refused, order, month):
    text = "time,flow,level\n01/02/2026,1,2\n02/03/2026,1,2\n"
    refused(text, "with the day or with the month first")
    seconds = way(text, LAYOUT._replace(dialect=Dialect(date_order=order)))[1]
    assert datetime.fromtimestamp(seconds[0], UTC).month == month


@pytest.mark.parametrize(
    "times",
    [
        ("2026-03-05 00:00", "2026-03-05 00:01Z"),
        ("2026-03-05 00:00Z", "2026-03-05 00:01"),
        ("2026-03-05 00:00", "1972668800"),
        ("1972668800", "2026-03-05 00:00"),
    ],
)
def test_all_times_are_written_alike(refused, times):
    text = "time,flow,level\n{},1,2\n{},1,2\n".format(*times)
    refused(text, "Write all times alike|a time zone in some rows only|has '1972668800' in row")


@pytest.mark.parametrize(("unit", "per_second"), EPOCH_UNITS.items())
def test_epoch_units_cannot_be_confused(unit, per_second):
    for second in (1_000_000_000, 1_709_262_600, 9_999_999_999):
        assert epoch_unit(second * per_second, second * per_second) == per_second, unit


# -- what only lines show: each decides for those after it, and JSON has fields ---------------------------------------


def not_read(text, words, form="csv", layout=LAYOUT):
    with pytest.raises(InputError, match=words) as caught:
        from_stream(text, layout, form=form)
    assert is_a_sentence(str(caught.value))


@pytest.mark.parametrize("cell", ["１２", "१२"])
def test_other_digits_are_no_numbers(cell):
    not_read(f"flow,level\n1,{cell}\n", "Line 2: variable 'level' is '.*', not a number")


def test_a_stream_keeps_its_decimal_mark_when_it_resumes():
    numbers = StreamNumbers()
    from_stream("flow;level\n1;2,5\n", LAYOUT, numbers=numbers)
    resumed = StreamNumbers(mark=numbers.mark)
    with pytest.raises(InputError, match="numbers before it have a decimal comma"):
        from_stream("flow;level\n1;2.5\n", LAYOUT, numbers=resumed)


def test_times_without_a_name_are_matched_by_position():
    layout = Layout(["v0", "v1"], named=False)
    assert from_stream("Zeit,a,b\n05.03.2026,1,2\n", layout) == ([(1.0, 2.0)], [1772668800.0])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"time": true, "flow": 1, "level": 2}', "the time 'time' is neither text nor a number"),
        ('{"flow": "9007199254740993", "level": 1}', "9007199254740993, an integer too large to be exact"),
        ('{"flow": 9007199254740993, "level": 1}', "9007199254740993, an integer too large to be exact"),
        ('{"flow": 1, "level": 2, "flow": 3}', "Line 1 has the field 'flow' twice"),
        ('{"time": "2026-03-05", "date": "2026-03-06", "flow": 1, "level": 2}', "has more than one time"),
        ('{"level": 2}', "Line 1: there is no value for variable 'flow'"),
        ("[1]", "neither a JSON object nor a list of 2 numbers"),
        ("{", "Line 1 is not JSON"),
    ],
)
def test_a_bad_line_of_json_is_refused(line, words):
    not_read(line, words, "jsonl")


def test_an_unknown_form_is_refused():
    with pytest.raises(ParameterError, match=r"Unknown format 'json'\. Did you mean jsonl\?"):
        from_stream("flow,level\n1,2\n", LAYOUT, form="json")


@pytest.mark.parametrize("cell", ["", " ", "NA", "null"])
def test_an_empty_time_is_a_missing_one(cell):
    assert from_stream(f"time,flow,level\n{cell},1,2\n", LAYOUT)[1] == [None]


@pytest.mark.parametrize(
    "text", ["date,time,flow,level\n2026-03-05,00:01,1,2", "date,start,flow,level\n2026-03-05,2026-03-04,1,2"]
)
def test_of_two_columns_with_times_one_has_to_be_named(text):
    not_read(text, r"Line 2 has more than one time: 'date', '(time|start)'\.")
    assert from_stream(text, LAYOUT._replace(time_column="date"))[1] == [1772668800.0]
    assert from_stream("time_on,time,flow,level\n12.5,2026-03-05,1,2\n", LAYOUT)[1] == [1772668800.0]


def test_a_boolean_is_no_missing_number_in_json():
    layout = GAPS._replace(dialect=Dialect(missing=("1", "-999")))
    ((first, second), _) = from_stream('{"flow": true, "level": 1}\n[2, "-999"]\n', layout, form="jsonl")
    assert first[0] == 1.0
    assert second[0] == 2.0
    assert math.isnan(first[1])
    assert math.isnan(second[1])


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("time,flow,note,level\n2026-03-05,1,a,2\n2026-03-06,1,b,2\n", "csv"),
        ('{"flow": 1, "level": 2}\n' + '{"flow": 1, "level": 2, "note": 3}\n' * 2, "jsonl"),
    ],
)
def test_ignored_fields_are_noted_once(text, form, caplog):
    with caplog.at_level("INFO", "cometad"):
        from_stream(text, LAYOUT, form=form)
    assert caplog.messages == ["Ignored 1 column the detector was not fitted on: 'note'."]

"""A stream reads times and numbers as a file does, and refuses what a file refuses, with the line."""

import math
from datetime import UTC

import pytest

from cometad.data.cells import StreamDates, StreamNumbers, checked_mark
from cometad.data.dialect import Dialect
from cometad.data.resample import Resampling
from cometad.data.tables import read_table
from cometad.data.text import Layout, Reading, readings
from cometad.errors import InputError, ModelFileError
from cometad.live.session import Clock, Grid
from contract import is_a_sentence

LAYOUT = Layout(["flow", "level"], named=True, time_column=None)


def from_stream(text, form="csv", layout=LAYOUT, numbers=None):
    return [*readings(text.splitlines(), form, layout, numbers)]


def refused(text, words, form="csv", layout=LAYOUT):
    with pytest.raises(InputError, match=words) as caught:
        from_stream(text, form, layout)
    assert is_a_sentence(str(caught.value))


def admitted(gate, *times):
    return [len([*gate.admit(Reading(line, [1.0, 2.0], time))]) for line, time in enumerate(times, 2)]


# -- times ----------------------------------------------------------------------------------------------------------

WRITTEN = [
    "2026-03-05T00:00:01.5",
    "2026/03/05 00:00",
    "2026-3-5 1:02",
    "05.03.2026 00:00",
    "13/03/2026",
    "12/31/2026 11:59 PM",
    "2026-03-05 00:00 UTC",
    "2026-03-05 00:00+01:00",
    "1772668800",
    "1772668800000",
    "1772668800000000",
    "1772668800000000000",
]


@pytest.mark.parametrize("time", WRITTEN)
def test_a_time_is_the_same_in_a_file_and_in_a_stream(tmp_path, time):
    (tmp_path / "plant.csv").write_text(f"time;flow\n{time};1\n")
    ((expected, _),) = read_table(tmp_path / "plant.csv").rows()
    seconds = StreamDates().seconds(time, line=2)
    assert seconds == (expected if expected.tzinfo else expected.replace(tzinfo=UTC)).timestamp()


@pytest.mark.parametrize(
    "time", ["Total", "31/12/25", "31.12.25 10:00", "5 Mar 2026", "24:00", "2026-03", "1,5", "１２"]
)
@pytest.mark.parametrize("gate", [Clock, lambda: Grid(Resampling("5min"), ["flow", "level"])])
def test_what_is_no_time_is_refused(gate, time):
    with pytest.raises(InputError, match=f"Line 2: '{time}' is not a time") as caught:
        admitted(gate(), time)
    assert is_a_sentence(str(caught.value))


@pytest.mark.parametrize("time", [math.nan, math.inf, -math.inf, 10**400, "1e999"])
@pytest.mark.parametrize("late", ["refuse", "drop"])
def test_a_time_that_is_not_finite_is_refused(time, late):
    clock = Clock(late=late)
    with pytest.raises(InputError, match="is not a time"):
        admitted(clock, time)
    assert admitted(clock, "2026-03-05 00:01") == [1]


def test_a_time_that_no_calendar_has_cannot_be_resampled():
    for time in (1e300, -1e300, 1e15 - 1):
        with pytest.raises(InputError, match="is out of range"):
            admitted(Grid(Resampling("5min"), ["flow", "level"]), time)


@pytest.mark.parametrize("time", ["05.03.2026 00:00", "03/13/2026 11:59 PM", "2026-03-05 00:00 UTC", "1772668800000"])
def test_late_and_repeated_times_are_found_however_they_are_written(time):
    with pytest.raises(InputError, match=f"Line 3: the time {time} is not after {time}"):
        admitted(Clock(), time, time)


@pytest.mark.parametrize(
    "times",
    [
        ("2026-03-05 00:00", "2026-03-05 00:01Z"),
        ("2026-03-05 00:00Z", "2026-03-05 00:01"),
        ("2026-03-05 00:00", "1972668800"),
        (7, "2026-03-05 00:00"),
    ],
)
def test_all_times_are_written_alike_also_after_a_snapshot(times):
    with pytest.raises(InputError, match="Write all times alike") as caught:
        admitted(Clock(), *times)
    assert is_a_sentence(str(caught.value))
    first, second = Clock(), Clock()
    admitted(first, times[0])
    second.restore(first.facts(), first.arrays())
    with pytest.raises(InputError, match="Write all times alike"):
        admitted(second, times[1])


def test_the_unit_of_numbers_is_that_of_the_first_also_after_a_snapshot():
    first, second = Clock(), Clock()
    admitted(first, 5, 10**12)  # counts something, and grows into the range of milliseconds
    second.restore(first.facts(), first.arrays())
    assert admitted(second, 10**12 + 1) == [1]


@pytest.mark.parametrize("change", [{"times_are": "odd"}, {"time_unit": 7}, {"last": "Total"}, {"last": math.nan}])
def test_a_snapshot_with_an_odd_time_is_refused(change):
    with pytest.raises(ModelFileError, match="its '"):
        Clock().restore(Clock().facts() | change, {})


def test_either_all_readings_have_a_time_or_none_has():
    assert admitted(Clock(), None, None) == [1, 1]
    with pytest.raises(InputError, match="Line 3 has no time, but the readings before it have one"):
        admitted(Clock(), "2026-03-05", None)
    with pytest.raises(InputError, match="Line 3 has a time, but the readings before it have none"):
        admitted(Clock(), None, "2026-03-05")


@pytest.mark.parametrize("cell", ["", " ", "NA", "null"])
def test_an_empty_time_is_a_missing_one(cell):
    assert from_stream(f"time,flow,level\n{cell},1,2\n")[0].time is None


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("date,time,flow,level\n2026-03-05,00:01,1,2\n", "csv"),
        ("date,start,flow,level\n2026-03-05,2026-03-04,1,2\n", "csv"),
        ('{"date": "2026-03-05", "time": "00:01", "flow": 1, "level": 2}', "jsonl"),
    ],
)
def test_two_fields_with_times_are_refused(text, form):
    refused(text, r"Line \d has more than one time: 'date', '(time|start)'\.", form)
    [reading] = from_stream(text, form, LAYOUT._replace(time_column="date"))
    assert reading.time == "2026-03-05"


def test_a_number_may_be_named_like_a_time_beside_a_date():
    [reading] = from_stream("time_on,time,flow,level\n12.5,2026-03-05,1,2\n")
    assert reading.time == "2026-03-05"


def test_a_column_of_dates_is_the_time_whatever_its_name():
    layout = LAYOUT._replace(names=["v0", "v1"], named=False)
    for header, which in (("Zeit,flow,level", LAYOUT), ("Zeit,a,b", layout)):
        assert from_stream(f"{header}\n05.03.2026,1,2\n", layout=which) == [Reading(2, [1.0, 2.0], "05.03.2026")]
    assert from_stream("number,flow,level\n20260305,1,2\n")[0].time is None


def test_a_boolean_is_no_time():
    refused('{"time": true, "flow": 1, "level": 2}', "the time 'time' is neither text nor a number", "jsonl")


# -- numbers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("flow,level\n9007199254740993,1\n", "csv"),
        ("flow,level\n -9007199254740993 ,1\n", "csv"),
        ('{"flow": "9007199254740993", "level": 1}', "jsonl"),
        ('{"flow": 9007199254740993, "level": 1}', "jsonl"),
    ],
)
def test_an_integer_that_a_float_rounds_is_refused(text, form):
    refused(text, "9007199254740993 ?, an integer too large to be exact", form)


def test_a_large_integer_that_a_float_holds_is_a_number():
    assert from_stream("flow,level\n9007199254740992,100000000000000000000\n")[0].values == [2.0**53, 1e20]


@pytest.mark.parametrize(("cells", "mark"), [(("1,5", "1.5"), "comma"), (("1.5", "1,5"), "point")])
def test_a_stream_has_one_decimal_mark(cells, mark):
    first, second = cells
    text = f"flow;level\n1;2\n{first};2\n1;{second}\n"
    refused(text, f"Line 4: variable 'level' is '{second}', .* numbers before it have a decimal {mark}")


def test_a_stream_keeps_its_decimal_mark_when_it_resumes():
    numbers = StreamNumbers()
    from_stream("flow;level\n1;2,5\n", numbers=numbers)
    resumed = StreamNumbers(mark=checked_mark(numbers.mark))
    with pytest.raises(InputError, match="numbers before it have a decimal comma"):
        from_stream("flow;level\n1;2.5\n", numbers=resumed)


@pytest.mark.parametrize("cell", ["1.234", "1.234,5", "5,", "1,5,3", "1 234"])
def test_with_a_given_decimal_comma_nothing_else_is_a_number(cell):
    layout = LAYOUT._replace(dialect=Dialect(decimal=","))
    assert from_stream("flow;level\n1,5;,5e1\n", layout=layout)[0].values == [1.5, 5.0]
    refused(f"flow;level\n1,5;{cell}\n", "Line 2: variable 'level' is '", layout=layout)


@pytest.mark.parametrize("cell", ["１２", "१२", "1_000"])
def test_other_digits_are_no_numbers_as_in_a_file(cell):
    refused(f"flow,level\n1,{cell}\n", "not a number")


def test_booleans_are_numbers_as_in_a_file(tmp_path):
    text = "flow,level\n1,TRUE\n2,false\n"
    (tmp_path / "plant.csv").write_text(text)
    assert [tuple(reading.values) for reading in from_stream(text)] == read_table(tmp_path / "plant.csv").rows()
    refused("flow,level\n1,TRUE\n2,7\n", "Line 3: variable 'level' is '7', but was TRUE or FALSE before")
    refused("flow,level\n1,7\n2,TRUE\n", "Line 3: variable 'level' is 'TRUE', not a number")


@pytest.mark.parametrize(
    "form, text",
    [
        ("csv", "flow,level\n1,-999\n2,-999.0\n3, -9.99e2\n"),
        ("csv", "flow;level\n1,5;-999\n2;-999,0\n3;-9,99e2\n"),
        ("jsonl", '{"flow": 1, "level": -999}\n{"flow": 2, "level": -999.0}\n{"flow": 3, "level": "-999"}\n'),
    ],
    ids=["point", "comma", "json"],
)
def test_a_number_as_missing_marker_means_that_value_as_in_a_file(form, text):
    layout = LAYOUT._replace(gaps=True, dialect=Dialect(missing=("Bad", "-999")))
    assert all(math.isnan(reading.values[1]) for reading in from_stream(text, form, layout))
    with pytest.raises(InputError, match=r"Line [12]: variable 'level' is missing"):
        from_stream(text, form, layout._replace(gaps=False))


def test_a_boolean_is_no_missing_number():
    layout = LAYOUT._replace(gaps=True, dialect=Dialect(missing=("1",)))
    ((_, values, *_),) = from_stream('{"flow": true, "level": 1}', "jsonl", layout)
    assert values[0] == 1.0
    assert math.isnan(values[1])


# -- fields ---------------------------------------------------------------------------------------------------------


def test_a_repeated_field_is_refused():
    refused('{"flow": 1, "level": 2, "flow": 3}', "Line 1 has the field 'flow' twice", "jsonl")


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("time,flow,note,level\n2026-03-05,1,a,2\n2026-03-06,1,b,2\n", "csv"),
        ('{"flow": 1, "level": 2}\n' + '{"flow": 1, "level": 2, "note": 3}\n' * 2, "jsonl"),
    ],
)
def test_ignored_fields_are_noted_once(text, form, caplog):
    with caplog.at_level("INFO", "cometad"):
        from_stream(text, form)
    assert caplog.messages == ["Ignored 1 column the detector was not fitted on: 'note'."]

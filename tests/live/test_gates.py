"""The gates of a stream: late, repeated, odd and missing times."""

import math

import pytest

from cometad.data.resample import Resampling
from cometad.data.text import Reading
from cometad.errors import InputError, ModelFileError
from cometad.live.session import Clock, Grid
from contract import is_a_sentence


def admitted(gate, *times):
    return [len([*gate.admit(Reading(line, [1.0, 2.0], time))]) for line, time in enumerate(times, 2)]


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
    second.restore(first.state())
    with pytest.raises(InputError, match="Write all times alike"):
        admitted(second, times[1])


def test_the_unit_of_numbers_is_that_of_the_first_also_after_a_snapshot():
    first, second = Clock(), Clock()
    admitted(first, 5, 10**12)  # counts something, and grows into the range of milliseconds
    second.restore(first.state())
    assert admitted(second, 10**12 + 1) == [1]


@pytest.mark.parametrize("change", [{"times_are": "odd"}, {"time_unit": 7}, {"last": "Total"}, {"last": math.nan}])
def test_a_snapshot_with_an_odd_time_is_refused(change):
    with pytest.raises(ModelFileError, match="its '"):
        Clock().restore(Clock().state() | change)


def test_either_all_readings_have_a_time_or_none_has():
    assert admitted(Clock(), None, None) == [1, 1]
    with pytest.raises(InputError, match="Line 3 has no time, but the readings before it have one"):
        admitted(Clock(), "2026-03-05", None)
    with pytest.raises(InputError, match="Line 3 has a time, but the readings before it have none"):
        admitted(Clock(), None, "2026-03-05")

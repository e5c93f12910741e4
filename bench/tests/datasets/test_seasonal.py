import numpy as np
import pytest

from cometad_bench.seasonal import APART, PROFILES, SEASONAL_FAULTS, ZONE, seasonal_table, with_seasonal_faults


@pytest.mark.parametrize("name", PROFILES)
def test_a_fault_has_normal_values_at_the_wrong_time(name):
    table = seasonal_table(name)
    values, faults = with_seasonal_faults(table, seed=3)
    assert sorted(fault.kind for fault in faults) == sorted(SEASONAL_FAULTS)
    faulty = np.zeros(len(values), bool)
    known = {tuple(row[:3]) for row in table.test}
    for fault in faults:
        own = slice(fault.start, fault.stop)
        faulty[own] = True
        assert {tuple(row[:3]) for row in values[own]} <= known
        assert (values[own, 0] != table.test[own, 0]).mean() > 0.5
    np.testing.assert_array_equal(values[~faulty], table.test[~faulty])
    starts = np.array([fault.start for fault in faults])
    assert np.diff(starts).min() > (APART - 9) * table.per_day


def test_the_same_seed_gives_the_same_table_and_faults():
    first, second, other = seasonal_table("water"), seasonal_table("water"), seasonal_table("water", seed=1)
    np.testing.assert_array_equal(first.values, second.values)
    assert (first.values != other.values).any()
    assert with_seasonal_faults(first, 1)[1] == with_seasonal_faults(second, 1)[1]
    assert with_seasonal_faults(first, 1)[1] != with_seasonal_faults(first, 2)[1]


@pytest.mark.parametrize("name", PROFILES)
def test_a_table_follows_the_local_hour_across_the_end_of_summer_time(name):
    table = seasonal_table(name)
    zones = {time.utcoffset() for time in table.times[table.split :]}
    assert len(zones) == 2
    assert table.times[0].tzinfo is ZONE
    hours = np.array([time.hour for time in table.times])
    summer = np.array([time.utcoffset() == max(zones) for time in table.times])
    working = np.array([time.weekday() < 5 for time in table.times])

    def usual(part):
        return [table.values[(hours == hour) & working & part, 0].mean() for hour in range(24)]

    assert np.corrcoef(usual(summer), usual(~summer))[0, 1] > 0.98


def test_a_frame_has_times_in_utc():
    table = seasonal_table("office")
    frame = table.frame(table.test[:3], table.split)
    assert str(frame["time"][0]) == "2025-09-28 22:00:00"  # midnight in Berlin
    assert frame.columns == ["time", "load", "return", "second", "ambient"]

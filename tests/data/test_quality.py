"""Problems with readings are found and described in a sentence, in chunks as at once."""

import itertools
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometad.data import quality
from cometad.data.quality import CONVERSIONS, Inspection, Statistics, findings, likely_conversion
from cometad.errors import InputError
from contract import is_a_sentence, waves

NAMES = ["flow", "level", "heat"]
LEVELS = np.array([20.0, 5.0, 300.0])
NORMAL = waves(2000) + LEVELS  # each within about 1.3 of its level
FRESH = waves(1500, seed=1) + LEVELS


def frame(values, seconds=None):
    table = pl.DataFrame(values, schema=NAMES[: values.shape[1]])
    return (
        table
        if seconds is None
        else table.with_columns(pl.Series("time", np.asarray(seconds) * 1000).cast(pl.Datetime("ms")))
    )


KNOWN = Statistics.fit(frame(NORMAL, np.arange(len(NORMAL)) * 60))


def changed(rows, variable, value):
    values = FRESH.copy()
    values[rows, variable] = value
    return values


def found(values, seconds=None):
    result = findings(frame(values, seconds), KNOWN)
    assert all(is_a_sentence(finding.sentence) for finding in result)
    return [(finding.kind, finding.variable, finding.start, finding.stop) for finding in result]


# -- nothing, and each kind -----------------------------------------------------------------------------------------


def test_normal_readings_have_no_findings():
    assert found(NORMAL) == found(FRESH) == []
    assert found(FRESH, np.arange(len(FRESH)) * 60) == []


def test_a_constant_variable_is_reported_at_fit_and_when_it_moves():
    still = NORMAL.copy()
    still[:, 1] = 5.0
    known = Statistics.fit(frame(still))
    (finding,) = findings(frame(still), known)
    assert (finding.kind, finding.variable, finding.start, finding.stop) == ("constant", "level", 0, len(still))
    assert finding.sentence.startswith("Variable 'level' is always 5 in training")
    (moves,) = findings(frame(changed(7, 1, 7.5)), known)
    assert "Here it ranges from " in moves.sentence
    assert moves.sentence.endswith("to 7.5.")


def test_a_dead_sensor_is_found_where_it_is_stuck():
    assert found(changed(slice(400, 700), 0, 20.3)) == [("dead", "flow", 400, 700)]


def test_a_sensor_that_often_holds_its_value_is_not_dead():
    steps = np.repeat(np.arange(20.0), 100)[:, None]  # 100 readings each
    known = Statistics.fit(steps)
    assert known.longest.tolist() == [100]
    longer = np.concatenate([np.full((quality.DEAD_FACTOR * 100 - 1, 1), 3.0), steps])
    assert findings(longer, known) == []
    (dead,) = findings(np.concatenate([longer[:3], longer]), known)
    assert (dead.kind, dead.start, dead.stop) == ("dead", 0, quality.DEAD_FACTOR * 100 + 2)


def test_missing_readings_do_not_hide_a_dead_sensor():
    values = changed(slice(400, 700), 0, 20.3)
    values[500:520, 0] = np.nan
    assert ("dead", "flow", 400, 700) in found(values)


@pytest.mark.parametrize("conversion", CONVERSIONS, ids=lambda conversion: conversion.name)
def test_every_change_of_units_is_found_where_it_starts(conversion):
    values = FRESH.copy()
    values[300:, 0] = conversion.factor * values[300:, 0] + conversion.offset
    kinds = found(values)
    assert kinds == [("unit", "flow", 300, len(values))]
    (finding,) = findings(frame(values), KNOWN)
    assert finding.sentence.endswith(f"a change from {conversion} would explain it. Check its unit.")


def test_a_change_of_units_around_zero_shows_in_the_spread():
    around_zero = NORMAL[:, :1] - 20
    known = Statistics.fit(around_zero)
    for factor in (1000, 0.001):
        (finding,) = findings((FRESH[:, :1] - 20) * factor, known)
        assert finding.kind == "unit"


def test_readings_that_no_unit_explains_are_out_of_range():
    assert found(changed(slice(500, 1500), 2, np.linspace(600, 4000, 1000))) == [("range", "heat", 500, 1500)]
    assert found(changed(slice(500, 510), 2, 900.0)) == []  # a few readings may be an anomaly, which is up to the score
    stuck = changed(slice(0, 1500), 0, 20_000.0)  # constant readings reveal no factor
    assert [kind for kind, *_ in found(stuck)] == ["dead", "range"]


def test_a_calm_process_is_not_a_change_of_units():
    assert found(changed(slice(None), 0, 20 + (FRESH[:, 0] - 20) / 1000)) == []


def test_a_missing_column_is_named():
    gone = frame(FRESH).drop("level")
    (finding,) = findings(gone, KNOWN)
    assert (finding.kind, finding.variable, finding.start, finding.stop) == ("missing", "level", 0, len(FRESH))
    with pytest.raises(InputError, match="fitted on a variable 'level' where this series has 'speed'"):
        findings(frame(FRESH).rename({"level": "speed"}), KNOWN)


def test_gaps_are_counted():
    values = changed(slice(100, 108), 1, np.nan)
    values[[3, 50], 1] = np.nan
    (finding,) = findings(frame(values), KNOWN)
    assert (finding.kind, finding.variable, finding.start, finding.stop) == ("gaps", "level", 100, 108)
    assert "missing in 10 of 1,500 readings; the longest gap, from time step 100, has length 8." in finding.sentence


def test_times_are_checked():
    regular = np.arange(len(FRESH)) * 60
    assert found(FRESH, regular // 2) == [("period", None, 0, len(FRESH))]
    late = regular.copy()
    late[700:] += 3600
    assert found(FRESH, late) == [("irregular", None, 700, 701)]
    assert "1 of 1,499 intervals" in findings(frame(FRESH, late), KNOWN)[0].sentence
    twice = regular.copy()
    twice[10] = twice[9]
    assert ("duplicate", None, 10, 11) in found(FRESH, twice)
    once = "Repeated timestamps: 1, the first at time step 10. Keep one reading for each."
    assert once in [finding.sentence for finding in findings(frame(FRESH, twice), KNOWN)]
    swapped = regular.copy()
    swapped[[20, 21]] = swapped[[21, 20]]
    assert ("unsorted", None, 21, 22) in found(FRESH, swapped)


# -- chunks ---------------------------------------------------------------------------------------------------------

CELL = st.sampled_from([0.0, 1.0, 1.0, 2.0, 9.0, math.nan])


@given(
    rows=st.lists(st.tuples(CELL, CELL, st.integers(0, 3)), min_size=1, max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=5),
    sample=st.integers(1, 20),
)
def test_chunks_change_nothing(rows, cuts, sample):
    values = np.array([row[:2] for row in rows])
    table = frame(values, np.cumsum([row[2] for row in rows]))
    known = Statistics(("flow", "level"), KNOWN.quantiles[:, :2] - KNOWN.center[:2], np.array([1, 1]), 1.0)
    limits = {"SAMPLE": sample, "LEAST_DEAD": 3, "DEAD_FACTOR": 2, "LEAST_OUTSIDE": 2}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in limits.items():
            patch.setattr(quality, name, value)
        inspection = Inspection(known)
        for start, stop in itertools.pairwise([0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]):
            if stop > start:
                inspection.push(table[start:stop])
        assert inspection.findings() == findings(table, known)
        (dead,) = [f for f in inspection.findings() if (f.kind, f.variable) == ("dead", "flow")] or [None]
        measured = [(step, row[0]) for step, row in enumerate(rows) if not math.isnan(row[0])]
        runs = [list(run) for _, run in itertools.groupby(measured, key=lambda cell: cell[1])]
        longest = max(runs, key=len, default=[])
        expected = (longest[0][0], longest[-1][0] + 1) if len(longest) >= 3 else None
        assert (dead and (dead.start, dead.stop)) == expected


def test_an_inspection_holds_a_bounded_sample():
    inspection = Inspection(KNOWN)
    for _ in range(20):
        inspection.push(FRESH)
    assert len(inspection._sample.kept) <= quality.SAMPLE


# -- statistics -----------------------------------------------------------------------------------------------------


def test_statistics_ignore_missing_readings():
    values = NORMAL.copy()
    values[::3] = np.nan
    known = Statistics.fit(frame(values, np.arange(len(values)) * 10))
    measured = NORMAL[np.arange(len(NORMAL)) % 3 != 0]
    assert np.array_equal(known.center, np.median(measured, axis=0))
    assert np.array_equal(known.quantiles[[0, -1]], [measured.min(axis=0), measured.max(axis=0)])
    assert known.period == 10.0
    assert math.isnan(Statistics.fit(NORMAL).period)


def test_constant_readings_suggest_no_conversion():
    assert likely_conversion(np.full(5, 68.0), np.linspace(18, 24, 5)) is None
    assert likely_conversion(np.full(5, np.nan), np.linspace(18, 24, 5)) is None

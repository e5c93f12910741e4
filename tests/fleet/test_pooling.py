"""Pooling: entities with few readings borrow from others, by a formula that is checked against loops."""

import math

import numpy as np
import polars as pl
import pytest

from cometad import Budget, Comet, Fleet
from cometad.fleet.pooling import DONATED, DONORS, STEADY, candidates, correlations, donation, nearest, pooled_series
from cometad.series import as_series
from fleet_case import machine_rows


def naive_moments(column):
    known = [value for value in column if not math.isnan(value)]
    mean = sum(known) / len(known)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in known) / len(known))


def naive_pooled(own, donors):
    """The rule of pooling.py as loops, from its text."""
    rows = []
    for donor in donors:
        for t in range(max(0, len(donor) - DONATED), len(donor)):
            row = []
            for i in range(own.shape[1]):
                mean, deviation = naive_moments(own[:, i])
                squares = sorted(naive_moments(each[:, i])[1] ** 2 for each in donors)
                half = len(squares) // 2
                median = squares[half] if len(squares) % 2 else (squares[half - 1] + squares[half]) / 2
                n = len(own)
                unit = math.sqrt((n * deviation**2 + STEADY * median) / (n + STEADY))
                theirs, spread = naive_moments(donor[:, i])
                row.append(mean + unit * (donor[t, i] - theirs) / (spread or 1.0))
            rows.append(row)
    return np.array([*rows, *own])


@pytest.mark.parametrize("rows, donors", [(1, 1), (7, 2), (30, 3)])
def test_pooled_readings_follow_the_formula(rows, donors):
    rng = np.random.default_rng(rows)
    own = rng.normal([5, -3, 7], [2, 0.5, 0], size=(rows, 3))
    others = [rng.normal(k, [1, 2 + k, 3], size=(20 + k, 3)) for k in range(donors)]
    others[0][3, 1] = np.nan  # a gap
    lent = [donation(str(k), as_series(each, missing=True)) for k, each in enumerate(others)]
    np.testing.assert_allclose(pooled_series(as_series(own), lent).values, naive_pooled(own, others), rtol=1e-12)


def test_borrowed_readings_come_before_the_entitys_own_with_its_period():
    times = np.datetime64("2026-03-01", "us") + np.arange(5) * np.timedelta64(60, "s")
    frame = pl.DataFrame({"time": times, "flow": np.arange(5.0)})
    lent = donation("other", as_series(np.random.default_rng(0).normal(size=(10, 1))))
    found = pooled_series(as_series(frame), [lent])
    assert len(found) == len(found.times) == 15
    assert set(np.diff(found.times)) == {np.timedelta64(60, "s")}


def test_the_nearest_donors_move_like_the_entity():
    rng = np.random.default_rng(0)
    base = rng.normal(size=(500, 1))
    together, apart = base + 0.1 * rng.normal(size=(500, 2)), rng.normal(size=(500, 2))
    donors = [donation(f"apart {k}", as_series(apart + k)) for k in range(6)]
    donors += [donation("together", as_series(together))]
    chosen = nearest(correlations(together[:50]), donors)
    assert chosen[0].name == "together"
    assert len(chosen) == DONORS


def test_donors_depend_on_names_and_lengths_only():
    readings = {f"pump {k}": 10 * k for k in range(100)}
    backwards = dict(reversed(readings.items()))
    assert candidates(readings, 500) == candidates(backwards, 500)
    assert all(readings[name] >= 500 for name in candidates(readings, 500))


def test_entities_with_few_readings_borrow_and_the_others_do_not(tmp_path):
    data = {f"old {k}": pl.DataFrame(machine_rows(600, k)) for k in range(3)}
    data["new"] = pl.DataFrame(machine_rows(40, 9))
    data["alone"] = data["new"].rename({"flow": "speed"})
    fleet = Fleet.fit(data, folder=tmp_path / "fleet", engine="serial", pool=500)
    assert fleet.run.pooled == 1
    assert set(fleet.entries["new"].donors) == {"old 0", "old 1", "old 2"}
    assert fleet.content("old 1") == Comet().fit(data["old 1"]).to_bytes()
    assert "fewer than the views need" in fleet.entries["alone"].error
    assert fleet["new"].trim is False
    fresh = pl.DataFrame(machine_rows(400, 10))
    broken = fresh.with_columns(
        pl.when(pl.int_range(400).is_between(200, 220)).then(4.0).otherwise("flow").alias("flow")
    )
    assert fleet["new"].predict(fresh).mean() < 0.05
    assert fleet["new"].predict(broken)[200:203].any()


def test_a_pooled_detector_knows_how_many_readings_a_day_has(tmp_path):
    times = np.datetime64("2026-03-01", "us") + np.arange(600) * np.timedelta64(60, "s")
    frames = {
        name: pl.DataFrame({"time": times[:rows], **machine_rows(rows, rows)}) for name, rows in (("a", 600), ("b", 30))
    }
    detector = Comet(threshold=Budget(alerts_per_day=3))
    fleet = Fleet.fit(frames, folder=tmp_path / "fleet", engine="serial", pool=500, detector=detector)
    assert fleet["b"].statistics_.period == 60


def test_pooling_gives_the_same_bytes_on_every_engine(tmp_path):
    data = {f"old {k}": pl.DataFrame(machine_rows(300, k)) for k in range(2)} | {
        "new": pl.DataFrame(machine_rows(30, 9))
    }
    one, two = (
        Fleet.fit(data, folder=tmp_path / engine, engine=engine, workers=2, pool=200) for engine in ("serial", "local")
    )
    assert one.content("new") == two.content("new")

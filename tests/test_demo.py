"""The demo: its verdict on each planted fault, its output and its files."""

import re

import numpy as np
import pytest

from cometad import demo
from cometad.alerting.alerts import Event
from cometad.datasets.synthetic import Fault, synthetic_plant


def live(flagged: list[int], blamed: int) -> demo.Live:
    flags = np.zeros(50, np.int64)
    flags[flagged] = 1
    variables = np.zeros((50, 4))
    variables[:, blamed] = 1.0
    scores = flags.astype(float)
    return demo.Live(scores, np.ones(50), flags, variables, scores)


def judged(fault: Fault, flagged: list[int], blamed: int, alerts: list[demo.Alert]) -> demo.FaultResult:
    return demo.judge(fault, demo.Watched(live(flagged, blamed), alerts, None))


def alert(start: int, stop: int, raised: int) -> demo.Alert:
    return demo.Alert(raised, Event(1, start, stop, start, 1.0, 0.5, 1, open=False))


def test_an_alert_during_a_fault_finds_it_with_its_delay_and_variable():
    result = judged(Fault("spike", 10, 20, (2,)), [3, 14, 15], 2, [alert(14, 16, raised=16)])
    assert (result.found, result.delay, result.blamed) == (True, 6, (2,))


def test_an_alert_that_was_open_before_a_fault_finds_it_at_its_first_flag():
    result = judged(Fault("spike", 10, 20, (2,)), [8, 14], 2, [alert(8, 15, raised=9)])
    assert (result.found, result.delay) == (True, 4)


def test_an_alert_before_or_after_a_fault_does_not_find_it():
    around = [alert(9, 10, raised=9), alert(20, 21, raised=20)]
    result = judged(Fault("spike", 10, 20, (2,)), [9, 20], 1, around)
    assert (result.found, result.delay, result.blamed) == (False, None, (1,))


def test_a_flag_that_raises_no_alert_does_not_find_a_fault():
    assert not judged(Fault("spike", 10, 20, (2,)), [14], 2, []).found


def test_an_alert_soon_after_a_fault_is_not_false():
    flushed = demo.Flushed(synthetic_plant(train_rows=500, test_rows=2000, faults_per_kind=1), 0, (5,))
    stop = flushed.plant.faults[-1].stop
    soon, late, early, flush = (alert(step, step + 1, raised=step) for step in (stop + 63, stop + 64, 0, 128))
    assert demo.false_alerts(flushed, [early, flush, soon, late]) == [early, late]
    assert demo.flush_alerts(flushed, [early, flush, soon, late]) == [flush]


@pytest.mark.parametrize("seed", range(5))
def test_flushes_are_apart_from_faults_and_touch_one_healthy_sensor(seed):
    plant = synthetic_plant(seed=seed)
    flushed = demo.flush(plant)
    changed = flushed.plant.test != plant.test
    assert np.flatnonzero(changed.any(axis=0)).tolist() == [flushed.variable]
    assert all(flushed.variable not in fault.variables for fault in plant.faults)
    assert len(flushed.starts) == 4
    for start in flushed.starts:
        assert changed[start + 1 : start + 59, flushed.variable].all()
        assert not plant.labels[start - 100 : start + 160].any()


def test_the_demo_finds_all_but_one_fault_within_its_budget_and_writes_a_picture_and_a_report(tmp_path, capsys):
    demo.run(tmp_path / "out", seed=1)
    printed = capsys.readouterr().out
    for kind in ("spike", "context", "shape", "correlation", "stuck"):
        assert printed.count(kind) >= 2
    numbers = re.search(r"(\d+)\s+alerts\s+in .*,\s+(\d+)\s+of\s+them\s+false;.*allows\s+(\d+)", printed, re.DOTALL)
    alerts, false, allowed = map(int, numbers.groups())
    assert false <= 2
    assert alerts <= allowed
    assert printed.count(" yes ") >= 9
    assert "Verdict: normal." in printed
    assert "which was called normal; 0 raised one after that" in " ".join(printed.split())
    stuck = [line for line in printed.splitlines() if line.startswith(" stuck")]
    assert len(stuck) == 2
    assert all(" yes " in line for line in stuck)
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["demo.png", "report.html"]
    assert (tmp_path / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "12,000" in page
    assert re.search(r"mostly (unit\d|plant)_", page)
    assert "report.html" in printed

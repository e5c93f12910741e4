"""The demo: its verdict on each planted fault, its output and its files."""

import re

import numpy as np

from cometad import demo
from cometad.datasets.synthetic import Fault


def live(flagged: list[int], blamed: int) -> demo.Live:
    flags = np.zeros(50, np.int64)
    flags[flagged] = 1
    variables = np.zeros((50, 4))
    variables[:, blamed] = 1.0
    scores = flags.astype(float)
    return demo.Live(scores, np.ones(50), flags, variables, scores)


def test_an_alert_during_a_fault_finds_it_with_its_delay_and_variable():
    result = demo.judge(Fault("spike", 10, 20, (2,)), live([3, 14, 15], blamed=2))
    assert (result.found, result.delay, result.blamed) == (True, 4, (2,))


def test_an_alert_before_or_after_a_fault_does_not_find_it():
    result = demo.judge(Fault("spike", 10, 20, (2,)), live([9, 20], blamed=1))
    assert (result.found, result.delay, result.blamed) == (False, None, (1,))


def test_the_demo_prints_every_fault_and_writes_a_picture_and_a_report(tmp_path, capsys):
    demo.run(tmp_path / "out", seed=0)
    printed = capsys.readouterr().out
    for kind in ("spike", "context", "shape", "correlation", "stuck"):
        assert printed.count(kind) >= 2
    alerts, false, allowed = map(
        int, re.search(r"(\d+) alerts in .*, (\d+) of\s+them false;.*allows\s+(\d+)", printed, re.S).groups()
    )
    assert false < 10 <= alerts <= allowed
    assert printed.count(" yes ") == 10
    stuck = [line for line in printed.splitlines() if line.startswith(" stuck")]
    assert len(stuck) == 2
    assert all(" yes " in line for line in stuck)
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["demo.png", "report.html"]
    assert (tmp_path / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "12,000" in page
    assert re.search(r"mostly (unit\d|plant)_", page)
    assert "report.html" in printed

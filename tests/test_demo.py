"""The demo: its verdict on each planted fault, its output and its files."""

import re

import numpy as np

from cometad import NetworkComet, demo
from cometad.datasets.synthetic import Fault
from cometad.network.schedules import OneCycle


def live(flagged: list[int], blamed: int) -> demo.Live:
    flags = np.zeros(50, np.int64)
    flags[flagged] = 1
    variables = np.zeros((50, 4))
    variables[:, blamed] = 1.0
    return demo.Live(flags.astype(float), flags, variables)


def test_an_alert_during_a_fault_finds_it_with_its_delay_and_variable():
    result = demo.judge(Fault("spike", 10, 20, (2,)), live([3, 14, 15], blamed=2))
    assert (result.found, result.delay, result.blamed) == (True, 4, (2,))


def test_an_alert_before_or_after_a_fault_does_not_find_it():
    result = demo.judge(Fault("spike", 10, 20, (2,)), live([9, 20], blamed=1))
    assert (result.found, result.delay, result.blamed) == (False, None, (1,))


def test_the_demo_prints_every_fault_and_writes_a_picture_and_a_report(tmp_path, capsys, monkeypatch):
    # A hundredth of the demo's training: what it finds does not matter here.
    monkeypatch.setattr(
        demo, "Comet", lambda **changes: NetworkComet(schedule=OneCycle(4), codebook_size=32, **changes)
    )
    demo.run(tmp_path / "out", seed=0)
    printed = capsys.readouterr().out
    for kind in ("spike", "context", "shape", "correlation", "stuck"):
        assert printed.count(kind) >= 2
    assert "without adaptation" in " ".join(printed.split())
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["demo.png", "report.html"]
    assert (tmp_path / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "12,000" in page
    assert re.search(r"mostly (unit\d|plant)_", page)
    assert "report.html" in printed

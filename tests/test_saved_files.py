"""Files saved by earlier versions still load and give the same scores; tests/fixtures/make_0_1.py wrote them."""

import json
from pathlib import Path

import llvmlite.binding
import numpy as np
import pytest

from cometad import Comet, NetworkComet
from cometad.checkpoint import kind_of
from cometad.detectors import load

FIXTURES = Path(__file__).parent / "fixtures"
FACTS = json.loads((FIXTURES / "facts.json").read_text())
NAMES = sorted(path.stem for path in FIXTURES.glob("*.comet"))


@pytest.fixture(scope="module")
def known():
    return np.load(FIXTURES / "scores.npz")


def assert_same(found, expected):
    """Require equal bits on the CPU model that wrote the files; on others, vector widths change the last digits."""
    if llvmlite.binding.get_host_cpu_name() == FACTS["cpu"]:
        assert np.asarray(found).tobytes() == expected.tobytes()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def series_for(detector, known):
    return known["gappy" if detector.gaps.allowed else "fresh"]


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_detector_gives_the_same_scores_flags_and_events(name, known):
    detector = load(FIXTURES / f"{name}.comet")
    series = series_for(detector, known)
    assert_same(detector.decision_function(series), known[name])
    assert np.array_equal(detector.predict(series), known[f"{name}.flags"])
    events = [[event.start, event.stop] for event in detector.events(series)]
    assert events == [event[:2] for event in FACTS["events"][name]]  # severity had another meaning


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("comet")])
def test_a_saved_stream_continues_with_the_same_scores(name, known):
    detector = NetworkComet.load(FIXTURES / f"{name}.comet")
    stream = detector.stream((FIXTURES / f"{name}.snapshot").read_bytes())
    rest = np.concatenate([stream.update_many(series_for(detector, known)[150:]), stream.finish()])
    assert_same(rest, known[f"{name}.rest"])


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("comet")])
def test_a_saved_comet_gives_the_same_explanation(name, known):
    detector = NetworkComet.load(FIXTURES / f"{name}.comet")
    why = detector.explain(series_for(detector, known), 130)
    shares = [reason.share for reason in sorted(why.reasons, key=lambda reason: reason.variable)]
    np.testing.assert_allclose(shares, known[f"{name}.shares"], rtol=1e-4)
    np.testing.assert_allclose(why.normal, known[f"{name}.normal"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("comet")])
@pytest.mark.parametrize("loader", [load, Comet.load, NetworkComet.load])
def test_a_comet_saved_without_views_loads_as_a_network_comet_and_is_saved_as_one(loader, name, known, tmp_path):
    detector = loader(FIXTURES / f"{name}.comet")
    assert type(detector) is NetworkComet
    detector.save(tmp_path / "again.comet")
    assert b'"kind\\": \\"NetworkComet' in (tmp_path / "again.comet").read_bytes()
    assert kind_of(tmp_path / "again.comet") == kind_of(FIXTURES / f"{name}.comet") == "NetworkComet"
    series = series_for(detector, known)
    again = loader(tmp_path / "again.comet").decision_function(series)
    assert again.tobytes() == detector.decision_function(series).tobytes()

"""What NetworkComet does only once, because fleets open thousands of streams and explain many events."""

import pytest

from cometad import NetworkComet, Quantile, detector, network_comet, saved_detector
from cometad.network import NoAdaptation, OneCycle
from contract import FRESH, NORMAL

SMALL = {"window": 32, "window_stride": 16, "dim": 8, "core_dim": 6, "codebook_size": 16, "test_batch": 2}


@pytest.fixture
def counted(monkeypatch):
    """Replace a name in a module by the same thing, which also counts its calls."""

    def count(place, name):
        calls, real = [], getattr(place, name)
        monkeypatch.setattr(place, name, lambda *args, **kwargs: (calls.append(name), real(*args, **kwargs))[1])
        return calls

    return count


def small():
    return NetworkComet(**SMALL, schedule=OneCycle(3), adaptation=NoAdaptation())


def test_a_fit_builds_one_scorer(counted):
    built = counted(network_comet, "Scorer")
    small().fit(NORMAL)
    assert len(built) == 1


def test_streams_of_one_detector_hash_its_state_once(counted):
    fitted = small().fit(NORMAL)
    hashed = counted(saved_detector, "saved_state")
    snapshots = {fitted.stream().snapshot() for _ in range(5)}
    assert len(hashed) == 1
    assert len(snapshots) == 1


def test_another_threshold_is_another_detector_to_a_snapshot():
    fitted = small().fit(NORMAL)
    other = fitted.with_threshold(Quantile(0.2))
    assert fitted.stream().snapshot() != other.stream().snapshot()


def test_an_explainer_checks_its_series_once(counted):
    fitted = small().fit(NORMAL)
    checked = counted(detector, "as_series")
    explain = fitted.explainer(FRESH)
    peaks = [explain(step, 4).peak for step in (50, 100, 150)]
    assert len(checked) == 1
    assert peaks == [fitted.explain(FRESH, step, context=4).peak for step in (50, 100, 150)]

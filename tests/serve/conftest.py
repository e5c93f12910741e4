"""Detectors for the tests of the service, fitted once, and a PostgreSQL server that the tests start themselves."""

import pytest

from cometad import Budget, Comet, load
from cometad.data import ForwardFill
from serve_case import frame, in_process, plant, upload


@pytest.fixture(scope="session")
def pump(tmp_path_factory):
    """A fitted detector, and the file it was saved to."""
    file = tmp_path_factory.mktemp("detectors") / "pump.comet"
    Comet(threshold=Budget(rate=0.01)).fit(frame(plant(1500))).save(file)
    return load(file), file.read_bytes()


@pytest.fixture(scope="session")
def gappy(tmp_path_factory):
    """A fitted detector with a gap rule, and the file it was saved to."""
    file = tmp_path_factory.mktemp("detectors") / "gappy.comet"
    Comet(threshold=Budget(rate=0.01), gaps=ForwardFill(3)).fit(frame(plant(1500))).save(file)
    return load(file), file.read_bytes()


@pytest.fixture(scope="module")
def running(tmp_path_factory, pump, gappy):
    """One service for tests that use streams of their own."""
    with in_process(tmp_path_factory.mktemp("data")) as (service, client):
        upload(client, "pump", pump[1])
        upload(client, "gappy", gappy[1])
        yield service, client

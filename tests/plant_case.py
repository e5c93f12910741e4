"""What the tests of the plant's connectors share: a service with a stream, and a source that feeds it."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cometad import Budget, Comet
from cometad.alerting.alerts import Alerts
from cometad.connect.address import Address
from cometad.connect.intake import Connection, Intake
from cometad.connect.source import source_of, supervise
from cometad.data import ForwardFill
from cometad.serve.models import StreamSettings
from cometad.serve.service import Service
from cometad.serve.settings import Settings
from cometad.serve.sources import Connections, rejected
from serve_case import SETTINGS, WAIT, frame, plant, until


@pytest.fixture(scope="session")
def pump_file(tmp_path_factory):
    """A saved detector of three variables."""
    file = tmp_path_factory.mktemp("detectors") / "pump.comet"
    Comet(threshold=Budget(rate=0.01)).fit(frame(plant(1500))).save(file)
    return file


@pytest.fixture(scope="session")
def gappy_file(tmp_path_factory):
    """A saved detector with a gap rule."""
    file = tmp_path_factory.mktemp("detectors") / "gappy.comet"
    Comet(threshold=Budget(rate=0.01), gaps=ForwardFill(3)).fit(frame(plant(1500))).save(file)
    return file


@contextmanager
def service_in(folder: Path, detector: Path, *streams: str) -> Iterator[Service]:
    """A service with streams of one detector."""
    with closing(Service(Settings(data_dir=folder))) as service:
        service.start()
        until(lambda: service.ready)
        service.detectors.add("pump", detector.read_bytes())
        for name in streams:
            service.put_stream(name, StreamSettings(**SETTINGS))
        yield service


@contextmanager
def feeding(
    service: Service, address: Address, changed: Callable[[Connection], None] = lambda one: None
) -> Iterator[Connection]:
    """A source that feeds a service; gives the state of the connection."""
    connections = Connections([address], service, changed)
    connections.start()
    try:
        yield connections.by_name[address.name]
    finally:
        connections.stop()


def read_to_end(service: Service, address: Address) -> Connection:
    """The connection of a source that has an end, once it was reached."""
    connection = Connection(address.name, address.shown)
    asyncio.run(asyncio.wait_for(supervise(source_of(address), Intake(service, connection)), WAIT))
    return connection


def run_until(address: Address, service: Service, state: str) -> Connection:
    """The connection as soon as it has a state."""
    with feeding(service, address) as connection:
        until(lambda: connection.state == state)
        return connection


def reasons(service: Service, address: Address) -> list[str]:
    """Why messages were set aside, oldest first."""
    return [row.reason for row in reversed(rejected(service.store, address.name, 1000))]


def stored(folder: Path, table: str, stream: int = 1) -> np.ndarray:
    """What a table has of a stream (row, column), checked to follow each other."""
    with closing(sqlite3.connect(f"file:{folder / 'cometad.sqlite'}?mode=ro", uri=True)) as connection:
        query = f"SELECT first, count, cells FROM {table} WHERE stream_id = ? ORDER BY first"
        chunks = connection.execute(query, [stream]).fetchall()
    if not chunks:
        return np.empty((0, 0))
    ends = np.cumsum([count for _, count, _ in chunks])
    assert [first for first, _, _ in chunks] == [0, *ends[:-1].tolist()]
    return np.frombuffer(b"".join(cells for _, _, cells in chunks), "<f8").reshape(int(ends[-1]), -1)


def stored_events(folder: Path, stream: int = 1) -> list[Sequence[Any]]:
    """The events of a stream: number, start, stop, peak, steps and highest score."""
    with closing(sqlite3.connect(f"file:{folder / 'cometad.sqlite'}?mode=ro", uri=True)) as connection:
        query = "SELECT number, start, stop, peak, steps, peak_score FROM events WHERE stream_id = ? ORDER BY number"
        return connection.execute(query, [stream]).fetchall()


def wanted(detector: Any, values: np.ndarray) -> tuple[np.ndarray, list[Sequence[Any]]]:
    """The scores (row, column) and events of a run that nobody interrupts."""
    alerts = Alerts(min_length=SETTINGS["min_length"], merge_gap=SETTINGS["merge_gap"])
    scored = detector.stream(alerts=alerts).update_many(values)
    last = {change.event.number: change.event for change in scored.changes}
    events = [(one.number, one.start, one.stop, one.peak, one.steps, one.peak_score) for one in last.values()]
    return np.column_stack([scored.alert_scores, scored.thresholds, scored.flags]), events

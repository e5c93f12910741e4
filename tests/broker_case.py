"""What the tests of brokers share: streams, a source that feeds a service, and two processes that are killed."""

import json
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select

from cometad import load
from cometad.connect.address import Address
from cometad.connect.intake import Connection
from cometad.serve.models import StreamSettings
from cometad.serve.service import Service
from cometad.serve.settings import Settings
from cometad.serve.storage import schema
from cometad.serve.storage.history import by_number, next_number
from cometad.serve.storage.store import Store
from plant_case import feeding, wanted
from serve_case import NAMES, SETTINGS, START, Server, faulty, put, until, upload

Publish = Callable[[list[tuple[str, bytes]]], None]


def bodies(values: np.ndarray, first: int = 0, timed: bool = True) -> list[bytes]:
    """Messages with one reading each; without times, only their order tells them apart."""
    rows = [dict(zip(NAMES, row, strict=True)) for row in values.tolist()]
    return [json.dumps({"time": START + i, **row} if timed else row).encode() for i, row in enumerate(rows, first)]


@pytest.fixture(scope="session")
def pump(pump_file):
    """A detector of three variables, and its file."""
    return load(pump_file), pump_file.read_bytes()


@pytest.fixture
def service(tmp_path, pump):
    """A service with the streams a and b."""
    with closing(Service(Settings(data_dir=tmp_path))) as service:
        service.start()
        prepare(service, pump[1], ["a", "b"])
        yield service


def scored(service: Any, stream: str, count: int) -> None:
    """Wait until `count` readings of a stream are scored and stored."""

    def are_stored() -> bool:
        found = service.streams[stream]
        with service.store.read() as connection:
            return next_number(connection, schema.scores, found.id) - found.row.first_step >= count

    until(are_stored)


def prepare(service: Any, content: bytes, streams: Sequence[str]) -> None:
    """Upload a detector and create streams."""
    service.detectors.add("pump", content)
    for name in streams:
        service.put_stream(name, StreamSettings(**SETTINGS))


def fed(service: Any, url: str, **options: Any) -> AbstractContextManager[Connection]:
    """A service that reads from a source named broker; gives the state of the connection."""
    return feeding(service, Address(url, given_name="broker", **options))


def stored(store: Store, stream: str) -> tuple[np.ndarray, np.ndarray, list[tuple[Any, ...]]]:
    """The readings, scores and events of a stream, as the database has them."""
    with store.read() as connection:
        own = schema.streams.c.name == stream
        stream_id = connection.execute(select(schema.streams.c.id).where(own)).scalar_one()
        cells = [by_number(connection, one, stream_id, 0, 2**62).cells for one in (schema.readings, schema.scores)]
        table = schema.events
        columns = [table.c[name] for name in ("number", "start", "stop", "peak", "steps", "peak_score")]
        events = select(*columns).where(table.c.stream_id == stream_id).order_by(table.c.number)
        return cells[0], cells[1], [tuple(row) for row in connection.execute(events)]


def problems_of(store: Store, stream: str, values: np.ndarray, detector: Any) -> list[str]:
    """How what is stored of a stream differs from an uninterrupted run."""
    readings, scores, events = stored(store, stream)
    right, ended = wanted(detector, values)
    found = []
    if not np.array_equal(readings, values):
        found.append(f"{stream}: {len(readings)} readings are stored, not the {len(values)} that were sent in order.")
    if not np.array_equal(scores, right):
        found.append(f"{stream}: the scores are not those of an uninterrupted run.")
    if events != ended:
        found.append(f"{stream}: the events are not those of an uninterrupted run: {len(events)}, not {len(ended)}.")
    return found


class KilledPair:
    """Two `cometad serve` on one database that share a broker's readings; one or the other is killed, many times."""

    def __init__(self, folder: Path, database: str, url: str, detector: Any, content: bytes, streams: int = 6) -> None:
        self.database, self._detector = database, detector
        self.names = [f"pump-{i}" for i in range(streams)]
        self._sent = 0
        self._values = {name: np.empty((0, len(NAMES))) for name in self.names}
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "cometad.toml"
        config.write_text(f'[[connect]]\nname = "broker"\nurl = "{url}"\n')
        flags = (f"--database={database}", f"--config={config}")
        self.servers = [Server(folder / name, *flags) for name in ("one", "two")]
        with closing(Store(database)) as store:
            assert store.format  # the tables are there now
        self._content = content
        self.owners: set[tuple[str, int]] = set()  # streams, and members that scored them

    def run(self, times: int, publish: Publish, random_: random.Random, settle: float = 120.0) -> list[str]:
        """Publish readings, kill a process at random moments, and start it again; returns what went wrong."""
        with ExitStack() as stack, closing(Store(self.database)) as store:
            for server in self.servers:
                stack.enter_context(server)
            self._create(self.servers[0])
            for number in range(times):
                self._publish(publish, random_.uniform(0.2, 0.8))
                while not self._note_owners(store):  # a stream is taken when readings for it arrive
                    self._publish(publish, 0.01)
                    time.sleep(0.3)
                killed = self.servers[number % 2]
                killed.kill()
                self._publish(publish, random_.uniform(0.2, 0.8))
                self._note_owners(store)
                killed.start()
            self._publish(publish, 0.3)
            until(lambda: self._scored(store) >= self._sent * len(self.names), settle)
            self._note_owners(store)
            return [
                problem
                for name in self.names
                for problem in problems_of(store, name, self._values[name], self._detector)
            ]

    def _create(self, server: Server) -> None:
        upload(server.client, "pump", self._content)
        for name in self.names:
            put(server.client, name)

    def _publish(self, publish: Publish, seconds: float) -> None:
        """Publish readings of all streams for some time; every second stream has no times."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            messages: list[tuple[str, bytes]] = []
            for i, name in enumerate(self.names):
                new = faulty(40, seed=1000 * i + self._sent)
                messages += [(name, body) for body in bodies(new, self._sent, timed=i % 2 == 0)]
                self._values[name] = np.concatenate([self._values[name], new])
            publish(messages)
            self._sent += 40
            time.sleep(0.05)

    @property
    def sent(self) -> int:
        """Readings that were published."""
        return self._sent * len(self.names)

    def _note_owners(self, store: Store) -> bool:
        """Note who scores the streams; returns whether each has a process that lives."""
        with store.read() as connection:
            rows = connection.execute(select(schema.streams.c.name, schema.streams.c.owner)).all()
            living = set(connection.execute(select(schema.members.c.id)).scalars())
        self.owners |= {(row.name, row.owner) for row in rows if row.owner is not None}
        return all(row.owner in living for row in rows)

    def _scored(self, store: Store) -> int:
        with store.read() as connection:
            counts = connection.execute(select(schema.scores.c.count)).scalars()
            return sum(counts)

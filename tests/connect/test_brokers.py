"""What NATS JetStream (a real server) and Kafka (librdkafka's mock) share: parts that move between processes."""

import asyncio
import random
from contextlib import ExitStack, closing

import pytest

from broker_case import KilledPair, bodies, fed, prepare, problems_of
from cometad.connect import parts
from cometad.connect.contract import Lost
from cometad.connect.intake import Connection, Intake, Message
from cometad.connect.parts import read_parts
from cometad.serve.service import Service
from cometad.serve.settings import Settings
from cometad.serve.storage.store import StorageError
from serve_case import faulty, until
from servers.kafka import running_mock
from servers.nats import running_nats

VALUES = faulty(300)


class NatsParts:
    """A JetStream stream with parts, of a real server."""

    def __init__(self, server, name, count):
        self._server, self._name = server, name
        self.url = f"{server.url}/{name.upper()}?subject={name}.*&parts={count}"

    def publish(self, messages):
        self._server.publish([(f"{self._name}.{stream}", body) for stream, body in messages])


class KafkaParts:
    """A topic with partitions, of a mock."""

    def __init__(self, mock, name, count):
        mock.create(name, count)
        self._mock, self._name, self.url = mock, name, f"{mock.url}/{name}"

    def publish(self, messages):
        self._mock.publish(self._name, messages)


@pytest.fixture(scope="module", params=[(running_nats, NatsParts), (running_mock, KafkaParts)], ids=["nats", "kafka"])
def broker(request):
    """Makes a stream or a topic with parts."""
    running, kind = request.param
    with running() as server:
        yield lambda name, count: kind(server, name, count)


def test_processes_divide_the_parts_and_take_over_from_one_that_stops(broker, tmp_path, postgres, pump):
    database, shared = postgres(), broker("shared", 8)
    names = [f"m{i}" for i in range(12)]
    good = bodies(VALUES)
    with ExitStack() as stack:
        services = [
            stack.enter_context(closing(Service(Settings(data_dir=tmp_path / name, database=database))))
            for name in ("one", "two")
        ]
        for service in services:
            service.start()
        prepare(services[0], pump[1], names)
        stack.enter_context(fed(services[0], shared.url))
        with fed(services[1], shared.url) as second:
            until(lambda: [len(service.ownership._parts) for service in services] == [4, 4])
            shared.publish([(name, body) for body in good[:150] for name in names])
            until(
                lambda: (
                    sum(one.scored_seq for service in services for one in service.streams.values() if one.owned) == 1800
                )
            )
            counts = [sum(one.owned for one in service.streams.values()) for service in services]
            assert sum(counts) == 12
            assert min(counts) > 0
            assert second.readings > 0
        until(lambda: len(services[0].ownership._parts) == 8)
        shared.publish([(name, body) for body in good[150:] for name in names])
        until(lambda: all(one.owned and one.scored_seq == 300 for one in services[0].streams.values()))
        services[0].recorder.flush()
        for name in names:
            assert problems_of(services[0].store, name, VALUES, pump[0]) == []


def test_killing_one_of_two_processes_loses_and_doubles_nothing(broker, tmp_path, postgres, pump):
    killed = broker("killed", 6)
    pair = KilledPair(tmp_path, postgres(), killed.url, *pump)
    assert pair.run(5, killed.publish, random.Random(1)) == []
    moved = {name for name in pair.names if len([owner for stream, owner in pair.owners if stream == name]) > 1}
    assert moved == set(pair.names), "a stream never moved"


def test_more_readings_than_can_be_taken_at_once_are_taken_in_parts(service, pump, monkeypatch):
    monkeypatch.setattr("cometad.serve.recorder.MOST_WAITING", 100)
    intake = Intake(service, Connection("broker", "kafka://host/topic"))
    lists = [b"[" + b",".join(bodies(VALUES)[first : first + 40]) + b"]" for first in range(0, 240, 40)]
    lists += [b"[" + b",".join(bodies(VALUES)[240:] * 2) + b"]"]  # 120: never to be taken
    messages = [Message(body, f"offset {i}", "a", position={"offset": i + 1}) for i, body in enumerate(lists)]
    asyncio.run(asyncio.wait_for(intake.take(messages, {"offset": 7}), 30))
    until(lambda: service.streams["a"].last.count == 240)
    service.recorder.flush()
    assert problems_of(service.store, "a", VALUES[:240], pump[0]) == []
    assert intake.connection.set_aside == 1
    assert service.position("broker") == {"offset": 7}


class Growing:
    """A source with a part more each time it is asked, up to five; its connection ends once all are read."""

    def __init__(self):
        self.count, self.begun = 1, []

    async def parts(self):
        self.count = min(self.count + 1, 5)
        return self.count

    async def read(self, part, intake):
        self.begun.append(part)
        await asyncio.Event().wait()

    async def ended(self):
        while len(self.begun) < 5:
            await asyncio.sleep(0.01)


def test_parts_that_are_added_later_are_read_as_well(service, monkeypatch):
    monkeypatch.setattr(parts, "LOOK", 0.01)
    source = Growing()
    with pytest.raises(Lost, match="was lost"):
        asyncio.run(asyncio.wait_for(read_parts(source, Intake(service, Connection("broker", "kafka://host/t"))), 30))
    assert source.begun == [0, 1, 2, 3, 4]


class Endless:
    """A source with two parts that feeds the stream of a name, and is lost at once if told so."""

    def __init__(self, is_lost):
        self._is_lost, self.begun = is_lost, []

    async def parts(self):
        return 2

    async def read(self, part, intake):
        await intake.take([Message(bodies(VALUES[:1])[0], "0", "ab"[part])], 1)
        self.begun.append(part)
        await asyncio.Event().wait()

    async def ended(self):
        while not self._is_lost or len(self.begun) < 2:
            await asyncio.sleep(0.01)


def test_parts_that_could_not_be_left_are_left_before_parts_are_taken_again(tmp_path, postgres, pump, monkeypatch):
    monkeypatch.setattr(parts, "LOOK", 0.01)
    database = postgres()
    with ExitStack() as stack:
        one, two = (
            stack.enter_context(closing(Service(Settings(data_dir=tmp_path / name, database=database))))
            for name in ("one", "two")
        )
        for service in (one, two):
            service.start()
        prepare(one, pump[1], ["a", "b"])
        mine, theirs = (Intake(service, Connection("broker", "kafka://host/t")) for service in (one, two))

        async def away(*_):
            raise StorageError("The database is away.")

        async def steps():
            with monkeypatch.context() as patch:
                patch.setattr(one, "leave_part", away)
                with pytest.raises(Lost):
                    await read_parts(Endless(True), mine)
            assert await theirs.share(2) == 2
            sources = Endless(False), Endless(False)
            reading = [asyncio.create_task(read_parts(*pair)) for pair in zip(sources, (mine, theirs), strict=True)]
            while not all(len(source.begun) == 1 for source in sources):  # one part each, with its stream
                await asyncio.sleep(0.01)
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)

        asyncio.run(asyncio.wait_for(steps(), 30))

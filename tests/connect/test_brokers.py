"""What real brokers (mosquitto, nats-server) and librdkafka's mock of Kafka share: readings come once and in order."""

import asyncio
import random
import tempfile
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from broker_case import KilledPair, bodies, fed, prepare, problems_of, scored
from cometad.connect import source as sources
from cometad.connect.contract import Lost, Message
from cometad.connect.intake import Connection, Intake
from cometad.connect.source import read_parts
from cometad.serve.service import Service
from cometad.serve.settings import Settings
from cometad.serve.sources import rejected
from cometad.serve.storage.store import StorageError
from contract import is_a_sentence
from serve_case import faulty, until
from servers.kafka import running_mock
from servers.mosquitto import Mosquitto, Publisher
from servers.nats import running_nats

VALUES = faulty(300)


class MqttTopics:
    """A level of topics of a broker that names the stream; the broker keeps a session."""

    are_timed = True  # acknowledgements may be lost, and only times tell readings apart

    def __init__(self, server, name, count, version="5"):
        self._server, self._name = server, name
        self.url = f"{server.url}/{name}/{{stream}}?version={version}"
        self.stop, self.start = server.stop, server.start

    def publish(self, messages):
        with Publisher(self._server) as publisher:
            for stream, body in messages:
                publisher.publish(f"{self._name}/{stream}", body)

    def forget(self):
        """As if no acknowledgement had reached the broker."""


class NatsParts:
    """A JetStream stream with parts, of a real server."""

    are_timed = False

    def __init__(self, server, name, count):
        self._server, self._name = server, name
        self.url = f"{server.url}/{name.upper()}?subject={name}.*&parts={count}"
        self.stop, self.start = server.stop, server.start

    def publish(self, messages):
        self._server.publish([(f"{self._name}.{stream}", body) for stream, body in messages])

    def forget(self):
        async def reset(js):
            for one in await js.consumers_info(self._name.upper()):
                await js.reset_consumer(self._name.upper(), one.name, seq=1)

        self._server.do(reset)


class KafkaParts:
    """A topic with partitions, of a mock."""

    are_timed = False

    def __init__(self, mock, name, count):
        mock.create(name, count)
        self._mock, self._name, self.url = mock, name, f"{mock.url}/{name}"
        self.stop, self.start = mock.stop_brokers, mock.start_brokers

    def publish(self, messages):
        self._mock.publish(self._name, messages)

    def forget(self):
        self.url = f"{self._mock.url}/{self._name}?group=another"


@contextmanager
def running_mosquitto():
    with tempfile.TemporaryDirectory() as folder, Mosquitto(Path(folder)) as broker:
        yield broker


PARTED = {"nats": (running_nats, NatsParts), "kafka": (running_mock, KafkaParts)}
BROKERS = {
    "mqtt": (running_mosquitto, MqttTopics),
    "mqtt-3.1.1": (running_mosquitto, lambda server, name, count: MqttTopics(server, name, count, "3.1.1")),
    **PARTED,
}


@contextmanager
def running(kind):
    """Makes topics or streams of a broker."""
    start, make = BROKERS[kind]
    with start() as server:
        yield lambda name, count: make(server, name, count)


@pytest.fixture(scope="module", params=BROKERS)
def any_broker(request):
    with running(request.param) as make:
        yield make


@pytest.fixture(scope="module", params=PARTED)
def broker(request):
    with running(request.param) as make:
        yield make


def connected(connection):
    return until(lambda: connection.state == "connected")


def test_messages_become_scores_and_what_cannot_be_used_is_set_aside(any_broker, service, pump):
    first, good = any_broker("first", 4), bodies(VALUES)
    with fed(service, first.url) as connection:
        connected(connection)
        first.publish([(name, body) for body in good[:100] for name in ("a", "b")])
        first.publish([("a", b"on fire"), ("nobody", good[0])])
        first.publish([(name, body) for body in good[100:299] for name in ("a", "b")])
        for name in ("a", "b"):
            scored(service, name, 299)
        until(lambda: connection.set_aside == 2)
        assert (connection.state, connection.readings) == ("connected", 598)
    reasons = {one.stream: one.reason for one in rejected(service.store, "broker", 10)}
    assert all(map(is_a_sentence, reasons.values()))
    assert "not JSON" in reasons["a"]
    assert reasons["nobody"] == "There is no stream 'nobody'. Create it with PUT /v1/streams/nobody."
    with fed(service, first.url) as connection:  # acknowledged: nothing comes again
        first.publish([(name, good[299]) for name in ("a", "b")])
        for name in ("a", "b"):
            scored(service, name, 300)
        assert connection.set_aside == 0
    for name in ("a", "b"):
        assert problems_of(service.store, name, VALUES, pump[0]) == []


def test_readings_are_taken_once_whatever_was_acknowledged_and_wait_while_nobody_reads(any_broker, service, pump):
    again = any_broker("again", 2)
    messages = [("a", body) for body in bodies(VALUES, timed=again.are_timed)]
    with fed(service, again.url) as connection:
        connected(connection)
        again.publish(messages[:100])
        scored(service, "a", 100)
    again.forget()
    again.publish(messages[100:])
    with fed(service, again.url):
        scored(service, "a", 300)
    assert problems_of(service.store, "a", VALUES, pump[0]) == []


@pytest.mark.parametrize("kind", BROKERS)
def test_a_broker_that_stops_and_starts_again_is_found_again_and_loses_nothing(kind, service, pump, monkeypatch):
    monkeypatch.setattr("cometad.connect.kafka_link.REFUSED", 0.5)
    messages = [("a", body) for body in bodies(VALUES)]
    with running(kind) as make:
        stopped = make("stopped", 2)
        with fed(service, stopped.url) as connection:
            for first in range(0, 300, 100):
                connected(connection)
                stopped.publish(messages[first : first + 100])
                if first < 200:
                    stopped.stop()
                    until(lambda: connection.state == "lost")
                    assert is_a_sentence(connection.reason)
                    stopped.start()
            scored(service, "a", 300)
    assert problems_of(service.store, "a", VALUES, pump[0]) == []


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
            until(lambda: [len(service.members._parts) for service in services] == [4, 4])
            shared.publish([(name, body) for body in good[:150] for name in names])
            until(
                lambda: (
                    sum(one.scoring.scored_seq for service in services for one in service.streams.values() if one.owned)
                    == 1800
                )
            )
            counts = [sum(one.owned for one in service.streams.values()) for service in services]
            assert sum(counts) == 12
            assert min(counts) > 0
            assert second.readings > 0
        until(lambda: len(services[0].members._parts) == 8)
        shared.publish([(name, body) for body in good[150:] for name in names])
        until(lambda: [one.scoring.scored_seq for one in services[0].streams.values()] == [300] * 12)
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
    until(lambda: service.streams["a"].scoring.last.count == 240)
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
    monkeypatch.setattr(sources, "LOOK", 0.01)
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
    monkeypatch.setattr(sources, "LOOK", 0.01)
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
            while not all(source.begun for source in sources):  # a part with its stream; one may have had both
                await asyncio.sleep(0.01)
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)

        asyncio.run(asyncio.wait_for(steps(), 30))

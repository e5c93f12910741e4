"""Kafka, against librdkafka's mock of a cluster, which is a mock: readings reach their streams once and in order."""

import asyncio
import http.server
import json
import socket
import ssl
import threading

import confluent_kafka
import pytest

from broker_case import bodies, fed, problems_of, scored
from cometad.connect import kafka_link
from cometad.serve.sources import rejected
from contract import is_a_sentence
from serve_case import faulty, until
from servers.certificate import self_signed
from servers.kafka import MockKafka, running_mock

VALUES = faulty(300)


@pytest.fixture(scope="module")
def mock():
    with running_mock() as mock:
        yield mock


def test_keys_name_streams_and_everything_is_committed(mock, service, capfd):
    mock.create("first", 4)
    good = [json.loads(body) for body in bodies(VALUES[:3])]
    with fed(service, f"{mock.url}/first") as connection:
        until(lambda: connection.state == "connected")
        ahead = {**good[0], "time": 9e9}  # far ahead of the clock
        bad = [(b"\xff", good[0]), (None, good[0]), ("a", ahead)]
        mock.publish("first", [(key, json.dumps(one).encode()) for key, one in bad] + [("a", None)])  # a tombstone
        mock.publish("first", [("b", json.dumps(good[0]).encode())])
        scored(service, "b", 1)
        mock.publish("first", [(None, json.dumps({"stream": "b", **good[1]}).encode())])
        scored(service, "b", 2)
        until(lambda: connection.set_aside == 3)
    reasons = [one.reason for one in rejected(service.store, "broker", 10)]
    assert all(map(is_a_sentence, reasons))
    for part in ("not UTF-8", "names no stream", "ahead of the clock"):
        assert any(part in reason for reason in reasons), reasons
    assert sum(max(offset, 0) for offset in mock.committed("first", 4)) == 6  # all, once it has stopped
    assert "kafka" not in capfd.readouterr().err.replace("kafka://", "")
    assert not [one for one in threading.enumerate() if one.name == "cometad-kafka"]


def test_another_topic_under_the_same_name_is_read_from_its_start(mock, service, pump):
    for topic, first in (("before", 0), ("after", 150)):
        mock.create(topic, 1)
        mock.publish(topic, [("a", body) for body in bodies(VALUES)[first : first + 150]])
        with fed(service, f"{mock.url}/{topic}"):
            scored(service, "a", first + 150)
    assert problems_of(service.store, "a", VALUES, pump[0]) == []


def test_a_group_that_has_committed_offsets_goes_on_after_them(mock, service, pump):
    mock.create("moved", 1)
    mock.publish("moved", [("a", body) for body in bodies(VALUES)])
    settings = {"bootstrap.servers": mock.servers, "group.id": "other", "log_level": 0, "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(settings)
    consumer.commit(offsets=[confluent_kafka.TopicPartition("moved", 0, 200)], asynchronous=False)
    consumer.close()
    with fed(service, f"{mock.url}/moved?group=other"):
        scored(service, "a", 100)
    assert problems_of(service.store, "a", VALUES[200:], pump[0]) == []


def test_start_new_leaves_out_what_was_there_also_after_a_restart(mock, service, pump):
    mock.create("new", 1)
    url = f"{mock.url}/new?start=new"
    mock.publish("new", [("a", body) for body in bodies(VALUES[:100])])
    with fed(service, url):
        until(lambda: service.position("broker/0"))
    mock.publish("new", [("a", body) for body in bodies(VALUES[100:200], 100)])
    with fed(service, url):
        scored(service, "a", 100)
    assert problems_of(service.store, "a", VALUES[100:200], pump[0]) == []


def test_messages_that_were_deleted_before_they_were_read_are_reported(mock, service, pump):
    mock.create("short", 1)
    url = f"{mock.url}/short"
    with fed(service, url):
        mock.publish("short", [("a", body) for body in bodies(VALUES[:100])])
        scored(service, "a", 100)
    mock.publish("short", [("x", b" " * 100_000)] * 60)  # the mock keeps 5 MB
    with fed(service, url) as connection:
        until(lambda: connection.set_aside > 10)
        mock.publish("short", [("a", body) for body in bodies(VALUES[100:], 100)])
        scored(service, "a", 300)
    assert problems_of(service.store, "a", VALUES, pump[0]) == []
    reasons = [one.reason for one in rejected(service.store, "broker", 100)]
    (gap,) = [one for one in reasons if "deleted" in one]
    assert gap.startswith("The messages from offset 100 to ")
    assert is_a_sentence(gap)


def test_a_partition_that_waits_is_paused_and_holds_up_no_other(mock, service, pump, monkeypatch):
    monkeypatch.setattr(kafka_link, "BATCH", 20)
    monkeypatch.setattr(kafka_link, "PATIENCE", 0.1)
    mock.create("busy", 2)
    release, held = threading.Event(), []
    receive = service.receive

    async def slow(batches, position=None):
        while any(batch.stream == "a" for batch in batches) and not release.is_set():
            held.append(batches)
            await asyncio.sleep(0.02)
        return await receive(batches, position)

    monkeypatch.setattr(service, "receive", slow)
    with fed(service, f"{mock.url}/busy"):
        mock.publish("busy", [("a", body) for body in bodies(VALUES)], 0)
        until(lambda: held)
        mock.publish("busy", [("b", body) for body in bodies(VALUES)], 1)
        scored(service, "b", 300)
        assert service.streams["a"].arrivals.next_seq == 0
        release.set()
        scored(service, "a", 300)
    for name in ("a", "b"):
        assert problems_of(service.store, name, VALUES, pump[0]) == []


def test_a_partition_that_was_left_while_it_was_paused_is_read_when_it_is_taken_again(mock, monkeypatch):
    monkeypatch.setattr(kafka_link, "BATCH", 20)
    monkeypatch.setattr(kafka_link, "PATIENCE", 0.1)
    mock.create("left", 1)
    mock.publish("left", [("a", body) for body in bodies(VALUES)])

    async def steps():
        settings = {"bootstrap.servers": mock.servers, "group.id": "cometad"}
        link = kafka_link.KafkaLink(settings, "left", mock.url)
        pull = asyncio.create_task(link.pull())
        try:
            await link.assign(0, 0)
            while 0 not in link._paused:
                await asyncio.sleep(0.02)
            await link.unassign(0)
            await link.assign(0, 0)
            return [one.offset() for one in await link.messages(0)]
        finally:
            pull.cancel()
            await link.close()

    found = asyncio.run(asyncio.wait_for(steps(), 30))
    assert found == list(range(len(found)))


@pytest.fixture(scope="module")
def not_kafka():
    """The port of a web server."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.parametrize(
    ("path", "options", "state", "said"),
    [
        ("{mock}/missing", {}, "failed", "There is no topic 'missing'"),
        ("{mock}/refused", {}, "failed", "refused: Topic authorization failed"),
        ("{mock}/open", {"stream": "a"}, "failed", "has 4 partitions"),
        ("{mock}/open?security=ssl", {}, "lost", "No Kafka broker responds"),
        ("{mock}/open", {"user": "me", "password_variable": "KAFKA_PASSWORD"}, "failed", "refused the login"),
        ("kafka://127.0.0.1:9/open", {}, "lost", "No Kafka broker responds at 127.0.0.1:9"),
        ("kafka://127.0.0.1:{web}/open", {}, "lost", "No Kafka broker responds"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(service, mock, not_kafka, monkeypatch, path, options, state, said):
    for topic in ("open", "refused"):
        if topic not in mock.topics:
            mock.create(topic, 4)
    mock.do("refuse", "refused")
    monkeypatch.setenv("KAFKA_PASSWORD", "secret")
    monkeypatch.setattr(kafka_link, "ANSWER", 2.0)
    with fed(service, path.format(mock=mock.url, web=not_kafka), **options) as connection:
        until(lambda: connection.state == state)
        assert said in connection.reason
        assert is_a_sentence(connection.reason)


def test_an_unknown_authority_is_one_sentence(service, tmp_path):
    certificate, key = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def shake_hands():
            while True:
                try:
                    context.wrap_socket(listener.accept()[0], server_side=True).close()
                except ssl.SSLError:  # the client refused
                    continue
                except OSError:  # the listener is closed
                    return

        threading.Thread(target=shake_hands, daemon=True).start()
        url = f"kafka://127.0.0.1:{listener.getsockname()[1]}/topic?security=ssl"
        with fed(service, url) as connection:
            until(lambda: connection.state == "failed")
        assert "with TLS" in connection.reason
        assert is_a_sentence(connection.reason)
        listener.shutdown(socket.SHUT_RDWR)


def test_a_frozen_cluster_does_not_hold_up_the_end(service, monkeypatch):
    monkeypatch.setattr(kafka_link, "CLOSE", 0.5)
    mock = MockKafka().start()
    try:
        mock.create("t", 1)
        with fed(service, f"{mock.url}/t") as connection:
            until(lambda: connection.state == "connected")
            mock.publish("t", [("a", body) for body in bodies(VALUES)])
            scored(service, "a", 300)
            mock.freeze()
        assert connection.readings == 300
    finally:
        mock.freeze(False)
        mock.kill()

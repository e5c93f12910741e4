"""Receivers of events and scores, each against a real server; Kafka against librdkafka's mock, which is a mock."""

import asyncio
import dataclasses
import json
import threading
import time

import confluent_kafka
import numpy as np
import paho.mqtt.client as paho
import pytest

from cometad.connect.address import Address
from cometad.connect.contract import Lost
from cometad.connect.out import Rejected, notifier_of
from cometad.connect.out.message import EXAMPLE, MessageTemplate
from cometad.connect.out.notifier import Destination
from cometad.connect.out.posting import RemoteWriter, ScoreSamples, write_request
from cometad.errors import ParameterError
from contract import is_a_sentence
from serve_case import until
from servers.alertmanager import AlertmanagerServer
from servers.mosquitto import PASSWORD, Mosquitto, password_file
from servers.nats import NatsServer, running_nats
from servers.program import free_port
from servers.prometheus import PrometheusServer

MESSAGES = [
    dataclasses.replace(EXAMPLE, id=f"id{number}", event=f"1-{number}", stream=stream)
    for number, stream in enumerate(["pump", "mill", "pump"])
]


def receiver(url, **more):
    address = Address(url, user=more.pop("user", None), password_variable=more.pop("password_variable", None))
    return notifier_of(Destination("receiver", address, timeout=3.0, **more))


def sent(notifier, *messages, close=True):
    """Send messages, and end the connection."""

    async def both():
        try:
            await notifier.send(messages)
        finally:
            if close:
                await notifier.close()

    asyncio.run(both())


def refusal(notifier, kind, *messages):
    with pytest.raises(kind) as caught:
        sent(notifier, *(messages or MESSAGES[:1]))
    assert is_a_sentence(str(caught.value)), str(caught.value)
    return str(caught.value)


def test_every_receiver_that_is_away_is_lost_in_one_sentence():
    port = free_port()
    for scheme in ("webhook+http", "alertmanager+http", "mqtt", "nats", "kafka"):
        assert "receiver" in refusal(receiver(f"{scheme}://127.0.0.1:{port}/events"), Lost), scheme
    writer = RemoteWriter(Destination("copy", Address(f"remote-write+http://127.0.0.1:{port}/api/v1/write")))
    with pytest.raises(Lost, match="cannot be reached"):
        asyncio.run(writer.write([ScoreSamples("pump", np.zeros(1), np.zeros((1, 3)))]))
    asyncio.run(writer.close())


@pytest.mark.parametrize(
    "url", ["mqtt://host", "mqtt://host/a/+/b", "nats://host/a.*", "nats://host/a/b", "kafka://host/{stream}"]
)
def test_a_topic_that_cannot_be_published_to_is_refused(url):
    if "{stream}" in url:
        receiver(url)
        url = "kafka://host/a/b"
    with pytest.raises(ParameterError, match="needs a topic to publish to") as caught:
        receiver(url)
    assert is_a_sentence(str(caught.value))


# -- Alertmanager ---------------------------------------------------------------------------------------------------


def test_alertmanager_shows_an_alert_keeps_it_while_it_is_sent_again_and_resolves_it(tmp_path):
    with AlertmanagerServer(tmp_path) as server:
        labels = {"team": "plant", "severity": "page"}
        one = receiver(f"{server.url}/?resend=0.4", labels=labels)
        assert one.resend == 0.4
        now = time.time()
        opened = dataclasses.replace(EXAMPLE, opened_at=now - 10, start_time=now - 12, stop_time=now)
        sent(one, opened)
        (alert,) = until(server.active)
        assert alert["labels"] == {
            "alertname": "CometadAnomaly",
            "stream": "example",
            "detector": "example",
            "event": "0-0",
            **labels,
        }
        assert alert["annotations"]["description"] == opened.text
        assert alert["annotations"]["summary"] == "example: flow"
        assert alert["generatorURL"] == opened.link
        severe = dataclasses.replace(opened, severity=0.9)
        one = receiver(f"{server.url}", labels=labels)
        sent(one, severe)
        until(lambda: server.active()[0]["annotations"]["severity"] == "0.90")
        assert len(server.active()) == 1
        closed = dataclasses.replace(severe, change="closed", state="closed", closed_at=time.time())
        sent(receiver(f"{server.url}/api/v2/alerts", labels=labels), closed)
        until(lambda: not server.active())
        template = MessageTemplate("{{ stream }} is {{ state }}", "receiver")
        sent(receiver(f"{server.url}", template=template), opened)
        until(lambda: server.active()[0]["annotations"]["description"] == "example is open")
        bad = receiver(f"{server.url}/wrong")
        assert "status 404" in refusal(bad, Rejected)


# -- remote write ---------------------------------------------------------------------------------------------------


def test_prometheus_takes_scores_by_remote_write_and_answers_with_them(tmp_path):
    sample = [("up", time.time() - 3600, 1.0)]
    with PrometheusServer(tmp_path, sample, "--web.enable-remote-write-receiver") as server:
        address = Address(f"remote-write+{server.url}/api/v1/write")
        writer = RemoteWriter(Destination("copy", address, labels={"site": "north"}))
        now = float(int(time.time())) - 60
        ats = now + np.arange(50.0)
        values = np.column_stack([np.arange(50.0) / 7, np.full(50, 2.5), np.arange(50) % 2])

        async def write():
            for stream in ("pump", "mill"):
                await writer.write([ScoreSamples(stream, ats, values)])
            with pytest.raises(Rejected) as caught:
                await writer.write([ScoreSamples("pump", ats[:1] - 1e6, values[:1])])
            await writer.close()
            return str(caught.value)

        assert is_a_sentence(asyncio.run(write()))
        for column, name in enumerate(["anomaly_score", "anomaly_threshold", "anomaly_event_open"]):
            (found,) = server.at(f'{name}{{stream="pump",site="north"}}[5m]', now + 60)
            assert [(at, float(value)) for at, value in found["values"]] == list(
                zip(ats.tolist(), values[:, column].tolist(), strict=True)
            )


def test_a_write_request_has_the_bytes_of_protobuf():
    samples = ScoreSamples("é", np.array([0.001, 1_772_366_400.123]), np.array([[1.5, 0, 0], [2.5, 0, 0]]))
    series = write_request([samples], {})
    groups = [0x7B, 0x14, 0x14, 0x4A, 0x4A, 0x33]  # 7 bits each, the lowest first
    assert sum(group << 7 * place for place, group in enumerate(groups)) == 1_772_366_400_123
    label = b"\n\x19\n\x08__name__\x12\ranomaly_score" + b"\n\x0c\n\x06stream\x12\x02\xc3\xa9"
    first = b"\x12\x0b\x09" + np.float64(1.5).tobytes() + b"\x10\x01"
    second = b"\x12\x10\x09" + np.float64(2.5).tobytes() + b"\x10\xfb\x94\x94\xca\xca\x33"
    assert series.startswith(b"\n" + bytes([len(label + first + second)]) + label + first + second)


# -- brokers --------------------------------------------------------------------------------------------------------


def test_events_go_to_an_mqtt_topic_and_on_after_the_broker_was_away(tmp_path):
    broker, got = Mosquitto(tmp_path), []
    one = receiver(f"{broker.url}/plant/{{stream}}/events")
    with broker:
        listener = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        listener.on_message = lambda _, __, message: got.append(message)
        listener.connect("127.0.0.1", broker.port)
        subscribed = threading.Event()
        listener.on_subscribe = lambda *_: subscribed.set()
        listener.subscribe("plant/#", qos=1)
        listener.loop_start()
        assert subscribed.wait(30)
        sent(one, *MESSAGES, close=False)
        until(lambda: len(got) == 3)
        listener.disconnect()
        listener.loop_stop()
    assert [message.topic for message in got] == [f"plant/{name}/events" for name in ("pump", "mill", "pump")]
    assert [json.loads(message.payload)["event"] for message in got] == ["1-0", "1-1", "1-2"]
    assert [dict(message.properties.UserProperty)["id"] for message in got] == ["id0", "id1", "id2"]
    with pytest.raises(Lost):
        sent(one, *MESSAGES, close=False)
    with broker:
        sent(one, *MESSAGES)


def test_mqtt_refuses_without_rights_in_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "rights").write_text("user cometad\ntopic write allowed\n")
    users = f"password_file {password_file(tmp_path, 'cometad')}"
    monkeypatch.setenv("RIGHT", PASSWORD)
    monkeypatch.setenv("WRONG", "wrong")
    with Mosquitto(tmp_path, users, f"acl_file {tmp_path / 'rights'}", anonymous=False) as broker:
        login = {"user": "cometad", "password_variable": "RIGHT"}
        sent(receiver(f"{broker.url}/allowed", **login), *MESSAGES)
        assert "rights" in refusal(receiver(f"{broker.url}/forbidden", **login), Rejected)
        wrong = receiver(f"{broker.url}/allowed", user="cometad", password_variable="WRONG")
        assert "password_variable" in refusal(wrong, Rejected)


def test_events_go_to_a_nats_stream_which_drops_repeats():
    with running_nats() as server:

        async def stored(jetstream):
            await jetstream.add_stream(name="EVENTS", subjects=["plant.>"])
            one, other = receiver(f"{server.url}/plant.{{stream}}"), receiver(f"{server.url}/nowhere")
            await one.send(MESSAGES)
            await one.send(MESSAGES)  # as after a crash
            with pytest.raises(Rejected) as caught:
                await other.send(MESSAGES)
            for receiving in (one, other):
                await receiving.close()
            pulled = await jetstream.pull_subscribe("plant.>", "reader")
            found = await pulled.fetch(10, timeout=1)
            return [(message.subject, json.loads(message.data)["id"]) for message in found], str(caught.value)

        found, sentence = server.do(stored)
    assert found == [("plant.pump", "id0"), ("plant.mill", "id1"), ("plant.pump", "id2")]
    assert is_a_sentence(sentence)
    assert "no JetStream stream" in sentence


def test_nats_refuses_a_wrong_password_in_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("WRONG", "wrong")
    with NatsServer(tmp_path, "authorization { user: cometad, password: right }") as server:
        wrong = receiver(f"{server.url}/plant.a", user="cometad", password_variable="WRONG")
        assert "password_variable" in refusal(wrong, Rejected)


def test_events_go_to_a_kafka_topic_of_a_mock_in_order_of_their_stream():
    mock = confluent_kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "unused"})
    (broker,) = mock.list_topics(timeout=10).brokers.values()
    sent(receiver(f"kafka://{broker.host}:{broker.port}/events"), *MESSAGES)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": f"{broker.host}:{broker.port}",
            "group.id": "test",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["events"])
    found = []
    until(lambda: found.extend(consumer.consume(10, 0.2)) or len(found) >= 3)
    consumer.close()
    rows = sorted(
        (message.key(), dict(message.headers())["id"], json.loads(message.value())["event"]) for message in found
    )
    assert rows == [(b"mill", b"id1", "1-1"), (b"pump", b"id0", "1-0"), (b"pump", b"id2", "1-2")]
    pumps = [dict(message.headers())["id"] for message in found if message.key() == b"pump"]
    assert pumps == [b"id0", b"id2"]

"""MQTT, against a real mosquitto: nothing that was acknowledged is lost, and everything goes on by itself."""

import subprocess
import time

import pytest

from cometad.connect.address import Address
from cometad.connect.source import source_of
from cometad.errors import CometadError
from contract import is_a_sentence
from plant_case import (
    feeding,
    gappy_file,  # noqa: F401  a fixture
    pump_file,  # noqa: F401  a fixture
    reasons,
    run_until,
    service_in,
    stored,
    stored_events,
    wanted,
)
from serve_case import NAMES, START, as_readings, faulty, plant, until
from servers.mosquitto import (
    PASSWORD,
    Mosquitto,
    Publisher,
    mosquitto,  # noqa: F401  a fixture
    password_file,
    without_subscriptions,
)


@pytest.fixture(scope="module")
def running(tmp_path_factory, pump_file):  # noqa: F811
    """One service for tests that use streams of their own."""
    names = ["json", "lists", "named", "topical", "old", "poison", "tags", "again", "retained", "window", "large"]
    with service_in(tmp_path_factory.mktemp("data"), pump_file, *names) as service:
        yield service


def count(service, stream):
    return service.stream(stream).arrivals.next_seq


def connected(connection):
    return until(lambda: connection.state == "connected")


def test_readings_in_json_are_scored_like_a_series(mosquitto, running, pump_file):  # noqa: F811
    address = Address(f"{mosquitto.url}/plant/json", stream="json")
    values = faulty(120)
    with feeding(running, address) as connection, Publisher(mosquitto) as publisher:
        connected(connection)
        for reading in as_readings(values):
            publisher.publish("plant/json", reading)
        until(lambda: count(running, "json") == 120)
    number = running.stream("json").id
    folder = running.settings.data_dir
    until(lambda: len(stored(folder, "scores", number)) == 120)
    scores, events = wanted(pump_file, values)
    assert stored(folder, "scores", number).tobytes() == scores.tobytes()
    assert stored_events(folder, number) == events
    assert len(events) == 1
    assert connection.readings == 120


def test_a_message_may_hold_a_list_of_readings(mosquitto, running):  # noqa: F811
    readings = as_readings(plant(50))
    with feeding(running, Address(f"{mosquitto.url}/plant/lists", stream="lists")) as connection:
        connected(connection)
        with Publisher(mosquitto) as publisher:
            publisher.publish("plant/lists", readings[:30])
            publisher.publish("plant/lists", readings[30:])
        until(lambda: count(running, "lists") == 50)


def test_readings_may_name_their_stream(mosquitto, running):  # noqa: F811
    with feeding(running, Address(f"{mosquitto.url}/plant/all")) as connection:
        connected(connection)
        with Publisher(mosquitto) as publisher:
            publisher.publish("plant/all", [{"stream": "named", **one} for one in as_readings(plant(5))])
        until(lambda: count(running, "named") == 5)


def test_a_level_of_the_topic_may_name_the_stream(mosquitto, running):  # noqa: F811
    address = Address(f"{mosquitto.url}/hall/{{stream}}/readings")
    with feeding(running, address) as connection:
        connected(connection)
        with Publisher(mosquitto) as publisher:
            publisher.publish("hall/topical/readings", as_readings(plant(5)))
            publisher.publish("hall/unheard-of/readings", as_readings(plant(5))[:1])
        until(lambda: count(running, "topical") == 5 and connection.set_aside == 1)
    assert reasons(running, address) == ["There is no stream 'unheard-of'. Create it with PUT /v1/streams/unheard-of."]


def test_mqtt_3_1_1_works_as_well(mosquitto, running):  # noqa: F811
    address = Address(f"{mosquitto.url}/plant/old?version=3.1.1", stream="old")
    readings = as_readings(plant(200))
    with feeding(running, address) as connection:
        connected(connection)
    with Publisher(mosquitto) as publisher:  # while nobody reads
        for reading in readings:
            publisher.publish("plant/old", reading)
    with feeding(running, address):
        until(lambda: count(running, "old") == 200)


def test_poison_is_set_aside_with_its_reason_and_the_rest_goes_on(mosquitto, running):  # noqa: F811
    address = Address(f"{mosquitto.url}/plant/poison", stream="poison")
    good = as_readings(plant(3))
    bad = [b"on fire", b"\xff\xfe", b"", {**good[1], "flow": "high"}, [], {"flow": 1.0}, {**good[2], "flow": None}]
    with feeding(running, address) as connection:
        connected(connection)
        with Publisher(mosquitto) as publisher:
            publisher.publish("plant/poison", good[0])
            for one in bad:
                publisher.publish("plant/poison", one)
            publisher.publish("plant/poison", good[1])
        until(lambda: count(running, "poison") == 2)
        until(lambda: connection.set_aside == len(bad))
        assert connection.state == "connected"
    found = reasons(running, address)
    assert all(map(is_a_sentence, found))
    assert any("variable 'flow' is 'high', not a number" in one for one in found)
    assert any("--gaps forward-fill:5" in one for one in found)
    with feeding(running, address) as connection:  # acknowledged: it does not come again
        connected(connection)
        with Publisher(mosquitto) as publisher:
            publisher.publish("plant/poison", good[2])
        until(lambda: count(running, "poison") == 3)
        assert connection.set_aside == 0


def test_more_readings_than_can_be_taken_at_once_are_set_aside(mosquitto, running, monkeypatch):  # noqa: F811
    monkeypatch.setattr("cometad.serve.recorder.MOST_WAITING", 50)
    address = Address(f"{mosquitto.url}/plant/large", stream="large")
    readings = as_readings(plant(100))
    with feeding(running, address) as connection:
        connected(connection)
        with Publisher(mosquitto) as publisher:
            publisher.publish("plant/large", readings[:40])
            publisher.publish("plant/large", readings)
            publisher.publish("plant/large", readings[40:80])
        until(lambda: count(running, "large") == 80)
    (reason,) = reasons(running, address)
    assert reason == "These are 100 readings. Send at most 50 at once."


def test_retained_readings_are_ignored_and_retained_values_are_taken(mosquitto, running):  # noqa: F811
    with Publisher(mosquitto) as publisher:
        publisher.publish("kept/json", as_readings(plant(1))[0], retain=True)
        for name in NAMES:
            publisher.publish(f"kept/{name}", {"time": START, "value": 0.5}, retain=True)
    with feeding(running, Address(f"{mosquitto.url}/kept/json", stream="retained")) as connection:
        connected(connection)
        with Publisher(mosquitto) as publisher:
            publisher.publish("kept/json", as_readings(plant(2))[1])
        until(lambda: count(running, "retained") == 1)
    tags = {name: f"kept/{name}" for name in NAMES}
    address = Address(mosquitto.url, stream="retained", tags=tags, period="100ms", given_name="retained-tags")
    with feeding(running, address) as connection:
        until(lambda: connection.readings > 0 or connection.set_aside > 0)
    folder, number = running.settings.data_dir, running.stream("retained").id
    until(lambda: len(stored(folder, "readings", number)) >= 1)
    assert reasons(running, address)[0].endswith("is before that of the last reading. Send readings in time order.")


def test_one_topic_per_variable_is_put_on_a_grid(mosquitto, running, pump_file):  # noqa: F811
    tags = {"flow": "tags/flow", "level": "tags/tank#level", "heat": "tags/tank#heat"}
    address = Address(mosquitto.url, stream="tags", tags=tags, period="1s", given_name="tags")
    values = faulty(120)
    with feeding(running, address) as connection, Publisher(mosquitto) as publisher:
        connected(connection)
        for i, (flow, level, heat) in enumerate(values.tolist()):
            at = START + i
            publisher.publish("tags/flow", {"time": at - 0.2, "value": flow + 1})
            publisher.publish("tags/flow", {"ts": at - 0.1, "value": flow})
            publisher.publish("tags/tank", {"time": at, "level": level, "heat": heat, "note": "fine"})
        publisher.publish("tags/flow", "high")
        publisher.publish("tags/flow", {"time": time.time() + 1e6, "value": 1.0})
        publisher.publish("tags/tank", "7")
        publisher.publish("tags/flow", {"time": "noon", "value": 1.0})
        publisher.publish("tags/flow", {"time": True, "value": 1.0})
        publisher.publish("tags/flow", {"speed": 1.0})
        until(lambda: count(running, "tags") >= 119)
        until(lambda: connection.set_aside == 7)
    folder, number = running.settings.data_dir, running.stream("tags").id
    until(lambda: len(stored(folder, "scores", number)) >= 119)
    assert stored(folder, "readings", number)[:119].tobytes() == values[:119].tobytes()
    assert stored(folder, "scores", number)[:119].tobytes() == wanted(pump_file, values[:119])[0].tobytes()
    found = reasons(running, address)
    assert all(map(is_a_sentence, found))
    assert found[0] == (
        "Topic 'tags/flow': variable 'flow' is 'high', not a number. Correct that reading and send it again."
    )
    assert "is more than a day ahead of the local clock" in found[1]


def test_plain_numbers_are_rows_at_the_time_they_come(mosquitto, running):  # noqa: F811
    tags = {name: f"plain/{name}" for name in NAMES}
    address = Address(mosquitto.url, stream="again", tags=tags, period="100ms", given_name="plain")
    with feeding(running, address) as connection, Publisher(mosquitto) as publisher:
        connected(connection)
        for name in NAMES:
            publisher.publish(f"plain/{name}", "0.5")
        until(lambda: count(running, "again") >= 5)  # they hold for ten periods
    assert (stored(running.settings.data_dir, "readings", running.stream("again").id) == 0.5).all()


def test_a_variable_that_falls_silent_needs_a_gap_rule(mosquitto, tmp_path, pump_file, gappy_file):  # noqa: F811
    for file, topic in ((pump_file, "mute"), (gappy_file, "mended")):
        tags = {name: f"{topic}/{name}" for name in NAMES}
        address = Address(mosquitto.url, stream="pump", tags=tags, period="1s", options={"hold": "2"})
        with service_in(tmp_path / topic, file, "pump") as service, feeding(service, address) as connection:
            connected(connection)
            with Publisher(mosquitto) as publisher:
                for i in range(12):
                    for name in NAMES[:1] if i > 5 else NAMES:
                        publisher.publish(f"{topic}/{name}", {"time": START + i, "value": 0.5})
            if file is gappy_file:
                until(lambda: count(service, "pump") == 9)
                assert connection.set_aside == 0
                continue
            until(lambda: connection.set_aside >= 1)
            assert connection.state == "connected"
            assert reasons(service, address)[0] == (
                "There is no good value for 'level', 'heat' at 2026-03-01 12:00:07.000 UTC. Fit the detector with a "
                "gap rule, such as --gaps forward-fill:5, or fix the source."
            )


def test_a_broker_that_restarts_is_a_state_and_loses_nothing(tmp_path, pump_file):  # noqa: F811
    values = faulty(300)
    readings = as_readings(values)
    with (
        Mosquitto(tmp_path / "broker") as broker,
        service_in(tmp_path / "data", pump_file, "pump") as service,
        feeding(service, Address(f"{broker.url}/plant/pump", stream="pump")) as connection,
    ):
        connected(connection)
        for start in range(0, 300, 100):
            with Publisher(broker) as publisher:
                for reading in readings[start : start + 100]:
                    publisher.publish("plant/pump", reading)
            broker.stop()
            until(lambda: connection.state == "lost")
            assert is_a_sentence(connection.reason)
            broker.start()
            connected(connection)
        until(lambda: count(service, "pump") == 300)
        until(lambda: len(stored(tmp_path / "data", "scores")) == 300)
    assert stored(tmp_path / "data", "scores").tobytes() == wanted(pump_file, values)[0].tobytes()


def test_a_wrong_password_is_one_sentence(tmp_path, running, monkeypatch):
    monkeypatch.setenv("PLANT_PASSWORD", "guess")
    settings = [f"password_file {password_file(tmp_path, 'reader')}"]
    with Mosquitto(tmp_path / "broker", *settings, anonymous=False) as broker:
        url = f"{broker.url}/plant/pump"
        for version in ("5", "3.1.1"):
            address = Address(
                url, "json", user="reader", password_variable="PLANT_PASSWORD", options={"version": version}
            )
            connection = run_until(address, running, "failed")
            assert is_a_sentence(connection.reason)
            assert "refused user 'reader'" in connection.reason
        assert "refused a client without a user" in run_until(Address(url, "json"), running, "failed").reason
        monkeypatch.setenv("PLANT_PASSWORD", PASSWORD)
        run_until(Address(url, "json", user="reader", password_variable="PLANT_PASSWORD"), running, "connected")


def test_a_refused_subscription_is_one_sentence(tmp_path, running, monkeypatch):
    monkeypatch.setenv("PLANT_PASSWORD", PASSWORD)
    tmp_path.joinpath("broker").mkdir()
    settings = without_subscriptions(tmp_path, "reader")
    with Mosquitto(tmp_path / "broker", *settings, anonymous=False) as broker:
        for version in ("5", "3.1.1"):
            url = f"{broker.url}/plant/pump?version={version}"
            address = Address(url, "json", user="reader", password_variable="PLANT_PASSWORD")
            connection = run_until(address, running, "failed")
            assert "refused the subscription to 'plant/pump'" in connection.reason
            assert is_a_sentence(connection.reason)


def test_a_client_id_that_is_used_twice_is_named(mosquitto, running):  # noqa: F811
    address = Address(f"{mosquitto.url}/plant/twin?client=twin", stream="json")
    with feeding(running, address) as first:
        connected(first)
        with feeding(running, address) as second:
            connected(second)
            until(lambda: first.state == "lost")
            assert "another client may be using the client id 'twin'" in first.reason
            assert is_a_sentence(first.reason)


def test_tls_works_and_an_unknown_authority_is_one_sentence(tmp_path, running):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    subprocess.run([*make, "-keyout", key, "-out", certificate, *names], check=True, capture_output=True, timeout=60)
    with Mosquitto(tmp_path / "broker", f"certfile {certificate}", f"keyfile {key}") as broker:
        url = f"mqtts://127.0.0.1:{broker.port}/plant/pump"
        unknown = run_until(Address(url, "json"), running, "failed")
        assert "Cannot verify" in unknown.reason
        assert is_a_sentence(unknown.reason)
        run_until(Address(url, "json", options={"ca": str(certificate)}), running, "connected")
    lost = run_until(Address(url, "json"), running, "lost")
    assert "Cannot reach" in lost.reason
    assert is_a_sentence(lost.reason)


TAGS = {name: f"plant/{name}" for name in NAMES}


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ({"url": "mqtt://host"}, "names no topic"),
        ({"url": "mqtt:///topic"}, "names no broker"),
        ({"url": "mqtt://host/a/b+/c"}, "mixes text with a wildcard"),
        ({"url": "mqtt://host/a/{stream}x"}, "mixes text with a wildcard"),
        ({"url": "mqtt://host/{stream}/{stream}"}, "twice"),
        ({"url": "mqtt://host/{stream}", "stream": "pump"}, "Remove one of them"),
        ({"url": "mqtt://host/a/#/b?version=5"}, "The wildcard # must be the last level"),
        ({"url": "mqtt://host/a?version=4"}, "Unknown version of MQTT '4'"),
        ({"url": "mqtt://host/a?topic=b"}, "Unknown option of mqtt 'topic'"),
        ({"url": "mqtt://host/a?hold=0"}, "from 1 to 1000"),
        ({"url": "mqtt://host", "tags": TAGS, "period": "1s"}, "Name it with stream"),
        ({"url": "mqtt://host", "tags": TAGS, "stream": "pump"}, "need a period"),
        ({"url": "mqtt://host/a", "tags": TAGS, "stream": "pump", "period": "1s"}, "both a topic and tags"),
        ({"url": "mqtt://host", "tags": {"flow": "a/+"}, "stream": "pump", "period": "1s"}, "is not a topic"),
        ({"url": "mqtts://host/a?ca=nowhere.pem"}, "cannot be read (No such file or directory)"),
    ],
)
def test_a_wrong_address_is_one_sentence(address, problem):
    with pytest.raises(CometadError) as caught:
        source_of(Address(**address))
    assert is_a_sentence(str(caught.value))
    assert problem in str(caught.value)


def test_tags_must_be_the_variables_of_the_detector(mosquitto, running):  # noqa: F811
    for tags, problem in [({**TAGS, "speed": "plant/speed"}, "'speed'"), ({"flow": "plant/flow"}, "variable 'level'")]:
        address = Address(mosquitto.url, stream="json", tags=tags, period="1s")
        connection = run_until(address, running, "failed")
        assert problem in connection.reason
        assert is_a_sentence(connection.reason)


def test_a_hash_at_the_end_of_a_topic_is_a_wildcard():
    assert source_of(Address("mqtt://host/plant/#")).filters == ["plant/#"]
    assert source_of(Address("mqtt://host/plant/#?version=5")).filters == ["plant/#"]

"""MQTT, against a real mosquitto: nothing that was acknowledged is lost, and everything goes on by itself."""

import time

import pytest

from cometad.connect.address import Address
from contract import is_a_sentence
from plant_case import feeding, reasons, run_until, service_in, stored, wanted
from serve_case import NAMES, START, as_readings, faulty, plant, until
from servers.certificate import self_signed
from servers.mosquitto import PASSWORD, Mosquitto, Publisher, password_file, without_subscriptions


@pytest.fixture(scope="module")
def running(tmp_path_factory, pump_file):
    """One service for tests that use streams of their own."""
    names = ["json", "named", "tags", "again", "retained"]
    with service_in(tmp_path_factory.mktemp("data"), pump_file, *names) as service:
        yield service


def count(service, stream):
    return service.stream(stream).arrivals.next_seq


def connected(connection):
    return until(lambda: connection.state == "connected")


def test_a_message_may_hold_a_list_of_readings_that_name_their_stream(mosquitto, running):
    named = [{"stream": "named", **one} for one in as_readings(plant(50))]
    with feeding(running, Address(f"{mosquitto.url}/plant/all")) as connection:
        connected(connection)
        with Publisher(mosquitto) as publisher:
            publisher.publish("plant/all", named[:30])
            publisher.publish("plant/all", named[30:])
        until(lambda: count(running, "named") == 50)


def test_retained_readings_are_ignored_and_retained_values_are_taken(mosquitto, running):
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


def test_one_topic_per_variable_is_put_on_a_grid(mosquitto, running, pump):
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
    assert stored(folder, "scores", number)[:119].tobytes() == wanted(pump[0], values[:119])[0].tobytes()
    found = reasons(running, address)
    assert all(map(is_a_sentence, found))
    assert found[0] == (
        "Topic 'tags/flow': variable 'flow' is 'high', not a number. Correct that reading and send it again."
    )
    assert "is more than a day ahead of the local clock" in found[1]


def test_plain_numbers_are_rows_at_the_time_they_come(mosquitto, running):
    tags = {name: f"plain/{name}" for name in NAMES}
    address = Address(mosquitto.url, stream="again", tags=tags, period="100ms", given_name="plain")
    with feeding(running, address) as connection, Publisher(mosquitto) as publisher:
        connected(connection)
        for name in NAMES:
            publisher.publish(f"plain/{name}", "0.5")
        until(lambda: count(running, "again") >= 5)  # they hold for ten periods
    assert (stored(running.settings.data_dir, "readings", running.stream("again").id) == 0.5).all()


def test_a_variable_that_falls_silent_needs_a_gap_rule(mosquitto, tmp_path, pump_file, gappy_file):
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


def test_a_client_id_that_is_used_twice_is_named(mosquitto, running):
    address = Address(f"{mosquitto.url}/plant/twin?client=twin", stream="json")
    with feeding(running, address) as first:
        connected(first)
        with feeding(running, address) as second:
            connected(second)
            until(lambda: first.state == "lost")
            assert "another client may be using the client id 'twin'" in first.reason
            assert is_a_sentence(first.reason)


def test_tls_works_and_an_unknown_authority_is_one_sentence(tmp_path, running):
    certificate, key = self_signed(tmp_path)
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


def test_tags_must_be_the_variables_of_the_detector(mosquitto, running):
    for tags, problem in [({**TAGS, "speed": "plant/speed"}, "'speed'"), ({"flow": "plant/flow"}, "variable 'level'")]:
        address = Address(mosquitto.url, stream="json", tags=tags, period="1s")
        connection = run_until(address, running, "failed")
        assert problem in connection.reason
        assert is_a_sentence(connection.reason)

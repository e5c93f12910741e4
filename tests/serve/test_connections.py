"""Sources of `cometad.toml`: their readings are stored and scored, their states are seen, bad messages are listed."""

import asyncio
import json
import threading
from typing import ClassVar

import pytest

from cometad.connect.address import Address
from cometad.connect.contract import Lost, Message
from cometad.connect.source import CONNECTORS
from cometad.errors import ParameterError
from cometad.serve.sources import Connections
from serve_case import (
    SETTINGS,
    WAIT,
    as_readings,
    database_watched,
    expected,
    faulty,
    frame,
    in_process,
    settled,
    until,
    upload,
)

ROWS = 120


class Drip:
    """A source of our own: readings from a list, then a word that is no reading, then it vanishes for a while."""

    readings: ClassVar[list] = []
    away = False

    def __init__(self, address):
        self.address = address

    async def run(self, intake):
        if Drip.away:
            raise Lost("Nobody answers at test://plant.")
        intake.connected()
        while Drip.readings:
            body = json.dumps(Drip.readings.pop(0)).encode()
            await intake.take([Message(body, "drip 1", self.address.stream)])
        await intake.take([Message(b"on fire", "drip 2", self.address.stream)])
        while not Drip.away:
            await asyncio.sleep(0.01)
        raise Lost("Nobody answers at test://plant.")


@pytest.fixture
def drip(monkeypatch):
    monkeypatch.setitem(CONNECTORS.rows, "test", Drip)
    monkeypatch.setattr("cometad.connect.contract.FIRST_WAIT", 0.05)
    Drip.away, Drip.readings = True, []
    return Drip


def test_a_source_feeds_its_stream_and_its_absence_is_a_state_of_the_stream(tmp_path, drip, pump):
    values = faulty(ROWS)
    connect = [{"url": "test://plant", "stream": "pump-1", "name": "drip"}]
    with in_process(tmp_path, connect=connect) as (_, client):
        upload(client, "pump", pump[1])
        assert client.put("/v1/streams/pump-1", json=SETTINGS).status_code == 201
        away = {"state": "disconnected", "reason": "Nobody answers at test://plant."}  # before: there is no stream
        until(lambda: away.items() <= client.get("/v1/streams/pump-1").json().items())
        drip.readings, drip.away = as_readings(values), False
        scores = settled(client, "pump-1", ROWS)["scores"]
        assert scores == expected(pump[0], values)[0]
        (connection,) = client.get("/v1/connections").json()["connections"]
        assert (connection["state"], connection["readings"], connection["streams"]) == ("connected", ROWS, ["pump-1"])
        until(lambda: client.get("/v1/connections/drip/set-aside").json()["messages"])
        (aside,) = client.get("/v1/connections/drip/set-aside").json()["messages"]
        assert (aside["where"], aside["content"]) == ("drip 2", "on fire")
        assert b"cometad_connections_lost 0.0" in client.get("/metrics").content
        assert client.delete("/v1/connections/drip/set-aside").status_code == 204
        assert client.get("/v1/connections/drip/set-aside").json()["messages"] == []
        drip.away = True
        until(lambda: client.get("/v1/streams/pump-1").json()["state"] == "disconnected")


def test_a_source_does_not_keep_others_waiting_for_the_database(running, tmp_path):
    service, client = running
    client.put("/v1/streams/filed", json=SETTINGS)
    frame(faulty(ROWS)).write_csv(tmp_path / "filed.csv")
    with database_watched(service) as waiting:
        service.connect([Address(f"file://{tmp_path}/filed.csv?follow=no", stream="filed")], lambda one: None)
        assert service.connections.ended.wait(WAIT)
        settled(client, "filed", ROWS)
    assert waiting == []


def test_a_service_with_two_connections_of_one_name_does_not_start(tmp_path, drip):
    two = [{"url": "test://plant", "name": "drip"}, {"url": "test://plant", "name": "drip"}]
    threads = set(threading.enumerate())
    with pytest.raises(ParameterError, match="Two connections"), in_process(tmp_path / "data", connect=two):
        pass
    assert set(threading.enumerate()) <= threads
    assert not (tmp_path / "data").exists()


def test_connections_that_are_stopped_right_after_their_start_end(drip):
    for _ in range(30):
        connections = Connections([Address("test://plant", given_name="drip")], receiver=None)
        connections.start()
        stopping = threading.Thread(target=connections.stop, daemon=True)
        stopping.start()
        stopping.join(WAIT)
        assert not stopping.is_alive()

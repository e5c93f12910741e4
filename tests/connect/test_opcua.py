"""OPC UA, against asyncua's server in a process of its own."""

import asyncio
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from asyncua import Client

from cometad.connect import opcua
from cometad.connect.address import Address
from contract import is_a_sentence
from plant_case import feeding, reasons, run_until, service_in, stored
from serve_case import NAMES, plant, until
from servers.opcua import OpcuaServer


@pytest.fixture(scope="module")
def server():
    """One server for tests that do not stop it."""
    with OpcuaServer(NAMES) as server:
        yield server


def count(service):
    return service.stream("pump").arrivals.next_seq


def readings(service):
    return stored(service.settings.data_dir, "readings")


def test_changes_of_nodes_become_readings(server, tmp_path, pump_file):
    values = np.round(plant(12), 3)
    address = Address(server.url, "pump", server.tags, "100ms")
    with service_in(tmp_path, pump_file, "pump") as service, feeding(service, address) as connection:
        until(lambda: connection.state == "connected")
        for row in values:
            server.write_row(row)
            time.sleep(0.15)  # more than a period, so that each row is seen
        until(lambda: len(readings(service)) and (readings(service)[-1] == values[-1]).all())
        found = readings(service)
        ats = service.stream("pump").arrivals.last_at
    assert connection.set_aside == 0
    order = [i for i, row in enumerate(values.tolist()) if row in found.tolist()]
    assert order == list(range(12))
    assert abs(ats * 10 - round(ats * 10)) < 1e-3  # on the grid


def test_a_folder_may_name_the_nodes_and_values_hold_until_they_change(server, tmp_path, pump_file):
    address = Address(f"{server.url}?node=ns%3D2;s%3DPump", "pump", period="50ms")
    server.write_row([0.1, 0.2, 0.3], at=time.time() - 5000)  # long ago, but that is how it still is
    with service_in(tmp_path, pump_file, "pump") as service, feeding(service, address):
        until(lambda: count(service) >= 20)
        assert (readings(service) == [0.1, 0.2, 0.3]).all()


def test_bad_values_are_missing_and_uncertain_ones_count(server, tmp_path, gappy_file):
    address = Address(server.url, "pump", server.tags, "50ms")
    with service_in(tmp_path, gappy_file, "pump") as service, feeding(service, address) as connection:
        until(lambda: connection.state == "connected")
        server.write_row([0.1, 0.2, 0.3])
        until(lambda: (readings(service) == [0.1, 0.2, 0.3]).all(axis=1).any() if count(service) else False)
        server.write(("flow", 0.7, None, "BadSensorFailure"), ("level", 0.8, None, "UncertainLastUsableValue"))
        until(lambda: np.isnan(readings(service)[-1, 0]))
        assert readings(service)[-1, 1:].tolist() == [0.8, 0.3]
        server.write(("flow", 0.9, None, "Good"))
        until(lambda: readings(service)[-1, 0] == 0.9)
        assert connection.set_aside == 0


def test_bad_values_need_a_gap_rule(server, tmp_path, pump_file):
    address = Address(server.url, "pump", server.tags, "50ms")
    server.write_row([0.1, 0.2, 0.3])
    with service_in(tmp_path, pump_file, "pump") as service, feeding(service, address) as connection:
        until(lambda: count(service) >= 1)
        server.write(("flow", 0.7, None, "BadSensorFailure"))
        until(lambda: connection.set_aside >= 1)
        assert connection.state == "connected"
    reason = reasons(service, address)[0]
    assert is_a_sentence(reason)
    assert "no good value for 'flow'" in reason
    assert "--gaps forward-fill:5" in reason


def test_a_clock_that_jumps_does_not_freeze_a_variable(server, tmp_path, pump_file):
    address = Address(server.url, "pump", server.tags, "50ms")
    server.write_row([0.1, 0.2, 0.3])
    with service_in(tmp_path, pump_file, "pump") as service, feeding(service, address) as connection:
        until(lambda: count(service) >= 1)
        server.write(("flow", 0.4, time.time() + 3e7, "Good"))  # a year ahead
        until(lambda: readings(service)[-1, 0] == 0.4)
        server.write(("flow", 0.5, time.time() - 3600, "Good"))  # and back
        until(lambda: readings(service)[-1, 0] == 0.5)
        assert connection.set_aside == 0


def test_a_server_that_restarts_is_a_state_and_goes_on(tmp_path, pump_file, caplog):
    with (
        OpcuaServer(NAMES) as server,
        service_in(tmp_path, pump_file, "pump") as service,
        feeding(service, Address(server.url, "pump", server.tags, "50ms")) as connection,
    ):
        until(lambda: count(service) >= 5)
        server.stop()
        until(lambda: connection.state == "lost")
        assert is_a_sentence(connection.reason)
        before = count(service)
        server.start()
        server.write_row([0.1, 0.2, 0.3])
        until(lambda: connection.state == "connected")
        until(lambda: count(service) >= before + 5)
        until(lambda: readings(service)[-1].tolist() == [0.1, 0.2, 0.3])
    assert caplog.text == ""  # people see the state, no tracebacks of the client


def test_values_that_come_faster_than_they_are_stored_are_listed_as_lost(server, tmp_path, pump_file, monkeypatch):
    monkeypatch.setattr(opcua, "MOST_WAITING", 6)
    behind = threading.Event()
    with service_in(tmp_path, pump_file, "pump") as service:
        address = Address(server.url, "pump", server.tags, "50ms")
        with feeding(service, address) as connection:
            until(lambda: count(service) >= 1)
            monkeypatch.setattr(type(service.scorer), "unscored", property(lambda _: 10**9 if behind.is_set() else 0))
            behind.set()
            for i in range(10):
                server.write_row([i, i, i])
                time.sleep(0.06)
            behind.clear()
            until(lambda: connection.set_aside >= 1)
            before = count(service)
            until(lambda: count(service) > before)
    reason = reasons(service, address)[0]
    assert is_a_sentence(reason)
    assert "arrived faster than they were stored" in reason


def test_a_wrong_password_is_one_sentence(tmp_path, pump_file, monkeypatch):
    monkeypatch.setenv("PLANT_PASSWORD", "guess")
    with OpcuaServer(NAMES, login=True) as server, service_in(tmp_path, pump_file, "pump") as service:
        address = Address(server.url, "pump", server.tags, "1s", user="reader", password_variable="PLANT_PASSWORD")
        wrong = run_until(address, service, "failed")
        assert is_a_sentence(wrong.reason)
        assert "refused user 'reader'" in wrong.reason
        monkeypatch.setenv("PLANT_PASSWORD", "tide gauge")
        run_until(address, service, "connected")


def test_an_encrypted_connection_needs_the_option_security(tmp_path, pump_file):
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.der")
    asyncio.run(Client("opc.tcp://127.0.0.1").setup_self_signed_certificate(Path(key), Path(certificate)))
    with (
        OpcuaServer(NAMES, secure=[certificate, key]) as server,
        service_in(tmp_path / "data", pump_file, "pump") as service,
    ):
        options = {"security": f"Basic256Sha256,SignAndEncrypt,{certificate},{key}"}
        run_until(Address(server.url, "pump", server.tags, "1s", options=options), service, "connected")
        plain = run_until(Address(server.url, "pump", server.tags, "1s"), service, "failed")
        assert is_a_sentence(plain.reason)
        assert "the option security" in plain.reason


def test_nodes_that_cannot_be_used_are_one_sentence(server, tmp_path, pump_file):
    with service_in(tmp_path, pump_file, "pump") as service:
        for node, problem in [
            ("ns=2;s=Pump.gone", "BadNodeIdUnknown"),
            ("ns=2;s=Pump.note", "'all well', not a number"),
        ]:
            address = Address(server.url, "pump", {**server.tags, "flow": node}, "1s")
            connection = run_until(address, service, "failed")
            assert is_a_sentence(connection.reason)
            assert problem in connection.reason
            assert node in connection.reason
        for folder in ("i=85", "ns=2;s=nowhere"):
            address = Address(server.url, "pump", period="1s", options={"node": folder})
            connection = run_until(address, service, "failed")
            assert is_a_sentence(connection.reason)
            assert f"The node {folder!r} has no variable" in connection.reason
        away = Address("opc.tcp://127.0.0.1:9", "pump", server.tags, "1s")
        assert "Cannot reach" in run_until(away, service, "lost").reason

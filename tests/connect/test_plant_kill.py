"""`kill -9` of the service while MQTT, files and OPC UA feed it: nothing is lost, nothing is doubled."""

import json
import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from plant_case import service_in, stored, stored_events, wanted
from serve_case import NAMES, Server, as_readings, faulty, until
from servers.mosquitto import Publisher
from servers.opcua import OpcuaServer

ROWS, KILLS = 900, 5


@pytest.fixture
def nodes():
    with OpcuaServer(NAMES) as server:
        yield server


def test_kill_9_loses_and_doubles_nothing(mosquitto, nodes, tmp_path, pump_file, pump):
    folder, values, chance = tmp_path / "data", faulty(ROWS), random.Random(7)
    logs = tmp_path / "logs"
    logs.mkdir()
    with service_in(folder, pump_file, "json", "tags", "files", "nodes"):
        pass
    kept = []  # what was on disk of the nodes when it was killed
    (tmp_path / "cometad.toml").write_text(sources(mosquitto, logs, nodes))
    with Server(tmp_path) as server, Publisher(mosquitto) as publisher:
        until(lambda: states(server) == ["connected"] * 4)
        for start in range(0, ROWS, ROWS // KILLS):
            nodes.write_row(values[start])
            known = [len(stored(folder, "readings", stream)) for stream in (1, 2, 3)]
            for reading in as_readings(values)[start : start + ROWS // KILLS]:
                send(reading, publisher, logs / "pump.csv")
            publisher.flush()
            until(lambda known=known: any(len(stored(folder, "readings", 1 + i)) > known[i] for i in range(3)))
            time.sleep(chance.uniform(0, 0.1))
            server.kill()
            kept.append(stored(folder, "readings", 4))
            (logs / "pump.csv").rename(logs / f"pump-{start}.csv")  # while nobody looks
            server.start()
        until(lambda: len(stored(folder, "readings", 4)) > len(kept[-1]))
        until(lambda: all(len(stored(folder, "scores", stream)) >= ROWS - 1 for stream in (1, 2, 3)))
        until(lambda: len(stored(folder, "scores", 1)) == len(stored(folder, "scores", 3)) == ROWS)
        assert server.stop() == 0  # what the nodes gave is scored up to the last reading
    scores, events = wanted(pump[0], values)
    for stream in (1, 2, 3):
        rows = ROWS - 1 if stream == 2 else ROWS  # the last row of tags waits for what follows it
        assert stored(folder, "readings", stream)[:rows].tobytes() == values[:rows].tobytes()
        assert stored(folder, "scores", stream)[:rows].tobytes() == scores[:rows].tobytes()
        assert stored_events(folder, stream) == events
    assert len(events) == ROWS // 100
    # What changes at an OPC UA server while nobody is connected is not known; what was stored is never lost.
    found = stored(folder, "readings", 4)
    assert all(found[: len(before)].tobytes() == before.tobytes() for before in kept if len(before))
    assert (np.diff(stored_times(folder, 4)) > 0).all()
    scores, events = wanted(pump[0], found)
    assert stored(folder, "scores", 4).tobytes() == scores.tobytes()
    assert stored_events(folder, 4) == events


def stored_times(folder: Path, stream: int) -> np.ndarray:
    with closing(sqlite3.connect(f"file:{folder / 'cometad.sqlite'}?mode=ro", uri=True)) as connection:
        query = "SELECT ats FROM readings WHERE stream_id = ? ORDER BY first"
        return np.frombuffer(b"".join(ats for (ats,) in connection.execute(query, [stream])), "<f8")


def sources(broker, logs: Path, nodes: OpcuaServer) -> str:
    named = ", ".join(f'{name} = "{node}"' for name, node in nodes.tags.items())
    tags = ", ".join(f'{name} = "kill/{name}"' for name in NAMES)
    return f"""
[[connect]]
url = "{broker.url}/kill/readings"
stream = "json"

[[connect]]
url = "{broker.url}"
stream = "tags"
period = "1s"
tags = {{ {tags} }}

[[connect]]
url = "file://{logs}/"
stream = "files"
options = {{ order = "time" }}

[[connect]]
url = "{nodes.url}"
stream = "nodes"
period = "50ms"
tags = {{ {named} }}
"""


def states(server: Server) -> list[str]:
    return [one["state"] for one in server.client.get("/v1/connections").json()["connections"]]


def send(reading: dict[str, float], publisher: Publisher, file: Path) -> None:
    publisher.publish("kill/readings", reading)
    for name in NAMES:
        publisher.publish(f"kill/{name}", {"time": reading["time"], "value": reading[name]})
    fresh = not file.exists()
    with file.open("a") as handle:
        handle.write(",".join(["time", *NAMES]) + "\n" if fresh else "")
        handle.write(",".join(json.dumps(value) for value in reading.values()) + "\n")

"""The connectors of a plant, MQTT, OPC UA and files, with real servers: readings a second, and what goes wrong.

    python bench/scripts/connecting/plant.py [mqtt opcua kill outage] [--messages 20000] [--kills 100] [--seed 0]

mqtt: messages with 25 variables in JSON wait at mosquitto; the figure is from the connection to the last score on disk.
opcua: 25 nodes of asyncua's server change once a period, all at the same source timestamp; a row is exact if it has all
25 values of that moment. The server and this process share the machine. kill: the consumer of MQTT, of a rotated file
and of OPC UA is killed at random moments under load; at the end, everything stored is compared with an uninterrupted
run. OPC UA has no acknowledgement, so there the run is one over the readings that were stored, none of which may be
lost. outage: the broker is restarted five
times, frozen for a minute, and sends poison and a value of next year among good ones.
"""

import argparse
import json
import multiprocessing
import os
import random
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

os.environ |= dict.fromkeys(("COMETAD_THREADS", "OMP_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
sys.path.extend([str(Path(__file__).parents[1]), str(Path(__file__).parents[3] / "tests")])

import numpy as np

from servers.mosquitto import Mosquitto, Publisher
from servers.opcua import OpcuaServer
from serving import NAMES, START, fitted, plant

WAIT = 120.0  # seconds until a benchmark gives up
TOPIC = "plant/pump"


def body(row: list[float], step: int) -> dict[str, float]:
    """A reading as JSON."""
    return {"time": START + step, **dict(zip(NAMES, row, strict=True))}


@contextmanager
def service_in(folder: Path, **address: Any) -> Iterator[tuple[Any, Any]]:
    """A service with one stream, fed by a source: the service and the stream."""
    from cometad.connect.address import Address
    from cometad.serve.logs import configure_logs
    from cometad.serve.models import StreamSettings
    from cometad.serve.service import Service
    from cometad.serve.settings import Settings

    configure_logs("text", quiet=True)
    with closing(Service(Settings(data_dir=folder))) as service:
        service.start()
        if not service.streams:
            service.detectors.add("plant", fitted()[0])
        stream, _ = service.put_stream("pump", StreamSettings(detector="plant"))
        service.connect([Address(stream="pump", given_name="bench", **address)], lambda one: None)
        yield service, stream


def until(condition: Any, seconds: float = WAIT) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"Not so after {seconds} s.")
        time.sleep(0.005)


def is_connected(service: Any) -> bool:
    return all(one.state == "connected" for one in service.connections.by_name.values())


def mqtt(messages: int, per_message: int, version: str) -> str:
    """Readings a second from a full queue of the broker to a stored score."""
    values = plant(messages * per_message, seed=0, run=1).tolist()
    readings = [body(row, i) for i, row in enumerate(values)]
    with tempfile.TemporaryDirectory() as name, Mosquitto(Path(name, "broker")) as broker:
        address = {"url": f"{broker.url}/{TOPIC}", "options": {"version": version}}
        with service_in(Path(name, "data"), **address) as (service, _):
            until(lambda: is_connected(service))  # the broker has a session now
        with Publisher(broker) as publisher:
            for i in range(0, len(readings), per_message):
                publisher.publish(TOPIC, readings[i : i + per_message] if per_message > 1 else readings[i])
        begun = time.perf_counter()
        with service_in(Path(name, "data"), **address) as (service, stream):
            until(lambda: stream.scoring.scored_seq >= len(readings))
            service.recorder.flush()
            seconds = time.perf_counter() - begun
    count = len(readings)
    return (
        f"MQTT {version}, {per_message} a message: {count:,} readings, "
        f"{count / seconds:,.0f} a second to a stored score"
    )


def opcua(period: float, rows: int = 200) -> str:
    """How many rows of 25 nodes that change once a period are stored exactly."""
    values = plant(rows, seed=0, run=1)
    with tempfile.TemporaryDirectory() as name, OpcuaServer(NAMES) as server:
        folder = Path(name, "data")
        address = {"url": server.url, "tags": server.tags, "period": f"{period * 1000:g}ms"}
        with service_in(folder, **address) as (service, stream):
            until(lambda: stream.scoring.scored_seq > 0)
            first = (time.time() // period + 10) * period
            begun = time.perf_counter()
            for i, row in enumerate(values):
                at = first + (i - 0.5) * period
                time.sleep(max(0.0, at - time.time()))
                server.write_row(row, at)
            behind = time.time() - (first + (rows - 0.5) * period)
            seconds = time.perf_counter() - begun
            until(lambda: stream.arrivals.last_at > first + (rows + 2) * period)
            service.recorder.flush()
        found = stored(folder, "readings")
    whole = {tuple(row) for row in values.tolist()}
    exact = len({tuple(row) for row in found.tolist()} & whole)
    return (
        f"OPC UA, period {period * 1000:g} ms: {25 * rows / seconds:,.0f} changes a second (the writer ended "
        f"{max(behind, 0):.2f} s behind), {exact} of {rows} rows exact"
    )


def stored(folder: Path, table: str) -> np.ndarray:
    """What a table has of the stream (row, column), checked to follow each other."""
    with closing(sqlite3.connect(f"file:{folder / 'cometad.sqlite'}?mode=ro", uri=True)) as connection:
        chunks = connection.execute(f"SELECT first, count, cells FROM {table} ORDER BY first").fetchall()
    if not chunks:
        return np.empty((0, 0))
    ends = np.cumsum([count for _, count, _ in chunks])
    if [first for first, _, _ in chunks] != [0, *ends[:-1].tolist()]:
        raise RuntimeError(f"The chunks of {table} have gaps or overlap.")
    return np.frombuffer(b"".join(cells for _, _, cells in chunks), "<f8").reshape(int(ends[-1]), -1)


def consume(folder: str, address: dict[str, Any], repeated: Any) -> None:
    """Be the process that is killed; counts the readings that came again."""
    with service_in(Path(folder), **address) as (_, stream):
        while True:
            repeated.value = stream.arrivals.repeated
            time.sleep(0.002)


def differences(folder: Path, values: np.ndarray) -> list[str]:
    """How what is stored differs from a run that nobody interrupted."""
    from cometad import load

    with tempfile.TemporaryDirectory() as name:
        file = Path(name, "plant.comet")
        file.write_bytes(fitted()[0])
        scored = load(file).stream().update_many(values)
    last = {change.event.number: change.event for change in scored.changes}
    wanted = {
        "readings": values,
        "scores": np.column_stack([scored.alert_scores, scored.thresholds, scored.flags]),
    }
    problems = [
        f"The {name} differ." for name, cells in wanted.items() if stored(folder, name).tobytes() != cells.tobytes()
    ]
    with closing(sqlite3.connect(folder / "cometad.sqlite")) as connection:
        events = connection.execute("SELECT number, start, stop, peak, steps, peak_score FROM events ORDER BY number")
        found = events.fetchall()
    if found != [(one.number, one.start, one.stop, one.peak, one.steps, one.peak_score) for one in last.values()]:
        problems.append("The events differ.")
    return problems


def faulty(rows: int) -> np.ndarray:
    """Readings (time, variable) with a fault in each two hundred."""
    values = plant(rows, seed=0, run=2)
    for at in range(150, rows - 10, 200):
        values[at : at + 10, :5] += 4
    return values


class Feed(NamedTuple):
    """A source that is fed while its consumer is killed."""

    address: dict[str, Any]
    send: Callable[[np.ndarray, int], None]  # a row and its number
    flush: Callable[[], None] = lambda: None
    acknowledges: bool = True  # else readings of a time at which nobody listens are not known
    pause: float = 0.005  # seconds between rows


@contextmanager
def mqtt_feed(folder: Path) -> Iterator[Feed]:
    """A topic of a broker."""
    with Mosquitto(folder / "broker") as broker, Publisher(broker) as publisher:
        yield Feed(
            {"url": f"{broker.url}/{TOPIC}"},
            lambda row, step: publisher.publish(TOPIC, body(row.tolist(), step)),
            publisher.flush,
        )


@contextmanager
def file_feed(folder: Path) -> Iterator[Feed]:
    """A file that is rotated after 500 lines."""
    logs = folder / "logs"
    logs.mkdir()
    file, header = logs / "pump.csv", ",".join(["time", *NAMES])

    def send(row: np.ndarray, step: int) -> None:
        if step % 500 == 0 and file.exists():
            file.rename(logs / f"pump-{step}.csv")
        with file.open("a") as handle:
            handle.write(f"{header}\n" if step % 500 == 0 else "")
            handle.write(",".join(map(repr, [START + step, *row.tolist()])) + "\n")

    yield Feed({"url": f"file://{logs}/?order=time"}, send)


@contextmanager
def opcua_feed(folder: Path) -> Iterator[Feed]:
    """Nodes of a server."""
    with OpcuaServer(NAMES) as server:
        address = {"url": server.url, "tags": server.tags, "period": "50ms"}
        yield Feed(address, lambda row, step: server.write_row(row), acknowledges=False, pause=0.05)


FEEDS = {"MQTT": mqtt_feed, "files": file_feed, "OPC UA": opcua_feed}


class Load(threading.Thread):
    """Sends readings until it is stopped."""

    def __init__(self, feed: Feed, values: np.ndarray) -> None:
        super().__init__()
        self._feed, self._values = feed, values
        self.sent, self.stopping = 0, threading.Event()

    def run(self) -> None:
        """Send."""
        while not self.stopping.wait(self._feed.pause) and self.sent < len(self._values):
            self._feed.send(self._values[self.sent], self.sent)
            self.sent += 1
        self._feed.flush()


def kill(kind: str, times: int, seed: int) -> tuple[str, list[str]]:
    """Kill the consumer at random moments under load: a sentence, and the problems."""
    chance, values = random.Random(seed), faulty(200_000)
    context = multiprocessing.get_context("forkserver")
    modules = ("mqtt", "file_source", "opcua")
    context.set_forkserver_preload(
        ["cometad.serve.service", "cometad.comet", "cometad.detectors", *(f"cometad.connect.{one}" for one in modules)]
    )
    repeated, problems = 0, list[str]()
    with tempfile.TemporaryDirectory() as name, FEEDS[kind](Path(name)) as feed:
        folder = Path(name, "data")
        with service_in(folder, **feed.address) as (service, _):
            until(lambda: is_connected(service))
        load = Load(feed, values)
        load.start()
        known = stored(folder, "readings")
        for _ in range(times):
            count = context.Value("i", 0)
            process = context.Process(target=consume, args=(str(folder), feed.address, count))
            process.start()
            until(lambda known=known: len(stored(folder, "readings")) > len(known))
            time.sleep(chance.uniform(0, 0.3))
            process.kill()
            process.join()
            repeated += count.value
            before, known = known, stored(folder, "readings")
            if known[: len(before)].tobytes() != before.tobytes():
                problems.append("Readings that were stored are lost.")
        load.stopping.set()
        load.join()
        with service_in(folder, **feed.address) as (service, stream):
            until(lambda: stream.scoring.scored_seq >= (load.sent if feed.acknowledges else len(known) + 1))
            repeated += stream.arrivals.repeated
        wanted = values[: load.sent] if feed.acknowledges else stored(folder, "readings")
        problems += differences(folder, wanted)
    what = " ".join(problems) or "0 lost, 0 events doubled, scores equal to an uninterrupted run"
    return f"{kind}, {times} kills: {len(wanted):,} readings, {repeated:,} of them came again; {what}", problems


def outage() -> Iterator[str]:
    """A broker that is restarted, frozen, and sends poison."""
    values = faulty(1200)
    with tempfile.TemporaryDirectory() as name, Mosquitto(Path(name, "broker")) as broker:
        folder = Path(name, "data")
        with service_in(folder, url=f"{broker.url}/{TOPIC}") as (service, stream):
            until(lambda: is_connected(service))
            (connection,) = service.connections.by_name.values()
            publish(broker, values, 0, 100)
            for i in range(5):
                broker.stop()
                until(lambda: connection.state == "lost")
                broker.start()
                publish(broker, values, 100 + i * 100, 200 + i * 100)
                until(lambda: is_connected(service))
            until(lambda: stream.scoring.scored_seq >= 600)
            yield "broker restarted 5 times: went on by itself, 600 of 600 readings"
            os.kill(broker.process.pid, signal.SIGSTOP)
            begun = time.monotonic()
            until(lambda: connection.state == "lost")
            noticed = time.monotonic() - begun
            time.sleep(max(0.0, 60 - noticed))
            os.kill(broker.process.pid, signal.SIGCONT)
            publish(broker, values, 600, 900)
            until(lambda: stream.scoring.scored_seq >= 900)
            yield f"broker frozen for a minute, as a cut network: noticed after {noticed:.0f} s, 900 of 900 readings"
            with Publisher(broker) as publisher:
                for bad in (
                    b"on fire",
                    b"\xff",
                    {"time": START + 900},
                    {**body(values[900].tolist(), 0), "time": START + 1e9},
                ):
                    publisher.publish(TOPIC, bad)
            publish(broker, values, 900, 1200)
            until(lambda: stream.scoring.scored_seq >= 1200 and connection.set_aside >= 4)
            service.recorder.flush()
            yield f"poison and a clock that jumped: {connection.set_aside} messages set aside, 1200 of 1200 readings"
        problems = differences(folder, values)
        yield "after all of that: " + (
            " ".join(problems) or "readings, scores and events equal to an uninterrupted run"
        )


def publish(broker: Mosquitto, values: np.ndarray, start: int, stop: int) -> None:
    with Publisher(broker) as publisher:
        for step in range(start, stop):
            publisher.publish(TOPIC, json.dumps(body(values[step].tolist(), step)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["mqtt", "opcua", "kill", "outage"])
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if "mqtt" in given.parts:
        for per_message, version in ((1, "5"), (10, "5"), (1, "3.1.1")):
            print(mqtt(given.messages // per_message, per_message, version), flush=True)
    if "opcua" in given.parts:
        for period in (0.1, 0.02, 0.01):
            print(opcua(period), flush=True)
    failed = False
    for kind in FEEDS if "kill" in given.parts else ():
        sentence, problems = kill(kind, given.kills, given.seed)
        failed = failed or bool(problems)
        print(sentence, flush=True)
    if "outage" in given.parts:
        for line in outage():
            print(line, flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()

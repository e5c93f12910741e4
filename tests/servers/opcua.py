"""A real OPC UA server (asyncua's own) as a process of its own, which tests tell what its nodes are."""

import json
import math
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from serve_case import WAIT

CODE = """
import asyncio, json, logging, sys
from datetime import UTC, datetime, timedelta
from asyncua import Server, ua
from asyncua.crypto.permission_rules import User, UserRole

logging.disable(logging.CRITICAL)

class Users:
    def get_user(self, iserver, username=None, password=None, certificate=None):
        return User(role=UserRole.User) if (username, password) == ("reader", "tide gauge") else None

async def main():
    port, names, login, secure = int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3] == "login", sys.argv[4:]
    server = Server(user_manager=Users() if login else None)
    await server.init()
    server.set_endpoint(f"opc.tcp://127.0.0.1:{port}/plant")
    policy = ua.SecurityPolicyType.Basic256Sha256_SignAndEncrypt if secure else ua.SecurityPolicyType.NoSecurity
    server.set_security_policy([policy])
    if secure:
        await server.load_certificate(secure[0])
        await server.load_private_key(secure[1])
    if login:
        server.set_identity_tokens([ua.UserNameIdentityToken])
    number = await server.register_namespace("plant")
    folder = await server.nodes.objects.add_object(ua.NodeId("Pump", number), "Pump")
    nodes = {}
    for name in names:
        nodes[name] = await folder.add_variable(ua.NodeId(f"Pump.{name}", number), name, 0.0)
    await folder.add_variable(ua.NodeId("Pump.note", number), "note", "all well")
    async with server:
        print("listening", flush=True)
        loop = asyncio.get_running_loop()
        while True:
            line = await loop.run_in_executor(None, sys.stdin.readline)
            if not line:
                return
            for name, value, at, status in json.loads(line):
                moment = datetime.now(UTC) if at is None else datetime.fromtimestamp(at, UTC)
                code = ua.StatusCode(getattr(ua.StatusCodes, status))
                await nodes[name].write_value(ua.DataValue(ua.Variant(value, ua.VariantType.Double), code, moment))
            print("done", flush=True)

asyncio.run(main())
"""


class OpcuaServer:
    """A server with nodes `ns=2;s=Pump.NAME` in a folder `ns=2;s=Pump`."""

    def __init__(self, names: list[str], login: bool = False, secure: Sequence[str] = ()) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._words = [sys.executable, "-c", CODE, str(self.port), json.dumps(names), "login" if login else "", *secure]
        self.names = names
        self.process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"opc.tcp://127.0.0.1:{self.port}/plant"

    @property
    def tags(self) -> dict[str, str]:
        return {name: f"ns=2;s=Pump.{name}" for name in self.names}

    def start(self) -> "OpcuaServer":
        self.process = subprocess.Popen(self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self._answer() != "listening":
            self.stop()
            raise RuntimeError("The server did not start.")
        return self

    def _answer(self) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def write(self, *changes: tuple[str, float, float | None, str]) -> None:
        """Write values of nodes, with their times (None: now) and statuses."""
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(changes) + "\n")
        self.process.stdin.flush()
        assert self._answer() == "done"

    def write_row(self, row: Any, at: float | None = None) -> None:
        """Write a good value of every node."""
        self.write(*((name, float(value), at, "Good") for name, value in zip(self.names, row, strict=True)))

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(WAIT)
            self.process.stdin.close()  # type: ignore[union-attr]
            self.process.stdout.close()  # type: ignore[union-attr]
            self.process = None

    def __enter__(self) -> "OpcuaServer":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


@contextmanager
def plant_server() -> Iterator[int]:
    """A server with a pump that runs, for a page of the docs; gives its port."""
    stop = threading.Event()
    with OpcuaServer(["flow", "pressure", "temperature"]) as server:

        def run() -> None:
            while not stop.wait(0.2):
                load = 1 + 0.5 * math.sin(2 * math.pi * time.time() / 37.3)
                server.write_row([30 * load, 2 + load**2, 60 + 8 * math.cos(2 * math.pi * time.time() / 37.3)])

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield server.port
        finally:
            stop.set()
            thread.join()

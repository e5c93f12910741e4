"""A real server as a process of its own, on a port of its own: stopped, killed, frozen and started again."""

import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Self

from serve_case import WAIT, until


def free_port() -> int:
    """A port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


class Program:
    """A server that keeps its data in a folder; `command` starts it, and `is_ready` tells when it answers."""

    end = signal.SIGKILL

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def command(self) -> list[str]:
        raise NotImplementedError

    def is_ready(self) -> bool:
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self.port)) == 0

    def start(self) -> Self:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        until(self._lives_and_is_ready)
        return self

    def _lives_and_is_ready(self) -> bool:
        assert self.process.poll() is None, (self.folder / "log").read_text()
        return self.is_ready()

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(self.end)
            try:
                self.process.wait(WAIT)
            finally:
                self.process.kill()
            self.process = None

    def freeze(self, frozen: bool = True) -> None:
        """Stop answering without closing connections, as if the network was cut."""
        os.kill(self.process.pid, signal.SIGSTOP if frozen else signal.SIGCONT)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

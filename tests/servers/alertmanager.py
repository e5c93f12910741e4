"""The real Alertmanager of Debian, which a test starts itself."""

import shutil
import socket
import subprocess
from pathlib import Path

import httpx
import pytest

from serve_case import WAIT, until

PROGRAM = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")


def free_port() -> int:
    """A port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


class AlertmanagerServer:
    """An Alertmanager that tells nobody, on a port of its own."""

    def __init__(self, folder: Path) -> None:
        if PROGRAM is None:
            pytest.skip("Alertmanager is not installed: apt-get install prometheus-alertmanager")
        self.folder, self.port = folder, free_port()
        self.url = f"alertmanager+http://127.0.0.1:{self.port}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "alertmanager.yml").write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")

    def __enter__(self) -> "AlertmanagerServer":
        command = [
            str(PROGRAM),
            f"--config.file={self.folder / 'alertmanager.yml'}",
            f"--storage.path={self.folder / 'alerts'}",
            "--cluster.listen-address=",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]
        with (self.folder / "alertmanager.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        until(self._ready)
        return self

    def _ready(self) -> bool:
        assert self.process.poll() is None, (self.folder / "alertmanager.log").read_text()
        try:
            return self._get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(WAIT)

    def _get(self, path: str) -> httpx.Response:
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", timeout=WAIT, trust_env=False)

    def active(self) -> list[dict]:
        """The alerts that have not ended."""
        return [one for one in self._get("/api/v2/alerts").json() if one["status"]["state"] == "active"]

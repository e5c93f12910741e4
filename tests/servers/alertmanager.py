"""The real Alertmanager of Debian, which a test starts itself."""

import shutil
from pathlib import Path

import httpx
import pytest

from serve_case import WAIT
from servers.program import Program

PROGRAM = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")


class AlertmanagerServer(Program):
    """An Alertmanager that tells nobody, on a port of its own."""

    def __init__(self, folder: Path) -> None:
        if PROGRAM is None:
            pytest.skip("Alertmanager is not installed: apt-get install prometheus-alertmanager")
        super().__init__(folder)
        self.url = f"alertmanager+http://127.0.0.1:{self.port}"
        (folder / "alertmanager.yml").write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")

    def command(self) -> list[str]:
        return [
            str(PROGRAM),
            f"--config.file={self.folder / 'alertmanager.yml'}",
            f"--storage.path={self.folder / 'alerts'}",
            "--cluster.listen-address=",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    def is_ready(self) -> bool:
        return super().is_ready() and self._get("/-/ready").status_code == 200

    def _get(self, path: str) -> httpx.Response:
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", timeout=WAIT, trust_env=False)

    def active(self) -> list[dict]:
        """The alerts that have not ended."""
        return [one for one in self._get("/api/v2/alerts").json() if one["status"]["state"] == "active"]

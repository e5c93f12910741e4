"""A real mosquitto that a test starts, stops and starts again, and a client that publishes."""

import base64
import hashlib
import json
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from serve_case import WAIT, until

PROGRAM = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/sbin")
DYNAMIC_SECURITY = next(Path("/usr/lib").rglob("mosquitto_dynamic_security.so"), None)
PASSWORD = "tide gauge"


class Mosquitto:
    """A broker with sessions that outlive it."""

    def __init__(self, folder: Path, *settings: str, anonymous: bool = True) -> None:
        if PROGRAM is None:
            pytest.skip("mosquitto is not installed: apt-get install mosquitto")
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        lines = [
            f"listener {self.port} 127.0.0.1",
            f"allow_anonymous {str(anonymous).lower()}",
            "persistence true",
            f"persistence_location {folder}/",
            "max_queued_messages 0",
            "user root",  # as in a container; an ordinary user stays as it is
            *settings,
        ]
        (folder / "mosquitto.conf").write_text("\n".join(lines) + "\n")
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def start(self) -> "Mosquitto":
        with (self.folder / "log").open("ab") as log:
            command = [str(PROGRAM), "-c", str(self.folder / "mosquitto.conf")]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        until(self._listens)
        return self

    def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """Stop it; it writes its sessions to disk."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(WAIT)
            finally:
                self.process.kill()
            self.process = None

    def __enter__(self) -> "Mosquitto":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class Publisher:
    """A client that publishes with quality of service 1; everything is at the broker once `close` returned."""

    def __init__(self, broker: Mosquitto, user: str | None = None, password: str = PASSWORD) -> None:
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        self._client.max_inflight_messages_set(500)
        self._client.max_queued_messages_set(0)
        if user is not None:
            self._client.username_pw_set(user, password)
        self._client.connect("127.0.0.1", broker.port)
        self._client.loop_start()
        self._sent = []

    def publish(self, topic: str, content: object, retain: bool = False) -> None:
        body = content if isinstance(content, bytes | str) else json.dumps(content)
        self._sent.append(self._client.publish(topic, body, qos=1, retain=retain))

    def flush(self) -> None:
        for one in self._sent:
            one.wait_for_publish(WAIT)
        self._sent = []

    def close(self) -> None:
        self.flush()
        self._client.disconnect()
        self._client.loop_stop()

    def __enter__(self) -> "Publisher":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def password_file(folder: Path, user: str) -> Path:
    """A file of users for mosquitto."""
    file, salt = folder / "passwords", b"0123456789ab"
    digest = hashlib.pbkdf2_hmac("sha512", PASSWORD.encode(), salt, 101)
    file.write_text(f"{user}:$7$101${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}\n")
    file.chmod(0o600)
    return file


def without_subscriptions(folder: Path, user: str) -> list[str]:
    """Settings of a broker at which nobody may subscribe."""
    if DYNAMIC_SECURITY is None:
        pytest.skip("This mosquitto has no plugin for dynamic security.")
    salt = b"0123456789ab"
    digest = hashlib.pbkdf2_hmac("sha512", PASSWORD.encode(), salt, 101)
    client = {"username": user, "iterations": 101, "roles": []}
    client |= {"salt": base64.b64encode(salt).decode(), "password": base64.b64encode(digest).decode()}
    access = {"publishClientSend": True, "publishClientReceive": True, "subscribe": False, "unsubscribe": True}
    file = folder / "security.json"
    file.write_text(json.dumps({"defaultACLAccess": access, "clients": [client], "groups": [], "roles": []}))
    return [f"plugin {DYNAMIC_SECURITY}", f"plugin_opt_config_file {file}"]


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory):
    """One broker for tests that use topics of their own."""
    with Mosquitto(tmp_path_factory.mktemp("mosquitto")) as broker:
        yield broker


@contextmanager
def plant_broker() -> Iterator[int]:
    """A broker for a page of the docs; gives its port."""
    with tempfile.TemporaryDirectory() as folder, Mosquitto(Path(folder)) as broker:
        yield broker.port

"""A real mosquitto that a test starts, stops and starts again, and a client that publishes."""

import base64
import hashlib
import json
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from serve_case import WAIT
from servers.program import Program

PROGRAM = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/sbin")
DYNAMIC_SECURITY = next(Path("/usr/lib").rglob("mosquitto_dynamic_security.so"), None)
PASSWORD = "tide gauge"


class Mosquitto(Program):
    """A broker with sessions that outlive it; it writes them to disk when it is stopped."""

    end = signal.SIGTERM

    def __init__(self, folder: Path, *settings: str, anonymous: bool = True) -> None:
        if PROGRAM is None:
            pytest.skip("mosquitto is not installed: apt-get install mosquitto")
        super().__init__(folder)
        self.url = f"mqtt://127.0.0.1:{self.port}"
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

    def command(self) -> list[str]:
        return [str(PROGRAM), "-c", str(self.folder / "mosquitto.conf")]


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


def _password() -> tuple[str, str]:
    """A salt, and the hash of the password with it, in base64."""
    salt = b"0123456789ab"
    digest = hashlib.pbkdf2_hmac("sha512", PASSWORD.encode(), salt, 101)
    return base64.b64encode(salt).decode(), base64.b64encode(digest).decode()


def password_file(folder: Path, user: str) -> Path:
    """A file of users for mosquitto."""
    file, (salt, digest) = folder / "passwords", _password()
    file.write_text(f"{user}:$7$101${salt}${digest}\n")
    file.chmod(0o600)
    return file


def without_subscriptions(folder: Path, user: str) -> list[str]:
    """Settings of a broker at which nobody may subscribe."""
    if DYNAMIC_SECURITY is None:
        pytest.skip("This mosquitto has no plugin for dynamic security.")
    salt, digest = _password()
    client = {"username": user, "iterations": 101, "roles": [], "salt": salt, "password": digest}
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

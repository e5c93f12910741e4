"""Publishes to an MQTT broker with QoS 1, so the broker acknowledges each message."""

import asyncio
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cometad.connect.contract import Lost
from cometad.connect.out.destination import Destination
from cometad.connect.out.notifier import Rejected
from cometad.errors import needs_extra

if TYPE_CHECKING:
    from cometad.connect.out.topic import TopicMessage

PORT, TLS_PORT = 1883, 8883
OLDER = "Unsupported protocol version"  # from a broker that only speaks MQTT 3.1.1
PERSON = ("Not authorized", "Bad user name or password", "Banned", "Client identifier not valid")


class MqttPublisher:
    """A connection to an MQTT broker, with version 5 if possible: its acknowledgements report refused messages."""

    def __init__(self, destination: Destination) -> None:
        self._mqtt: Any = needs_extra("paho.mqtt.client", "connect")
        self._destination = destination
        self._address = destination.address
        self._password = self._address.password
        self._protocol = self._mqtt.MQTTv5
        self._client: Any = None
        self._refused: dict[int, str] = {}  # message: reason

    async def publish(self, messages: "Sequence[TopicMessage]") -> None:
        """Publish messages; returns once the broker has acknowledged all of them."""
        await asyncio.to_thread(self._publish, messages)

    async def close(self) -> None:
        """Disconnect."""
        await asyncio.to_thread(self._drop)

    def _publish(self, messages: "Sequence[TopicMessage]") -> None:
        who = f"The receiver {self._destination.name!r}"
        if self._client is None:
            self._connect(who)
        try:
            sent = [(one, self._client.publish(one.topic, one.body, qos=1, **self._extras(one.id))) for one in messages]
            for _, info in sent:
                info.wait_for_publish(self._destination.timeout)
        except (OSError, RuntimeError, ValueError) as error:
            self._drop()
            raise Lost(f"{who} lost its connection to {self._destination.shown}: {error}.") from error
        if not all(info.is_published() for _, info in sent):
            self._drop()
            raise Lost(f"{who} at {self._destination.shown} did not acknowledge a message in time.")
        reasons = [(one.topic, self._refused.pop(info.mid)) for one, info in sent if info.mid in self._refused]
        for topic, reason in reasons:
            raise Rejected(f"{who} refused a message to the topic {topic!r}: {reason}. Check the rights of its user.")

    def _connect(self, who: str) -> None:
        client = self._mqtt.Client(self._mqtt.CallbackAPIVersion.VERSION2, protocol=self._protocol)
        if self._address.username is not None:
            client.username_pw_set(self._address.username, self._password)
        secure = self._address.scheme == "mqtts"
        if secure:
            client.tls_set()
        answered, answers = threading.Event(), list[str]()

        def connected(_: Any, __: Any, ___: Any, code: Any, ____: Any) -> None:
            answers.append(str(code) if code.is_failure else "")
            answered.set()

        def published(_: Any, __: Any, message: int, code: Any, ___: Any) -> None:
            if code.is_failure:
                self._refused[message] = str(code)

        client.on_connect, client.on_publish = connected, published
        client.connect_timeout = self._destination.timeout
        self._client = client
        try:
            client.connect(self._address.host, self._address.port(TLS_PORT if secure else PORT))
            client.loop_start()
        except OSError as error:
            self._drop()
            raise Lost(f"{who} cannot be reached at {self._destination.shown}: {error}.") from error
        if not answered.wait(self._destination.timeout) or answers[0]:
            self._drop()
            self._explain(who, answers[0] if answers else "no answer")

    def _explain(self, who: str, reason: str) -> None:
        if reason == OLDER and self._protocol != self._mqtt.MQTTv311:
            self._protocol = self._mqtt.MQTTv311
        if reason in PERSON:
            raise Rejected(f"{who} refused the connection: {reason}. Check its user and password_variable.")
        raise Lost(f"{who} at {self._destination.shown} did not accept the connection: {reason}.")

    def _extras(self, message: str) -> dict[str, Any]:
        if self._protocol != self._mqtt.MQTTv5:
            return {}
        properties: Any = needs_extra("paho.mqtt.properties", "connect")
        types: Any = needs_extra("paho.mqtt.packettypes", "connect")
        found = properties.Properties(types.PacketTypes.PUBLISH)
        found.UserProperty = ("id", message)
        return {"properties": found}

    def _drop(self) -> None:
        client, self._client = self._client, None
        self._refused.clear()
        if client is not None:
            client.disconnect()
            client.loop_stop()

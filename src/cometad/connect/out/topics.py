"""Broker topics: each event message is one message of MQTT, NATS or Kafka, as JSON or as rendered by the template."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from cometad.connect.address import keyword
from cometad.connect.contract import Lost
from cometad.connect.out.message import EventMessage
from cometad.connect.out.notifier import Destination, Notifier, Rejected
from cometad.errors import ParameterError, needs_extra

STREAM = "{stream}"  # in a topic, the name of the stream


class TopicMessage(NamedTuple):
    id: str  # the same in a redelivery
    topic: str
    key: str  # messages with the same key stay in order
    body: bytes


class TopicNotifier(Notifier):
    """Publishes messages to a topic: `mqtt://host/plant/{stream}/events`.

    The id of a message is sent along: as `Nats-Msg-Id`, or as a property or header named `id`.
    """

    OPTIONS: ClassVar = {}
    WRONG = ""  # characters that a topic cannot have
    most = 100

    def __init__(self, destination: Destination) -> None:
        super().__init__(destination)
        self.address, self._topic = destination.address, destination.address.path
        plain = self._topic.replace(STREAM, "stream")
        if not plain or any(character in self.WRONG for character in plain):
            raise ParameterError(
                f"{self.who} needs a topic to publish to, like {self.address.scheme}://host/events. "
                f"Got {self._topic!r} instead."
            )
        self.password = self.address.password

    async def send(self, messages: Sequence[EventMessage]) -> None:
        found = [(one, self._topic.replace(STREAM, one.stream), self.destination.body_of(one)) for one in messages]
        await self.publish([TopicMessage(one.id, topic, one.stream, body) for one, topic, body in found])

    async def publish(self, messages: Sequence[TopicMessage]) -> None:
        """Publish messages; returns once the broker has accepted all of them."""
        await asyncio.to_thread(self._publish, messages)

    def _publish(self, messages: Sequence[TopicMessage]) -> None:
        raise NotImplementedError


class MqttTopic(TopicNotifier):
    """A topic of an MQTT broker, with QoS 1, so the broker acknowledges each message.

    With version 5 if possible: its acknowledgements report refused messages.
    """

    WRONG = "+#\0"
    PORTS: ClassVar = {"mqtt": 1883, "mqtts": 8883}
    OLDER = "Unsupported protocol version"  # from a broker that only speaks MQTT 3.1.1
    PERSON = ("Not authorized", "Bad user name or password", "Banned", "Client identifier not valid")

    def __init__(self, destination: Destination) -> None:
        super().__init__(destination)
        self._paho: Any = needs_extra("paho.mqtt.client", "connect")
        self._protocol = self._paho.MQTTv5
        self._client: Any = None
        self._refused: dict[int, str] = {}  # message: reason

    async def close(self) -> None:
        await asyncio.to_thread(self._drop)

    def _publish(self, messages: Sequence[TopicMessage]) -> None:
        if self._client is None:
            self._connect()
        try:
            sent = [(one, self._client.publish(one.topic, one.body, qos=1, **self._extras(one.id))) for one in messages]
            for _, info in sent:
                info.wait_for_publish(self.destination.timeout)
        except (OSError, RuntimeError, ValueError) as error:
            self._drop()
            raise self.interrupted(error) from error
        if not all(info.is_published() for _, info in sent):
            self._drop()
            raise Lost(f"{self.who} at {self.destination.shown} did not acknowledge a message in time.")
        reasons = [(one.topic, self._refused.pop(info.mid)) for one, info in sent if info.mid in self._refused]
        for topic, reason in reasons:
            raise Rejected(
                f"{self.who} refused a message to the topic {topic!r}: {reason}. Check the rights of its user."
            )

    def _connect(self) -> None:
        client = self._paho.Client(self._paho.CallbackAPIVersion.VERSION2, protocol=self._protocol)
        if self.address.username is not None:
            client.username_pw_set(self.address.username, self.password)
        if self.address.scheme == "mqtts":
            client.tls_set()
        answered, answers = threading.Event(), list[str]()

        def connected(_: Any, __: Any, ___: Any, code: Any, ____: Any) -> None:
            answers.append(str(code) if code.is_failure else "")
            answered.set()

        def published(_: Any, __: Any, message: int, code: Any, ___: Any) -> None:
            if code.is_failure:
                self._refused[message] = str(code)

        client.on_connect, client.on_publish = connected, published
        client.connect_timeout = self.destination.timeout
        self._client = client
        try:
            client.connect(self.address.host, self.address.port(self.PORTS[self.address.scheme]))
            client.loop_start()
        except OSError as error:
            self._drop()
            raise self.unreachable(error) from error
        if answered.wait(self.destination.timeout) and not answers[0]:
            return
        self._drop()
        reason = answers[0] if answers else "no answer"
        if reason == self.OLDER:
            self._protocol = self._paho.MQTTv311
        if reason in self.PERSON:
            raise Rejected(f"{self.who} refused the connection: {reason}. Check its user and password_variable.")
        raise Lost(f"{self.who} at {self.destination.shown} did not accept the connection: {reason}.")

    def _extras(self, message: str) -> dict[str, Any]:
        if self._protocol != self._paho.MQTTv5:
            return {}
        found = self._paho.Properties(self._paho.PacketTypes.PUBLISH)
        found.UserProperty = ("id", message)
        return {"properties": found}

    def _drop(self) -> None:
        client, self._client = self._client, None
        self._refused.clear()
        if client is not None:
            client.disconnect()
            client.loop_stop()


class NatsTopic(TopicNotifier):
    """A NATS subject that a JetStream stream must store; it deduplicates by message id."""

    WRONG = "*> /\t\r\n\0"
    PORT = 4222

    def __init__(self, destination: Destination) -> None:
        super().__init__(destination)
        self._nats: Any = needs_extra("nats", "connect")
        self._js_errors: Any = needs_extra("nats.js.errors", "connect")
        self._connection: Any = None

    async def publish(self, messages: Sequence[TopicMessage]) -> None:
        if self._connection is None or self._connection.is_closed:
            self._connection = await self._connected()
        jetstream, timeout = self._connection.jetstream(), self.destination.timeout
        for one in messages:
            try:
                await jetstream.publish(one.topic, one.body, timeout=timeout, headers={"Nats-Msg-Id": one.id})
            except self._js_errors.NoStreamResponseError as error:
                raise Rejected(
                    f"{self.who} has no JetStream stream for the subject {one.topic!r}. Create one."
                ) from error
            except (self._js_errors.APIError, self._nats.errors.MaxPayloadError, ValueError) as error:
                raise Rejected(f"{self.who} refused a message: {_words(error)}.") from error
            except (self._nats.errors.Error, OSError) as error:
                await self.close()
                raise self.interrupted(_words(error)) from error

    async def _connected(self) -> Any:
        said: list[Exception] = []

        async def hear(error: Exception) -> None:
            if not said:  # `publish` raises later errors too
                said.append(error)

        client = self._nats.NATS()
        try:
            await client.connect(
                f"nats://{self.address.host}:{self.address.port(self.PORT)}",
                user=self.address.username,
                password=self.password,
                connect_timeout=self.destination.timeout,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0.1,
                error_cb=hear,
            )
        except (self._nats.errors.Error, OSError) as error:
            await client.close()
            problem = _words(said[0] if said else error)
            if "authorization" in problem.lower():
                raise Rejected(
                    f"{self.who} refused the connection: {problem}. Check its user and password_variable."
                ) from error
            raise self.unreachable(problem) from error
        return client

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed:
            await connection.close()


def _words(error: Exception) -> str:
    return " ".join(str(error).split()).removeprefix("nats: ").rstrip(".") or type(error).__name__


class KafkaTopic(TopicNotifier):
    """A Kafka topic, keyed by stream name: all replicas acknowledge each message, and the producer is idempotent.

    `?security=ssl` in the URL enables TLS; with a user, it logs in by SASL PLAIN.
    """

    OPTIONS: ClassVar = {
        "security": keyword(("plaintext", "ssl"), "The option security must be plaintext or ssl. Got {} instead.")
    }
    WRONG = "+#*>/ \t\r\n\0{}"
    PORT = 9092
    REFUSALS = (
        "TOPIC_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "UNKNOWN_TOPIC_OR_PART",
        "_UNKNOWN_TOPIC",
        "MSG_SIZE_TOO_LARGE",
        "TOPIC_EXCEPTION",
        "_AUTHENTICATION",
        "SASL_AUTHENTICATION_FAILED",
    )

    def __init__(self, destination: Destination) -> None:
        super().__init__(destination)
        self._kafka: Any = needs_extra("confluent_kafka", "connect")
        address, security = self.address, self.options["security"]
        self._settings: dict[str, Any] = {
            "bootstrap.servers": f"{address.host}:{address.port(self.PORT)}",
            "enable.idempotence": True,
            "message.timeout.ms": int(1000 * destination.timeout),
            "security.protocol": security if address.username is None else f"sasl_{security}",
            "log_level": 0,  # `publish` raises errors
            "error_cb": self._said,
        }
        if address.username is not None:
            login = {"sasl.username": address.username, "sasl.password": self.password or ""}
            self._settings |= {"sasl.mechanism": "PLAIN", **login}
        self._producer: Any = None
        self._problem = ""  # the client's last error

    async def close(self) -> None:
        self._producer = None

    def _publish(self, messages: Sequence[TopicMessage]) -> None:
        errors = list[Any]()
        try:
            if self._producer is None:
                self._producer = self._kafka.Producer({**self._settings})
            for one in messages:
                told = {"headers": [("id", one.id.encode())], "on_delivery": lambda error, _: errors.append(error)}
                self._producer.produce(one.topic, one.body, key=one.key, **told)
        except (self._kafka.KafkaException, BufferError) as error:
            raise Rejected(f"{self.who} does not accept messages: {error}. Check its url.") from error
        left = self._producer.flush(self.destination.timeout + 1)
        if left:  # they must not arrive after later messages
            self._producer.purge()
            self._producer.flush(1)
        failed = [error for error in errors if error is not None]
        if left or failed:
            raise self._failure(failed)

    def _said(self, error: Any) -> None:
        self._problem = str(error.str()).rstrip(".")

    def _failure(self, errors: Sequence[Any]) -> Lost | Rejected:
        said = str(errors[0].str()) if errors else "no acknowledgement in time"
        if errors and errors[0].name() in self.REFUSALS:
            return Rejected(f"{self.who} refused a message: {said}. Check its topic and its access rights.")
        more = f" ({' '.join(self._problem.split())})" if self._problem else ""
        return self.unreachable(f"{said}{more}")

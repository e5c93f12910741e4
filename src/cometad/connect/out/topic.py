"""Broker topics: each event message is one message of the broker, as JSON or as rendered by the template."""

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from cometad.connect.out.destination import Destination
from cometad.connect.out.kafka_publisher import KafkaPublisher
from cometad.connect.out.message import EventMessage
from cometad.connect.out.mqtt_publisher import MqttPublisher
from cometad.connect.out.nats_publisher import NatsPublisher
from cometad.errors import ParameterError

STREAM = "{stream}"  # in a topic, the name of the stream


class TopicMessage(NamedTuple):
    """A message for a broker."""

    id: str  # the same in a redelivery
    topic: str
    key: str  # messages with the same key stay in order
    body: bytes


class Publisher(Protocol):
    """A connection to a broker."""

    async def publish(self, messages: Sequence[TopicMessage]) -> None:
        """Publish messages; returns once the broker has accepted all of them. Raises `Lost` or `Rejected`."""

    async def close(self) -> None:
        """Close the connection."""


class EventTopic:
    """Publishes messages to a topic: `mqtt://host/plant/{stream}/events`.

    The id of a message is sent along: as `Nats-Msg-Id`, or as a property or header named `id`.
    """

    most = 100
    resend: float | None = None

    def __init__(self, destination: Destination, make: Callable[[Destination], Publisher], wrong: str) -> None:
        self._destination, self._topic = destination, destination.address.path
        destination.address.check_options(("security",) if destination.address.scheme == "kafka" else ())
        plain = self._topic.replace(STREAM, "stream")
        if not plain or any(character in wrong for character in plain):
            kind = destination.address.scheme
            raise ParameterError(
                f"The receiver {destination.name!r} needs a topic to publish to, like {kind}://host/events. "
                f"Got {self._topic!r} instead."
            )
        self._publisher = make(destination)

    async def send(self, messages: Sequence[EventMessage]) -> None:
        """Publish messages, in order."""
        await self._publisher.publish([self._message(message) for message in messages])

    async def close(self) -> None:
        """Close the connection."""
        await self._publisher.close()

    def _message(self, message: EventMessage) -> TopicMessage:
        template = self._destination.template
        text = json.dumps(message.content) if template is None else template.text(message)
        return TopicMessage(message.id, self._topic.replace(STREAM, message.stream), message.stream, text.encode())


def mqtt_topic(destination: Destination) -> EventTopic:
    """A topic of an MQTT broker, with QoS 1."""
    return EventTopic(destination, MqttPublisher, "+#\0")


def nats_topic(destination: Destination) -> EventTopic:
    """A NATS subject stored by a JetStream stream."""
    return EventTopic(destination, NatsPublisher, "*> /\t\r\n\0")


def kafka_topic(destination: Destination) -> EventTopic:
    """A Kafka topic, keyed by stream name."""
    return EventTopic(destination, KafkaPublisher, "+#*>/ \t\r\n\0{}")

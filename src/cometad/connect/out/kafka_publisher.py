"""Publishes to Kafka: all replicas acknowledge each message, and the producer is idempotent."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cometad.connect.contract import Lost
from cometad.connect.out.destination import Destination
from cometad.connect.out.notifier import Rejected
from cometad.errors import ParameterError, needs_extra

if TYPE_CHECKING:
    from cometad.connect.out.topic import TopicMessage

PORT = 9092
SECURITY = ("plaintext", "ssl")
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


class KafkaPublisher:
    """A Kafka producer. `?security=ssl` in the URL enables TLS; with a user, it logs in by SASL PLAIN."""

    def __init__(self, destination: Destination) -> None:
        self._kafka: Any = needs_extra("confluent_kafka", "connect")
        self._destination = destination
        address = destination.address
        security = address.option("security", "plaintext")
        if security not in SECURITY:
            raise ParameterError(f"The option security must be plaintext or ssl. Got {security!r} instead.")
        self._settings: dict[str, Any] = {
            "bootstrap.servers": f"{address.host}:{address.port(PORT)}",
            "enable.idempotence": True,
            "message.timeout.ms": int(1000 * destination.timeout),
            "security.protocol": security if address.username is None else f"sasl_{security}",
            "log_level": 0,  # `publish` raises errors
        }
        if address.username is not None:
            login = {"sasl.username": address.username, "sasl.password": address.password or ""}
            self._settings |= {"sasl.mechanism": "PLAIN", **login}
        self._producer: Any = None
        self._problem = ""  # the client's last error

    async def publish(self, messages: "Sequence[TopicMessage]") -> None:
        """Publish messages; returns once all replicas have them."""
        await asyncio.to_thread(self._publish, messages)

    async def close(self) -> None:
        """Drop the producer, which closes its connections."""
        self._producer = None

    def _publish(self, messages: "Sequence[TopicMessage]") -> None:
        who = f"The receiver {self._destination.name!r}"
        errors = list[Any]()

        def done(error: Any, _: Any) -> None:
            if error is not None:
                errors.append(error)

        try:
            if self._producer is None:
                self._producer = self._kafka.Producer({**self._settings, "error_cb": self._said})
            for one in messages:
                self._producer.produce(
                    one.topic, one.body, key=one.key, headers=[("id", one.id.encode())], on_delivery=done
                )
        except (self._kafka.KafkaException, BufferError) as error:
            raise Rejected(f"{who} does not accept messages: {error}. Check its url.") from error
        left = self._producer.flush(self._destination.timeout + 1)
        if left:  # they must not arrive after later messages
            self._producer.purge()
            self._producer.flush(1)
        if left or errors:
            raise self._failure(who, errors)

    def _said(self, error: Any) -> None:
        self._problem = str(error.str()).rstrip(".")

    def _failure(self, who: str, errors: Sequence[Any]) -> Lost | Rejected:
        name = errors[0].name() if errors else ""
        said = str(errors[0].str()) if errors else "no acknowledgement in time"
        if name in REFUSALS:
            return Rejected(f"{who} refused a message: {said}. Check its topic and its access rights.")
        more = f" ({' '.join(self._problem.split())})" if self._problem else ""
        return Lost(f"{who} cannot be reached at {self._destination.shown}: {said}{more}.")

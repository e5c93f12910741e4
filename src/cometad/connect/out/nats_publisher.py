"""Publishes to NATS JetStream, which deduplicates by message id."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cometad.connect.contract import Lost
from cometad.connect.out.destination import Destination
from cometad.connect.out.notifier import Rejected
from cometad.errors import needs_extra

if TYPE_CHECKING:
    from cometad.connect.out.topic import TopicMessage

PORT = 4222


class NatsPublisher:
    """A connection to a NATS server; a JetStream stream must store the subject."""

    def __init__(self, destination: Destination) -> None:
        self._nats: Any = needs_extra("nats", "connect")
        self._errors: Any = needs_extra("nats.js.errors", "connect")
        self._destination, self._password = destination, destination.address.password
        self._connection: Any = None

    async def publish(self, messages: "Sequence[TopicMessage]") -> None:
        """Publish messages; returns once the server has stored all of them."""
        if self._connection is None or self._connection.is_closed:
            self._connection = await self._connected()
        who, jetstream = f"The receiver {self._destination.name!r}", self._connection.jetstream()
        for one in messages:
            try:
                await jetstream.publish(
                    one.topic, one.body, timeout=self._destination.timeout, headers={"Nats-Msg-Id": one.id}
                )
            except self._errors.NoStreamResponseError as error:
                raise Rejected(f"{who} has no JetStream stream for the subject {one.topic!r}. Create one.") from error
            except (self._errors.APIError, self._nats.errors.MaxPayloadError, ValueError) as error:
                raise Rejected(f"{who} refused a message: {_words(error)}.") from error
            except (self._nats.errors.Error, OSError, TimeoutError) as error:
                await self.close()
                raise Lost(f"{who} lost its connection to {self._destination.shown}: {_words(error)}.") from error

    async def _connected(self) -> Any:
        address = self._destination.address
        who = f"The receiver {self._destination.name!r}"

        said: list[Exception] = []

        async def hear(error: Exception) -> None:
            said[:] = [*said[:9], error]  # `publish` raises later errors too

        client = self._nats.NATS()
        try:
            await client.connect(
                f"nats://{address.host}:{address.port(PORT)}",
                user=address.username,
                password=self._password,
                connect_timeout=self._destination.timeout,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0.1,
                error_cb=hear,
            )
        except (self._nats.errors.Error, OSError, TimeoutError) as error:
            await client.close()
            problem = _words(said[0] if said else error)
            if "authorization" in problem.lower():
                raise Rejected(
                    f"{who} refused the connection: {problem}. Check its user and password_variable."
                ) from error
            raise Lost(f"{who} cannot be reached at {self._destination.shown}: {problem}.") from error
        return client

    async def close(self) -> None:
        """Disconnect."""
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed:
            await connection.close()


def _words(error: Exception) -> str:
    return " ".join(str(error).split()).removeprefix("nats: ").rstrip(".") or type(error).__name__

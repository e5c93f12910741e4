"""A connection to an MQTT broker: the client runs in its own thread and passes messages to asyncio."""

import asyncio
import queue
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from cometad.connect.contract import Lost
from cometad.errors import CometadError, ParameterError, needs_extra

needs_extra("paho.mqtt.client", "connect")  # first, so that its absence is reported in one sentence

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

WINDOW = 2000  # messages in flight: sent but not yet acknowledged
SESSION = 7 * 86_400  # seconds that a broker keeps the session of an absent client (MQTT 5)
KEEP_ALIVE = 30  # seconds between keep-alives
ANSWER = 20.0  # seconds to wait for the broker's response
SHORT = 30.0  # seconds; a connection this short was not closed by chance
MOST_BYTES = 500_000  # of the messages returned at once
Incoming = paho.MQTTMessage
VERSIONS = {"5": paho.MQTTv5, "3.1.1": paho.MQTTv311}

_UNSUPPORTED, _BAD_ID, _BAD_LOGIN, _NOT_AUTHORIZED, _TAKEN_OVER = 132, 133, 134, 135, 142  # reason codes


class BrokerAddress(NamedTuple):
    host: str
    port: int
    client: str  # its id: the broker keeps a session for it
    user: str | None = None
    password: str | None = None
    tls: ssl.SSLContext | None = None

    @property
    def shown(self) -> str:
        return f"{self.host}:{self.port}"


class TidySocket(ssl.SSLSocket):
    """A socket that closes itself if the TLS handshake fails; the client would leave it open."""

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except OSError:
            self.close()
            raise


class UnsupportedVersion(CometadError):
    """The broker does not speak this version of MQTT."""


class MqttLink:
    """A connection to a broker: returns messages in order, and acknowledges them on request.

    The broker sends at most `WINDOW` messages before the first of them is acknowledged (with MQTT 3.1.1, as many as the
    broker itself allows), so nothing piles up here. QoS 0 messages are held back by not reading from the connection.
    """

    def __init__(self, broker: BrokerAddress, version: str) -> None:
        self._broker, self._version = broker, version
        self._loop = asyncio.get_running_loop()
        self._queue: queue.Queue[Incoming] = queue.Queue(2 * WINDOW)
        self._arrived = asyncio.Event()
        self._connected: asyncio.Future[ReasonCode | None] = self._loop.create_future()
        self._granted: asyncio.Future[Sequence[ReasonCode] | None] = self._loop.create_future()
        self._lost: CometadError | None = None
        self._closing = False
        self._opened = time.monotonic()
        self._client = self._new_client()

    def _new_client(self) -> paho.Client:
        is_5 = self._version == "5"
        client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=self._broker.client,
            clean_session=None if is_5 else False,
            protocol=VERSIONS[self._version],
            reconnect_on_failure=False,  # the supervisor reconnects with a new client
            manual_ack=True,
        )
        if self._broker.user is not None:
            client.username_pw_set(self._broker.user, self._broker.password)
        if self._broker.tls is not None:
            client.tls_set_context(self._broker.tls)
        # Called in the thread of the client; the fourth argument has the reasons of the broker.
        client.on_connect = lambda *event: self._call(_settle, self._connected, event[3])
        client.on_subscribe = lambda *event: self._call(_settle, self._granted, event[3])
        client.on_disconnect = lambda *event: self._call(self._is_lost, event[3])
        client.on_message = lambda _, __, message: self._keep(message)
        return client

    def _call(self, function: Callable[..., Any], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    def _keep(self, message: Incoming) -> None:
        while not self._closing:
            with suppress(queue.Full):  # wait: the broker notices that nobody reads
                self._queue.put(message, timeout=0.1)
                break
        self._call(self._arrived.set)

    def _is_lost(self, reason: ReasonCode) -> None:
        self._lost = self._lost or self._loss(reason)  # the broker may already have given a reason
        self._arrived.set()
        _settle(self._connected, None)
        _settle(self._granted, None)

    def _loss(self, reason: ReasonCode) -> CometadError:
        shown, client = self._broker.shown, f"the client id {self._broker.client!r}"
        if reason.value == _TAKEN_OVER:
            return ParameterError(
                f"Another client logged in at {shown} with {client}. Give each connection its own name, or set the "
                "option client."
            )
        if reason.value not in (0, 128):
            return Lost(f"The broker {shown} closed the connection ({reason}).")
        again = f" If this keeps happening, another client may be using {client}: set the option client."
        is_short = time.monotonic() - self._opened < SHORT
        return Lost(f"The broker {shown} closed the connection.{again if is_short else ''}")

    async def open(self) -> None:
        broker, options = self._broker, dict[str, Any]()
        if self._version == "5":
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = SESSION
            properties.ReceiveMaximum = WINDOW
            options = {"clean_start": False, "properties": properties}
        try:
            await asyncio.to_thread(self._client.connect, broker.host, broker.port, KEEP_ALIVE, **options)
        except ssl.SSLError as error:
            raise ParameterError(
                f"Cannot verify the broker {broker.shown} ({error.reason or error}). Set the option ca to the "
                "certificate of its CA, or correct the host."
            ) from error
        except (OSError, ValueError) as error:
            said = getattr(error, "strerror", None) or error
            raise Lost(
                f"Cannot reach the broker {broker.shown} ({said}). Check that it is running and that the address is "
                "correct."
            ) from error
        self._client.loop_start()
        reason = await self._answer(self._connected, "log-in")
        if reason.is_failure:
            raise _refused(reason, broker, self._version)

    async def subscribe(self, filters: Sequence[str]) -> None:
        """Subscribe with quality of service 1; refused filters raise an error."""
        try:
            self._client.subscribe([(one, 1) for one in filters])
        except ValueError as error:
            raise ParameterError(f"{filters[0]!r} is not a topic. Write something like plant/pump/readings.") from error
        reasons = await self._answer(self._granted, "subscription")
        for topic, reason in zip(filters, reasons, strict=True):
            if reason.is_failure:
                raise ParameterError(
                    f"The broker {self._broker.shown} refused the subscription to {topic!r} ({reason}). Check the "
                    "topic, and that the user may read it."
                )

    async def _answer(self, future: "asyncio.Future[Any]", what: str) -> Any:
        try:
            found = await asyncio.wait_for(asyncio.shield(future), ANSWER)
        except TimeoutError as error:
            raise Lost(f"The broker {self._broker.shown} did not respond to the {what} within {ANSWER:g} s.") from error
        if found is None:
            assert self._lost is not None
            raise self._lost
        return found

    async def messages(self, timeout: float | None) -> list[Incoming]:
        """The messages that arrived, waiting for the first; empty after `timeout` seconds."""
        if self._queue.empty() and self._lost is None:
            self._arrived.clear()
            if self._queue.empty():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._arrived.wait(), timeout)
        if self._lost is not None:
            raise self._lost
        found, size = list[Incoming](), 0
        while not self._queue.empty() and size < MOST_BYTES and len(found) < WINDOW:
            found.append(self._queue.get_nowait())
            size += len(found[-1].payload)
        return found

    def acknowledge(self, messages: Sequence[Incoming]) -> None:
        for message in messages:
            if message.qos > 0:
                self._client.ack(message.mid, message.qos)

    async def close(self) -> None:
        """Disconnect; the broker keeps the session and redelivers unacknowledged messages."""
        self._closing = True
        self._client.disconnect()
        await asyncio.to_thread(self._client.loop_stop)


def _settle(future: "asyncio.Future[Any]", result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _refused(reason: ReasonCode, broker: BrokerAddress, version: str) -> CometadError:
    who = f"user {broker.user!r}" if broker.user is not None else "a client without a user"
    if reason.value == _UNSUPPORTED:
        return UnsupportedVersion(f"The broker {broker.shown} does not speak MQTT {version}. Set the option version.")
    if reason.value in (_BAD_LOGIN, _NOT_AUTHORIZED):
        return ParameterError(
            f"The broker {broker.shown} refused {who} ({reason}). Check the user, and the password in the environment "
            "variable that password_variable names."
        )
    if reason.value == _BAD_ID:
        return ParameterError(f"The broker {broker.shown} refused the client id {broker.client!r}. Set option client.")
    return Lost(f"The broker {broker.shown} refused the connection ({reason}).")

"""A connection to an OPC UA server: nodes, their changing values, and the server's clock."""

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from cometad.connect.contract import Lost
from cometad.errors import CometadError, ParameterError, needs_extra

needs_extra("asyncua", "connect")  # first, so that its absence is reported in one sentence

from asyncua import ua
from asyncua.client.client import Client
from asyncua.common.node import Node
from asyncua.common.subscription import DataChangeEvent, StatusChangeEvent, Subscription
from asyncua.ua import NodeId
from asyncua.ua.object_ids import ObjectIds
from asyncua.ua.status_codes import StatusCodes
from asyncua.ua.uaerrors import UaError

# asyncua warns about every server that revises requested settings, and prints a traceback for each lost connection.
# What matters is also raised as an exception.
logging.getLogger("asyncua").setLevel(logging.CRITICAL)

ANSWER = 10.0  # seconds to wait for the server's response
PROBE = 5.0  # seconds between watchdog probes
CLOCK = 10.0  # seconds between reads of the server's clock
QUEUE = 100  # values of a node that the server queues between publications
MOST_WAITING = 100_000  # values queued here; beyond that the oldest are dropped
REFUSED = (
    StatusCodes.BadUserAccessDenied,
    StatusCodes.BadIdentityTokenInvalid,
    StatusCodes.BadIdentityTokenRejected,
)


class ServerLogin(NamedTuple):
    """What a client needs to connect."""

    url: str
    user: str | None = None
    password: str | None = None
    security: str = ""  # policy,mode,certificate,key


class NodeValue(NamedTuple):
    """A value of a node."""

    node: NodeId
    value: Any  # None if it is bad
    at: float | None  # seconds since 1970, from the source or else the server


class OpcuaLink:
    """A session with a server; returns the values of nodes as they change."""

    def __init__(self, login: ServerLogin) -> None:
        self._login = login
        self._client = Client(login.url, timeout=ANSWER, watchdog_intervall=PROBE)
        self._client.session_timeout = 600_000  # milliseconds; many servers allow no more
        self._client.connection_lost_callback = self._on_lost
        self._lost: str | None = None
        self._waiting: deque[NodeValue] = deque(maxlen=MOST_WAITING)
        self._replaced = 0  # values dropped before they were read
        self._arrived = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self._offset = 0.0  # of the server's clock, relative to the monotonic clock
        self._looked = -CLOCK

    async def open(self) -> None:
        """Connect and log in."""
        if self._login.user is not None:
            self._client.set_user(self._login.user)
            self._client.set_password(self._login.password or "")
        try:
            if self._login.security:
                await self._client.set_security_string(self._login.security)
            await self._client.connect()
        except Exception as error:
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> CometadError:
        """The error for a failed connection attempt."""
        url, said = self._login.url, _said(error)
        who = f"user {self._login.user!r}" if self._login.user is not None else "a client without a user"
        code = getattr(error, "code", None)
        if code in REFUSED:
            return ParameterError(
                f"The server {url} refused {who} ({said}). Check the user, and the password in the environment "
                "variable that password_variable names."
            )
        if isinstance(error, OSError | TimeoutError | asyncio.TimeoutError | ConnectionError):
            return Lost(
                f"Cannot reach the server {url} ({said}). Check that it is running and that the address is correct."
            )
        return ParameterError(f"Cannot use the server {url} ({said}). Check the address and the option security.")

    async def _on_lost(self, error: Exception) -> None:
        self._is_lost(_said(error))

    def _is_lost(self, said: str) -> None:
        self._lost = self._lost or f"The connection to {self._login.url} was lost ({said})."
        self._arrived.set()

    async def variables_of(self, folder: str) -> dict[str, str]:
        """The nodes of the variables in a folder, by name."""
        found: dict[str, str] = {}
        try:
            children = await self._client.get_node(folder).get_children(nodeclassmask=ua.NodeClass.Variable)
            for child in children:
                name = (await child.read_browse_name()).Name
                found[str(name)] = child.nodeid.to_string()
        except UaError as error:
            raise ParameterError(
                f"Cannot browse the node {folder!r} ({_said(error)}). Set the option node to a folder of the "
                "server, such as ns=2;s=Pump."
            ) from error
        except (OSError, TimeoutError) as error:
            raise Lost(f"The connection to {self._login.url} was lost ({_said(error)}).") from error
        return found

    async def subscribe(self, nodes: Mapping[str, str], publishing: float, sampling: float) -> None:
        """Subscribe to nodes, by variable; refuses nodes that are missing or not numeric."""
        found = {name: self._client.get_node(node) for name, node in nodes.items()}
        try:
            for name, node in found.items():
                await self._check(name, node)
            subscription = await self._client.create_subscription(publishing * 1000, None, queue_maxsize=MOST_WAITING)
            unique = list({node.nodeid: node for node in found.values()}.values())
            results = await subscription.subscribe_data_change(
                unique, queuesize=QUEUE, sampling_interval=ua.Double(sampling * 1000)
            )
        except UaError as error:
            raise Lost(f"The server {self._login.url} refused the subscription ({_said(error)}).") from error
        except (OSError, TimeoutError) as error:
            raise Lost(f"The connection to {self._login.url} was lost ({_said(error)}).") from error
        for node, result in zip(unique, results, strict=True):
            if isinstance(result, ua.StatusCode):
                raise _unreadable(node.nodeid.to_string(), result.name)
        self._pump = asyncio.create_task(self._fill(subscription))

    async def _check(self, name: str, node: Node) -> None:
        """Refuse a node that does not exist or is not numeric."""
        try:
            value = await node.read_data_value(raise_on_bad_status=False)
        except UaError as error:
            raise _unreadable(node.nodeid.to_string(), _said(error)) from error
        status = value.StatusCode
        if status is not None and status.value in _NO_NODE:
            raise _unreadable(node.nodeid.to_string(), status.name)
        content = value.Value.Value if value.Value is not None else None
        if content is not None and not isinstance(content, bool | int | float):
            raise ParameterError(
                f"The node {node.nodeid.to_string()!r} of variable {name!r} has {content!r:.60}, not a number. Choose "
                "another node."
            )

    async def _fill(self, subscription: Subscription) -> None:
        """Move events to the queue of values."""
        async for event in subscription:
            if isinstance(event, DataChangeEvent):
                self._replaced += len(self._waiting) == MOST_WAITING
                self._waiting.append(_node_value(event))
                self._arrived.set()
            elif isinstance(event, StatusChangeEvent):
                self._is_lost(event.notification.Status.name)

    async def now(self) -> float:
        """The time by the server's clock, in seconds since 1970."""
        if time.monotonic() - self._looked >= CLOCK:
            try:
                node = self._client.get_node(NodeId(ua.Int32(ObjectIds.Server_ServerStatus_CurrentTime)))
                self._offset = _timestamp(await node.read_value()) - time.monotonic()
            except (UaError, OSError, TimeoutError) as error:
                raise Lost(f"The connection to {self._login.url} was lost ({_said(error)}).") from error
            self._looked = time.monotonic()
        return self._offset + time.monotonic()

    async def values(self, timeout: float) -> list[NodeValue]:
        """The values that arrived, oldest first; empty after `timeout` seconds."""
        if not self._waiting and self._lost is None:
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), timeout)
            except TimeoutError:
                return []
        if self._lost is not None and not self._waiting:
            raise Lost(self._lost)
        found = list(self._waiting)
        self._waiting.clear()
        return found

    def replaced(self) -> int:
        """How many values were lost since the last call because they arrived faster than they were read."""
        count, self._replaced = self._replaced, 0
        return count

    async def close(self) -> None:
        """Disconnect, without waiting for a server that is gone."""
        if self._pump is not None:
            self._pump.cancel()
        try:
            await asyncio.wait_for(self._client.disconnect(), 2)
        except Exception:  # the connection may already be closed
            self._client.disconnect_socket()


_NO_NODE = (StatusCodes.BadNodeIdUnknown, StatusCodes.BadNodeIdInvalid, StatusCodes.BadAttributeIdInvalid)


def node_id(name: str, text: str) -> NodeId:
    """The id of a node; anything else is refused."""
    try:
        return NodeId.from_string(text)
    except (UaError, ValueError, TypeError) as error:
        raise ParameterError(
            f"{text!r} of {name!r} is not a node. Write something like ns=2;s=Pump.Flow or ns=2;i=1001."
        ) from error


def _node_value(event: DataChangeEvent) -> NodeValue:
    data = event.data.monitored_item.Value
    status = data.StatusCode
    is_bad = status is not None and status.is_bad()
    at = data.SourceTimestamp or data.ServerTimestamp
    return NodeValue(event.node.nodeid, None if is_bad else event.value, None if at is None else _timestamp(at))


def _timestamp(moment: datetime) -> float:
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def _unreadable(node: str, said: str) -> ParameterError:
    return ParameterError(f"Cannot read the node {node!r} ({said}). Check its id, and that the user may read it.")


def _said(error: BaseException) -> str:
    """The short message of an error."""
    code = getattr(error, "code", None)
    if code is not None:
        return str(ua.StatusCode(code).name)
    if isinstance(error, OSError) and (error.errno or 0) > 0:  # asyncio puts the address into the message
        return os.strerror(error.errno or 0)
    text = getattr(error, "strerror", None) or str(error).partition("\n")[0] or type(error).__name__
    return text.rstrip(".")

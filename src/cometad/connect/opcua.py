"""OPC UA: subscribes to nodes of a server and aligns their values to one grid.

A value is valid from its source timestamp (or else the server's) until the next one: servers report only changes. A
value with a bad status is missing; an uncertain one counts. OPC UA has no acknowledgement, so changes while nobody is
connected are lost, and no reading is invented for that time.
"""

import asyncio
import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from cometad.connect.address import Address, Option, seconds_of
from cometad.connect.contract import Lost
from cometad.connect.intake import Intake
from cometad.connect.source import ConnectedSource
from cometad.connect.tags import TagFeed, stream_and_period
from cometad.data.cells import listed
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

AHEAD = 60.0  # seconds that a source may be ahead of its server; beyond that its clock is wrong
POLICIES = ("Basic256Sha256", "Aes128Sha256RsaOaep", "Aes256Sha256RsaPss")
MODES = ("Sign", "SignAndEncrypt")
LEAST = 0.05  # minimum seconds between publications
LOST = "Lost {:,} values that arrived faster than they were stored. Raise the option sampling, or use fewer nodes."
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
NO_NODE = (StatusCodes.BadNodeIdUnknown, StatusCodes.BadNodeIdInvalid, StatusCodes.BadAttributeIdInvalid)


def _security(text: str) -> str:
    """The option security: policy, mode, certificate and key, and optionally the server's certificate."""
    policy, _, rest = text.partition(",")
    mode, *files = rest.split(",")
    if text and (policy not in POLICIES or mode not in MODES or len(files) not in (2, 3)):
        raise ParameterError(
            f"The option security is {text!r}. Write a policy ({', '.join(POLICIES)}), a mode ({' or '.join(MODES)}), "
            "a certificate and a key, separated by commas."
        )
    for file in files if text else ():
        if not Path(file.partition("::")[0]).is_file():
            raise ParameterError(f"The file {file!r} in the option security does not exist. Correct its path.")
    return text


class OpcuaSource(ConnectedSource):
    """Readings from an OPC UA server: `opc.tcp://host:4840/path`.

    `tags` gives the node of each variable, such as `ns=2;s=Pump.Flow`. Without tags, the option `node` names a folder
    whose variables are named like the detector's.
    """

    OPTIONS: ClassVar = {"node": Option(), "sampling": Option("", seconds_of), "security": Option("", _security)}

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        if not address.host:
            raise ParameterError(f"{address.shown!r} names no server. Write something like opc.tcp://host:4840.")
        self._stream, self._period = stream_and_period(address)
        self._folder = self.options["node"]
        if bool(self._folder) == bool(address.tags):
            raise ParameterError(
                f"Name the nodes of {address.shown} either with tags (--tag flow='ns=2;s=Pump.Flow'), or with the "
                "option node: a folder whose variables are named like the detector's."
            )
        for name, node in ({"node": self._folder} if self._folder else address.tags).items():
            _node_id(name, node)
        self._url = address.parts._replace(netloc=f"{address.host}:{address.port(4840)}", query="").geturl()
        self._login = address.username, address.password, self.options["security"]

    async def open(self, intake: Intake, closing: AsyncExitStack) -> None:
        self._link = OpcuaLink(self._url)
        closing.push_async_callback(self._link.close)
        await self._link.open(*self._login)
        tags = self.address.tags or await self._tags_of_folder(intake)
        self._feed = await asyncio.to_thread(TagFeed, replace(self.address, tags=tags), intake, hold=None)
        self._feed.table.begin(await self._link.now())  # earlier times are unknown
        self._publishing = max(self._period / 2, LEAST)
        await self._link.subscribe(tags, self._publishing, self.options["sampling"] or self._period)
        self._names: dict[Any, list[str]] = {}
        for name, node in tags.items():
            self._names.setdefault(_node_id(name, node), []).append(name)

    async def _tags_of_folder(self, intake: Intake) -> dict[str, str]:
        names = (await asyncio.to_thread(intake.layout, self._stream)).names
        found = await self._link.variables_of(self._folder)
        tags = {name: node for name, node in found.items() if name in names}
        if not tags:
            raise ParameterError(
                f"The node {self._folder!r} has no variable named like the detector's ({listed(list(names))}). "
                "Set the option node to another folder, such as ns=2;s=Pump, or name the nodes with tags."
            )
        return tags

    async def pull(self, intake: Intake) -> None:
        feed, last = self._feed, dict[Any, float]()
        while True:
            values = await self._link.values(self._period / 2)
            now = await self._link.now()
            timed = []
            for value in values:  # those of a node stay in order even if its clock jumps
                at = now if value.at is None or value.at > now + AHEAD else value.at
                last[value.node] = max(at, last.get(value.node, -math.inf))
                timed.append((last[value.node], value))
            for at, value in sorted(timed, key=itemgetter(0)):  # a publication lists values node by node
                for name in self._names.get(value.node, ()):
                    feed.add(name, at, _as_number(value.value), value.node.to_string())
            if self._link.replaced:
                feed.reject(self.address.shown, b"", LOST.format(self._link.replaced))
                self._link.replaced = 0
            feed.clock(now - self._period - self._publishing)  # values wait at the server until published
            await feed.store(news=False)
            if values:
                intake.connection.last_message = time.time()


class NodeValue(NamedTuple):
    node: NodeId
    value: Any  # None if it is bad
    at: float | None  # seconds since 1970, from the source or else the server


class OpcuaLink:
    """A session with a server; returns the values of nodes as they change."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = Client(url, timeout=ANSWER, watchdog_intervall=PROBE)
        self._client.session_timeout = 600_000  # milliseconds; many servers allow no more
        self._client.connection_lost_callback = self._heard
        self._lost: Lost | None = None
        self._waiting: deque[NodeValue] = deque(maxlen=MOST_WAITING)
        self.replaced = 0  # values lost because they arrived faster than they were read
        self._arrived = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self._offset = 0.0  # of the server's clock, relative to the monotonic clock
        self._looked = -CLOCK

    async def open(self, user: str | None, password: str | None, security: str) -> None:
        if user is not None:
            self._client.set_user(user)
            self._client.set_password(password or "")
        try:
            if security:
                await self._client.set_security_string(security)
            await self._client.connect()
        except OSError as error:
            problem = f"Cannot reach the server {self._url} ({_said(error)})."
            raise Lost(f"{problem} Check that it is running and that the address is correct.") from error
        except Exception as error:
            problem, advice = f"Cannot use the server {self._url}", "Check the address and the option security."
            if getattr(error, "code", None) in REFUSED:
                who = "a client without a user" if user is None else f"user {user!r}"
                problem = f"The server {self._url} refused {who}"
                advice = "Check the user, and the password in the environment variable that password_variable names."
            raise ParameterError(f"{problem} ({_said(error)}). {advice}") from error

    @contextmanager
    def _asking(self, refusal: Callable[[str], CometadError]) -> Iterator[None]:
        """Turn the server's refusal into an error, and its absence into `Lost`."""
        try:
            yield
        except UaError as error:
            raise refusal(_said(error)) from error
        except OSError as error:
            raise self._gone(_said(error)) from error

    def _gone(self, said: str) -> Lost:
        return Lost(f"The connection to {self._url} was lost ({said}).")

    async def _heard(self, error: Exception) -> None:
        self._is_lost(_said(error))

    def _is_lost(self, said: str) -> None:
        self._lost = self._lost or self._gone(said)
        self._arrived.set()

    async def variables_of(self, folder: str) -> dict[str, str]:
        advice = "Set the option node to a folder of the server, such as ns=2;s=Pump."
        with self._asking(lambda said: ParameterError(f"Cannot browse the node {folder!r} ({said}). {advice}")):
            children = await self._client.get_node(folder).get_children(nodeclassmask=ua.NodeClass.Variable)
            return {str((await child.read_browse_name()).Name): child.nodeid.to_string() for child in children}

    async def subscribe(self, nodes: Mapping[str, str], publishing: float, sampling: float) -> None:
        found = {name: self._client.get_node(node) for name, node in nodes.items()}
        with self._asking(lambda said: Lost(f"The server {self._url} refused the subscription ({said}).")):
            for name, node in found.items():
                await self._check(name, node)
            subscription = await self._client.create_subscription(publishing * 1000, None, queue_maxsize=MOST_WAITING)
            unique = list({node.nodeid: node for node in found.values()}.values())
            results = await subscription.subscribe_data_change(
                unique, queuesize=QUEUE, sampling_interval=ua.Double(sampling * 1000)
            )
        for node, result in zip(unique, results, strict=True):
            if isinstance(result, ua.StatusCode):
                raise _unreadable(node, result.name)
        self._pump = asyncio.create_task(self._fill(subscription))

    async def _check(self, name: str, node: Node) -> None:
        with self._asking(lambda said: _unreadable(node, said)):
            value = await node.read_data_value(raise_on_bad_status=False)
        status = value.StatusCode
        if status is not None and status.value in NO_NODE:
            raise _unreadable(node, status.name)
        content = value.Value.Value if value.Value is not None else None
        if content is not None and not isinstance(content, bool | int | float):
            raise ParameterError(
                f"The node {node.nodeid.to_string()!r} of variable {name!r} has {content!r:.60}, not a number. Choose "
                "another node."
            )

    async def _fill(self, subscription: Subscription) -> None:
        async for event in subscription:
            if isinstance(event, DataChangeEvent):
                self.replaced += len(self._waiting) == MOST_WAITING
                self._waiting.append(_node_value(event))
                self._arrived.set()
            elif isinstance(event, StatusChangeEvent):
                self._is_lost(event.notification.Status.name)

    async def now(self) -> float:
        """The time by the server's clock, in seconds since 1970."""
        if time.monotonic() - self._looked >= CLOCK:
            with self._asking(self._gone):
                node = self._client.get_node(NodeId(ua.Int32(ObjectIds.Server_ServerStatus_CurrentTime)))
                self._offset = _timestamp(await node.read_value()) - time.monotonic()
            self._looked = time.monotonic()
        return self._offset + time.monotonic()

    async def values(self, timeout: float) -> list[NodeValue]:
        """The values that arrived, oldest first; empty after `timeout` seconds."""
        if not self._waiting and self._lost is None:
            self._arrived.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._arrived.wait(), timeout)
        if self._lost is not None and not self._waiting:
            raise self._lost
        found = list(self._waiting)
        self._waiting.clear()
        return found

    async def close(self) -> None:
        """Disconnect, without waiting for a server that is gone."""
        if self._pump is not None:
            self._pump.cancel()
        try:
            await asyncio.wait_for(self._client.disconnect(), 2)
        except Exception:  # the connection may already be closed
            self._client.disconnect_socket()


def _node_id(name: str, text: str) -> NodeId:
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


def _unreadable(node: Node, said: str) -> ParameterError:
    name = node.nodeid.to_string()
    return ParameterError(f"Cannot read the node {name!r} ({said}). Check its id, and that the user may read it.")


def _said(error: BaseException) -> str:
    code = getattr(error, "code", None)
    if code is not None:
        return str(ua.StatusCode(code).name)
    if isinstance(error, OSError) and (error.errno or 0) > 0:  # asyncio puts the address into the message
        return os.strerror(error.errno or 0)
    text = getattr(error, "strerror", None) or str(error).partition("\n")[0] or type(error).__name__
    return text.rstrip(".")


def _as_number(value: Any) -> float:
    is_number = isinstance(value, bool | int | float) and math.isfinite(value)
    return float(value) if is_number else math.nan

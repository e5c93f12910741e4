"""OPC UA: subscribes to nodes of a server and aligns their values to one grid.

A value is valid from its source timestamp (or else the server's) until the next one: servers report only changes. A
value with a bad status is missing; an uncertain one counts. OPC UA has no acknowledgement, so changes while nobody is
connected are lost, and no reading is invented for that time.
"""

import asyncio
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from cometad.connect.address import Address
from cometad.connect.intake import Intake
from cometad.connect.opcua_link import NodeValue, OpcuaLink, ServerLogin, node_id
from cometad.connect.tag_feed import TagFeed, checked_period, checked_stream
from cometad.data.matching import listed
from cometad.data.resample import parse_period
from cometad.errors import ParameterError

OPTIONS = ("node", "sampling", "security")
AHEAD = 60.0  # seconds that a source may be ahead of its server; beyond that its clock is wrong
POLICIES = ("Basic256Sha256", "Aes128Sha256RsaOaep", "Aes256Sha256RsaPss")
MODES = ("Sign", "SignAndEncrypt")
LEAST = 0.05  # minimum seconds between publications
LOST = "Lost {:,} values that arrived faster than they were stored. Raise the option sampling, or use fewer nodes."


class OpcuaSource:
    """Readings from an OPC UA server: `opc.tcp://host:4840/path`.

    `tags` gives the node of each variable, such as `ns=2;s=Pump.Flow`. Without tags, the option `node` names a folder
    whose variables are named like the detector's.
    """

    def __init__(self, address: Address) -> None:
        address.check_options(OPTIONS)
        if not address.host:
            raise ParameterError(f"{address.shown!r} names no server. Write something like opc.tcp://host:4840.")
        self._address = address
        checked_stream(address)
        self._period = checked_period(address)
        self._publishing = max(self._period / 2, LEAST)
        self._sampling = parse_period(address.option("sampling", str(address.period))) / 1e6
        self._folder = address.option("node", "")
        if bool(self._folder) == bool(address.tags):
            raise ParameterError(
                f"Name the nodes of {address.shown} either with tags (--tag flow='ns=2;s=Pump.Flow'), or with the "
                "option node: a folder whose variables are named like the detector's."
            )
        if self._folder:
            node_id("node", self._folder)
        for name, node in address.tags.items():
            node_id(name, node)
        url = address.parts._replace(netloc=f"{address.host}:{address.port(4840)}", query="").geturl()
        security = _checked_security(address.option("security", ""))
        self._login = ServerLogin(url, address.username, address.password, security)

    async def run(self, intake: Intake) -> None:
        """Read until cancelled; raises `Lost` if the server is gone."""
        link = OpcuaLink(self._login)
        try:
            await link.open()
            address = await self._with_tags(link, intake)
            feed = await asyncio.to_thread(TagFeed, address, intake, hold=None)
            feed.table.begin(await link.now())  # earlier times are unknown
            await link.subscribe(address.tags, self._publishing, self._sampling)
            intake.connected()
            await self._read(link, feed, address, intake)
        finally:
            await link.close()

    async def _with_tags(self, link: OpcuaLink, intake: Intake) -> Address:
        if not self._folder:
            return self._address
        names = intake.layout(checked_stream(self._address)).names
        found = await link.variables_of(self._folder)
        tags = {name: node for name, node in found.items() if name in names}
        if not tags:
            raise ParameterError(
                f"The node {self._folder!r} has no variable named like the detector's ({listed(list(names))}). "
                "Set the option node to another folder, such as ns=2;s=Pump, or name the nodes with tags."
            )
        return replace(self._address, tags=tags)

    async def _read(self, link: OpcuaLink, feed: TagFeed, address: Address, intake: Intake) -> None:
        names: dict[Any, list[str]] = {}
        for name, node in address.tags.items():
            names.setdefault(node_id(name, node), []).append(name)
        times = _NodeTimes()
        while True:
            values = await link.values(self._period / 2)
            now = await link.now()
            # A publication lists values node by node; the grid needs them by time.
            for at, value in sorted(((times.time(one, now), one) for one in values), key=lambda pair: pair[0]):
                for name in names.get(value.node, ()):
                    feed.add(name, at, _as_number(value.value), value.node.to_string())
            lost = link.replaced()
            if lost:
                feed.set_aside(self._address.shown, b"", LOST.format(lost))
            feed.clock(now - self._period - self._publishing)  # values wait at the server until published
            await feed.store(news=False)
            if values:
                intake.connection.last_message = time.time()


def _checked_security(text: str) -> str:
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


class _NodeTimes:
    """The times of values, monotonic for each node: values arrive in order even if the clock jumps."""

    def __init__(self) -> None:
        self._last: dict[Any, float] = {}

    def time(self, value: NodeValue, now: float) -> float:
        """The time from which a value is valid."""
        at = now if value.at is None or value.at > now + AHEAD else value.at
        self._last[value.node] = max(at, self._last.get(value.node, -math.inf))
        return self._last[value.node]


def _as_number(value: Any) -> float:
    """A value as a number; NaN if it is none."""
    is_number = isinstance(value, bool | int | float) and math.isfinite(value)
    return float(value) if is_number else math.nan

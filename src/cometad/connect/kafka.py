"""Kafka: the partitions of a topic, shared by several processes.

The message key is the stream of its readings, so all readings of a machine are in one partition, in order. The
processes share the partitions through their database (`read_parts`) and assign them to themselves. They do not
join a consumer group, because its rebalancing would move partitions without the state of their streams. The group only
holds the committed offsets, which show other tools cometad's lag.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, ClassVar

from cometad.connect.address import Address, Option, choice
from cometad.connect.contract import Message, Rejection
from cometad.connect.intake import Intake
from cometad.connect.kafka_link import KafkaLink
from cometad.connect.source import START, ConnectedSource, read_parts
from cometad.errors import InputError, ParameterError

PORT = 9092
SECURITY = ("plaintext", "ssl")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
FILES = {"ca": "ssl.ca.location", "certificate": "ssl.certificate.location", "key": "ssl.key.location"}
NOT_TEXT = "The key of this message is not UTF-8. Use the stream name as key, or set stream."


class KafkaSource(ConnectedSource):
    """A topic of Kafka: `kafka://host:9092/topic`.

    The message key names the stream, unless its readings do in a field `stream`. `group` is the consumer group to
    commit offsets to. `start=new` reads only new messages.
    """

    OPTIONS: ClassVar = {
        "group": Option("cometad", lambda text: text or "cometad"),
        "start": START,
        "brokers": Option(),
        "security": choice("security of Kafka", SECURITY, SECURITY[0]),
        "mechanism": choice("mechanism of SASL", MECHANISMS, MECHANISMS[0]),
        **dict.fromkeys(FILES, Option()),
    }

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._topic, self._stream = address.path, address.stream
        if not address.host or not self._topic or any(one in "/ ,\t\r\n\0" for one in self._topic):
            raise ParameterError(f"{address.shown!r} names no Kafka topic. Write kafka://host:9092/topic.")
        self._settings = _settings(address, self.options)

    async def open(self, intake: Intake, closing: AsyncExitStack) -> None:
        self._link = KafkaLink(self._settings, self._topic, self.address.shown)
        closing.push_async_callback(lambda link: asyncio.shield(link.close()), self._link)
        await self.parts()

    async def pull(self, intake: Intake) -> None:
        await read_parts(self, intake)

    async def parts(self) -> int:
        """The number of partitions of the topic; refuses more than one if all readings belong to one stream."""
        count = await self._link.partitions()
        if self._stream is not None and count > 1:
            raise InputError(
                f"The topic {self._topic!r} has {count} partitions, which have no common order, but one stream. "
                "Remove stream and use its name as the message key, or use a topic with one partition."
            )
        return count

    async def ended(self) -> None:
        """Fetch messages until no broker responds."""
        await self._link.pull()

    async def read(self, part: int, intake: Intake) -> None:
        link = self._link
        offset = await self._first(part, intake)
        try:
            await link.assign(part, offset)
            link.done(part, offset)  # an earlier commit may have been lost
            while True:
                found = await link.messages(part)
                good = [one for one in found if one.error() is None and one.offset() >= offset]
                if good:
                    offset = good[-1].offset() + 1
                    await self._take(good, part, offset, intake)
                    link.done(part, offset)
                    intake.mark("connected", link.uncommitted)
                if found[-1].error() is not None:
                    offset = await self._skip(part, offset, intake)
        finally:
            await link.unassign(part)

    async def _first(self, part: int, intake: Intake) -> int:
        """The first offset: the stored one, else the group's committed one, else according to `start`."""
        position = await asyncio.to_thread(lambda: intake.position)
        if position is not None and position.get("topic") == self._topic:  # otherwise the URL has changed
            return int(position["offset"])
        offset = await self._link.committed(part)
        if offset is None:
            low, high = await self._link.bounds(part)
            offset = low if self.options["start"] == "all" else high
        await intake.take([], self._position(offset))  # so that "new" is not newer on the next start
        return offset

    async def _take(self, found: Sequence[Any], part: int, offset: int, intake: Intake) -> None:
        messages = []
        for one in found:
            body, where = one.value(), f"{self._topic} {part}, offset {one.offset()}"
            if body is None:  # a tombstone, which deletes a key from a compacted topic
                continue
            try:
                key = None if one.key() is None or self._stream is not None else one.key().decode()
            except UnicodeDecodeError:
                await intake.reject([Rejection(where, body, NOT_TEXT)])
                continue
            messages.append(Message(body, where, self._stream, key, self._position(one.offset() + 1)))
        await intake.take(messages, self._position(offset))

    def _position(self, offset: int) -> dict[str, Any]:
        return {"topic": self._topic, "offset": offset}

    async def _skip(self, part: int, offset: int, intake: Intake) -> int:
        """Resume at the oldest message left, because the next one was deleted; the gap is set aside."""
        low, high = await self._link.bounds(part)
        reason = (
            f"The messages from offset {offset:,} to {low - 1:,} were deleted before they were read. "
            f"Resumed at {low:,}; increase the retention."
            if offset < low
            else f"The topic ends at offset {high:,}, before the stored offset {offset:,}: it was recreated or "
            f"truncated. Resumed at {low:,}."
        )
        await intake.reject([Rejection(f"{self._topic} {part}, offset {offset}", b"", reason)])
        await intake.take([], self._position(low))
        await self._link.unassign(part)
        await self._link.assign(part, low)
        return low


def _settings(address: Address, options: Mapping[str, str]) -> dict[str, Any]:
    host = f"[{address.host}]" if ":" in address.host else address.host
    more = [one.strip() for one in options["brokers"].split(",") if one.strip()]
    security = options["security"]
    found = {
        "bootstrap.servers": ",".join([f"{host}:{address.port(PORT)}", *more]),
        "group.id": options["group"],
        "client.id": "cometad",
        "security.protocol": security if address.username is None else f"sasl_{security}",
    }
    if address.username is not None:
        password = address.password
        if not password:
            raise ParameterError(
                f"The Kafka user {address.username!r} needs a password. Name its environment variable with "
                "password_variable."
            )
        found |= {"sasl.mechanism": options["mechanism"], "sasl.username": address.username, "sasl.password": password}
    for option, setting in FILES.items():
        file = options[option]
        if file and security != "ssl":
            raise ParameterError(f"The option {option} needs TLS. Add security=ssl.")
        if file and not Path(file).is_file():
            raise ParameterError(f"The option {option} is {file!r}, which is not a file. Correct it.")
        if file:
            found[setting] = file
    return found

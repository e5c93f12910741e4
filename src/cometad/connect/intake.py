"""The one handler behind every connector: parses messages, waits while the receiver is busy, sets bad ones aside."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from cometad.connect.bodies import parse_messages
from cometad.connect.contract import Busy, Position, ReadingBatch, Receipt, Receiver, Refusal, SetAside, position_name
from cometad.live.readings import Layout

KEPT = 4096  # bytes of a message that is set aside
MOVING = 0.2  # seconds until a stream that another process scores is asked for again
Link = Literal["connecting", "connected", "lost", "failed"]


class Message(NamedTuple):
    """A message with one or more readings in JSON, as a broker gives it."""

    body: bytes
    where: str  # its place in the source, for people
    stream: str | None = None  # None if its readings name their streams
    key: str | None = None  # the stream of readings that do not


class Unused(NamedTuple):
    """A message that cannot be used, or a part of one, and why."""

    where: str  # its place in the source, for people
    content: bytes
    reason: str


@dataclass
class Connection:
    """How a connection is, for people to see."""

    name: str
    url: str  # without secrets
    streams: set[str] = field(default_factory=set)  # those it feeds, as far as known
    state: Link = "connecting"
    reason: str | None = None
    since: float = 0.0  # seconds since 1970 of the last change
    readings: int = 0  # accepted
    set_aside: int = 0
    last_message: float | None = None


class Intake:
    """Takes what a connector received; everything it takes is on disk when it returns.

    A source calls `connected` once it is, `take` for each batch of messages (or `deliver` for readings that it parsed
    itself), and acknowledges them afterwards. While the service is behind, both wait, so that the source stops pulling.
    """

    def __init__(
        self,
        receiver: Receiver,
        connection: Connection,
        changed: Callable[[Connection], None] = lambda one: None,
        part: int | None = None,
    ) -> None:
        self._receiver, self.connection, self._changed, self._part = receiver, connection, changed, part
        self._streams: set[str] = set()  # those it has fed, or tried to
        self._held: list[Intake] = []  # the parts that were taken and not left

    # -- parts: of a source that several processes share, each part is read by one at a time ------------------------

    async def share(self, parts: int) -> int:
        """How many of the parts of the source this process should read now: all, or a fair share of them.

        With no parts, it reads the source no longer, and the others share all of them.
        """
        return await self._receiver.share(self.connection.name, parts)

    async def take_part(self, part: int) -> "Intake | None":
        """An intake for a part that this process now reads; None if another process reads it."""
        if not await self._receiver.take_part(self.connection.name, part):
            return None
        self._held.append(Intake(self._receiver, self.connection, self._changed, part))
        return self._held[-1]

    async def leave_part(self, part: "Intake") -> None:
        """Leave a part and the streams it feeds to others; returns once all that was taken is scored."""
        assert part._part is not None
        self.connection.streams -= part._streams
        await self._receiver.leave_part(self.connection.name, part._part, part._streams)
        self._held.remove(part)

    async def leave_rest(self) -> None:
        """Leave the parts that could not be left before: others wait for them."""
        for part in list(self._held):
            await self.leave_part(part)

    # -- readings ---------------------------------------------------------------------------------------------------

    def layout(self, stream: str) -> Layout:
        """The fields that readings of a stream must have; raises `UnknownStream`."""
        return self._receiver.layout(stream)

    def last_time(self, stream: str) -> float | None:
        """The time of the last reading of a stream: a source that can be asked for history continues after it."""
        return self._receiver.last_time(stream)

    @property
    def position(self) -> Any:
        """How far the source was read before, as JSON; None at the first start."""
        return self._receiver.position(position_name(self.connection.name, self._part))

    def connected(self) -> None:
        """Say that the source answers."""
        self.mark("connected", None)

    def lost(self, reason: str) -> None:
        """Say that the source does not answer; people see it, and it is tried again."""
        self.mark("lost", reason)

    def mark(self, state: Link, reason: str | None) -> None:
        """Change the state of the connection."""
        one = self.connection
        if (one.state, one.reason) != (state, reason):
            one.state, one.reason, one.since = state, reason, time.time()
            self._changed(one)

    async def take(self, messages: Sequence[Message], position: Any = None) -> Receipt:
        """Take messages in order; those that cannot be used are set aside with their reasons.

        `position` says in JSON how far the source was read, as with `deliver`.
        """
        batches, refused = parse_messages([(one.body, one.stream, one.key) for one in messages], self.layout)
        await self._put_aside(refused, messages)
        receipt = await self.deliver(batches, messages, position) if batches or position is not None else Receipt()
        receipt.refused = sorted([*receipt.refused, *refused])
        return receipt

    async def deliver(
        self, batches: Sequence[ReadingBatch], origin: Sequence[Message] = (), position: Any = None
    ) -> Receipt:
        """Take readings; waits while the receiver is busy. Refused ones are set aside.

        `origin` has the message of each line (from 1) of the batches, so that people see what was refused. `position`
        says in JSON how far the source was read; it is stored with the readings, or not at all.
        """
        reached = None if position is None else Position(self.connection.name, position, self._part)
        streams = {batch.stream for batch in batches}
        self._streams |= streams  # the receiver may take streams and then fail
        receipt, moving = Receipt(), False
        while True:
            try:
                receipt.add(await self._received(batches, reached))
                if not receipt.elsewhere:
                    break
                batches = [batch for batch, _ in receipt.elsewhere]
                self.mark("connected", str(receipt.elsewhere[0][1]))  # people see it until the stream is released
                receipt.elsewhere, moving = [], True
                await asyncio.sleep(MOVING)
            except Busy as busy:
                await asyncio.sleep(busy.seconds)
        if moving:
            self.mark("connected", None)
        self._fed(streams)
        self.connection.readings += receipt.accepted
        self.connection.last_message = time.time()
        await self._put_aside(receipt.refused, origin)
        return receipt

    async def _received(self, batches: Sequence[ReadingBatch], position: Position | None) -> Receipt:
        """What became of readings; if it is cancelled, it waits for them first.

        Else those of a part that was left would be stored after the next one has read its position, and come twice.
        """
        receipt = asyncio.ensure_future(self._receiver.receive(batches, position))
        try:
            return await asyncio.shield(receipt)
        except asyncio.CancelledError:
            await asyncio.gather(receipt, return_exceptions=True)
            raise

    def _fed(self, streams: set[str]) -> None:
        if not streams <= self.connection.streams:
            self.connection.streams |= streams
            self._changed(self.connection)

    async def put_aside(self, where: str, content: bytes, reason: str, stream: str = "") -> None:
        """Set a message aside; returns once it is on disk."""
        await self.put_all_aside([Unused(where, content, reason)], stream)

    async def put_all_aside(self, messages: Sequence["Unused"], stream: str = "") -> None:
        """Set messages aside, in one transaction; returns once they are on disk."""
        name = self.connection.name
        if messages:
            await self._receiver.set_aside(
                [SetAside(name, stream, where, content[:KEPT], reason) for where, content, reason in messages]
            )
            self.connection.set_aside += len(messages)

    async def _put_aside(self, refused: Sequence[Refusal], origin: Sequence[Message]) -> None:
        if not refused:
            return
        found = []
        for line, stream, reason in refused:
            message = origin[line - 1] if line <= len(origin) else Message(b"", "")
            found.append(SetAside(self.connection.name, stream, message.where, message.body[:KEPT], reason))
        await self._receiver.set_aside(found)
        self.connection.set_aside += len(refused)

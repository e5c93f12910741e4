"""The handler behind every source: parses messages, waits while the receiver is busy, sets bad ones aside."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cometad.connect.bodies import parse_messages
from cometad.connect.contract import Busy, Message, Position, ReadingBatch, Receipt, Receiver, Refusal, Rejection
from cometad.data.text import Layout
from cometad.errors import InputError

KEPT = 4096  # bytes kept of a message that is set aside
MOVING = 0.2  # seconds until a stream owned by another process is retried
Link = Literal["connecting", "connected", "lost", "failed"]


@dataclass
class Connection:
    """The state of a connection, for display."""

    name: str
    url: str  # without secrets
    streams: set[str] = field(default_factory=set)  # those it feeds, as far as known
    state: Link = "connecting"
    reason: str | None = None
    since: float = 0.0  # time of the last change, in seconds since 1970
    readings: int = 0  # accepted
    set_aside: int = 0
    last_message: float | None = None


class Intake:
    """Stores what a source received; everything is on disk when its methods return.

    A source calls `connected` once it is, `take` for each batch of messages (or `deliver` for readings that it parsed
    itself), and acknowledges them afterwards. Both wait while the service lags, so the source stops pulling.
    """

    def __init__(
        self,
        receiver: Receiver,
        connection: Connection,
        changed: Callable[[Connection], None] = lambda one: None,
        part: int | None = None,
    ) -> None:
        self._receiver, self.connection, self._changed = receiver, connection, changed
        self._start = Position(connection.name, part=part)
        self._streams: set[str] = set()  # those it has fed, or tried to
        self._held: list[Intake] = []  # parts taken and not yet released

    # -- parts: if several processes share a source, each part is read by one of them at a time ----------------------

    async def share(self, parts: int) -> int:
        return await self._receiver.share(self.connection.name, parts)

    async def take_part(self, part: int) -> "Intake | None":
        """Take a part and return an intake for it; None if another process reads it."""
        if not await self._receiver.take_part(self.connection.name, part):
            return None
        self._held.append(Intake(self._receiver, self.connection, self._changed, part))
        return self._held[-1]

    async def leave_part(self, part: "Intake") -> None:
        """Release a part and the streams it feeds; returns once everything stored is scored."""
        assert part._start.part is not None
        self.connection.streams -= part._streams
        await self._receiver.leave_part(self.connection.name, part._start.part, part._streams)
        self._held.remove(part)

    async def leave_rest(self) -> None:
        """Release the parts that could not be released before: other processes wait for them."""
        for part in list(self._held):
            await self.leave_part(part)

    # -- the state of the source -------------------------------------------------------------------------------------

    def layout(self, stream: str) -> Layout:
        """The fields that readings of a stream must have; raises `UnknownStream`."""
        return self._receiver.layout(stream)

    def last_time(self, stream: str) -> float | None:
        """The time of the last reading of a stream; a source with history resumes after it."""
        return self._receiver.last_time(stream)

    @property
    def position(self) -> Any:
        """How far the source was read before, as JSON; None on first start. Asks the database: read it in a thread."""
        return self._receiver.position(self._start.name)

    def connected(self) -> None:
        self.mark("connected")

    def lost(self, reason: str) -> None:
        """Report that the source does not respond; it is retried."""
        self.mark("lost", reason)

    def mark(self, state: Link, reason: str | None = None) -> None:
        one = self.connection
        if (one.state, one.reason) != (state, reason):
            one.state, one.reason, one.since = state, reason, time.time()
            self._changed(one)

    # -- readings ----------------------------------------------------------------------------------------------------

    async def take(self, messages: Sequence[Message], position: Any = None) -> Receipt:
        """Store messages in order; unusable ones are set aside with their reasons.

        `position` is how far the source was read after all of them, as in `deliver`. Messages with too many readings
        for one request are stored in halves, each with the position of its last message; a single one is set aside.
        """
        batches, refused = await asyncio.to_thread(parse_messages, messages, self.layout)
        await self._reject_refused(refused, messages)
        if not batches and position is None:
            return Receipt(refused=refused)
        try:
            receipt = await self.deliver(batches, messages, position)
        except InputError as error:
            half = len(messages) // 2
            if half:
                receipt = await self.take(messages[:half], messages[half - 1].position)
                rest = await self.take(messages[half:], position)
                rest.refused = [one._replace(line=one.line + half) for one in rest.refused]
                receipt.add(rest)
                return receipt
            (one,) = messages
            stream = one.stream or one.key or ""
            await self.reject([Rejection(one.where, one.body, str(error), stream)])
            receipt = await self.take([], position)
            receipt.refused.append(Refusal(1, stream, str(error)))
        receipt.refused = sorted([*receipt.refused, *refused])
        return receipt

    async def deliver(
        self, batches: Sequence[ReadingBatch], origin: Sequence[Message] = (), position: Any = None
    ) -> Receipt:
        """Store readings; waits while the receiver is busy. Refused ones are set aside.

        `origin` has the message for each line (from 1) of the batches, so that people see what was refused. `position`
        is how far the source was read, as JSON; it is stored atomically with the readings.
        """
        reached = None if position is None else self._start._replace(content=position)
        streams = {batch.stream for batch in batches}
        self._streams |= streams  # the receiver may take streams and then fail
        receipt, moving = Receipt(), False
        while True:
            try:
                receipt.add(await self._received(batches, reached))
                if not receipt.elsewhere:
                    break
                batches = [batch for batch, _ in receipt.elsewhere]
                self.mark("connected", str(receipt.elsewhere[0][1]))  # shown until the stream is released
                receipt.elsewhere, moving = [], True
                await asyncio.sleep(MOVING)
            except Busy as busy:
                await asyncio.sleep(busy.seconds)
        if moving:
            self.connected()
        if not streams <= self.connection.streams:
            self.connection.streams |= streams
            self._changed(self.connection)
        self.connection.readings += receipt.accepted
        self.connection.last_message = time.time()
        await self._reject_refused(receipt.refused, origin)
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

    async def reject(self, messages: Sequence[Rejection], stream: str = "") -> None:
        """Set unusable messages aside, in one transaction; returns once they are on disk."""
        if messages:
            kept = [one._replace(content=one.content[:KEPT], stream=one.stream or stream) for one in messages]
            await self._receiver.reject(self.connection.name, kept)
            self.connection.set_aside += len(kept)

    async def _reject_refused(self, refused: Sequence[Refusal], origin: Sequence[Message]) -> None:
        found = []
        for line, stream, reason in refused:
            message = origin[line - 1] if origin else Message(b"", "")
            found.append(Rejection(message.where, message.body, reason, stream))
        await self.reject(found)

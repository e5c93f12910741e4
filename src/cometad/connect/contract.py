"""The contract between connectors and whoever scores readings.

A connector parses what arrives into batches, one per stream, and awaits `Receiver.receive`. Once that returns, the
readings are on disk, and the connector may acknowledge them: an HTTP answer, an MQTT PUBACK, a NATS ack, a Kafka
offset. If the receiver raises `Busy`, the connector stops pulling and tries again later. Readings may come again:
those that are known are counted as repeated and ignored. A message that cannot be used is set aside with its reason,
on disk, and then acknowledged as well: it would come again forever.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from cometad.arrays import Floats
from cometad.errors import CometadError
from cometad.live.readings import Layout


class ReadingBatch(NamedTuple):
    """Readings of one stream, in the order in which they arrived."""

    stream: str
    names: Sequence[str]  # (variable,) as the detector has them
    values: Floats  # (reading, variable) in the detector's order; NaN where a value is missing
    times: Sequence[str | float | None]  # (reading,) as they were sent
    sequences: Sequence[int | None]  # (reading,) numbers given by the sender, which only grow
    lines: Sequence[int]  # (reading,) their places in what arrived, from 1, for messages


class Refusal(NamedTuple):
    """A reading that was not taken, and why."""

    line: int
    stream: str
    reason: str


@dataclass
class Receipt:
    """What became of readings: everything accepted is on disk.

    >>> from cometad.connect.contract import Receipt, Refusal
    >>> receipt = Receipt(accepted=2)
    >>> receipt.add(Receipt(accepted=1, repeated=1, refused=[Refusal(3, "pump", "It is late.")]))
    >>> receipt.accepted, receipt.repeated, len(receipt.refused)
    (3, 1, 1)
    """

    accepted: int = 0
    repeated: int = 0  # known already, and ignored
    dropped: int = 0  # late, and ignored because the stream says so
    refused: list[Refusal] = field(default_factory=list)
    elsewhere: list[tuple["ReadingBatch", "Elsewhere"]] = field(default_factory=list)  # not taken: others score them

    def add(self, other: "Receipt") -> None:
        """Add what became of other readings."""
        self.accepted += other.accepted
        self.repeated += other.repeated
        self.dropped += other.dropped
        self.refused += other.refused
        self.elsewhere += other.elsewhere


class Busy(CometadError):
    """Too much is waiting; the readings were not taken. Send them again after `seconds`."""

    def __init__(self, seconds: int = 1) -> None:
        self.seconds = seconds
        super().__init__(f"Too many readings are waiting to be stored or scored. Send these again in {seconds} s.")


class UnknownStream(CometadError):
    """There is no stream of this name."""

    def __init__(self, name: str, reason: str | None = None) -> None:
        advice = f"Create it with PUT /v1/streams/{name}." if reason is None else f"The fleet cannot open it: {reason}"
        super().__init__(f"There is no stream {name!r}. {advice}")


class Elsewhere(CometadError):
    """Another process scores this stream. Send its readings there, or wait until that process stops."""

    def __init__(self, stream: str, process: str, url: str | None = None) -> None:
        where = f"{process} at {url}" if url else process
        super().__init__(
            f"The stream {stream!r} is scored by the process {where}. Send it there, or stop that process."
        )


class Lost(CometadError):
    """A source cannot be reached, or ended; it is tried again after a while."""


class Unavailable(CometadError):
    """The receiver cannot store anything now."""


class SetAside(NamedTuple):
    """A message that could not be used, and why."""

    connection: str  # name of the connection it came from
    stream: str  # empty if it is not known
    where: str  # its place in the source, such as a topic and an offset
    content: bytes  # its beginning
    reason: str


class Position(NamedTuple):
    """How far a source was read; stored with the readings, in one transaction."""

    connection: str
    content: Any  # JSON
    part: int | None = None  # of a source whose parts several processes share

    @property
    def name(self) -> str:
        """What the position is kept under."""
        return position_name(self.connection, self.part)


def position_name(connection: str, part: int | None) -> str:
    """What the position in a source, or in a part of it, is kept under.

    >>> from cometad.connect.contract import position_name
    >>> position_name("readings", 3)
    'readings/3'
    """
    return connection if part is None else f"{connection}/{part}"


class Receiver(Protocol):
    """Whoever takes readings from connectors."""

    def layout(self, stream: str) -> Layout:
        """The fields that readings of a stream must have; raises `UnknownStream`."""

    def last_time(self, stream: str) -> float | None:
        """The time of the last reading of a stream, in seconds since 1970; raises `UnknownStream`."""

    def position(self, connection: str) -> Any:
        """How far a source was read, or a part of it (see `position_name`), as JSON; None if nothing was kept."""

    async def receive(self, batches: Sequence[ReadingBatch], position: Position | None = None) -> Receipt:
        """Take readings; returns once they are on disk, with how far the source was read.

        Raises `Busy` if too much is waiting. Readings of streams that other processes score are not taken; the
        receipt has them. With a position, either all readings are taken or none.
        """

    async def set_aside(self, messages: Sequence[SetAside]) -> None:
        """Keep messages that cannot be used; returns once they are on disk."""

    async def share(self, connection: str, parts: int) -> int:
        """How many of the parts of a source this process should read now: all, or a fair share of them.

        With no parts, it reads the source no longer, and the others share all of them.
        """

    async def take_part(self, connection: str, part: int) -> bool:
        """Take a part of a source: no other process reads it until it is left, or this process dies."""

    async def leave_part(self, connection: str, part: int, streams: Collection[str]) -> None:
        """Leave a part of a source and the streams it feeds to others; returns once all that was taken is scored."""

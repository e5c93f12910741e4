"""The contract between connectors and the receiver that scores their readings.

A connector parses what arrives into batches, one per stream, and awaits `Receiver.receive`. Once that returns, the
readings are on disk, and the connector may acknowledge them: an HTTP answer, an MQTT PUBACK, a NATS ack, a Kafka
offset. If the receiver raises `Busy`, the connector stops pulling and retries later. Redelivered readings are counted
as repeated and ignored. An unusable message is set aside on disk with its reason, and then acknowledged as well,
because it would be redelivered forever.
"""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from cometad.arrays import Floats
from cometad.data.text import Layout
from cometad.errors import CometadError

FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0  # seconds until a lost source or receiver is retried


class ReadingBatch(NamedTuple):
    """Readings of one stream, in the order in which they arrived."""

    stream: str
    names: Sequence[str]  # (variable,) as the detector has them
    values: Floats  # (reading, variable) in the detector's order; NaN where a value is missing
    times: Sequence[str | float | None]  # (reading,) as they were sent
    sequences: Sequence[int | None]  # (reading,) numbers given by the sender, which only grow
    lines: Sequence[int]  # (reading,) their places in what arrived, from 1, for messages

    @classmethod
    def on_grid(cls, stream: str, names: Sequence[str], times: Sequence[float], values: ArrayLike) -> "ReadingBatch":
        return cls(stream, names, np.asarray(values, np.float64), times, [None] * len(times), range(1, len(times) + 1))


class Message(NamedTuple):
    """A message with one or more readings in JSON, as received from a broker."""

    body: bytes
    where: str  # its position in the source, for display
    stream: str | None = None  # None if its readings name their streams
    key: str | None = None  # the stream of readings that name none
    position: Any = None  # how far the source was read after it, as JSON


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
    elsewhere: list[tuple["ReadingBatch", "Elsewhere"]] = field(default_factory=list)  # not stored: not our streams

    def add(self, other: "Receipt") -> None:
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
    """Another process scores this stream; send its readings there, or wait until that process stops."""

    def __init__(self, stream: str, process: str, url: str | None = None) -> None:
        where = f"{process} at {url}" if url else process
        super().__init__(
            f"The process {where} scores the stream {stream!r}. Send the readings there, or stop that process."
        )


class Lost(CometadError):
    """A source is unreachable or closed the connection; it is retried later."""


class Unavailable(CometadError):
    """The receiver cannot store anything at the moment."""


def retry_wait(failures: int, longest: float) -> float:
    """Seconds until the next attempt: twice as long after each failure, with jitter, so that not all retry at once."""
    return min(FIRST_WAIT * 2.0 ** min(failures - 1, 30), longest) * random.uniform(0.8, 1.2)


class Rejection(NamedTuple):
    """An unusable message, or an unusable part of one."""

    where: str  # its position in the source, for display
    content: bytes  # its beginning
    reason: str
    stream: str = ""  # empty if unknown


class Position(NamedTuple):
    """How far a source was read; stored with the readings, in one transaction."""

    connection: str
    content: Any = None  # JSON
    part: int | None = None  # if several processes share the source

    @property
    def name(self) -> str:
        return self.connection if self.part is None else f"{self.connection}/{self.part}"


class Receiver(Protocol):
    """Whoever takes readings from connectors."""

    def layout(self, stream: str) -> Layout:
        """The fields that readings of a stream must have; raises `UnknownStream`."""

    def last_time(self, stream: str) -> float | None:
        """The time of the last reading of a stream, in seconds since 1970."""

    def position(self, connection: str) -> Any:
        """How far a source, or a part of it (see `Position.name`), was read, as JSON; None if unknown."""

    async def receive(self, batches: Sequence[ReadingBatch], position: Position | None = None) -> Receipt:
        """Store readings; returns once they are on disk, together with the position in the source.

        Raises `Busy` if too much is waiting. Readings of streams that other processes score are not stored; the
        receipt lists them. With a position, either all readings are stored or none.
        """

    async def reject(self, connection: str, messages: Sequence[Rejection]) -> None:
        """Set unusable messages of a source aside; returns once they are on disk."""

    async def share(self, connection: str, parts: int) -> int:
        """How many parts of a source this process should read now: all of them, or a fair share.

        Zero `parts` means that it no longer reads the source; the others then share all parts.
        """

    async def take_part(self, connection: str, part: int) -> bool:
        """Take a part of a source; no other process reads it until it is released or this process dies."""

    async def leave_part(self, connection: str, part: int, streams: Collection[str]) -> None:
        """Release a part of a source and the streams it feeds; returns once everything stored is scored."""

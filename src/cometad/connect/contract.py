"""The contract between connectors and whoever scores readings.

A connector parses what arrives into batches, one per stream, and awaits `Receiver.receive`. Once that returns, the
readings are on disk, and the connector may acknowledge them: an HTTP answer, an MQTT PUBACK, a NATS ack, a Kafka
offset. If the receiver raises `Busy`, the connector stops pulling and tries again later. Readings may come again:
those that are known are counted as repeated and ignored.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

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

    def add(self, other: "Receipt") -> None:
        """Add what became of other readings."""
        self.accepted += other.accepted
        self.repeated += other.repeated
        self.dropped += other.dropped
        self.refused += other.refused


class Busy(CometadError):
    """Too much is waiting; the readings were not taken. Send them again after `seconds`."""

    def __init__(self, seconds: int = 1) -> None:
        self.seconds = seconds
        super().__init__(f"Too many readings are waiting to be stored or scored. Send these again in {seconds} s.")


class UnknownStream(CometadError):
    """There is no stream of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no stream {name!r}. Create it with PUT /v1/streams/{name}.")


class Receiver(Protocol):
    """Whoever takes readings from connectors."""

    def layout(self, stream: str) -> Layout:
        """The fields that readings of a stream must have; raises `UnknownStream`."""

    async def receive(self, batches: Sequence[ReadingBatch]) -> Receipt:
        """Take readings; returns once they are on disk. Raises `Busy` if too much is waiting."""

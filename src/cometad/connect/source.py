"""What all sources share: options, a connection that is opened and closed, parts, and a supervisor that restarts them.

NATS JetStream and Kafka have streams with parts, which several processes share. All messages of a machine are in one
part, in order, and one process at a time reads a part. Parts are assigned through the database of the service, not by
the broker: a part moves together with the state of the streams it feeds, and its position is stored in the same
transaction as the readings. So nothing is read twice or out of order, even if messages were unacknowledged when a
process died.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import ClassVar, NoReturn, Protocol

from cometad.connect.address import Address, Option, keyword
from cometad.connect.contract import LONGEST_WAIT, Lost, Unavailable, UnknownStream, retry_wait
from cometad.connect.intake import Intake
from cometad.errors import CometadError, MissingExtraError, unknown
from cometad.lazy import LazyTable

LOOK = 1.0  # seconds between rebalances of parts
SEVERE = 10  # counted failures of an error that needs a person: the longest wait


class ReadingSource(Protocol):
    """A source of readings. `CONNECTORS` creates one from an `Address`; a bad address raises `ParameterError`."""

    async def run(self, intake: Intake) -> None:
        """Read until cancelled; returns only if the source has an end, like a file that is not followed.

        Calls `intake.connected` once the source responds. Raises `Lost` if it vanishes, and any other `CometadError`
        if it needs a person: a wrong password, an invalid query. A message is acknowledged to the source after
        `intake.take` or `intake.deliver` returns. All state that a restart needs is kept by the source itself (a
        broker's session, a consumer group), follows from `intake.last_time`, or is passed to `deliver` as a position.
        """


class ConnectedSource:
    """A source behind a connection, which is opened, read until it is lost or cancelled, and closed."""

    OPTIONS: ClassVar[Mapping[str, Option]] = {}

    def __init__(self, address: Address) -> None:
        self.address, self.options = address, address.read_options(self.OPTIONS)

    async def run(self, intake: Intake) -> None:
        async with AsyncExitStack() as closing:
            await self.open(intake, closing)
            intake.connected()
            await self.pull(intake)

    async def open(self, intake: Intake, closing: AsyncExitStack) -> None:
        """Connect, and refuse what only a person can correct; `closing` closes at the end what was opened."""
        raise NotImplementedError

    async def pull(self, intake: Intake) -> None:
        raise NotImplementedError


# What a new part begins with.
START = keyword(("all", "new"), "The option start is {}. Write start=all or start=new.")


class PartedSource(Protocol):
    """What `read_parts` needs of a source that a broker splits into parts: `NatsSource`, `KafkaSource`."""

    async def parts(self) -> int:
        """The current number of parts; it may grow."""

    async def read(self, part: int, intake: Intake) -> None:
        """Read a part until cancelled, starting at `intake.position` (None for a new part)."""

    async def ended(self) -> None:
        """Wait until the connection ends; returns, or raises the reason."""


async def read_parts(source: PartedSource, intake: Intake) -> NoReturn:
    """Read this process's share of the parts until cancelled; shares rebalance when processes come and go.

    Raises `Lost` once the connection ends, or the error of a part that cannot be read.
    """
    await intake.leave_rest()
    reading: dict[int, tuple[Intake, asyncio.Task[None]]] = {}
    end = asyncio.create_task(source.ended())
    try:
        while True:
            count = await source.parts()
            share = await intake.share(count)
            for part in list(reading)[share:]:
                await _left(intake, *reading.pop(part))
            for part in range(count):
                if len(reading) < share and part not in reading:
                    own = await intake.take_part(part)
                    if own is not None:
                        reading[part] = own, asyncio.create_task(source.read(part, own))
            tasks = [task for _, task in reading.values()]
            done, _ = await asyncio.wait([end, *tasks], timeout=LOOK, return_when=asyncio.FIRST_COMPLETED)
            if any(task.cancelled() for task in done):  # a lost connection cancels its waiters
                break
            for task in done:
                task.result()
            if end in done:
                break
        raise Lost(f"The connection to {intake.connection.url} was lost.")
    finally:
        end.cancel()
        # A part that cannot be released now is released by the next run, or when this process ends.
        await asyncio.gather(end, *(_left(intake, *one) for one in reading.values()), return_exceptions=True)
        await asyncio.gather(intake.share(0), return_exceptions=True)


async def _left(intake: Intake, part: Intake, task: "asyncio.Task[None]") -> None:
    """Stop reading a part and release it; what was not stored is redelivered."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await intake.leave_part(part)


CONNECTORS: LazyTable[Callable[[Address], ReadingSource]] = LazyTable(
    "connector",
    {
        "file": "cometad.connect.file_source:FilesSource",
        "mqtt": "cometad.connect.mqtt:MqttSource",
        "mqtts": "cometad.connect.mqtt:MqttSource",
        "opc.tcp": "cometad.connect.opcua:OpcuaSource",
        "prometheus+http": "cometad.connect.prometheus:PrometheusSource",
        "prometheus+https": "cometad.connect.prometheus:PrometheusSource",
        "nats": "cometad.connect.nats:NatsSource",
        "kafka": "cometad.connect.kafka:KafkaSource",
    },
)


def source_of(address: Address) -> ReadingSource:
    if address.scheme not in CONNECTORS:
        raise unknown("connector", address.scheme, CONNECTORS)
    return CONNECTORS[address.scheme](address)


async def supervise(source: ReadingSource, intake: Intake) -> None:
    """Run a source and restart it, with back-off, when it is lost. Returns at its end, or when cancelled.

    An error that needs a person is retried too, after the longest wait: passwords and permissions are fixed elsewhere.
    """
    failures = 1
    while True:
        intake.mark("connecting", intake.connection.reason)
        begun = time.monotonic()
        try:
            for stream in intake.connection.streams:  # fails now if one is missing, not message by message
                await asyncio.to_thread(intake.layout, stream)
            await source.run(intake)
            return
        except (Lost, Unavailable) as error:
            # A source that is lost again at once is overloaded or nearly down, so back off.
            failures = 1 if time.monotonic() - begun > LONGEST_WAIT else failures + 1
            intake.mark("lost", str(error))
        except MissingExtraError:
            raise
        except UnknownStream as error:
            failures += 1
            intake.mark("failed", str(error))
        except CometadError as error:
            failures = SEVERE
            intake.mark("failed", str(error))
        await asyncio.sleep(retry_wait(failures, LONGEST_WAIT))

"""Sources whose streams have parts (NATS JetStream and Kafka): several processes share the parts.

All messages of a machine are in one part, in order, and one process at a time reads a part. Parts are assigned through
the database of the service, not by the broker: a part moves together with the state of the streams it feeds, and its
position is stored in the same transaction as the readings. So nothing is read twice or out of order, even if messages
were unacknowledged when a process died.
"""

import asyncio
from typing import NoReturn, Protocol

from cometad.connect.address import Option
from cometad.connect.contract import Lost
from cometad.connect.intake import Intake
from cometad.errors import ParameterError

LOOK = 1.0  # seconds between rebalances


class PartedSource(Protocol):
    """A connection to a broker, for `read_parts`."""

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


def _start_of(text: str) -> str:
    if text not in ("all", "new"):
        raise ParameterError(f"The option start is {text!r}. Write start=all or start=new.")
    return text


START = Option("all", _start_of)  # what a new part begins with

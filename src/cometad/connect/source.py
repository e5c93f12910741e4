"""The protocol of connectors, and the supervisor that restarts one when its source is lost."""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Protocol

from cometad.connect.address import Address
from cometad.connect.contract import Lost, Unavailable, UnknownStream
from cometad.connect.intake import Intake
from cometad.errors import CometadError, MissingExtraError, unknown
from cometad.lazy import LazyTable

FIRST_WAIT = 0.5  # seconds until a lost source is retried
LONGEST_WAIT = 30.0


class ReadingSource(Protocol):
    """A source of readings. `CONNECTORS` creates one from an `Address`; a bad address raises `ParameterError`."""

    async def run(self, intake: Intake) -> None:
        """Read until cancelled; returns only if the source has an end, like a file that is not followed.

        Calls `intake.connected` once the source responds. Raises `Lost` if it vanishes, and any other `CometadError`
        if it needs a person: a wrong password, an invalid query. A message is acknowledged to the source after
        `intake.take` or `intake.deliver` returns. All state that a restart needs is kept by the source itself (a
        broker's session, a consumer group), follows from `intake.last_time`, or is passed to `deliver` as a position.
        """


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
    """The source at an address."""
    if address.scheme not in CONNECTORS:
        raise unknown("connector", address.scheme, CONNECTORS)
    return CONNECTORS[address.scheme](address)


async def supervise(source: ReadingSource, intake: Intake) -> None:
    """Run a source and restart it, with back-off, when it is lost. Returns at its end, or when cancelled.

    An error that needs a person is retried too, after the longest wait: passwords and permissions are fixed elsewhere.
    """
    wait = FIRST_WAIT
    while True:
        intake.mark("connecting", intake.connection.reason)
        begun = time.monotonic()
        try:
            for stream in intake.connection.streams:
                await asyncio.to_thread(
                    intake.layout, stream
                )  # fails now if a stream is missing, rather than message by message
            await source.run(intake)
            return
        except (Lost, Unavailable) as error:
            # A source that is lost again at once is overloaded or nearly down, so back off.
            wait = FIRST_WAIT if time.monotonic() - begun > LONGEST_WAIT else min(2 * wait, LONGEST_WAIT)
            intake.mark("lost", str(error))
        except MissingExtraError:
            raise
        except UnknownStream as error:
            wait = min(2 * wait, LONGEST_WAIT)
            intake.mark("failed", str(error))
        except CometadError as error:
            wait = LONGEST_WAIT
            intake.mark("failed", str(error))
        await asyncio.sleep(wait * random.uniform(0.8, 1.2))  # jitter: not all sources of a broker at once

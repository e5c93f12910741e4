"""The protocol of receivers of events, and the table of available ones."""

from collections.abc import Callable, Sequence
from typing import Protocol

from cometad.connect.out.destination import Destination
from cometad.connect.out.message import EventMessage
from cometad.errors import CometadError, unknown
from cometad.lazy import LazyTable


class Rejected(CometadError):
    """A receiver refused a message; retrying rarely helps."""

    def __init__(self, message: str, status: int | None = None) -> None:
        self.status = status  # HTTP status
        super().__init__(message)


class Notifier(Protocol):
    """A receiver of events. Creating one with a bad `Destination` raises `ParameterError`."""

    most: int  # messages per request
    resend: float | None  # seconds between resends of open events; None: send once

    async def send(self, messages: Sequence[EventMessage]) -> None:
        """Send messages in order; returns once the receiver has accepted all of them.

        Raises `Lost` if the receiver is unreachable or busy, and `Rejected` if it refuses. In both cases it may have
        accepted some of them; they are redelivered with the same ids.
        """

    async def close(self) -> None:
        """Close connections."""


_HERE = "cometad.connect.out"
NOTIFIERS: LazyTable[Callable[[Destination], Notifier]] = LazyTable(
    "receiver",
    {
        "webhook+http": f"{_HERE}.webhook:Webhook",
        "webhook+https": f"{_HERE}.webhook:Webhook",
        "alertmanager+http": f"{_HERE}.alertmanager:Alertmanager",
        "alertmanager+https": f"{_HERE}.alertmanager:Alertmanager",
        "mqtt": f"{_HERE}.topic:mqtt_topic",
        "mqtts": f"{_HERE}.topic:mqtt_topic",
        "nats": f"{_HERE}.topic:nats_topic",
        "kafka": f"{_HERE}.topic:kafka_topic",
    },
)


SCORE_WRITERS = ("remote-write+http", "remote-write+https")  # receivers of scores: `remote_write.py`


def notifier_of(destination: Destination) -> Notifier:
    """The receiver at a destination.

    >>> from cometad.connect.address import Address
    >>> from cometad.connect.out.destination import Destination
    >>> from cometad.connect.out.notifier import notifier_of
    >>> notifier_of(Destination("chat", Address("slack://plant")))
    Traceback (most recent call last):
    ...
    cometad.errors.ParameterError: Unknown receiver 'slack'. Available: webhook+http, ...
    """
    scheme = destination.address.scheme
    if scheme not in NOTIFIERS:
        raise unknown("receiver", scheme, [*NOTIFIERS, *SCORE_WRITERS])
    return NOTIFIERS[scheme](destination)

"""What a receiver of events is, and the table of those there are."""

from collections.abc import Callable, Sequence
from typing import Protocol

from cometad.connect.out.destination import Destination
from cometad.connect.out.notice import Notice
from cometad.errors import CometadError, unknown
from cometad.lazy import LazyTable


class Rejected(CometadError):
    """A receiver answered that it does not take a message; sending the same again rarely helps."""

    def __init__(self, message: str, status: int | None = None) -> None:
        self.status = status  # of HTTP
        super().__init__(message)


class Notifier(Protocol):
    """Somebody who is told about events. A bad `Destination` raises `ParameterError` when one is made."""

    most: int  # notices that it takes at once
    resend: float | None  # seconds after which it must hear of an open event again; None: once is enough

    async def send(self, notices: Sequence[Notice]) -> None:
        """Send notices in order; returns once the receiver has taken all of them.

        Raises `Lost` if the receiver cannot be reached or is busy, and `Rejected` if it refuses. In both cases it may
        have taken some of them: they come again with the same ids.
        """

    async def close(self) -> None:
        """End connections."""


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

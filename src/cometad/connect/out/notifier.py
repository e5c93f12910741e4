"""Receivers of events: what each has, the destination it is made from, and the table of available ones."""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from cometad.connect.address import Address, Option
from cometad.connect.contract import Lost
from cometad.connect.out.message import EventMessage, MessageTemplate
from cometad.errors import CometadError, ParameterError, unknown
from cometad.lazy import LazyTable

JSON = "application/json"
_VARIABLE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True)
class Destination:
    """A receiver of events or scores: its address, and the format of its messages.

    Secrets are never part of the file: `secret_variable` names the environment variable with the key that signs
    webhooks, and a header may contain `${VARIABLE}`.
    """

    name: str
    address: Address
    template: MessageTemplate | None = None
    content_type: str = JSON
    secret_variable: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)  # of alerts and series
    timeout: float = 10.0  # seconds

    @property
    def url(self) -> str:
        """The address without the kind of receiver: https://host/path."""
        return self.address.url.partition("+")[2] if "+" in self.address.scheme else self.address.url

    @property
    def shown(self) -> str:
        """The address for display; without a webhook's path, which is often secret."""
        if not self.address.scheme.startswith("webhook+"):
            return self.address.shown
        port = f":{self.address.parts.port}" if self.address.parts.port else ""
        return f"{self.address.scheme}://{self.address.host}{port}"

    @staticmethod
    def from_variable(variable: str | None, receiver: str) -> str | None:
        """The value of an environment variable that a receiver needs; None if it needs none."""
        if variable is None:
            return None
        found = os.environ.get(variable)
        if not found:
            raise ParameterError(
                f"The receiver {receiver!r} needs the environment variable {variable!r}, which is not set. "
                "Set it first."
            )
        return found

    def body_of(self, message: EventMessage) -> bytes:
        text = json.dumps(message.content) if self.template is None else self.template.text(message)
        return text.encode()

    def secret(self) -> str | None:
        return self.from_variable(self.secret_variable, self.name)

    def filled_headers(self) -> dict[str, str]:

        def value(match: re.Match[str]) -> str:
            return self.from_variable(match[1], self.name) or ""

        return {name: _VARIABLE.sub(value, text) for name, text in self.headers.items()}


class Rejected(CometadError):
    """A receiver refused a message; retrying rarely helps."""

    def __init__(self, message: str, status: int | None = None) -> None:
        self.status = status  # HTTP status
        super().__init__(message)


class Notifier:
    """A receiver of events. Creating one with a bad `Destination` raises `ParameterError`."""

    OPTIONS: ClassVar[Mapping[str, Option] | None] = None  # None: the query of the URL belongs to the receiver
    most = 1  # messages per request
    resend: float | None = None  # seconds between resends of open events; None: send once

    def __init__(self, destination: Destination) -> None:
        self.destination, self.who = destination, f"The receiver {destination.name!r}"
        self.options = {} if self.OPTIONS is None else destination.address.read_options(self.OPTIONS)

    async def send(self, messages: Sequence[EventMessage]) -> None:
        """Send messages in order; returns once the receiver has accepted all of them.

        Raises `Lost` if the receiver is unreachable or busy, and `Rejected` if it refuses. In both cases it may have
        accepted some of them; they are redelivered with the same ids.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """Close connections."""

    def unreachable(self, problem: object) -> Lost:
        return Lost(f"{self.who} cannot be reached at {self.destination.shown}: {problem}.")

    def interrupted(self, problem: object) -> Lost:
        return Lost(f"{self.who} lost its connection to {self.destination.shown}: {problem}.")


_HERE = "cometad.connect.out"
NOTIFIERS: LazyTable[Callable[[Destination], Notifier]] = LazyTable(
    "receiver",
    {
        "webhook+http": f"{_HERE}.posting:Webhook",
        "webhook+https": f"{_HERE}.posting:Webhook",
        "alertmanager+http": f"{_HERE}.posting:Alertmanager",
        "alertmanager+https": f"{_HERE}.posting:Alertmanager",
        "mqtt": f"{_HERE}.topics:MqttTopic",
        "mqtts": f"{_HERE}.topics:MqttTopic",
        "nats": f"{_HERE}.topics:NatsTopic",
        "kafka": f"{_HERE}.topics:KafkaTopic",
    },
)


SCORE_WRITERS = ("remote-write+http", "remote-write+https")  # receivers of scores: `posting.py:RemoteWriter`


def notifier_of(destination: Destination) -> Notifier:
    """The receiver at a destination.

    >>> from cometad.connect.address import Address
    >>> from cometad.connect.out.notifier import Destination, notifier_of
    >>> notifier_of(Destination("chat", Address("slack://plant")))
    Traceback (most recent call last):
    ...
    cometad.errors.ParameterError: Unknown receiver 'slack'. Available: webhook+http, ...
    """
    scheme = destination.address.scheme
    if scheme not in NOTIFIERS:
        raise unknown("receiver", scheme, [*NOTIFIERS, *SCORE_WRITERS])
    return NOTIFIERS[scheme](destination)

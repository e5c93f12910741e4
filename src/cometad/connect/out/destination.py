"""The destination of events or scores, from a `[[notify]]` table of `cometad.toml`."""

import os
import re
from dataclasses import dataclass, field

from cometad.connect.address import Address
from cometad.connect.out.templates import MessageTemplate
from cometad.errors import ParameterError

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

    def secret(self) -> str | None:
        """The key that signs messages, if there is one."""
        return self.from_variable(self.secret_variable, self.name)

    def filled_headers(self) -> dict[str, str]:
        """The headers, with the values of environment variables in them."""

        def value(match: re.Match[str]) -> str:
            return self.from_variable(match[1], self.name) or ""

        return {name: _VARIABLE.sub(value, text) for name, text in self.headers.items()}

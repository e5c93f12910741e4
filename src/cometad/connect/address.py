"""The address of a source: a URL and a few options, from `cometad.toml` or the command line."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from cometad.data.resample import parse_period
from cometad.errors import ParameterError, unknown

SHOWN = 80  # characters of a URL in a message


class Option(NamedTuple):
    """An option of a connector: its text unless given, and how to read it; a bad text raises `ParameterError`."""

    default: str = ""
    read: Callable[[str], Any] = str


def choice(what: str, known: Iterable[str], default: str) -> Option:
    """An option with a few known values; `what` says in the error message what they are."""

    def read(text: str) -> str:
        if text != default and text not in known:
            raise unknown(what, text, known)
        return text

    return Option(default, read)


def keyword(known: Sequence[str], refusal: str) -> Option:
    """An option with a few known values, the first being the default.

    `refusal` is the error message for any other value, with `{}` where that value goes.
    """

    def read(text: str) -> str:
        if text not in known:
            raise ParameterError(refusal.format(repr(text)))
        return text

    return Option(known[0], read)


def whole_number(most: int, refusal: str, default: str = "") -> Option:
    """An option with a whole number from 1 to `most`; None if it is not given and has no default.

    `refusal` is the error message for any other text, with `{}` where that text goes.
    """

    def read(text: str) -> int | None:
        if not text and not default:
            return None
        if not (text.isascii() and text.isdigit() and 1 <= int(text) <= most):
            raise ParameterError(refusal.format(repr(text)))
        return int(text)

    return Option(default, read)


def seconds_of(text: str | None) -> float | None:
    """The seconds of a period such as 15s."""
    return parse_period(text) / 1e6 if text else None


@dataclass(frozen=True)
class Address:
    """A source: its URL, the stream its readings belong to, and how to read them.

    `stream` may be omitted if the messages name their streams. With `tags`, each variable arrives separately, from its
    own topic, node or query; the values are aligned to a grid with one reading per `period`. A password is never part
    of the file or of a command: `password_variable` names the environment variable that holds it.
    """

    url: str
    stream: str | None = None
    tags: dict[str, str] = field(default_factory=dict)  # variable: topic, node or query
    period: str | None = None  # such as 1s
    given_name: str | None = None
    user: str | None = None
    password_variable: str | None = None
    options: dict[str, str] = field(default_factory=dict)  # of the connector

    def __post_init__(self) -> None:
        if not self.parts.scheme:
            raise ParameterError(f"{self.shown!r} is not a URL. Write something like mqtt://host/topic.")
        if self.parts.password is not None:
            raise ParameterError(
                "The URL contains a password. Remove it, and name the environment variable that holds it with "
                "password_variable or --password-variable."
            )
        if self.period is not None:
            parse_period(self.period)

    @property
    def parts(self) -> SplitResult:
        try:
            parts = urlsplit(self.url, allow_fragments=False)  # in MQTT, # is a wildcard
            _ = parts.port  # raises ValueError if it is not a port
        except ValueError as error:
            problem = f"{self.shown!r} is not a URL: {error}. Write something like mqtt://host/topic."
            raise ParameterError(problem) from error
        return parts

    @property
    def shown(self) -> str:
        """The URL for messages, without its query and without a password."""
        scheme, slashes, rest = self.url.partition("?")[0].partition("://")
        place, slash, path = rest.partition("/")
        user, at, host = place.rpartition("@")
        plain = f"{scheme}{slashes}{user.partition(':')[0]}{at}{host}{slash}{path}"
        return plain if len(plain) <= SHOWN else f"{plain[: SHOWN - 3]}..."

    @property
    def name(self) -> str:
        if self.given_name:
            return self.given_name
        plain = f"{self.scheme}-{self.host}-{self.parts.port or ''}-{self.path}-{self.stream or ''}"
        return "-".join("".join(c if (c.isascii() and c.isalnum()) or c in "._" else " " for c in plain).split())[:100]

    @property
    def scheme(self) -> str:
        return self.parts.scheme

    @property
    def host(self) -> str:
        return self.parts.hostname or ""

    def port(self, default: int) -> int:
        return self.parts.port or default

    @property
    def path(self) -> str:
        return unquote(self.parts.path.removeprefix("/"))

    @property
    def _given(self) -> dict[str, str]:
        """The options of the connector: those in the query of the URL go first."""
        query = dict(parse_qsl(self.parts.query, keep_blank_values=True))
        return query | self.options | query

    def option(self, name: str, default: str) -> str:
        """An option of the connector: from the query of the URL, or from the file."""
        return self._given.get(name, default)

    def check_options(self, known: Iterable[str]) -> None:
        for name in self._given:
            if name not in known:
                raise unknown(f"option of {self.scheme}", name, known)

    def read_options(self, known: Mapping[str, Option]) -> dict[str, Any]:
        """The values of all options of the connector; refuses others."""
        self.check_options(known)
        return {name: one.read(self.option(name, one.default)) for name, one in known.items()}

    @property
    def username(self) -> str | None:
        return self.user or (None if self.parts.username is None else unquote(self.parts.username))

    @property
    def password(self) -> str | None:
        if self.password_variable is None:
            return None
        found = os.environ.get(self.password_variable)
        if found is None:
            raise ParameterError(
                f"The environment variable {self.password_variable!r} with the password is not set. Set it first."
            )
        return found

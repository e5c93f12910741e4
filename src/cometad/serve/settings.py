"""How the service is configured: flags, then environment variables, then `cometad.toml`."""

import ipaddress
import os
import tomllib
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict, SettingsError

from cometad.connect.address import Address
from cometad.connect.out.message import MessageTemplate
from cometad.connect.out.notifier import JSON, Destination
from cometad.errors import ParameterError, unknown
from cometad.serve.models import NAME, BudgetOf

FILE = Path("cometad.toml")
PREFIX = "COMETAD_SERVE_"
LISTS = ("connect", "notify")  # tables of their own in the file

Label = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]


class ConnectSettings(BaseModel):
    """A source of readings; docs/connect.md says what each kind of URL needs."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    url: Annotated[str, Field(max_length=4000)]
    name: Annotated[str, Field(pattern=NAME)] | None = None
    stream: Annotated[str, Field(pattern=NAME)] | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    period: str | None = None
    user: str | None = None
    password_variable: str | None = None
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)

    @property
    def address(self) -> Address:
        options = {name: _as_text(value) for name, value in self.options.items()}
        return Address(
            self.url, self.stream, self.tags, self.period, self.name, self.user, self.password_variable, options
        )


def _as_text(value: str | int | float | bool) -> str:
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


class NotifySettings(BaseModel):
    """A receiver of events, or of scores by remote write; docs/notify.md describes each kind of URL."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    name: Annotated[str, Field(pattern=NAME)]
    url: Annotated[str, Field(max_length=4000)] | None = None
    url_variable: str | None = None  # environment variable with the URL, if it is secret
    streams: list[str] = Field(default_factory=lambda: ["*"])  # names, or patterns such as pump-*
    # The mark of this receiver; an event below the mark of its stream is a notice, and never sent.
    alert_from: Annotated[float, Field(ge=0, le=1, validation_alias=AliasChoices("alert_from", "min_severity"))] = 0.0
    template: Annotated[str, Field(max_length=100_000)] | None = None
    template_file: Path | None = None
    content_type: Annotated[str, Field(max_length=200, pattern=r"^[\x20-\x7e]+$")] = JSON
    secret_variable: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    labels: dict[Label, str] = Field(default_factory=dict)
    user: str | None = None
    password_variable: str | None = None
    timeout: Annotated[float, Field(gt=0, le=300)] = 10.0  # seconds
    max_age_hours: Annotated[float, Field(gt=0)] | None = None  # older events are not sent
    give_up_hours: Annotated[float, Field(gt=0, le=8760)] = 24.0

    @model_validator(mode="after")
    def _one_of_each(self) -> "NotifySettings":
        if (self.url is None) == (self.url_variable is None):
            raise ValueError("give either url or url_variable")
        if self.template is not None and self.template_file is not None:
            raise ValueError("give either template or template_file")
        return self

    def wants(self, stream: str, severity: float | None = None) -> bool:
        """Whether the receiver gets alerts of this stream and severity."""
        if severity is not None and severity < self.alert_from:
            return False
        return any(fnmatchcase(stream, pattern) for pattern in self.streams)

    def is_old(self, stop_at: float | None, now: float) -> bool:
        """Whether an event whose last reading has this time is too old to send."""
        return self.max_age_hours is not None and stop_at is not None and stop_at < now - 3600 * self.max_age_hours

    def destination(self) -> Destination:
        url = Destination.from_variable(self.url_variable, self.name) if self.url is None else self.url
        address = Address(url or "", given_name=self.name, user=self.user, password_variable=self.password_variable)
        return Destination(
            self.name,
            address,
            self._template(is_text=address.scheme.startswith("alertmanager+")),
            self.content_type,
            self.secret_variable,
            self.headers,
            self.labels,
            self.timeout,
        )

    def _template(self, is_text: bool) -> MessageTemplate | None:
        source = self.template
        if self.template_file is not None:
            try:
                source = self.template_file.read_text("utf-8")
            except (OSError, ValueError) as error:
                raise ParameterError(
                    f"Cannot read '{self.template_file}', the template of the receiver {self.name!r}: {error}."
                ) from error
        if source is None:
            return None
        return MessageTemplate(source, self.name, json_wanted=self.content_type == JSON and not is_text)


class Settings(BaseSettings):
    """Where the service listens, what it keeps, and what clients may send.

    `cometad.toml` has these names in its table `[serve]`; the environment has them as `COMETAD_SERVE_PORT` and so on.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", hide_input_in_errors=True)

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8080
    data_dir: Path = Path("cometad-data")
    database: str | None = None  # a PostgreSQL URL; default: SQLite in the data folder
    fleet: Path | None = None  # folder of a fleet whose entities become streams with their first readings
    alerts: Annotated[BudgetOf | None, NoDecode] = None  # budget of streams that name none, such as "3/day"
    keep_readings_days: Annotated[float, Field(gt=0, le=36_500)] = 30.0
    keep_scores_days: Annotated[float, Field(gt=0, le=36_500)] = 365.0
    keep_gigabytes: Annotated[float, Field(gt=0, le=1e6)] = 20.0
    max_streams: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    max_detectors: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    max_body_mib: Annotated[float, Field(gt=0, le=1024)] = 16.0  # of readings and other requests
    max_upload_mib: Annotated[float, Field(gt=0, le=16_384)] = 512.0  # of detectors and of series to fit on
    max_requests_per_second: Annotated[float, Field(gt=0)] = 2000.0  # of one client
    log_format: Annotated[str, Field(pattern="^(json|text)$")] = "text"
    public_url: Annotated[str, Field(max_length=1000, pattern=r"^https?://[^\s?#]+$")] | None = None  # for links
    max_stream_series: Annotated[int, Field(ge=0)] = 5000  # streams with figures of their own at /metrics
    connect: list[ConnectSettings] = Field(default_factory=list)  # tables [[connect]] of the file
    notify: list[NotifySettings] = Field(default_factory=list)  # tables [[notify]] of the file

    @property
    def is_local(self) -> bool:
        return is_loopback(self.host)


def load_settings(file: Path | None = None, **flags: Any) -> Settings:
    """The settings from flags, the environment and a file; a bad one is refused in one sentence."""
    for variable in os.environ:
        name = variable.removeprefix(PREFIX).lower()
        if variable.startswith(PREFIX) and name not in Settings.model_fields:
            raise unknown("environment variable", variable, [PREFIX + name.upper() for name in Settings.model_fields])
    given = {name: value for name, value in flags.items() if value is not None}
    from_file = _from_file(file)
    try:
        chosen = Settings(**given)  # what flags and the environment say
        rest = {name: value for name, value in from_file.items() if name not in chosen.model_fields_set}
        return Settings(**given, **rest)
    except SettingsError as error:  # a list that is not JSON; the message does not show it
        raise ParameterError(f'Cannot read the environment: {error}. Write lists like ["name"].') from error
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]) or "settings"
        problem = "it is not known" if first["type"] == "extra_forbidden" else first["msg"]
        raise ParameterError(f"Cannot use the setting {name!r}: {problem}.") from error


def _from_file(file: Path | None) -> dict[str, Any]:
    path = file or FILE
    if not path.exists():
        if file is not None:
            raise ParameterError(f"There is no file '{file}'. Leave out --config, or name an existing file.")
        return {}
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ParameterError(f"Cannot read '{path}': {error}. Correct it; it is written in TOML.") from error
    for name in found:
        if name in Settings.model_fields and name not in LISTS:
            raise ParameterError(f"In '{path}', {name} is outside of the table [serve]. Move it into that table.")
        if name not in ("serve", *LISTS):
            raise unknown(f"table in '{path}'", name, ("serve", *LISTS))
    table = found.get("serve", {})
    if not isinstance(table, dict):
        raise ParameterError(f"In '{path}', serve is not a table. Write [serve] above its settings.")
    for name in LISTS:
        if name in found and not isinstance(found[name], list):
            raise ParameterError(f"In '{path}', {name} is not a list of tables. Write [[{name}]] above each.")
    return table | {name: found[name] for name in LISTS if name in found}


def address(host: str, port: int) -> str:
    """The URL of the service; one that listens everywhere is also on this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@lru_cache(256)  # every request asks
def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

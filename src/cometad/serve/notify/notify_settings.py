"""Settings of receivers of events and scores: the `[[notify]]` tables of `cometad.toml`."""

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from cometad.connect.address import Address
from cometad.connect.out.message import MessageTemplate
from cometad.connect.out.notifier import JSON, Destination
from cometad.errors import ParameterError
from cometad.serve.models import NAME

Label = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]


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

"""Message templates: sandboxed jinja2, validated with an example at startup."""

import json
from dataclasses import dataclass

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from cometad.connect.out.message import EXAMPLE, EventMessage, moment_of
from cometad.errors import ParameterError

_ENVIRONMENT = SandboxedEnvironment(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=False)
_ENVIRONMENT.filters["time"] = moment_of


@dataclass(frozen=True)
class MessageTemplate:
    """A template for the messages of a receiver; its variables are the fields of an `EventMessage`."""

    source: str
    receiver: str
    json_wanted: bool = False

    def __post_init__(self) -> None:
        try:
            text = self._rendered(EXAMPLE)
        except Exception as error:  # a template can fail in any way Python can
            problem = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            raise ParameterError(
                f"The template of the receiver {self.receiver!r} is invalid: {problem}. Correct it."
            ) from error
        if self.json_wanted and not _is_json(text):
            raise ParameterError(
                f"The template of the receiver {self.receiver!r} does not produce JSON. Write strings as "
                "{{ message | tojson }}, or set content_type."
            )

    def text(self, message: EventMessage) -> str:
        """The message about an event; falls back to the default if the template fails."""
        try:
            return self._rendered(message)
        except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError):
            return json.dumps(message.content) if self.json_wanted else message.text

    def _rendered(self, message: EventMessage) -> str:
        return _ENVIRONMENT.from_string(self.source).render(message.content)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True

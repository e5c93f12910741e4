"""Message templates: sandboxed jinja2, validated with an example at startup."""

import json
from dataclasses import dataclass

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from cometad.connect.out.notice import EXAMPLE, Notice, moment_of
from cometad.errors import ParameterError

_ENVIRONMENT = SandboxedEnvironment(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=False)
_ENVIRONMENT.filters["time"] = moment_of


@dataclass(frozen=True)
class MessageTemplate:
    """A template for the messages of a receiver; its variables are the fields of a `Notice`.

    >>> from cometad.connect.out.notice import EXAMPLE
    >>> from cometad.connect.out.templates import MessageTemplate
    >>> MessageTemplate("{{ stream }} {{ change }} at {{ start_time | time }}", "chat").text(EXAMPLE)
    'example opened at 2026-03-01T12:00:00Z'
    >>> MessageTemplate("{{ pump }}", "chat")
    Traceback (most recent call last):
    ...
    cometad.errors.ParameterError: The template of the receiver 'chat' is invalid: 'pump' is undefined. Correct it.
    """

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

    def text(self, notice: Notice) -> str:
        """The message about an event; falls back to the default if the template fails."""
        try:
            return self._rendered(notice)
        except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError):
            return json.dumps(notice.content) if self.json_wanted else notice.message

    def _rendered(self, notice: Notice) -> str:
        return _ENVIRONMENT.from_string(self.source).render(notice.content)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True

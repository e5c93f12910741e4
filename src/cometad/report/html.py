"""HTML pages from the templates and the stylesheet in this folder."""

import re
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from cometad.report.axes import format_number

_UNBROKEN = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d[\d:.]*)?|\d[\d.,]* (?:min|h|days?|s|%)(?!\w)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # not tabs and line feeds


def render(template: str, **context: object) -> str:
    r"""Render a template by its file name; the same context gives the same text.

    Text in the context is escaped; wrap existing HTML in `markupsafe.Markup`. Control characters, which names of
    variables may hold, are shown like \x1b. A name that is missing from the context is an error. Pages extend
    base.html, which needs a `title`.
    """
    text = _environment().get_template(template).render(context)
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("cometad.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["stylesheet"] = Markup(files("cometad.report").joinpath("style.css").read_text("utf-8"))
    environment.filters |= {"number": format_number, "rounded": rounded, "unbroken": _unbroken}
    return environment


def _unbroken(words: str) -> Markup:
    """Text without line breaks inside a time or between a number and its unit."""
    return Markup(_UNBROKEN.sub(lambda match: f'<span class="unbroken">{match.group()}</span>', str(escape(words))))


def rounded(value: float) -> str:
    """A coordinate to a tenth, in as few characters as possible."""
    return f"{round(value, 1) + 0.0:g}" if abs(value) < 1e5 else f"{value:.0f}"

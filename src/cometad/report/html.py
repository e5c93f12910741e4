"""HTML pages from the templates and the stylesheet in this folder."""

from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def render(template: str, **context: object) -> str:
    """Fill in a template by its file name; the same context gives the same text.

    Text in the context is escaped; pass `markupsafe.Markup` for what is HTML already. A name that the template needs
    and the context lacks is an error. Pages extend base.html, which needs `title`.

    >>> from cometad.report.html import render
    >>> page = render("base.html", title="Pumps & valves")
    >>> page.startswith("<!doctype html>"), "<title>Pumps &amp; valves</title>" in page
    (True, True)
    """
    return _environment().get_template(template).render(context)


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
    return environment

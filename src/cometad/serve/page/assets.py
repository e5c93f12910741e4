"""The dashboard: its HTML, and the files that the HTML refers to."""

from functools import cache
from importlib.resources import files
from typing import NamedTuple

from cometad.report.html import render

# In the order of loading: app.js imports all other modules.
MODULES = (
    *("app.js", "api.js", "live.js", "store.js", "dom.js", "format.js", "forms.js", "spark.js", "chart.js"),
    *(
        "score_chart.js",
        "variables.js",
        "event_table.js",
        "marks.js",
        "fleet.js",
        "stream.js",
        "stream_form.js",
        "stream_settings.js",
        "event.js",
    ),
    *("events.js", "detectors.js", "start.js", "sign_in.js"),
)
STYLESHEETS = ("uplot/uPlot.min.css", "dashboard.css")
SCRIPTS = ("uplot/uPlot.iife.min.js",)
OTHERS = ("favicon.svg", "uplot/LICENSE")
MEDIA_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".ico": "image/x-icon",
    "": "text/plain; charset=utf-8",
}


class StaticFile(NamedTuple):
    content: bytes
    media_type: str


def page() -> str:
    """The HTML of the dashboard, which is the same for every visitor: its scripts fetch everything else."""
    return render(
        "dashboard.html",
        title="cometad",
        stylesheets=_addresses(STYLESHEETS),
        modules=_addresses(MODULES[1:]),
        scripts=_addresses(SCRIPTS),
        start=_addresses(MODULES)[0],
    )


@cache
def static_files() -> dict[str, StaticFile]:
    named = {f"/page/{name}": _static_file(name) for name in (*MODULES, *STYLESHEETS, *SCRIPTS, *OTHERS)}
    return named | {"/favicon.ico": _static_file("favicon.ico")}


def _addresses(names: tuple[str, ...]) -> list[str]:
    return [f"page/{name}" for name in names]


def _static_file(name: str) -> StaticFile:
    suffix = name[name.rindex(".") :] if "." in name else ""
    return StaticFile(files("cometad.serve.page").joinpath(name).read_bytes(), MEDIA_TYPES[suffix])

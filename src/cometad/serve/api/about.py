"""About the service: is it well, what may a client do, what it measures; the demo plant; and the dashboard."""

from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import PurePosixPath

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from cometad.report.html import render
from cometad.serve.api.guards import Refused, ServiceOf, answers, may, scopes_of
from cometad.serve.models import DemoState, Health, Problem, SessionInfo

PAGE = files("cometad.serve") / "page"  # HTML, JavaScript modules, one chart library
START = "app.js"  # imports all other modules
MODULES = sorted({file.name for file in PAGE.iterdir() if file.name.endswith(".js")} - {START, "types.js"})
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
FRESH = {"cache-control": "no-cache"}  # a browser asks again after an upgrade

router = APIRouter(tags=["service"])
demo = APIRouter(prefix="/v1/demo", tags=["demo"], dependencies=[may("write")])
pages = APIRouter(include_in_schema=False)


@router.get("/healthz")
def healthz() -> Health:
    """Whether the process answers."""
    return Health(status="ok")


@router.get("/readyz", responses={503: {"model": Problem}})
def readyz(service: ServiceOf) -> Health:
    """Whether the service takes readings: streams are open, and the database can be written to."""
    if not service.ready:
        raise Refused(503, "The streams are being opened. Try again in a moment.", {"Retry-After": "1"})
    if service.recorder.problem is not None:
        raise Refused(503, service.recorder.problem, {"Retry-After": "5"})
    return Health(status="ready", details={"streams": service.count_streams(), "unscored": service.scorer.unscored})


@router.get("/metrics", responses=answers(), dependencies=[may("read")], response_class=Response)
def metrics(service: ServiceOf) -> Response:
    """Figures in the text format of Prometheus."""
    return Response(service.figures.page(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/v1/session", responses=answers(), dependencies=[may("read")])
def session(request: Request, service: ServiceOf) -> SessionInfo:
    """What this client may do, and what there is."""
    return SessionInfo(
        version=version("cometad"),
        tokens=service.tokens.any,
        scopes=list(scopes_of(request)),
        streams=service.count_streams(),
        detectors=len(service.detectors.all()),
    )


@demo.post("", status_code=202, responses=answers(409))
def start_demo(service: ServiceOf) -> DemoState:
    """Fit a demo plant and feed its stream, faults included."""
    return service.demo.start()


@demo.delete("", responses=answers())
def stop_demo(service: ServiceOf) -> DemoState:
    """Stop the feed; the stream and its events stay."""
    return service.demo.stop()


@pages.get("/", response_class=HTMLResponse)
def index() -> HTMLResponse:
    """The dashboard, the same for every visitor: its scripts fetch everything else."""
    names = {"stylesheets": STYLESHEETS, "modules": MODULES, "scripts": SCRIPTS}
    loaded = {kind: [f"page/{name}" for name in found] for kind, found in names.items()}
    return HTMLResponse(render("dashboard.html", title="cometad", start=f"page/{START}", **loaded), headers=FRESH)


@pages.get("/favicon.ico")
@pages.get("/page/{name:path}")
def page_file(request: Request) -> Response:
    """A file of the page."""
    path = request.url.path
    content = static_files().get(path)
    if content is None:
        raise Refused(404, "There is no such file.")
    return Response(content, media_type=MEDIA_TYPES[PurePosixPath(path).suffix], headers=FRESH)


@cache
def static_files() -> dict[str, bytes]:
    names = (START, *MODULES, *STYLESHEETS, *SCRIPTS, *OTHERS)
    found = {f"/page/{name}": PAGE.joinpath(name).read_bytes() for name in names}
    return found | {"/favicon.ico": PAGE.joinpath("favicon.ico").read_bytes()}

"""The dashboard: one page and its files."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from cometad.serve.api.common import Refused
from cometad.serve.page.assets import page, static_files

router = APIRouter(include_in_schema=False)
FRESH = {"cache-control": "no-cache"}  # a browser asks again after an upgrade


@router.get("/", response_class=HTMLResponse)
def index() -> HTMLResponse:
    """The page."""
    return HTMLResponse(page(), headers=FRESH)


@router.get("/favicon.ico")
@router.get("/page/{name:path}")
def page_file(request: Request) -> Response:
    """A file of the page."""
    file = static_files().get(request.url.path)
    if file is None:
        raise Refused(404, "There is no such file.")
    return Response(file.content, media_type=file.media_type, headers=FRESH)

"""The application: routes, guards, and refusals in one sentence."""

from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from cometad.connect.contract import Busy, UnknownStream
from cometad.errors import CometadError, InputError, ModelFileError, ParameterError
from cometad.serve.api import detectors, events, health, live, pages, readings, streams, trial
from cometad.serve.api.common import Refused
from cometad.serve.api.guards import Guards
from cometad.serve.service import Conflict, Missing, Service
from cometad.serve.storage.store import StorageError

STATUS: dict[type[CometadError], int] = {
    Missing: 404,
    UnknownStream: 404,
    Conflict: 409,
    InputError: 422,
    ParameterError: 422,
    ModelFileError: 422,
    StorageError: 503,
}
RESOURCES = (readings, streams, events, detectors, live, trial, health, pages)


def make_app(service: Service) -> FastAPI:
    """The application of a service that was started; whoever starts it stops it."""
    app = FastAPI(
        title="cometad",
        version=version("cometad"),
        description="Finds anomalies in multivariate time series, live.",
        docs_url=None,  # these pages load their scripts from elsewhere
        redoc_url=None,
    )
    app.state.service = service
    for resource in RESOURCES:
        app.include_router(resource.router)
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(Busy, _busy)
    app.add_exception_handler(CometadError, _cometad_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    rate = service.settings.max_requests_per_second
    app.add_middleware(Guards, tokens=service.tokens, per_second=rate, figures=service.figures)
    return app


def _answer(status: int, sentence: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": sentence}, status, headers)


async def _refused(_: Request, error: Any) -> JSONResponse:
    return _answer(error.status, str(error), error.headers)


async def _busy(_: Request, error: Any) -> JSONResponse:
    return _answer(429, str(error), {"Retry-After": str(error.seconds)})


async def _cometad_error(_: Request, error: Any) -> JSONResponse:
    status = next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)
    return _answer(status, str(error), {"Retry-After": "5"} if status == 503 else None)


async def _invalid(_: Request, error: Any) -> JSONResponse:
    """One sentence for the first thing that is wrong with a request."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path")) or "The body"
    message = str(first["msg"]).removeprefix("Value error, ")
    return _answer(422, f"{place}: {message.rstrip('.')}.")


async def _http(_: Request, error: Any) -> JSONResponse:
    return _answer(error.status_code, f"{str(error.detail).rstrip('.')}.", error.headers)

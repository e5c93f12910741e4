"""The application: routes, guards, and refusals in one sentence."""

from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from cometad.connect.contract import Busy, Elsewhere, UnknownStream
from cometad.errors import CometadError, InputError, ModelFileError, OutputError, ParameterError
from cometad.serve.api import about, detector_routes, live, outside, reading_routes, streams
from cometad.serve.api.guards import Guards, Refused, refusal
from cometad.serve.members import Fenced, Moved
from cometad.serve.service import Service
from cometad.serve.storage.store import StorageError
from cometad.serve.stored_detectors import Conflict, Missing

STATUS: dict[type[CometadError], int] = {
    Busy: 429,
    Missing: 404,
    UnknownStream: 404,
    Conflict: 409,
    Elsewhere: 409,
    InputError: 422,
    ParameterError: 422,
    ModelFileError: 422,
    OutputError: 503,
    StorageError: 503,
    Fenced: 503,
    Moved: 503,
}
# What to do about a problem, in terms of requests; errors.py has the same advice for Python users.
ADVICE = {
    "no period": 'Give the stream a period, such as "1s", or write the budget as {"alerts": 1, "per": 1000}.',
    "no gap rule": "Fit the detector with a gap rule, such as gaps=forward-fill:5, or do not resample.",
    "day or month": "Write times like 2024-03-01T04:10:00Z, or as seconds since 1970.",
    "two time fields": "Send the date and the time of day in one field.",
    "decimal": "Write numbers without thousands separators and with one decimal mark.",
    "no header": "Put a header with the column names above it.",
}
ROUTERS = (
    reading_routes.router,
    streams.router,
    streams.events,
    detector_routes.router,
    outside.deliveries,
    outside.connections,
    live.router,
    about.demo,
    about.router,
    about.pages,
)


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
    for router in ROUTERS:
        app.include_router(router)
    app.add_exception_handler(CometadError, _cometad_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _bug)
    app.add_middleware(Guards, service=service)
    return app


async def _cometad_error(_: Request, error: Any) -> JSONResponse:
    if isinstance(error, Refused):
        return refusal(error.status, str(error), error.headers)
    status = next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)
    sentence = f"{error.problem} {ADVICE[error.advice]}" if error.advice in ADVICE else str(error)
    return refusal(status, sentence, {"Retry-After": str(getattr(error, "seconds", 5))} if status in (429, 503) else {})


async def _invalid(_: Request, error: Any) -> JSONResponse:
    """One sentence for the first thing that is wrong with a request."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
    if first["type"] == "json_invalid":
        return refusal(422, "The body is not JSON. Correct it and send it again.")
    if not place:
        return refusal(422, "The body is not a JSON object. Send one, as application/json.")
    message = str(first["msg"]).removeprefix("Value error, ")
    return refusal(422, f"{place}: {message.rstrip('.')}.")


async def _bug(_: Request, __: Any) -> JSONResponse:
    return refusal(500, "This is a bug in cometad, not your mistake. The log of the service has the details.")


async def _http(_: Request, error: Any) -> JSONResponse:
    return refusal(error.status_code, f"{str(error.detail).rstrip('.')}.", error.headers)

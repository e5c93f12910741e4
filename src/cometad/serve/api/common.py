"""Shared by the routes: the service, permissions, bodies within bounds, times in queries."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request
from starlette.responses import JSONResponse

from cometad.errors import CometadError, InputError
from cometad.serve.live_stream import EVER
from cometad.serve.models import EVENT, NAME, Problem
from cometad.serve.service import Service
from cometad.serve.tokens import Scope

BEARER = "bearer "


class Refused(CometadError):
    """A request that is refused with a status."""

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        self.status, self.headers = status, headers or {}
        super().__init__(sentence)


def refusal(status: int, sentence: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """The answer to a refused request."""
    return JSONResponse({"error": sentence}, status, headers)


def service_of(request: Request) -> Service:
    """The service behind the API."""
    service: Service = request.app.state.service
    return service


ServiceOf = Annotated[Service, Depends(service_of)]
StreamName = Annotated[str, Path(pattern=NAME, description="Name of the stream.")]
DetectorName = Annotated[str, Path(pattern=NAME, description="Name of the detector.")]
EventName = Annotated[str, Path(pattern=EVENT, description="Id of the event.")]


def scopes_of(request: Request) -> tuple[Scope, ...]:
    """What the sender of a request may do."""
    given = request.headers.get("authorization")
    secret = given[len(BEARER) :].strip() if given and given.lower().startswith(BEARER) else None
    return service_of(request).tokens.scopes(secret)


def may(scope: Scope) -> Any:
    """A dependency that refuses requests without a token of this scope, once there is any token."""

    def check(request: Request) -> None:
        scopes = scopes_of(request)
        if not scopes:
            wanted = {"WWW-Authenticate": "Bearer"}
            raise Refused(401, "Send a token: Authorization: Bearer TOKEN. Create one with cometad token.", wanted)
        if scope not in scopes:
            raise Refused(403, f"This needs a token with the scope {scope}. Create one with cometad token.")

    return Depends(check)


def answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The refusals of a route, for the schema."""
    always = (400, 401, 403, 413, 422, 429, 503)
    return {status: {"model": Problem} for status in sorted({*always, *statuses})}


async def read_body(request: Request, most: float) -> bytes:
    """The body of a request; a larger one is refused as soon as that is known."""
    most_bytes = int(most * 2**20)
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > most_bytes:
        raise _too_large(most)
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most_bytes:
            raise _too_large(most)
        parts.append(part)
    return b"".join(parts)


def _too_large(most: float) -> Refused:
    return Refused(413, f"The body is larger than {most:g} MiB. Send it in parts.")


def media_type(request: Request) -> str:
    """The media type of the body, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def moment(text: str | None, default: float) -> float:
    """A time in a query: seconds since 1970, or ISO 8601."""
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        if not abs(number) <= EVER:
            raise InputError(f"The time {text!r} is out of range.")
        return number
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise InputError(
            f"Cannot read the time {text!r}. Write it like 2026-03-01T12:00:00Z, or as seconds since 1970."
        ) from error


From = Annotated[str | None, Query(alias="from", max_length=40, description="Seconds since 1970, or ISO 8601.")]
To = Annotated[str | None, Query(alias="to", max_length=40, description="Seconds since 1970, or ISO 8601.")]

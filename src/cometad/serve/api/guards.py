"""What every request passes: is it for us, from where, what may its sender do, how large is it, are there too many.

Also what routes share: the names in their paths, times in queries, and refusals.
"""

import asyncio
import math
import time
from collections import OrderedDict
from datetime import UTC, datetime
from typing import Annotated, Any

import structlog
from fastapi import Depends, Path, Query, Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope

from cometad.errors import CometadError, InputError
from cometad.serve.live_stream import EVER
from cometad.serve.models import EVENT, NAME, Problem
from cometad.serve.service import Service
from cometad.serve.settings import is_loopback
from cometad.serve.storage.store import StorageError
from cometad.serve.tokens import Scope, Tokens

BEARER = "bearer "
MOST_CLIENTS = 10_000  # remembered for their rates
SMALL_BODY = 64 * 1024  # bytes: of requests that are read before the token is looked at
BURST = 2.0  # seconds of requests that may come at once
UPLOADS = "/v1/detectors/"  # these routes have a bound of their own
MOMENT = "Seconds since 1970, or ISO 8601."
SAFE = ("GET", "HEAD", "OPTIONS")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}

_log = structlog.get_logger("cometad.serve")


class Guards:
    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._tokens, self._figures = app, service.tokens, service.figures
        self._most_bytes = service.settings.max_body_mib * 2**20
        self._rates = Rates(service.settings.max_requests_per_second)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on; log and count it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status, taken, most = time.monotonic(), 500, 0, self._most(scope["path"])

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if scope["path"].startswith("/v1"):
                    headers.setdefault("cache-control", "no-store")
            await send(message)

        async def receive_bounded() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > most:
                raise HTTPException(413, "The body is too large. Send it in parts")
            return message

        try:
            refused = await self._refused(scope)
            await (refused or self._app)(scope, receive_bounded, send_guarded)
        finally:
            self._figures.count("requests", str(status))
            # Neither headers nor queries: they may hold secrets.
            _log.info(
                "request",
                method=scope["method"],
                path=scope["path"],
                status=status,
                ms=round(1000 * (time.monotonic() - begun), 1),
            )

    def _most(self, path: str) -> float:
        """How large a body may be; those of uploads are checked where they are read, after the token."""
        if path.startswith(UPLOADS):
            return math.inf
        return self._most_bytes if path.endswith("/readings") else min(self._most_bytes, SMALL_BODY)

    async def _refused(self, scope: AsgiScope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        if not is_loopback(_host(headers.get("host", ""))):
            # A web page elsewhere may have made its own name lead to this machine. It cannot know a token.
            try:
                safe = await asyncio.to_thread(lambda: self._tokens.any)
            except StorageError as error:
                return refusal(503, str(error), {"Retry-After": "5"})
            if not safe:
                return refusal(400, "Without a token, only requests for 127.0.0.1 or localhost are answered.")
        if scope["method"] not in SAFE and not _same_origin(headers):
            return refusal(403, "Requests from other web pages are refused.")
        wait = self._rates.wait(scope["client"][0] if scope.get("client") else "")
        if wait:
            return refusal(429, "Too many requests. Send more readings per request.", {"Retry-After": str(wait)})
        return None


class Rates:
    """Token buckets by client."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # requests left, and when

    def wait(self, client: str, now: float | None = None) -> int:
        """Seconds that a client has to wait; 0 if it may go on, which is counted."""
        now = time.monotonic() if now is None else now
        full = max(BURST * self._per_second, 1.0)
        left, when = self._left.pop(client, (full, now))
        left = min(full, left + (now - when) * self._per_second)
        allowed = left >= 1
        self._left[client] = (left - 1 if allowed else left, now)
        if len(self._left) > MOST_CLIENTS:
            self._left.popitem(last=False)
        return 0 if allowed else max(1, round((1 - left) / self._per_second))


def _host(header: str) -> str:
    name = header.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0]


def _same_origin(headers: Headers) -> bool:
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in ("same-origin", "none"):
        return False
    return origin is None or origin.partition("://")[2] == headers.get("host", "")


# -- for routes --------------------------------------------------------------------------------------------------------


class Refused(CometadError):
    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        self.status, self.headers = status, headers or {}
        super().__init__(sentence)


def refusal(status: int, sentence: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": sentence}, status, headers)


async def service_of(request: Request) -> Service:  # not in a thread, as plain functions are
    service: Service = request.app.state.service
    return service


ServiceOf = Annotated[Service, Depends(service_of)]
StreamName = Annotated[str, Path(pattern=NAME, description="Name of the stream.")]
DetectorName = Annotated[str, Path(pattern=NAME, description="Name of the detector.")]
EventName = Annotated[str, Path(pattern=EVENT, description="Id of the event.")]


def scopes_of(request: Request) -> tuple[Scope, ...]:
    given = request.headers.get("authorization")
    secret = given[len(BEARER) :].strip() if given and given.lower().startswith(BEARER) else None
    tokens: Tokens = request.app.state.service.tokens
    return tokens.scopes(secret)


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


async def _stretch(
    start: Annotated[str | None, Query(alias="from", max_length=40, description=MOMENT)] = None,
    stop: Annotated[str | None, Query(alias="to", max_length=40, description=MOMENT)] = None,
) -> tuple[float, float]:
    return moment(start, -EVER), moment(stop, EVER)


Stretch = Annotated[tuple[float, float], Depends(_stretch)]

"""What every request passes: is it for us, from where, and are there too many; and what every answer has."""

import asyncio
import math
import time
from collections import OrderedDict

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cometad.serve.api.common import refusal
from cometad.serve.figures import Figures
from cometad.serve.settings import is_loopback
from cometad.serve.storage.store import StorageError
from cometad.serve.tokens import Tokens

MOST_CLIENTS = 10_000  # remembered for their rates
SMALL_BODY = 64 * 1024  # bytes: of requests that are read before the token is looked at
BURST = 2.0  # seconds of requests that may come at once
UPLOADS = "/v1/detectors/"  # these routes have a bound of their own
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
    """ASGI middleware around the API."""

    def __init__(self, app: ASGIApp, tokens: Tokens, per_second: float, most_bytes: float, figures: Figures) -> None:
        self._app, self._tokens, self._figures, self._most_bytes = app, tokens, figures, most_bytes
        self._rates = Rates(per_second)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on; log and count it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = time.monotonic(), 0

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

        taken = 0

        async def receive_bounded() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._most(scope["path"]):
                raise HTTPException(413, "The body is too large. Send it in parts")
            return message

        try:
            refused = await self._refused(scope)
            await (refused or self._app)(scope, receive_bounded, send_guarded)
        finally:
            status = status or 500
            self._figures.request(status)
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

    async def _refused(self, scope: Scope) -> JSONResponse | None:
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
        client = scope["client"][0] if scope.get("client") else ""
        wait = self._rates.wait(client)
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
    """The name in a Host header, without its port."""
    name = header.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0]


def _same_origin(headers: Headers) -> bool:
    """Whether a request comes from our own page, or from no page at all."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in ("same-origin", "none"):
        return False
    return origin is None or origin.partition("://")[2] == headers.get("host", "")

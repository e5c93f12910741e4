"""Scores, events and states as they come: server-sent events."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from sse_starlette import EventSourceResponse, ServerSentEvent

from cometad.serve.api.guards import Refused, ServiceOf, answers, may, scopes_of
from cometad.serve.models import is_name
from cometad.serve.watching import MOST_LISTENERS, Box

TICK = 0.1  # seconds between messages
CHECK = 2.0  # seconds after which a revoked token is noticed
ALIVE = 15  # seconds between comments, which keep proxies from closing a quiet connection
FAREWELL = 2.0  # seconds to end a connection properly when the service stops
MOST_NAMES = 1000

router = APIRouter(prefix="/v1", tags=["live"])
_EVENTS: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {}}, "description": "Events."}}


@router.get("/live", responses=answers() | _EVENTS, dependencies=[may("read")], response_class=EventSourceResponse)
async def live(
    request: Request,
    service: ServiceOf,
    streams: Annotated[str | None, Query(max_length=100_000, description="Names, separated by commas.")] = None,
) -> EventSourceResponse:
    """Scores, events and states as they come, at most ten messages a second; slow readers get fewer."""
    box = service.listeners.join(_asked_names(streams))
    if box is None:
        raise Refused(429, f"{MOST_LISTENERS} clients are listening already. Try again later.", {"Retry-After": "10"})

    async def messages() -> AsyncIterator[ServerSentEvent]:
        try:
            due = checked = time.monotonic()
            while not getattr(request.app.state, "stopping", False):
                if due - checked > CHECK and not await asyncio.to_thread(scopes_of, request):
                    return  # the token was revoked
                checked = due if due - checked > CHECK else checked
                for message in _messages(box):
                    yield message
                due = max(due + TICK, time.monotonic())
                await asyncio.sleep(due - time.monotonic())
        finally:
            service.listeners.leave(box)

    return EventSourceResponse(
        messages(),
        ping=ALIVE,
        ping_message_factory=lambda: ServerSentEvent(comment="alive"),
        shutdown_grace_period=FAREWELL,
    )


def _messages(box: Box) -> list[ServerSentEvent]:
    scores, news = box.fetch()
    found = [ServerSentEvent(json.dumps(what), event=kind) for kind, what in news]
    if scores:
        found.append(ServerSentEvent(json.dumps({"at": time.time(), "streams": scores}), event="scores"))
    return found


def _asked_names(text: str | None) -> frozenset[str] | None:
    if not text:
        return None
    names = text.split(",")
    if len(names) > MOST_NAMES or not all(is_name(name) for name in names):
        raise Refused(422, f"Name at most {MOST_NAMES:,} streams, separated by commas.")
    return frozenset(names)

"""Readings in."""

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from cometad.connect.bodies import parse_body, parse_mixed
from cometad.connect.contract import Receipt, Refusal
from cometad.serve.api.guards import Refused, ServiceOf, StreamName, answers, may, media_type, read_body
from cometad.serve.models import ReadingsTaken, RefusedReading

FORMS = {
    "": "json",
    "application/json": "json",
    "application/x-ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "text/csv": "csv",
}
LARGE = 64 * 1024  # bytes; a larger body is parsed in a thread, so that others need not wait
SHOWN = 100  # refused readings that are listed
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {}},
            "application/x-ndjson": {"schema": {"type": "string"}},
            "text/csv": {"schema": {"type": "string"}},
        },
    }
}

router = APIRouter(prefix="/v1", tags=["readings"], dependencies=[may("write")])


@router.post(
    "/streams/{name}/readings", response_model=ReadingsTaken, responses=answers(404, 409, 415), openapi_extra=_BODY
)
async def post_readings(name: StreamName, request: Request, service: ServiceOf) -> Any:
    """Send readings of one stream; answered once they are on disk. A bad reading refuses the whole body."""
    stream = service.streams.get(name)
    if stream is None:
        stream = await asyncio.to_thread(service.opened, name)
    form = _form(request)
    body = await read_body(request, service.settings.max_body_mib)
    if len(body) > LARGE:
        batch = await asyncio.to_thread(parse_body, body, form, name, stream.layout)
    else:
        batch = parse_body(body, form, name, stream.layout)
    receipt = await service.recorder.receive([batch])
    for _, reason in receipt.elsewhere:
        raise reason
    return _receipt_answer(receipt)


@router.post("/readings", response_model=ReadingsTaken, responses=answers(415), openapi_extra=_BODY)
async def post_mixed_readings(request: Request, service: ServiceOf) -> Any:
    """Send readings of many streams, each with its field `stream`; each is accepted or refused by itself."""
    form = _form(request)
    if form == "csv":
        raise Refused(415, "Send readings of many streams as JSON or JSON lines. CSV is for a single stream.")
    body = await read_body(request, service.settings.max_body_mib)
    if len(body) > LARGE or service.fleet.entities or not service.store.is_sqlite:  # streams may have to be looked up
        batches, refused = await asyncio.to_thread(parse_mixed, body, form, service.layout)
    else:
        batches, refused = parse_mixed(body, form, service.layout)
    receipt = await service.recorder.receive(batches) if batches else Receipt()
    service.figures.received(Receipt(refused=refused))
    moved = [Refusal(line, batch.stream, str(why)) for batch, why in receipt.elsewhere for line in batch.lines]
    receipt.refused = sorted([*receipt.refused, *refused, *moved])
    return _receipt_answer(receipt)


def _form(request: Request) -> str:
    found = FORMS.get(media_type(request))
    if found is None:
        raise Refused(415, "Send application/json, application/x-ndjson or text/csv.")
    return found


def _receipt_answer(receipt: Receipt) -> ReadingsTaken | JSONResponse:
    """What became of the readings; with 422 and why if nothing was taken and something was refused."""
    shown = [RefusedReading(**one._asdict()) for one in receipt.refused[:SHOWN]]
    taken = ReadingsTaken(accepted=receipt.accepted, repeated=receipt.repeated, dropped=receipt.dropped, refused=shown)
    if receipt.refused and not (receipt.accepted or receipt.repeated or receipt.dropped):
        return JSONResponse({"error": receipt.refused[0].reason, **taken.model_dump()}, 422)
    return taken

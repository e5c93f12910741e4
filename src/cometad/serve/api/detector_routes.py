"""Detectors: upload, fit in the background, list, delete."""

import asyncio
from collections.abc import Callable
from typing import Annotated

import polars as pl
from fastapi import APIRouter, Query, Request

from cometad.alerting.thresholds import parse_threshold
from cometad.data.gaps import parse_gaps
from cometad.data.resample import parse_resampling
from cometad.serve.api.guards import DetectorName, Refused, ServiceOf, answers, may, media_type, read_body
from cometad.serve.models import Detectors, DetectorState

LINES = ("application/x-ndjson", "application/jsonl")
SUFFIXES = {"text/csv": ".csv", "application/vnd.apache.parquet": ".parquet", **dict.fromkeys(LINES, ".csv")}
# Flags of `cometad fit` that are refused now, not in the background.
CHECKED: dict[str, Callable[[str], object]] = {
    "gaps": parse_gaps,
    "threshold": parse_threshold,
    "resample": parse_resampling,
}
_BYTES = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
_TABLE = {"requestBody": {"required": True, "content": {name: {"schema": {"type": "string"}} for name in SUFFIXES}}}

router = APIRouter(prefix="/v1/detectors", tags=["detectors"])
Text = Annotated[str | None, Query(max_length=100)]


@router.get("", responses=answers(), dependencies=[may("read")])
def list_detectors(service: ServiceOf) -> Detectors:
    """All detectors, by name."""
    return Detectors(detectors=service.detectors.all())


@router.get("/{name}", responses=answers(404), dependencies=[may("read")])
def get_detector(name: DetectorName, service: ServiceOf) -> DetectorState:
    """A detector, or how far its fit is."""
    return service.detectors.get(name)


@router.put("/{name}", responses=answers(409), openapi_extra=_BYTES, dependencies=[may("write")])
async def put_detector(name: DetectorName, request: Request, service: ServiceOf) -> DetectorState:
    """Upload a detector that `save` or `cometad fit` wrote. Its hash is checked."""
    body = await read_body(request, service.settings.max_upload_mib)
    return await asyncio.to_thread(service.detectors.add, name, body)


@router.post(
    "/{name}/fit", status_code=202, responses=answers(409, 415), openapi_extra=_TABLE, dependencies=[may("write")]
)
async def fit_detector(
    name: DetectorName,
    request: Request,
    service: ServiceOf,
    gaps: Text = None,
    threshold: Text = None,
    alerts: Text = None,  # the same, as on the command line
    resample: Text = None,
    time_column: Text = None,
    drop: Text = None,
) -> DetectorState:
    """Fit a detector on the readings in the body, in the background. The query takes flags of `cometad fit`."""
    kind = media_type(request)
    if kind not in SUFFIXES:
        raise Refused(415, f"Send {', '.join(SUFFIXES)}.")
    given = {"gaps": gaps, "threshold": threshold or alerts, "resample": resample}
    given |= {"time-column": time_column, "drop": drop}
    options = []
    for flag, text in given.items():
        if text is not None:
            CHECKED.get(flag, str)(text)
            options.append(f"--{flag}={text}")
    body = await read_body(request, service.settings.max_upload_mib)
    if kind in LINES:
        body = await asyncio.to_thread(_as_csv, body)
    return await asyncio.to_thread(service.detectors.fit, name, body, SUFFIXES[kind], options)


@router.delete("/{name}", status_code=204, responses=answers(404, 409), dependencies=[may("admin")])
async def delete_detector(name: DetectorName, service: ServiceOf) -> None:
    """Delete a detector that no stream uses."""
    await asyncio.to_thread(service.detectors.delete, name)


def _as_csv(body: bytes) -> bytes:
    try:
        return pl.read_ndjson(body).write_csv().encode()
    except pl.exceptions.PolarsError as error:
        raise Refused(422, f"The body cannot be read as JSON lines: {str(error).splitlines()[0]}.") from error

"""Is the service well, what may a client do, and what it measures."""

from importlib.metadata import version

from fastapi import APIRouter, Request, Response

from cometad.serve.api.common import Refused, ServiceOf, answers, may, scopes_of
from cometad.serve.models import Health, Problem, SessionInfo

router = APIRouter(tags=["service"])


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
    return Health(status="ready", details={"streams": len(service.streams), "unscored": service.scorer.unscored})


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
        streams=len(service.streams),
        detectors=len(service.detectors.all()),
    )

"""The demo plant, live."""

from fastapi import APIRouter

from cometad.serve.api.common import ServiceOf, answers, may
from cometad.serve.models import DemoState

router = APIRouter(prefix="/v1/demo", tags=["demo"], dependencies=[may("write")])


@router.post("", status_code=202, responses=answers(409))
def start_demo(service: ServiceOf) -> DemoState:
    """Fit a demo plant and feed its stream, faults included."""
    return service.demo.start()


@router.delete("", responses=answers())
def stop_demo(service: ServiceOf) -> DemoState:
    """Stop the feed; the stream and its events stay."""
    return service.demo.stop()

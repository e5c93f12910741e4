"""Events and verdicts."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from cometad.alerting.alerts import Level
from cometad.serve.api.common import EventName, From, ServiceOf, To, answers, may, moment
from cometad.serve.events import events_of
from cometad.serve.history_queries import event_details
from cometad.serve.live_stream import EVER
from cometad.serve.models import EventDetails, EventList, VerdictOf

router = APIRouter(prefix="/v1/events", tags=["events"])


@router.get("", responses=answers(), dependencies=[may("read")])
def list_events(
    service: ServiceOf,
    state: Literal["open", "closed"] | None = None,
    level: Level | None = None,
    start: From = None,
    stop: To = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> EventList:
    """The events of all streams, newest first."""
    return EventList(
        events=events_of(
            service.store, service.streams, None, state, level, moment(start, -EVER), moment(stop, EVER), limit
        )
    )


@router.get("/{event}", responses=answers(404), dependencies=[may("read")])
def get_event(event: EventName, service: ServiceOf) -> EventDetails:
    """An event: which variables, which view, what was expected, and which events looked alike."""
    return event_details(service, event)


@router.post("/{event}/verdict", responses=answers(404, 409), dependencies=[may("write")])
def post_verdict(event: EventName, verdict: VerdictOf, service: ServiceOf) -> EventDetails:
    """Say what an event was. `normal` teaches the stream; null withdraws what was said."""
    service.rule(event, verdict.verdict)
    details = event_details(service, event)
    service.listeners.news("event", details.stream, {**_without_details(details), "change": "verdict"})
    return details


def _without_details(details: EventDetails) -> dict[str, object]:
    return details.model_dump(exclude={"explanation", "similar", "taught", "note"})

"""Streams, their past, and their events."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Response

from cometad.alerting.alerts import Level
from cometad.serve.api.guards import EventName, ServiceOf, StreamName, Stretch, answers, may
from cometad.serve.explaining import variables_between
from cometad.serve.history_queries import as_parquet, event_details, events_of, scores_between
from cometad.serve.live_stream import LiveStream
from cometad.serve.models import (
    MOST_POINTS,
    EventDetails,
    EventList,
    ScoreHistory,
    StreamDetails,
    Streams,
    StreamSettings,
    StreamState,
    Variables,
    VerdictOf,
)
from cometad.serve.service import Service

PARQUET = "application/vnd.apache.parquet"
_FILE: dict[int | str, dict[str, Any]] = {200: {"content": {PARQUET: {}}, "description": "A Parquet file."}}

router = APIRouter(prefix="/v1/streams", tags=["streams"])
events = APIRouter(prefix="/v1/events", tags=["events"])


@dataclass
class EventQuery:
    stretch: Stretch
    state: Literal["open", "closed"] | None = None
    level: Level | None = None
    limit: Annotated[int, Query(ge=1, le=1000)] = 100

    def of(self, service: Service, stream: LiveStream | None) -> EventList:
        """The events of one stream or of all."""
        found = events_of(service.store, service.streams, stream, self.state, self.level, *self.stretch, self.limit)
        return EventList(events=found)


Wanted = Annotated[EventQuery, Depends()]


@router.get("", responses=answers(), dependencies=[may("read")])
def list_streams(service: ServiceOf, recent: Annotated[int, Query(ge=0, le=120)] = 0) -> Streams:
    """All streams, by name; with `recent`, also their last scores."""
    streams = sorted(service.streams.all(), key=lambda one: one.name)
    return Streams(streams=service.describe(streams, recent))


@router.get("/{name}", responses=answers(404), dependencies=[may("read")])
def get_stream(name: StreamName, service: ServiceOf) -> StreamDetails:
    """How a stream is now."""
    stream = service.stream(name)
    (state,) = service.describe([stream])
    return StreamDetails(**dict(state), variables=list(stream.layout.names), settings=stream.settings)


@router.put("/{name}", responses=answers(404, 409) | {201: {"model": StreamState}}, dependencies=[may("write")])
def put_stream(name: StreamName, settings: StreamSettings, service: ServiceOf, response: Response) -> StreamState:
    """Create a stream, or change its settings: then it starts anew from its next reading."""
    stream, created = service.put_stream(name, settings)
    response.status_code = 201 if created else 200
    return service.describe([stream])[0]


@router.delete("/{name}", status_code=204, responses=answers(404, 409), dependencies=[may("admin")])
def delete_stream(name: StreamName, service: ServiceOf) -> None:
    """Delete a stream with its readings, scores and events."""
    service.delete_stream(name)


@router.post("/{name}/pause", responses=answers(404, 409), dependencies=[may("write")])
def pause_stream(name: StreamName, service: ServiceOf) -> StreamState:
    """Stop scoring a stream. Its readings are stored, and scored once it is resumed."""
    return service.describe([service.pause(name)])[0]


@router.post("/{name}/resume", responses=answers(404, 409), dependencies=[may("write")])
def resume_stream(name: StreamName, service: ServiceOf) -> StreamState:
    """Score a stream again, from the reading it was paused at."""
    return service.describe([service.resume(name)])[0]


@router.get("/{name}/scores", responses=answers(404), dependencies=[may("read")])
def get_scores(
    name: StreamName, service: ServiceOf, stretch: Stretch, points: Annotated[int, Query(ge=2, le=MOST_POINTS)] = 800
) -> ScoreHistory:
    """The scores of a stretch of time, thinned to about `points` without losing extremes."""
    return scores_between(service.store, service.stream(name), *stretch, points)


@router.get("/{name}/variables", responses=answers(404), dependencies=[may("read")])
def get_variables(
    name: StreamName, service: ServiceOf, stretch: Stretch, top: Annotated[int, Query(ge=1, le=50)] = 6
) -> Variables:
    """What the highest variables read in a stretch, and what was expected; at most its last 512 steps."""
    return variables_between(service.store, service.stream(name), *stretch, top)


@router.get("/{name}/events", responses=answers(404), dependencies=[may("read")])
def get_stream_events(name: StreamName, service: ServiceOf, wanted: Wanted) -> EventList:
    """The events of a stream, newest first."""
    return wanted.of(service, service.stream(name))


@router.get("/{name}/export", responses=answers(404) | _FILE, dependencies=[may("read")], response_class=Response)
def export_stream(
    name: StreamName, service: ServiceOf, stretch: Stretch, what: Literal["readings", "scores"] = "scores"
) -> Response:
    """The readings or scores of a stretch as a Parquet file."""
    content = as_parquet(service.store, service.stream(name), what, *stretch)
    headers = {"Content-Disposition": f'attachment; filename="{name}-{what}.parquet"'}
    return Response(content, media_type=PARQUET, headers=headers)


@events.get("", responses=answers(), dependencies=[may("read")])
def list_events(service: ServiceOf, wanted: Wanted) -> EventList:
    """The events of all streams, newest first."""
    return wanted.of(service, None)


@events.get("/{event}", responses=answers(404), dependencies=[may("read")])
def get_event(event: EventName, service: ServiceOf) -> EventDetails:
    """An event: which variables, which view, what was expected, and which events looked alike."""
    return event_details(service, event)


@events.post("/{event}/verdict", responses=answers(404, 409), dependencies=[may("write")])
def post_verdict(event: EventName, verdict: VerdictOf, service: ServiceOf) -> EventDetails:
    """Say what an event was. `normal` teaches the stream; null withdraws what was said."""
    service.rule(event, verdict.verdict)
    details = event_details(service, event)
    summary = details.model_dump(exclude={"explanation", "similar", "taught", "note"})
    service.listeners.news("event", details.stream, {**summary, "change": "verdict"})
    return details

"""Questions about the past of a stream: its scores, its variables, its events, and which events looked alike."""

from typing import Any

import numpy as np
from sqlalchemy import select

from cometad.report.contents import thin
from cometad.serve.event_rows import event_of
from cometad.serve.explaining import keep_explanation
from cometad.serve.live_stream import EVER, LiveStream
from cometad.serve.models import EventDetails, EventSummary, ScoreHistory, Similar
from cometad.serve.service import Service
from cometad.serve.storage import schema
from cometad.serve.storage.history import by_time
from cometad.serve.storage.store import Store
from cometad.serve.stored_detectors import Missing

ALIKE, AMONG = 5, 1000  # similar events shown, and how many are looked at


def scores_between(store: Store, stream: LiveStream, start: float, stop: float, points: int) -> ScoreHistory:
    """The scores of a stretch, thinned without losing extremes."""
    with store.read() as connection:
        rows = by_time(connection, schema.scores, stream.id, start, stop)
    cells = rows.cells.reshape(len(rows.ats), 3)
    chosen = thin(cells[:, 0], max(points // 2, 1)) if len(cells) else np.arange(0)
    return ScoreHistory(
        stream=stream.name,
        total=len(cells),
        steps=(rows.first + chosen).tolist(),
        times=rows.ats[chosen].tolist(),
        scores=cells[chosen, 0].tolist(),
        thresholds=cells[chosen, 1].tolist(),
        flags=cells[chosen, 2].astype(int).tolist(),
    )


def event_details(service: Service, event_id: str) -> EventDetails:
    """An event, why it is one, and which looked alike; the explanation of a closed event is kept."""
    stream, number = service.event_place(event_id)
    table = schema.events
    own = (table.c.stream_id == stream.id) & (table.c.number == number)
    with service.store.read() as connection:
        row = connection.execute(select(table).where(own)).one_or_none()
        if row is None:
            raise Missing(f"There is no event {event_id!r}.")
        similar = _similar(connection, service, stream, row)
    return EventDetails(
        **event_of(row, stream).model_dump(),
        explanation=keep_explanation(service.store, stream, row),
        similar=similar,
        taught=row.taught,
        note=row.note,
    )


def events_of(
    service: Service,
    stream: LiveStream | None,
    state: str | None,
    level: str | None,
    start: float,
    stop: float,
    limit: int,
) -> list[EventSummary]:
    """The events of one stream or of all, newest first."""
    table = schema.events
    streams = {one.id: one for one in list(service.streams.values())}
    query = select(table)
    if stream is not None:
        query = query.where(table.c.stream_id == stream.id)
    if state is not None:
        query = query.where(table.c.closed_at.is_(None) if state == "open" else table.c.closed_at.is_not(None))
    if level is not None:
        query = query.where(table.c.level == level)
    if start > -EVER:
        query = query.where(table.c.stop_at >= start)
    if stop < EVER:
        query = query.where(table.c.start_at <= stop)
    newest = query.order_by(table.c.opened_at.desc(), table.c.stream_id, table.c.number.desc()).limit(limit)
    with service.store.read() as connection:
        rows = connection.execute(newest).all()
    return [event_of(row, streams[row.stream_id]) for row in rows if row.stream_id in streams]


def _similar(connection: Any, service: Service, stream: LiveStream, row: Any) -> list[Similar]:
    """Events of streams with the same variables that looked alike, by the angle between their profiles."""
    table = schema.events
    same = {one.id: one.name for one in list(service.streams.values()) if one.layout.names == stream.layout.names}
    others = select(table).where(table.c.stream_id.in_(same), table.c.opened_at < row.opened_at)
    found = connection.execute(others.order_by(table.c.opened_at.desc()).limit(AMONG)).all()
    own = np.frombuffer(row.profile, "<f4")
    found = [one for one in found if len(one.profile) == len(row.profile)]
    if not found or not len(own):
        return []
    profiles = np.array([np.frombuffer(one.profile, "<f4") for one in found], np.float64)
    lengths = np.linalg.norm(profiles, axis=1) * np.linalg.norm(own)
    angles = np.divide(profiles @ own, lengths, out=np.zeros(len(found)), where=lengths > 0)
    foreign = np.array([one.stream_id != row.stream_id for one in found])
    best = np.lexsort((foreign, -angles.round(2)))[:ALIKE].tolist()  # equally similar ones: of the same stream first
    return [
        Similar(
            id=f"{found[i].stream_id}-{found[i].number}",
            stream=same[found[i].stream_id],
            similarity=float(angles[i]),
            start_time=found[i].start_at,
            level=found[i].level,
            severity=found[i].severity,
            verdict=found[i].verdict,
        )
        for i in best
    ]

"""Events: as the scorer changes them, as the database keeps them, and as the API shows them."""

import json
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sqlalchemy import Connection, select, update

from cometad.alerting.alerts import Change
from cometad.alerting.severity import DIGITS, meaning
from cometad.arrays import Floats
from cometad.serve.live_stream import EVER, LiveStream, top_of
from cometad.serve.models import EventSummary, Similar
from cometad.serve.storage import schema
from cometad.serve.storage.store import Store

NOT_LEARNED = "The event is older than the settings of the stream, so the verdict was stored but not learned."
ALIKE, AMONG = 5, 1000  # similar events shown, and how many are looked at
_SAME = ("number", "start", "stop", "peak", "steps", "level", "new_level", "peak_score", "threshold", "severity")
_TIMES = {"start_time": "start_at", "stop_time": "stop_at", "peak_time": "peak_at"}


def changed_event(
    stream: LiveStream, change: Change, variables: Floats, threshold: float, time_of: Callable[[int], float | None]
) -> tuple[EventSummary, bytes]:
    """An event after a change, and how it looks at its peak: the scores of all variables.

    `variables` (variable,) and `threshold` are those of the time step that caused the change; every new peak is one.
    `time_of` gives the time of a step of the session.
    """
    found, now = change.event, time.time()
    number = stream.row.first_event + found.number
    known = stream.scoring.open_event
    known = known if known is not None and known.number == number else None
    fresh = known is None or found.peak == change.step  # else the change is not about its peak
    event = EventSummary(
        id=f"{stream.id}-{number}",
        stream=stream.name,
        number=number,
        state="open" if found.open else "closed",
        level="alert" if known is not None and known.level == "alert" else found.level,  # it has been sent
        new_level=found.new_level,
        start=stream.row.first_step + found.start,
        stop=stream.row.first_step + found.stop,
        peak=stream.row.first_step + found.peak,
        steps=found.steps,
        start_time=time_of(found.start) if known is None else known.start_time,
        stop_time=time_of(found.stop - 1),
        peak_time=time_of(found.peak) if known is None or fresh else known.peak_time,
        opened_at=now if known is None else known.opened_at,
        closed_at=None if found.open else now,
        peak_score=found.peak_score,
        threshold=threshold if known is None or fresh else known.threshold,
        severity=found.severity,
        **_meaning(found.severity, stream),
        variables=top_of(stream.detector.names_, variables, 5) if known is None or fresh else known.variables,
        verdict=None if known is None else known.verdict,
        verdict_at=None if known is None else known.verdict_at,
    )
    return event, np.asarray(variables, "<f4").tobytes() if fresh else stream.scoring.peak_profile


def event_row(stream: LiveStream, event: EventSummary, profile: bytes) -> dict[str, Any]:
    """The row that keeps an event; verdicts and explanations are kept apart from changes of the event."""
    return {
        "stream_id": stream.id,
        **{name: getattr(event, name) for name in _SAME},
        **{column: getattr(event, name) for name, column in _TIMES.items()},
        "opened_at": event.opened_at,
        "closed_at": event.closed_at,
        "variables": json.dumps(event.variables),
        "profile": profile,
    }


def change_event(connection: Connection, stream_id: int, number: int, columns: dict[str, Any]) -> None:
    """Change columns of a stored event."""
    own = (schema.events.c.stream_id == stream_id) & (schema.events.c.number == number)
    connection.execute(update(schema.events).where(own).values(columns))


def verdict_columns(called: str | None, at: float, learned: bool, note: str | None = None) -> dict[str, Any]:
    """What a verdict changes in the row of an event; None withdraws what was said, and when."""
    said = called is not None
    return {"verdict": called, "verdict_at": at if said else None, "taught": learned if said else None, "note": note}


def event_of(row: Any, stream: LiveStream) -> EventSummary:
    """The event in a row of the database."""
    return EventSummary(
        id=f"{row.stream_id}-{row.number}",
        stream=stream.name,
        **_meaning(row.severity, stream),
        state="open" if row.closed_at is None else "closed",
        **{name: getattr(row, name) for name in _SAME},
        **{name: getattr(row, column) for name, column in _TIMES.items()},
        opened_at=row.opened_at,
        closed_at=row.closed_at,
        variables=json.loads(row.variables),
        verdict=row.verdict,
        verdict_at=row.verdict_at,
    )


def _meaning(found: float, stream: LiveStream) -> dict[str, Any]:
    often = meaning(found, math.nan if stream.period is None else stream.period)
    return {"rarity": round(10 ** (DIGITS * found)), "meaning": f"Normal operation reaches this {often}."}


def events_of(
    store: Store,
    streams: Mapping[str, LiveStream],
    stream: LiveStream | None,
    state: str | None,
    level: str | None,
    start: float,
    stop: float,
    limit: int,
) -> list[EventSummary]:
    """The events of one stream or of all, newest first."""
    table = schema.events
    known = {one.id: one for one in list(streams.values())}
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
    return [event_of(row, known[row.stream_id]) for row in store.rows(newest) if row.stream_id in known]


def similar_events(
    connection: Connection, streams: Mapping[str, LiveStream], stream: LiveStream, row: Any
) -> list[Similar]:
    """Events of streams with the same variables that looked alike, by the angle between their profiles."""
    table = schema.events
    same = {one.id: one.name for one in list(streams.values()) if one.layout.names == stream.layout.names}
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

"""Events: as the scorer changes them, as the database keeps them, and as the API shows them."""

import json
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sqlalchemy import Connection, func, select, update

from cometad.alerting.alerts import Change
from cometad.alerting.severity import DIGITS, meaning
from cometad.arrays import Floats
from cometad.serve.live_stream import LiveStream, top_of
from cometad.serve.models import EventSummary
from cometad.serve.storage import schema

NOT_LEARNED = "The event is older than the settings of the stream, so the verdict was stored but not learned."
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


def fill_events(connection: Connection, streams: Mapping[int, LiveStream]) -> None:
    """Fill in what is stored of the events of streams by id: how many, the open one, when the counted ones opened."""
    table, openings = schema.events, dict[int, list[int]]()
    own = table.c.stream_id.in_(streams)
    counts = select(table.c.stream_id, func.count()).where(own).group_by(table.c.stream_id)
    events: dict[int, int] = dict(connection.execute(counts).all())
    since = {
        one: max(stream.row.first_step, stream.scoring.stored_step - stream.budget_window[0])
        for one, stream in streams.items()
    }
    starts = select(table.c.stream_id, table.c.start).where(own, table.c.start >= min(since.values()))
    for stream_id, start in connection.execute(starts):
        if start >= since[stream_id]:
            openings.setdefault(stream_id, []).append(start)
    for stream_id, stream in streams.items():
        scoring = stream.scoring
        scoring.events, scoring.openings = events.get(stream_id, 0), tuple(openings.get(stream_id, ()))
        scoring.open_event = None
    for row in connection.execute(select(table).where(own, table.c.closed_at.is_(None)).order_by(table.c.number)):
        stream = streams[row.stream_id]
        if row.number > stream.row.first_event:
            stream.scoring.open_event, stream.scoring.peak_profile = event_of(row, stream), row.profile


def change_event(connection: Connection, stream_id: int, number: int, columns: dict[str, Any]) -> None:
    own = (schema.events.c.stream_id == stream_id) & (schema.events.c.number == number)
    connection.execute(update(schema.events).where(own).values(columns))


def verdict_columns(called: str | None, at: float, learned: bool, note: str | None = None) -> dict[str, Any]:
    """What a verdict changes in the row of an event; None withdraws what was said, and when."""
    said = called is not None
    return {"verdict": called, "verdict_at": at if said else None, "taught": learned if said else None, "note": note}


def event_of(row: Any, stream: LiveStream) -> EventSummary:
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

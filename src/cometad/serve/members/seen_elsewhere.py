"""Shows streams that other processes score, from what is stored."""

import time
from typing import Any

import numpy as np
from sqlalchemy import FromClause, Table, select, true

from cometad.serve.event_rows import event_of
from cometad.serve.live_stream import LiveStream
from cometad.serve.storage import schema
from cometad.serve.storage.store import Store


def stored_states(store: Store, streams: dict[int, LiveStream]) -> list[tuple[Any, Any]]:
    """The newest readings and scores of streams, and their open events, as rows."""
    table = schema.streams
    readings, scores = _newest(schema.readings), _newest(schema.scores)
    kinds = (("reading", readings), ("score", scores))
    columns = [column.label(f"{kind}_{column.name}") for kind, one in kinds for column in one.c]
    query = select(table.c.id, table.c.epoch, table.c.paused, table.c.reason, *columns)
    query = query.outerjoin_from(table, readings, true()).outerjoin(scores, true()).where(table.c.id.in_(streams))
    events = schema.events
    with store.read() as connection:
        rows = connection.execute(query).all()
        still_open = events.c.closed_at.is_(None) & events.c.stream_id.in_(streams)
        found = {row.stream_id: row for row in connection.execute(select(events).where(still_open)).all()}
    return [(row, found.get(row.id)) for row in rows]


def _newest(table: Table) -> FromClause:
    columns = [table.c[name] for name in ("first", "count", "last_at", "ats", "cells")]
    own = select(*columns).where(table.c.stream_id == schema.streams.c.id)
    return own.order_by(table.c.first.desc()).limit(1).lateral()


def show(stream: LiveStream, row: Any, event: Any) -> None:
    """Show the stored state of a stream; it is reloaded before this process scores it again."""
    stream.paused, stream.reason = row.paused or stream.lost_detector, row.reason
    if row.reading_first is not None:
        seq = row.reading_first + row.reading_count
        if seq != stream.arrivals.next_seq:
            stream.arrivals.next_seq, stream.last_received = seq, time.time()
    if row.score_first is not None:
        ats, cells = np.frombuffer(row.score_ats, "<f8"), np.frombuffer(row.score_cells, "<f8").reshape(-1, 3)
        new = max(stream.stored_step - row.score_first, 0)
        if new < len(ats):
            stream.last.add(ats[new:], cells[new:])
            stream.stored_step = row.score_first + len(ats)
            stream.publish()
    known = event is not None and event.number > stream.first_event
    stream.open_event = event_of(event, stream) if known else None

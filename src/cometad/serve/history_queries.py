"""What people ask about the past of a stream: scores, events with their explanations, and files of both."""

import json
from io import BytesIO
from typing import Any

import numpy as np
import polars as pl
from sqlalchemy import Connection, Table, func, select

from cometad.errors import InputError
from cometad.report.contents import thin
from cometad.serve.events import event_of
from cometad.serve.explaining import keep_explanation
from cometad.serve.live_stream import EVER, LiveStream
from cometad.serve.models import EventDetails, EventSummary, ScoreHistory, Similar
from cometad.serve.service import Service
from cometad.serve.storage import schema
from cometad.serve.storage.history import HistoryRows, by_time
from cometad.serve.storage.store import Store
from cometad.serve.stored_streams import StoredStreams

MOST_BYTES = 200e6  # of one export
SCORE_COLUMNS = ("alert_score", "threshold", "anomaly")
ALIKE, AMONG = 5, 1000  # similar events shown, and how many are looked at


def scores_between(store: Store, stream: LiveStream, start: float, stop: float, points: int) -> ScoreHistory:
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


def events_of(
    store: Store,
    streams: StoredStreams,
    stream: LiveStream | None,
    state: str | None,
    level: str | None,
    start: float,
    stop: float,
    limit: int,
) -> list[EventSummary]:
    """The events of one stream or of all, newest first."""
    table = schema.events
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
    rows = store.rows(newest)
    known = streams.by_id({row.stream_id for row in rows})
    return [event_of(row, known[row.stream_id]) for row in rows if row.stream_id in known]


def similar_events(connection: Connection, stream: LiveStream, row: Any) -> list[Similar]:
    """Events of streams with the same variables that looked alike, by the angle between their profiles."""
    table = schema.events
    variables = schema.detectors.c.variables == json.dumps(list(stream.layout.names))
    detectors = set(connection.execute(select(schema.detectors.c.name).where(variables)).scalars())
    streams = connection.execute(select(schema.streams.c.id, schema.streams.c.name, schema.streams.c.settings))
    same = {row.id: row.name for row in streams if json.loads(row.settings)["detector"] in detectors}
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


def event_details(service: Service, event_id: str) -> EventDetails:
    """An event, why it is one, and which looked alike; the explanation of a closed event is kept."""
    stream, row = service.event(event_id)
    with service.store.read() as connection:
        similar = similar_events(connection, stream, row)
    return EventDetails(
        **event_of(row, stream).model_dump(),
        explanation=keep_explanation(service.store, stream, row),
        similar=similar,
        taught=row.taught,
        note=row.note,
    )


def as_parquet(store: Store, stream: LiveStream, what: str, start: float, stop: float) -> bytes:
    """The readings or scores of a stretch as a Parquet file, with their times in UTC.

    Readings from before the settings of the stream were changed are left out: they may have other variables.
    """
    table = schema.readings if what == "readings" else schema.scores
    with store.read() as connection:
        check_size(connection, table, stream.id, start, stop)
        rows = by_time(connection, table, stream.id, start, stop, stream.row.first_seq if what == "readings" else 0)
    file = BytesIO()
    _frame(rows, list(stream.layout.names) if what == "readings" else list(SCORE_COLUMNS)).write_parquet(file)
    return file.getvalue()


def check_size(connection: Connection, table: Table, stream_id: int, start: float, stop: float) -> None:
    inside = (table.c.stream_id == stream_id) & (table.c.last_at >= start) & (table.c.first_at <= stop)
    size = func.sum(func.length(table.c.cells))
    if (connection.execute(select(size).where(inside)).scalar() or 0) > MOST_BYTES:
        raise InputError("The stretch is too large for one file. Choose a shorter one with from and to.")


def _frame(rows: HistoryRows, names: list[str]) -> pl.DataFrame:
    times = pl.Series("time_utc" if "time" in names else "time", (rows.ats * 1e6).round().astype("int64"))
    frame = pl.DataFrame(rows.cells.reshape(len(rows.ats), len(names)), schema=names, orient="row")
    if names == list(SCORE_COLUMNS):
        frame = frame.with_columns(pl.col("anomaly").cast(pl.Int8))
    return frame.insert_column(0, times.cast(pl.Datetime("us", "UTC")))

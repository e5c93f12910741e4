"""Questions about the past of a stream: its scores, its variables, its events, and which events looked alike."""

from typing import Any

import numpy as np
from sqlalchemy import select, update

from cometad.arrays import Floats
from cometad.data.resample import parse_period
from cometad.errors import CometadError
from cometad.explain.reasons import Explanation
from cometad.live.grid import Grid
from cometad.live.readings import Reading
from cometad.report.thin import thin
from cometad.serve.event_rows import event_of
from cometad.serve.live_stream import EVER, LiveStream, resampling_of
from cometad.serve.models import (
    EventDetails,
    EventSummary,
    Explained,
    Scores,
    Similar,
    VariableReason,
    Variables,
)
from cometad.serve.service import Missing, Service
from cometad.serve.storage import schema
from cometad.serve.storage.history import Rows, by_number, by_time
from cometad.serve.storage.store import Store

BEFORE = 600  # readings before a stretch: views look back, and explanations compare with the time before
MOST_STEPS = 512  # of a stretch whose variables are shown
ALIKE, AMONG = 5, 1000  # similar events shown, and how many are looked at


def scores_between(store: Store, stream: LiveStream, start: float, stop: float, points: int) -> Scores:
    """The scores of a stretch, thinned without losing extremes."""
    with store.read() as connection:
        rows = by_time(connection, schema.scores, stream.id, start, stop)
    cells = rows.cells.reshape(len(rows.ats), 3)
    chosen = thin(cells[:, 0], max(points // 2, 1)) if len(cells) else np.arange(0)
    return Scores(
        stream=stream.name,
        total=len(cells),
        steps=(rows.first + chosen).tolist(),
        times=rows.ats[chosen].tolist(),
        scores=cells[chosen, 0].tolist(),
        thresholds=cells[chosen, 1].tolist(),
        flags=cells[chosen, 2].astype(int).tolist(),
    )


def variables_between(store: Store, stream: LiveStream, start: float, stop: float, top: int) -> Variables:
    """What the highest variables read in a stretch, and what was expected; at most its last 512 steps."""
    with store.read() as connection:
        steps = by_time(connection, schema.scores, stream.id, start, stop)
    if not len(steps.ats):
        return Variables(stream=stream.name, times=[], variables=[])
    first = max(steps.first, steps.stop - MOST_STEPS)
    explained = _explained(store, stream, first, steps.stop)
    if explained is None:
        return Variables(stream=stream.name, times=[], variables=[])
    explanation, ats = explained
    return Variables(stream=stream.name, times=ats.tolist(), variables=_reasons(explanation, top))


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
    explanation = None if row.explanation is None else Explained.model_validate_json(row.explanation)
    if explanation is None:
        explanation = explain_event(service.store, stream, row)
        if explanation is not None and row.closed_at is not None:
            with service.store.write() as connection:
                connection.execute(update(table).where(own).values(explanation=explanation.model_dump_json()))
    return EventDetails(
        **event_of(row, stream.name).model_dump(),
        explanation=explanation,
        similar=similar,
        taught=row.taught,
        note=row.note,
    )


def explain_event(store: Store, stream: LiveStream, row: Any) -> Explained | None:
    """Which variables raised the score of an event; None if its readings are gone or were of another detector."""
    if row.start < stream.first_step:
        return None
    stop = min(row.stop, row.start + MOST_STEPS)
    explained = _explained(store, stream, row.start, stop)
    if explained is None:
        return None
    explanation, ats = explained
    reasons = _reasons(explanation, 6)
    sentence = f"{reasons[0].name}: {reasons[0].sentence}" if reasons else ""
    return Explained(sentence=sentence, times=ats.tolist(), variables=reasons)


def events_of(
    service: Service, stream: LiveStream | None, state: str | None, start: float, stop: float, limit: int
) -> list[EventSummary]:
    """The events of one stream or of all, newest first."""
    table = schema.events
    names = {one.id: one.name for one in list(service.streams.values())}
    query = select(table)
    if stream is not None:
        query = query.where(table.c.stream_id == stream.id)
    if state is not None:
        query = query.where(table.c.closed_at.is_(None) if state == "open" else table.c.closed_at.is_not(None))
    if start > -EVER:
        query = query.where(table.c.stop_at >= start)
    if stop < EVER:
        query = query.where(table.c.start_at <= stop)
    newest = query.order_by(table.c.opened_at.desc(), table.c.stream_id, table.c.number.desc()).limit(limit)
    with service.store.read() as connection:
        rows = connection.execute(newest).all()
    return [event_of(row, names[row.stream_id]) for row in rows if row.stream_id in names]


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
    best = np.argsort(-angles, kind="stable")[:ALIKE].tolist()
    return [
        Similar(
            id=f"{found[i].stream_id}-{found[i].number}",
            stream=same[found[i].stream_id],
            similarity=float(angles[i]),
            start_time=found[i].start_at,
            severity=found[i].severity,
            verdict=found[i].verdict,
        )
        for i in best
    ]


def _explained(store: Store, stream: LiveStream, start: int, stop: int) -> tuple[Explanation, Floats] | None:
    """An explanation of the steps from `start` to `stop`, and the times of the rows it shows."""
    if not stream.detector.can_explain:
        return None
    rows = _scored_rows(store, stream, max(start - BEFORE, stream.first_step), stop)
    inside = (max(start, rows.first) - rows.first, min(stop, rows.stop) - rows.first)
    if inside[1] <= inside[0]:
        return None
    try:
        explanation = stream.detector.explain(rows.cells, inside, context=0)
    except CometadError:  # too few readings are left to look at
        return None
    shown = slice(explanation.begin, explanation.begin + len(explanation.observed))
    return explanation, rows.ats[shown]


def _scored_rows(store: Store, stream: LiveStream, start: int, stop: int) -> Rows:
    """What was scored at the steps from `start` to `stop`: readings or, if they are resampled, bins."""
    resampling = resampling_of(stream.settings)
    with store.read() as connection:
        if resampling is None:
            offset = stream.first_seq - stream.first_step
            rows = by_number(
                connection, schema.readings, stream.id, max(start + offset, stream.first_seq), stop + offset
            )
            return Rows(rows.first - offset, rows.ats, rows.cells)
        steps = by_number(connection, schema.scores, stream.id, start, stop)
        if not len(steps.ats):
            return Rows(start, np.empty(0), np.empty((0, len(stream.layout.names))))
        until = steps.ats[-1] + parse_period(resampling.period) / 1e6
        found = by_time(connection, schema.readings, stream.id, steps.ats[0], until, stream.first_seq)
    grid = Grid(resampling, stream.detector.names_)
    bins = [
        bin for at, row in zip(found.ats, found.cells.tolist(), strict=True) for bin in grid.admit(Reading(0, row, at))
    ]
    bins += list(grid.finish())
    cells = np.array([bin.values for bin in bins[: len(steps.ats)]])
    return Rows(steps.first, steps.ats[: len(cells)], cells)


def _reasons(explanation: Explanation, top: int) -> list[VariableReason]:
    column = {name: i for i, name in enumerate(explanation.names)}
    return [
        VariableReason(
            name=reason.variable,
            share=reason.share,
            view=reason.view,
            why=reason.why,
            sentence=reason.sentence(),
            observed=_known(explanation.observed[:, column[reason.variable]]),
            expected=_known(explanation.normal[:, column[reason.variable]]),
            band=reason.band,
        )
        for reason in explanation.reasons[:top]
    ]


def _known(values: Floats) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in values.tolist()]

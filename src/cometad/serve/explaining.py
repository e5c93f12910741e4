"""What variables read and what was expected, from the stored readings of a stream."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from sqlalchemy import select

from cometad.arrays import Floats
from cometad.data.resample import parse_period
from cometad.data.text import Reading
from cometad.errors import CometadError
from cometad.explain.reasons import Explanation, Reason
from cometad.live.session import Grid
from cometad.series import Series
from cometad.serve.events import change_event
from cometad.serve.live_stream import LiveStream, resampling_of
from cometad.serve.models import Explained, VariableReason, Variables
from cometad.serve.storage import schema
from cometad.serve.storage.history import HistoryRows, by_number, by_time, last_by_time
from cometad.serve.storage.store import Store

BEFORE = 600  # readings before a stretch: views look back, and explanations compare with the time before
MOST_STEPS = 512  # of a stretch whose variables are shown
TOP = 6  # variables of an event
NOTHING = "null"  # kept of an event that cannot be explained
AROUND = 60  # steps shown before and after an event


def variables_between(store: Store, stream: LiveStream, start: float, stop: float, top: int) -> Variables:
    """What the highest variables read in a stretch, and what was expected; at most its last 512 steps."""
    with store.read() as connection:
        steps = last_by_time(connection, schema.scores, stream.id, start, stop, MOST_STEPS)
    explained = _explained(store, stream, steps.first, steps.stop) if len(steps.ats) else None
    if explained is None:
        return Variables(stream=stream.name, times=[], variables=[])
    explanation, ats = explained
    return Variables(stream=stream.name, times=ats.tolist(), variables=_reasons(explanation, explanation.reasons[:top]))


def keep_explanation(store: Store, stream: LiveStream, row: Any) -> Explained | None:
    """Which variables raised the score of an event; None if its readings are gone or were of another detector.

    The explanation of a closed event is kept, because its readings are not.
    """
    if row.explanation is not None:
        return None if row.explanation == NOTHING else Explained.model_validate_json(row.explanation)
    explanation, stop = None, min(row.stop, row.start + MOST_STEPS)
    explained = _explained(store, stream, row.start, stop, AROUND) if row.start >= stream.row.first_step else None
    if explained is not None:
        found, ats = explained
        reasons = _reasons(found, found.causes[:TOP])
        sentence = f"{reasons[0].name}: {reasons[0].sentence}" if reasons else ""
        explanation = Explained(sentence=sentence, times=ats.tolist(), variables=reasons)
    if row.closed_at is not None:
        kept = NOTHING if explanation is None else explanation.model_dump_json()
        with store.write() as connection:
            change_event(connection, row.stream_id, row.number, {"explanation": kept})
    return explanation


def unexplained(store: Store, streams: Collection[int], most: int) -> Sequence[Any]:
    """Closed events of streams whose explanation was not looked for yet, oldest first."""
    table = schema.events
    open_ends = table.c.explanation.is_(None) & table.c.closed_at.is_not(None) & table.c.stream_id.in_(streams)
    return store.rows(select(table).where(open_ends).order_by(table.c.closed_at).limit(most))


def _explained(
    store: Store, stream: LiveStream, start: int, stop: int, around: int = 0
) -> tuple[Explanation, Floats] | None:
    """An explanation of the steps from `start` to `stop`, and the times of the rows it shows: also some `around`."""
    if stream.row.lost_detector or not stream.detector.can_explain:
        return None
    rows = _scored_rows(store, stream, max(start - BEFORE, stream.row.first_step), stop + around)
    inside = (max(start, rows.first) - rows.first, min(stop, rows.stop) - rows.first)
    if inside[1] <= inside[0]:
        return None
    try:
        times, steps = None, np.arange(len(rows.ats))
        if stream.detector.season_ is not None:  # readings without times that came together have the same one
            micros = np.round(rows.ats * 1e6).astype(np.int64)
            times = (np.maximum.accumulate(micros - steps) + steps).astype("datetime64[us]")
        series = Series(rows.cells, stream.detector.names_, times, False, rows.first - stream.row.first_step)
        explanation = stream.detector.explain(series, inside, context=around)
    except CometadError:  # too few readings are left to look at
        return None
    shown = slice(explanation.begin, explanation.begin + len(explanation.observed))
    return explanation, rows.ats[shown]


def _scored_rows(store: Store, stream: LiveStream, start: int, stop: int) -> HistoryRows:
    """What was scored at the steps from `start` to `stop`: readings or, if they are resampled, bins."""
    resampling = resampling_of(stream.settings)
    with store.read() as connection:
        if resampling is None:
            offset = stream.row.first_seq - stream.row.first_step
            rows = by_number(
                connection, schema.readings, stream.id, max(start + offset, stream.row.first_seq), stop + offset
            )
            return HistoryRows(rows.first - offset, rows.ats, rows.cells)
        steps = by_number(connection, schema.scores, stream.id, start, stop)
        if not len(steps.ats):
            return HistoryRows(start, np.empty(0), np.empty((0, len(stream.layout.names))))
        until = steps.ats[-1] + parse_period(resampling.period) / 1e6
        found = by_time(connection, schema.readings, stream.id, steps.ats[0], until, stream.row.first_seq)
    grid = Grid(resampling, stream.detector.names_)
    readings = zip(found.ats, found.cells.tolist(), strict=True)
    bins = [*(bin for at, row in readings for bin in grid.admit(Reading(0, row, at))), *grid.finish()]
    cells = np.array([bin.values for bin in bins[: len(steps.ats)]])
    return HistoryRows(steps.first, steps.ats[: len(cells)], cells)


def _reasons(explanation: Explanation, reasons: Sequence[Reason]) -> list[VariableReason]:
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
        for reason in reasons
    ]


def _known(values: Floats) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in values.tolist()]

"""Writes messages about events, with explanations from the stored readings."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import select, tuple_

from cometad.connect.out.message import EventMessage, MessageVariable
from cometad.serve.events import event_of
from cometad.serve.explaining import keep_explanation
from cometad.serve.live_stream import LiveStream
from cometad.serve.models import EventSummary, Explained, VariableReason
from cometad.serve.storage import schema
from cometad.serve.storage.store import Store

_SAME = {one.name for one in fields(EventMessage)} & EventSummary.model_fields.keys() - {"id", "variables"}
KEPT = 1000  # cached explanations: an event goes to several receivers, and is retried


class MessageWriter:
    """Writes messages for rows of the outbox; explanations are computed here, outside the scoring thread."""

    def __init__(self, store: Store, streams: Callable[[], dict[int, LiveStream]], link: Callable[[str], str]) -> None:
        self._store, self._streams, self._link = store, streams, link
        self._known: OrderedDict[tuple[Any, ...], tuple[MessageVariable, ...]] = OrderedDict()

    def written(self, rows: Sequence[Any]) -> list[tuple[Any, EventMessage]]:
        """Rows of the outbox with their messages; without those of deleted events or of other processes."""
        streams, table = self._streams(), schema.events
        keys = [(row.stream_id, row.number) for row in rows]
        with self._store.read() as connection:
            query = select(table).where(tuple_(table.c.stream_id, table.c.number).in_(keys))
            events = {(event.stream_id, event.number): event for event in connection.execute(query)}
        return [
            (row, self._message(row, events[key], streams[row.stream_id]))
            for row, key in zip(rows, keys, strict=True)
            if key in events and row.stream_id in streams
        ]

    def _message(self, row: Any, found: Any, stream: LiveStream) -> EventMessage:
        event = event_of(found, stream)
        return EventMessage(
            **event.model_dump(include=_SAME),
            id=row.uid,
            event=event.id,
            detector=stream.settings.detector,
            change=row.change,
            score=event.peak_score,
            variables=self._variables(event, found, stream),
            link=self._link(event.id),
        )

    def _variables(self, event: EventSummary, found: Any, stream: LiveStream) -> tuple[MessageVariable, ...]:
        key = (event.id, event.peak, event.closed_at)
        variables = self._known.get(key)  # receivers ask concurrently, each in its own thread
        if variables is None:
            variables = self._known[key] = _variables_of(event, keep_explanation(self._store, stream, found))
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        return variables


def _variables_of(event: EventSummary, explained: Explained | None) -> tuple[MessageVariable, ...]:
    """The variables of an event: as explained or, without an explanation, those with the highest scores."""
    if explained is None or not explained.variables:
        return tuple(MessageVariable(name) for name, _ in event.variables)
    inside = [
        i
        for i, at in enumerate(explained.times)
        if event.start_time is None or event.stop_time is None or event.start_time <= at <= event.stop_time
    ]
    return tuple(_variable(one, inside) for one in explained.variables)


def _variable(reason: VariableReason, inside: Sequence[int]) -> MessageVariable:
    """A variable with its reading within the event that is furthest from the expected value."""
    pairs = [(reason.observed[i], reason.expected[i]) for i in inside]
    known = [(read, wanted) for read, wanted in pairs if read is not None and wanted is not None]
    read, wanted = max(known, key=lambda pair: abs(pair[0] - pair[1]), default=(None, None))
    if read is None:
        read = next((one for one, _ in reversed(pairs) if one is not None), None)
    return MessageVariable(reason.name, reason.share, read, wanted, reason.sentence)

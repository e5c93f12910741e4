"""The outbox: one row per receiver and change of an event, stored in one transaction with the event.

So a crash neither loses nor invents a message. A row is `waiting` until the receiver has accepted the message
(`delivered`), or until it is given up on (`undelivered`). Finished rows are kept for a while. The message itself is
written when it is sent, with an explanation from the stored readings.
"""

import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, and_, delete, func, select, true, tuple_, update

from cometad.connect.out.message import EventMessage, MessageVariable
from cometad.serve.events import event_of
from cometad.serve.explaining import keep_explanation
from cometad.serve.live_stream import LiveStream
from cometad.serve.models import DeliveryState, EventSummary, Explained, VariableReason
from cometad.serve.settings import NotifySettings
from cometad.serve.storage import schema
from cometad.serve.storage.store import Store
from cometad.serve.stored_streams import StoredStreams

KEEP_DAYS = 30  # finished rows
LOOKED_AT = 1000  # waiting rows per query
KEPT = 1000  # cached explanations: an event goes to several receivers, and is retried

_SAME = {one.name for one in fields(EventMessage)} & EventSummary.model_fields.keys() - {"id", "variables"}
_TABLE = schema.deliveries

Messages = list[tuple[Any, EventMessage]]  # rows of the outbox with their messages


class Outbox:
    """`in_charge` returns the streams whose messages this process sends; `url` is the address in links."""

    def __init__(
        self,
        store: Store,
        receivers: Sequence[NotifySettings],
        streams: StoredStreams,
        in_charge: Callable[[Collection[int]], Collection[int]],
        url: str,
    ) -> None:
        self._store, self.receivers, self._streams, self._in_charge = store, receivers, streams, in_charge
        self.url = url
        self.wake: Callable[[bool], None] = lambda asked: None  # called when there is something to send
        self._explained: OrderedDict[tuple[Any, ...], tuple[MessageVariable, ...]] = OrderedDict()

    def write(self, connection: Connection, events: Sequence[dict[str, Any]]) -> bool:
        """Add rows for alerts that opened, became severe enough, or closed; returns whether there are any.

        A known change is left alone, so that an event that is scored again is sent once.
        """
        if not (self.receivers and events):
            return False
        now, streams = time.time(), self._streams.by_id({event["stream_id"] for event in events})
        rows = [
            {"receiver": receiver.name, "stream_id": event["stream_id"], "number": event["number"], "change": change}
            | {"uid": uuid.uuid4().hex, "state": "waiting", "attempts": 0}
            | dict.fromkeys(("created", "since", "next_at"), now)
            for event in events
            for receiver in self.receivers
            if event["level"] == "alert" and event["stream_id"] in streams
            if receiver.wants(streams[event["stream_id"]].name, event["severity"])
            if not receiver.is_old(event["stop_at"], now) or self._was_told(connection, receiver.name, event)
            for change in (("opened",) if event["closed_at"] is None else ("opened", "closed"))
        ]
        if rows:
            connection.execute(self._store.insert(_TABLE).on_conflict_do_nothing(), rows)
        return bool(rows)

    def _was_told(self, connection: Connection, receiver: str, event: dict[str, Any]) -> bool:
        """Whether a receiver was sent an event: then it is also sent the end of it."""
        same = _own(receiver=receiver, stream_id=event["stream_id"], number=event["number"])
        return connection.execute(select(_TABLE.c.id).where(same)).first() is not None

    # -- sending ----------------------------------------------------------------------------------------------------

    def due(self, receiver: str, most: int) -> tuple[Messages, float | None]:
        """What to send now, oldest first, and when the next one is due; messages on deleted events are given up.

        The closing of an event waits for its opening.
        """
        while True:
            rows, later = self._due(receiver, most)
            written = self.written(rows)
            if len(written) < len(rows):
                known = {row.id for row, _ in written}
                gone = [row for row in rows if row.id not in known]
                self.tried(gone, state="undelivered", error="The event was deleted.", done_at=time.time())
            if written or not rows:
                return written, later

    def _due(self, receiver: str, most: int) -> tuple[list[Any], float | None]:
        mine = _own(receiver=receiver, state="waiting")
        streams = {row.stream_id for row in self._store.rows(select(_TABLE.c.stream_id).where(mine).distinct())}
        mine &= _TABLE.c.stream_id.in_(self._sent_here(streams))  # those of others may be many
        rows = self._store.rows(select(_TABLE).where(mine).order_by(_TABLE.c.id).limit(LOOKED_AT))
        now, due, later, seen = time.time(), list[Any](), list[float](), set[tuple[int, int]]()
        for row in rows:
            event = (row.stream_id, row.number)
            if row.next_at > now:
                later.append(row.next_at)
            elif event not in seen and len(due) < most:
                due.append(row)
            seen.add(event)
        return due, min(later, default=None)

    def tried(self, rows: Iterable[Any], **values: Any) -> None:
        """Count an attempt, and store what came of it."""
        own, attempts = _TABLE.c.id.in_([row.id for row in rows]), _TABLE.c.attempts + 1
        self._store.change(update(_TABLE).where(own).values({**values, "attempts": attempts}))

    def give_up_old(self, receiver: str, hours: float, error: str) -> int:
        """Give up on messages of a receiver that have waited longer than this; returns how many."""
        return self._give_up((_TABLE.c.receiver == receiver) & (_TABLE.c.since < time.time() - 3600 * hours), error)

    def give_up_unknown(self) -> None:
        """Give up on messages to receivers that are no longer configured."""
        gone = _TABLE.c.receiver.not_in([one.name for one in self.receivers])
        self._give_up(gone, "The receiver is no longer in cometad.toml.")

    def _give_up(self, where: Any, error: str) -> int:
        values = {"state": "undelivered", "error": error, "done_at": time.time()}
        return self._store.change(update(_TABLE).where(_TABLE.c.state == "waiting", where).values(values))

    def still_open(self, receiver: str) -> list[Any]:
        """The delivered openings of events that are still open, to resend them."""
        events = schema.events
        same = (events.c.stream_id == _TABLE.c.stream_id) & (events.c.number == _TABLE.c.number)
        mine = _own(receiver=receiver, state="delivered", change="opened")
        query = select(_TABLE).join(events, same).where(mine, events.c.closed_at.is_(None)).order_by(_TABLE.c.id)
        rows = self._store.rows(query)
        sent_here = self._sent_here({row.stream_id for row in rows})
        return [row for row in rows if row.stream_id in sent_here]

    def _sent_here(self, streams: set[int]) -> set[int]:
        """The streams whose messages this process sends, rather than another one that shares the database."""
        known = self._streams.by_id(streams)
        return set(self._in_charge(known)) if known else set()

    def forget_old(self) -> None:
        """Delete rows finished a month ago, unless their event is still open."""
        events = schema.events
        ids = (events.c.stream_id == _TABLE.c.stream_id) & (events.c.number == _TABLE.c.number)
        still = select(events.c.number).where(ids, events.c.closed_at.is_(None)).exists()
        self._store.change(delete(_TABLE).where(_TABLE.c.done_at < time.time() - KEEP_DAYS * 86_400, ~still))

    # -- people -----------------------------------------------------------------------------------------------------

    def listed(self, state: str | None, receiver: str | None, limit: int) -> list[DeliveryState]:
        query = select(_TABLE).where(_own(state=state, receiver=receiver)).order_by(_TABLE.c.id.desc()).limit(limit)
        rows = self._store.rows(query)
        streams = self._streams.by_id({row.stream_id for row in rows})
        return [
            DeliveryState(
                **row._mapping,
                message=row.uid,
                event=f"{row.stream_id}-{row.number}",
                stream=streams[row.stream_id].name,
                next_attempt=row.next_at if row.state == "waiting" else None,
            )
            for row in rows
            if row.stream_id in streams
        ]

    def exists(self, delivery: int) -> bool:
        return self._store.value(select(_TABLE.c.id).where(_TABLE.c.id == delivery)) is not None

    def counts(self) -> dict[tuple[str, str], int]:
        """How many messages there are, by receiver and state."""
        query = select(_TABLE.c.receiver, _TABLE.c.state, func.count()).group_by(_TABLE.c.receiver, _TABLE.c.state)
        return {(receiver, state): count for receiver, state, count in self._store.rows(query)}

    def retry(self, **which: int | str) -> int:
        """Retry waiting and undelivered messages now: one delivery, or all of a receiver; returns how many."""
        now, where = time.time(), (_TABLE.c.state != "delivered") & _own(**which)
        again = {"state": "waiting", "next_at": now, "since": now, "done_at": None}
        count = self._store.change(update(_TABLE).where(where).values(again))
        self.wake(True)
        return count

    # -- messages ---------------------------------------------------------------------------------------------------

    def link(self, event: str) -> str:
        return f"{self.url.rstrip('/')}/#/events/{event}"

    def written(self, rows: Sequence[Any]) -> Messages:
        """Rows with their messages; without those of deleted events or of other processes."""
        streams, table = self._streams.by_id({row.stream_id for row in rows}), schema.events
        keys = [(row.stream_id, row.number) for row in rows]
        query = select(table).where(tuple_(table.c.stream_id, table.c.number).in_(keys))
        events = {(event.stream_id, event.number): event for event in self._store.rows(query)} if rows else {}
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
            link=self.link(event.id),
        )

    def _variables(self, event: EventSummary, found: Any, stream: LiveStream) -> tuple[MessageVariable, ...]:
        key = (event.id, event.peak, event.closed_at)
        variables = self._explained.get(key)  # receivers ask concurrently, each in its own thread
        if variables is None:
            explanation = keep_explanation(self._store, stream, found)
            variables = self._explained[key] = _variables_of(event, explanation)
            while len(self._explained) > KEPT:
                self._explained.popitem(last=False)
        return variables


def _own(**values: int | str | None) -> Any:
    return and_(true(), *(_TABLE.c[name] == value for name, value in values.items() if value is not None))


def _variables_of(event: EventSummary, explained: Explained | None) -> tuple[MessageVariable, ...]:
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

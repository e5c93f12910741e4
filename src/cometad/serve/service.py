"""The service without HTTP: streams and detectors over one store, with a thread that writes and one that scores."""

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import structlog
from sqlalchemy import Connection as SqlConnection
from sqlalchemy import delete, func, insert, select, update

from cometad.alerting.verdicts import Called
from cometad.connect.address import Address
from cometad.connect.contract import Position, ReadingBatch, Receipt, Rejection, UnknownStream
from cometad.connect.intake import Connection
from cometad.data.text import Layout
from cometad.detector import Detector
from cometad.serve.demo_plant import DemoPlant
from cometad.serve.fleet_streams import FleetStreams
from cometad.serve.live_stream import LiveStream, check_settings
from cometad.serve.members import Fenced, Members, Moved, SharedMembers
from cometad.serve.models import StreamSettings, StreamState
from cometad.serve.notify.receivers import Notifications, notifiers_of
from cometad.serve.recorder import Recorder
from cometad.serve.scorer import LiveScorer
from cometad.serve.settings import Settings
from cometad.serve.sharing import StreamSharing
from cometad.serve.sources import Connections, reject, stored_position
from cometad.serve.storage import schema
from cometad.serve.storage.history import next_number
from cometad.serve.storage.store import Store
from cometad.serve.stored_detectors import Missing, StoredDetectors, check_room
from cometad.serve.stored_streams import StoredStreams
from cometad.serve.tokens import Tokens
from cometad.serve.upkeep import Upkeep
from cometad.serve.watching import Figures, Listeners, service_gauges

# Tables with rows of a stream, deleted with it.
OWNED = (schema.readings, schema.scores, schema.snapshots, schema.events, schema.verdicts, schema.deliveries)

_log = structlog.get_logger("cometad.serve")


class Service:
    """Everything the service does; the API is a thin layer above it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        notifiers = notifiers_of(settings.notify)  # first, as the connections: a bad one leaves nothing behind
        self.connections = Connections([one.address for one in settings.connect], self, self._connection_changed)
        self.store = Store.of(settings)
        self.tokens = Tokens(self.store, needed=not settings.is_local)
        self.listeners, self.figures = Listeners(), Figures()
        self._lock = threading.RLock()  # of streams and detectors
        self.detectors = StoredDetectors(self.store, settings, self._lock)
        self.streams = StoredStreams(self.store, self.detectors)
        shared = None if self.store.is_sqlite else SharedMembers(self.store, self.streams)
        self.members = shared or Members(self.store)
        self.notifications = Notifications(
            self.store, settings, notifiers, self.streams, self.figures, self.members.in_charge
        )
        self.scorer = LiveScorer(self.store, self._tell_state)
        outbox = self.notifications.outbox
        self.recorder = Recorder(self.store, self.streams, self.members, self.scorer, outbox, self.figures)
        self.sharing = None if shared is None else StreamSharing(self.streams, shared, self.recorder, self.scorer)
        self.upkeep = Upkeep(self.store, settings, self.streams, self._tell_state, self.members)
        self.demo = DemoPlant(self.streams, self.detectors, self.recorder, self.put_stream)
        self.fleet = FleetStreams(settings.fleet, self.streams, self.detectors, self.put_stream)
        self.watchers = self.scorer.watchers
        self.watchers += [self.figures.scored, self.listeners.scored]
        self.watchers += [copies.add for copies in self.notifications.copies]
        self.figures.watch(lambda: service_gauges(self._gauges(), self._streams_shown()))
        self.ready = self._started = False

    # -- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the streams of this process, score what was not scored yet, and take readings."""
        self.store.claim()
        self.members.start(self.recorder.wake)
        if self.members.alone:
            self.detectors.close_interrupted_fits()
        if self.sharing is None:  # else those whose readings arrive
            self.streams.add(self.streams.load())
        self.recorder.start()
        self.scorer.start(self.recorder)
        self._started = True
        for stream in list(self.streams.values()):
            self.scorer.open_later(stream)
        if self.sharing is not None:
            self.sharing.start()
        self.upkeep.start()
        self.notifications.start()
        self.connections.start()
        self.scorer.do(lambda: None).add_done_callback(lambda _: setattr(self, "ready", True))

    def connect(self, addresses: Iterable[Address], changed: Callable[[Connection], None]) -> None:
        """Read from these sources instead of those in the settings; `changed` also hears of their states."""

        def both(connection: Connection) -> None:
            self._connection_changed(connection)
            changed(connection)

        self.connections.stop()
        self.connections = Connections(addresses, self, both)
        self.connections.start()

    def close(self) -> None:
        """Score and store everything that was accepted, save all sessions, release the streams, and end."""
        if self._started:
            self.ready = False
            self.demo.stop()
            self.connections.stop()
            self.upkeep.stop()
            if self.sharing is not None:
                self.sharing.stop()
            self.recorder.close_intake()
            saved = self.scorer.do(lambda: self.scorer.save(list(self.streams.values())))
            self.scorer.stop()
            problem = saved.exception() if saved.done() else "The thread that scores has ended."
            if problem is not None:
                _log.error("snapshot not saved", problem=str(problem))
            self.recorder.stop()
            self.notifications.stop()
            self.members.leave()
        self.detectors.close()
        self.store.close()

    def count_streams(self) -> int:
        return int(self.store.value(select(func.count()).select_from(schema.streams)))

    def _gauges(self) -> dict[str, float]:
        paused = self.store.rows(select(schema.streams.c.id).where(schema.streams.c.paused))
        mine = {stream.id for stream in list(self.streams.values()) if stream.row.paused}
        return {
            "streams": self.count_streams(),
            "streams_paused": len(mine | {row.id for row in paused}),
            "readings_unstored": self.recorder.waiting,
            "readings_unscored": self.scorer.unscored,
            "transaction_seconds": self.recorder.round_seconds,
            "listeners": len(self.listeners),
            "connections": len(self.connections.by_name),
            "connections_lost": sum(one.state in ("lost", "failed") for one in self.connections.by_name.values()),
            "stored_bytes": self.upkeep.size(),
        }

    def _streams_shown(self) -> list[LiveStream]:
        streams = list(self.streams.values())
        return streams if len(streams) <= self.settings.max_stream_series else []

    def _connection_changed(self, connection: Connection) -> None:
        for name in connection.streams:
            self.streams.sources[name] = connection
            stream = self.streams.get(name)
            if stream is not None:
                stream.source = connection
                self._tell_state(stream)

    def describe(self, streams: Sequence[LiveStream], recent: int = 0) -> list[StreamState]:
        """How streams are now; with `recent`, also their last scores."""
        self.streams.look(streams)
        return [stream.describe(self.scorer.lag(stream) or 0.0, recent) for stream in streams]

    def _tell_state(self, stream: LiveStream) -> None:
        # As it is in memory: the threads that tell go on while the database is away.
        state = stream.describe(self.scorer.lag(stream) or 0.0)
        self.listeners.news("stream", stream.name, state.model_dump(exclude={"recent"}))

    # -- readings ---------------------------------------------------------------------------------------------------

    def layout(self, stream: str) -> Layout:
        return self.opened(stream).layout

    def opened(self, name: str) -> LiveStream:
        """A stream by its name; that of an entity of the fleet is created first."""
        self.fleet.open(name)
        return self.stream(name)

    async def receive(self, batches: Sequence[ReadingBatch], position: Position | None = None) -> Receipt:
        return await self.recorder.receive(batches, position)

    def last_time(self, stream: str) -> float | None:
        return self.opened(stream).arrivals.last_at

    def position(self, connection: str) -> Any:
        return stored_position(self.store, connection)

    async def reject(self, connection: str, messages: Sequence[Rejection]) -> None:
        await asyncio.to_thread(reject, self.store, connection, messages)

    async def share(self, connection: str, parts: int) -> int:
        return await asyncio.to_thread(self.members.share, connection, parts)

    async def take_part(self, connection: str, part: int) -> bool:
        return await asyncio.to_thread(self.members.take_part, connection, part)

    async def leave_part(self, connection: str, part: int, streams: Collection[str]) -> None:
        if self.sharing is not None:
            await asyncio.to_thread(self.sharing.leave_part, connection, part, streams)

    # -- streams ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _own(self, name: str) -> Iterator[LiveStream]:
        """A stream that no other process has, nor takes in the meantime; raises `Elsewhere`."""
        if self.sharing is None:
            yield self.stream(name)
            return
        with self._lock:  # one at a time: whoever took the stream releases it again
            if name in self.streams:
                yield self.stream(name)
                return
            self.sharing.take(name)
            try:
                yield self.stream(name)
            finally:
                self.sharing.release([name])

    def stream(self, name: str) -> LiveStream:
        found = self.streams.find(name)
        if found is None:
            raise UnknownStream(name)
        return found

    @contextmanager
    def _writing(self, stream: LiveStream) -> Iterator[SqlConnection]:
        """A transaction during which a stream is this process's own; call it while none of the recorder runs."""
        try:
            with self.members.write() as connection:
                if not stream.owned:
                    raise Moved(stream.name)
                yield connection
        except (Fenced, Moved):
            raise
        except Exception:  # raised again: it is unknown whether the transaction was committed
            self.members.doubt([stream])
            raise

    def put_stream(self, name: str, settings: StreamSettings) -> tuple[LiveStream, bool]:
        """Create a stream, or change its settings: then it starts anew from its next reading."""
        if settings.budget is None:
            settings = settings.model_copy(update={"budget": self.settings.alerts})
        with self._lock:
            known = self.streams.get(name) or self.streams.stored(name)
            if known is not None and known.settings == settings:
                return known, False
            detector, layout = self.detectors.for_stream(settings)
            check_settings(settings, detector)
            if known is not None:
                with self._own(name) as known:
                    return self._changed(known, settings, detector, layout), False
            check_room(self.store, schema.streams, self.settings.max_streams, "streams")
            row: dict[str, Any] = {"name": name, "settings": settings.model_dump_json(), "created": time.time()}
            row |= {"paused": False, "reason": None, "dates": "{}", "first_seq": 0, "first_step": 0, "first_event": 0}
            with self.store.write() as connection:
                connection.execute(insert(schema.streams).values(row))
            self.streams.created += 1
            self.streams.sources.pop(name, None)  # what it said of a stream that was not there
            stream = self.streams.stored(name)
            if stream is None:
                raise UnknownStream(name)
            if self.sharing is None:
                self.streams.add([stream])
        self.scorer.open_later(stream)
        self._tell_state(stream)
        return stream, True

    def _changed(self, known: LiveStream, settings: StreamSettings, detector: Detector, layout: Layout) -> LiveStream:
        """Give a stream other settings, in the thread that owns its session."""

        def change() -> None:
            self.recorder.flush()  # what the old session gave is kept, and nothing of it may come later
            # No reading for the old settings comes in between.
            self.recorder.exclusive(lambda: self._start_anew(known, settings, detector, layout))
            self.scorer.open(known)

        self.scorer.do(change).result()
        self._tell_state(known)
        return known

    def _start_anew(self, known: LiveStream, settings: StreamSettings, detector: Detector, layout: Layout) -> None:
        """Store and take other settings: numbers before those of now belong to the earlier ones."""
        table, now = schema.events, time.time()
        own = table.c.stream_id == known.id
        with self._writing(known) as connection:
            newest = connection.execute(select(func.max(table.c.number)).where(own)).scalar()
            change: dict[str, Any] = {
                "first_step": max(next_number(connection, schema.scores, known.id), known.row.first_step),
                "first_seq": next_number(connection, schema.readings, known.id),
                "first_event": max(newest or 0, known.row.first_event),
                "paused": False,
                "reason": None,
            }
            values = {"settings": settings.model_dump_json(), **change}
            connection.execute(update(schema.streams).where(schema.streams.c.id == known.id).values(values))
            connection.execute(delete(schema.snapshots).where(schema.snapshots.c.stream_id == known.id))
            events = connection.execute(select(table).where(own, table.c.closed_at.is_(None))).mappings().all()
            connection.execute(update(table).where(own, table.c.closed_at.is_(None)).values(closed_at=now))
            self.notifications.outbox.write(connection, [{**event, "closed_at": now} for event in events])
        self.notifications.outbox.wake(False)
        known.detector, known.layout = detector, layout
        known.change(settings=settings, lost_detector=False, **change)
        known.scoring.session, known.scoring.open_event = None, None
        known.publish()

    def delete_stream(self, name: str) -> None:
        with self._lock, self._own(name) as stream:

            def delete_rows() -> None:
                with self._writing(stream) as connection:
                    for table in OWNED:
                        connection.execute(delete(table).where(table.c.stream_id == stream.id))
                    connection.execute(delete(schema.streams).where(schema.streams.c.id == stream.id))
                self.streams.drop([stream])

            def drop() -> None:
                self.recorder.flush()
                self.recorder.exclusive(delete_rows)

            self.scorer.do(drop).result()
        self.listeners.news("stream", name, {"name": name, "deleted": True})

    def pause(self, name: str, reason: str = "Paused by a person.") -> LiveStream:
        """Stop scoring a stream; readings are stored and scored once it is resumed."""
        with self._own(name) as stream:

            def stop() -> None:
                if not stream.owned:
                    raise Moved(name)
                self.scorer.pause(stream, reason)

            if not stream.row.paused:
                self.scorer.do(stop).result()
        return stream

    def resume(self, name: str) -> LiveStream:
        """Score a stream again, from the reading it was paused at."""
        with self._own(name) as stream:
            if stream.row.lost_detector:
                stream.detector, stream.layout = self.detectors.for_stream(stream.settings)
                stream.change(lost_detector=False)
            if stream.row.paused:
                self.recorder.flush()
                self.recorder.exclusive(lambda: self._unpause(stream))
                self.scorer.open_later(stream).result()
        self._tell_state(stream)
        return stream

    def _unpause(self, stream: LiveStream) -> None:
        with self._writing(stream) as connection:
            own = schema.streams.c.id == stream.id
            connection.execute(update(schema.streams).where(own).values(paused=False, reason=None))
        stream.change(paused=False, reason=None)

    # -- verdicts ---------------------------------------------------------------------------------------------------

    def rule(self, event_id: str, called: Called | None) -> None:
        """Take a verdict on an event; `normal` teaches the stream, None withdraws what was said."""
        stream, row = self.event(event_id)
        if row.verdict == called:
            return
        if row.number <= stream.row.first_event:  # nothing to learn, so it does not matter who has the stream
            self.recorder.rule(stream, row.number, called).result()
            return
        with self._own(stream.name) as stream:
            self.recorder.rule(stream, row.number, called).result()
            self.recorder.flush(stream)

    def event(self, event_id: str) -> tuple[LiveStream, Any]:
        table = schema.events
        stream_id, _, number = event_id.partition("-")
        row = self.store.row(select(table).where(table.c.stream_id == int(stream_id), table.c.number == int(number)))
        stream = None if row is None else self.streams.by_id({row.stream_id}).get(row.stream_id)
        if stream is None:
            raise Missing(f"There is no event {event_id!r}.")
        return stream, row

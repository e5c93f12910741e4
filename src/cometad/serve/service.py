"""The service without HTTP: streams and detectors over one store, with a thread that writes and one that scores."""

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Literal

import structlog
from sqlalchemy import delete, func, insert, select, update

from cometad.comet import Comet
from cometad.connect.contract import ReadingBatch, Receipt, UnknownStream
from cometad.detector import Detector
from cometad.errors import CometadError
from cometad.live.dates import StreamDates
from cometad.live.readings import Layout
from cometad.serve.demo_plant import NAME as DEMO
from cometad.serve.demo_plant import DemoPlant
from cometad.serve.detector_shelf import DetectorShelf, Missing, check_room
from cometad.serve.figures import Figures
from cometad.serve.listeners import Listeners
from cometad.serve.live_stream import LiveStream, check_settings
from cometad.serve.models import StreamSettings, StreamState
from cometad.serve.recorder import Recorder
from cometad.serve.scorer import FreshScores, LiveScorer
from cometad.serve.settings import Settings
from cometad.serve.storage import schema
from cometad.serve.storage.history import next_number
from cometad.serve.storage.store import StorageError, Store
from cometad.serve.tokens import Tokens
from cometad.serve.upkeep import Upkeep

NOT_LEARNED = "The event is older than the settings of the stream, so the verdict was stored but not learned."
RETRY = 5.0  # seconds until a session is opened again that the database did not give

_log = structlog.get_logger("cometad.serve")


class Service:
    """Everything the service does; the API is a thin layer above it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = Store.of(settings)
        self.tokens = Tokens(self.store, needed=not settings.is_local)
        self.streams: dict[str, LiveStream] = {}
        self.listeners, self.figures = Listeners(), Figures()
        self._lock = threading.RLock()  # of streams and detectors
        self.detectors = DetectorShelf(self.store, settings, self._lock, self._used)
        self.recorder = Recorder(self.store, self.streams, self._pass_on, lambda: self.scorer.unscored)
        self.scorer = LiveScorer(self.store, self.recorder.keep, self.recorder.flush, self._tell, self._tell_state)
        self.upkeep = Upkeep(self.store, settings, self.streams, self._tell_state)
        self.demo = DemoPlant(
            lambda: DEMO in self.streams,
            self.detectors.add,
            self.put_stream,
            lambda batches: self.recorder.submit(batches),
        )
        self.figures.watch(self._gauges, lambda: list(self.streams.values()))
        self.ready = self._started = False

    # -- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open all streams, score what was not scored yet, and take readings."""
        self.store.claim()
        self.detectors.close_interrupted_fits()
        with self.store.read() as connection:
            rows = connection.execute(select(schema.streams).order_by(schema.streams.c.id)).all()
        for row in rows:
            self._restore(row)
        self.recorder.start()
        self.scorer.start()
        self._started = True
        for stream in list(self.streams.values()):
            self._open(stream)
        self.upkeep.start()
        opened = self.scorer.do(lambda: None)
        opened.add_done_callback(lambda _: setattr(self, "ready", True))

    def close(self) -> None:
        """Score and store everything that was accepted, save all sessions, and end."""
        if self._started:
            self.ready = False
            self.demo.stop()
            self.upkeep.stop()
            self.recorder.close_intake()
            self.scorer.do(lambda: self.scorer.save(self.streams.values()))
            self.scorer.stop()
            self.recorder.stop()
        self.detectors.close()
        self.store.close()

    def count_streams(self) -> int:
        """How many streams are stored."""
        with self.store.read() as connection:
            return connection.execute(select(func.count()).select_from(schema.streams)).scalar_one()

    def _pass_on(self, work: Any) -> None:
        self.scorer.put(work)

    def _tell(self, scores: FreshScores) -> None:
        stream = scores.stream
        stream.silence_told = False
        self.figures.scored(len(scores.ats), scores.waited)
        self.listeners.points(stream, scores.ats, scores.cells)
        for change, event in scores.events:
            self.figures.event(change)
            self.listeners.news("event", stream.name, {**event.model_dump(), "change": change})

    def _gauges(self) -> dict[str, float]:
        return {
            "streams": len(self.streams),
            "streams_paused": sum(stream.paused for stream in list(self.streams.values())),
            "readings_unstored": self.recorder.waiting,
            "readings_unscored": self.scorer.unscored,
            "transaction_seconds": self.recorder.round_seconds,
            "listeners": len(self.listeners),
            "stored_bytes": self.upkeep.size(),
        }

    def _tell_state(self, stream: LiveStream) -> None:
        self.listeners.news("stream", stream.name, StreamState(**stream.describe()).model_dump(exclude={"recent"}))

    # -- readings ---------------------------------------------------------------------------------------------------

    def layout(self, stream: str) -> Layout:
        """The fields that readings of a stream must have."""
        found = self.streams.get(stream)
        if found is None:
            raise UnknownStream(stream)
        return found.layout

    async def receive(self, batches: Sequence[ReadingBatch]) -> Receipt:
        """Take readings; returns once they are on disk. Raises `Busy` if too much is waiting."""
        receipt = await asyncio.wrap_future(self.recorder.submit(batches))
        self.figures.received(receipt)
        return receipt

    def _used(self) -> Counter[str]:
        """How many streams use each detector."""
        return Counter(stream.settings.detector for stream in list(self.streams.values()))

    # -- streams ----------------------------------------------------------------------------------------------------

    def stream(self, name: str) -> LiveStream:
        """A stream by its name."""
        found = self.streams.get(name)
        if found is None:
            raise Missing(f"There is no stream {name!r}. Create it with PUT /v1/streams/{name}.")
        return found

    def put_stream(self, name: str, settings: StreamSettings) -> tuple[LiveStream, bool]:
        """Create a stream, or change its settings: then it starts anew from its next reading."""
        with self._lock:
            known = self.streams.get(name)
            if known is not None and known.settings == settings:
                return known, False
            detector, layout = self.detectors.for_stream(settings)
            check_settings(settings, detector)
            if known is not None:
                return self._changed(known, settings, detector, layout), False
            check_room(self.store, schema.streams, self.settings.max_streams, "streams")
            row: dict[str, Any] = {"name": name, "settings": settings.model_dump_json(), "created": time.time()}
            row |= {"paused": False, "reason": None, "dates": "{}", "first_seq": 0, "first_step": 0, "first_event": 0}
            with self.store.write() as connection:
                (found,) = connection.execute(insert(schema.streams).values(row)).inserted_primary_key or (0,)
            stream = LiveStream(int(found), name, settings, detector, layout)
            self.streams[name] = stream
        self._open(stream)
        self._tell_state(stream)
        return stream, True

    def _changed(self, known: LiveStream, settings: StreamSettings, detector: Detector, layout: Layout) -> LiveStream:
        """Give a stream other settings, in the thread that owns its session."""

        def change() -> None:
            self.recorder.flush()  # what the old session gave is kept, and nothing of it may come later
            with self.recorder.paused():  # no reading for the old settings comes in between
                self._start_anew(known, settings, detector, layout)
            self.scorer.open(known)

        self.scorer.do(change).result()
        self._tell_state(known)
        return known

    def _start_anew(self, known: LiveStream, settings: StreamSettings, detector: Detector, layout: Layout) -> None:
        """Store and take other settings: numbers before those of now belong to the earlier ones."""
        with self.store.write() as connection:
            own = schema.events.c.stream_id == known.id
            newest = connection.execute(select(func.max(schema.events.c.number)).where(own)).scalar()
            first = {
                "first_step": max(next_number(connection, schema.scores, known.id), known.first_step),
                "first_seq": next_number(connection, schema.readings, known.id),
                "first_event": max(newest or 0, known.first_event),
            }
            values: dict[str, Any] = {"settings": settings.model_dump_json(), "paused": False, "reason": None, **first}
            own = schema.streams.c.id == known.id
            connection.execute(update(schema.streams).where(own).values(values))
            connection.execute(delete(schema.snapshots).where(schema.snapshots.c.stream_id == known.id))
            open_now = (schema.events.c.stream_id == known.id) & schema.events.c.closed_at.is_(None)
            connection.execute(update(schema.events).where(open_now).values(closed_at=time.time()))
        known.first_step, known.first_seq, known.first_event = first.values()
        known.settings, known.detector, known.layout = settings, detector, layout
        known.lost_detector = False
        known.session, known.open_event, known.paused, known.reason = None, None, False, None

    def delete_stream(self, name: str) -> None:
        """Delete a stream with everything it has."""
        with self._lock:
            stream = self.stream(name)
            del self.streams[name]

            def drop() -> None:
                stream.paused = True  # whatever is on its way is not scored any more
                self.recorder.flush()
                with self.store.write() as connection:
                    for table in (schema.readings, schema.scores, schema.snapshots, schema.events, schema.verdicts):
                        connection.execute(delete(table).where(table.c.stream_id == stream.id))
                    connection.execute(delete(schema.streams).where(schema.streams.c.id == stream.id))

            was_paused = stream.paused
            try:
                self.scorer.do(drop).result()
            except BaseException:  # it is still stored
                stream.paused, self.streams[name] = was_paused, stream
                raise
        self.listeners.news("stream", name, {"name": name, "deleted": True})

    def pause(self, name: str, reason: str = "Paused by a person.") -> LiveStream:
        """Stop scoring a stream; readings are stored and scored once it is resumed."""
        stream = self.stream(name)
        if not stream.paused:
            self.scorer.do(lambda: self.scorer.pause(stream, reason)).result()
        return stream

    def resume(self, name: str) -> LiveStream:
        """Score a stream again, from the reading it was paused at."""
        stream = self.stream(name)
        if stream.lost_detector:
            stream.detector, stream.layout = self.detectors.for_stream(stream.settings)
            stream.lost_detector = False
        if stream.paused:
            self.recorder.flush()
            with self.store.write() as connection:
                own = schema.streams.c.id == stream.id
                connection.execute(update(schema.streams).where(own).values(paused=False, reason=None))
            stream.paused, stream.reason = False, None
            self._open(stream).result()
        self._tell_state(stream)
        return stream

    def _open(self, stream: LiveStream) -> "Future[None]":
        """Open the session of a stream; a failure pauses it."""

        def open_guarded() -> None:
            if stream.paused:
                return
            try:
                self.scorer.open(stream)
            except StorageError as error:  # the stream is well, and its next reading opens it, too
                _log.error("stream not opened", stream=stream.name, problem=str(error))
                stream.session = None
                later = threading.Timer(RETRY, self._open, [stream])
                later.daemon = True
                later.start()
            except Exception as error:  # one bad stream never stops another
                self.scorer.pause(stream, f"Its state cannot be restored: {error}")
                _log.exception("stream paused", stream=stream.name)

        return self.scorer.do(open_guarded)

    def _restore(self, row: Any) -> None:
        """Put a stream of the database into memory."""
        settings = StreamSettings.model_validate_json(row.settings)
        lost = None
        try:
            detector, layout = self.detectors.for_stream(settings)
        except CometadError as error:
            lost = f"Its detector cannot be used: {error}"
            detector, layout = Comet(), self.detectors.stored_layout(settings.detector)  # an unfitted placeholder
            _log.error("stream paused", stream=row.name, problem=lost)
        stream = LiveStream(row.id, row.name, settings, detector, layout, row.first_seq, row.first_step)
        stream.first_event, stream.lost_detector = row.first_event, lost is not None
        stream.paused, stream.reason = row.paused or lost is not None, lost or row.reason
        stream.dates = StreamDates()
        stream.stored_dates = json.loads(row.dates)
        stream.dates.restore(stream.stored_dates)
        with self.store.read() as connection:
            table = schema.readings
            own = table.c.stream_id == row.id
            newest = connection.execute(select(table).where(own).order_by(table.c.first.desc()).limit(1)).one_or_none()
            arrivals = stream.arrivals
            arrivals.next_seq = next_number(connection, table, row.id)
        if newest is not None:
            arrivals.last_at, arrivals.last_sequence = newest.last_at, newest.last_sequence
            arrivals.timed = json.loads(newest.last_time) is not None
            stream.last_received = time.time()  # silence counts from the start of the service
        self.streams[row.name] = stream

    # -- verdicts ---------------------------------------------------------------------------------------------------

    async def rule(self, event_id: str, called: Literal["fault", "normal"] | None) -> None:
        """Take a verdict on an event; `normal` teaches the stream, None withdraws what was said."""
        stream, number = self.event_place(event_id)
        own = (schema.events.c.stream_id == stream.id) & (schema.events.c.number == number)
        with self.store.read() as connection:
            row = connection.execute(select(schema.events).where(own)).one_or_none()
        if row is None:
            raise Missing(f"There is no event {event_id!r}.")
        if row.verdict == called:
            return
        if number > stream.first_event:
            taught, note = await asyncio.wrap_future(self.recorder.rule(stream, number - stream.first_event, called))
        else:
            taught, note = False, NOT_LEARNED
        now = None if called is None else time.time()
        values = {"verdict": called, "verdict_at": now, "taught": taught if called else None, "note": note}
        await asyncio.to_thread(self._keep_verdict, own, values)
        if stream.open_event is not None and stream.open_event.number == number:
            stream.open_event = stream.open_event.model_copy(update={"verdict": called, "verdict_at": now})

    def _keep_verdict(self, own: Any, values: dict[str, Any]) -> None:
        with self.store.write() as connection:
            connection.execute(update(schema.events).where(own).values(values))

    def event_place(self, event_id: str) -> tuple[LiveStream, int]:
        """The stream of an event and its number there."""
        stream_id, _, number = event_id.partition("-")
        for stream in list(self.streams.values()):
            if str(stream.id) == stream_id:
                return stream, int(number)
        raise Missing(f"There is no event {event_id!r}.")

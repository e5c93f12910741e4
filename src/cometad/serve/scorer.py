"""The thread that scores: takes readings that are on disk, and gives scores to the recorder and to whoever listens.

A stream whose scoring fails is paused with its reason; the others go on. Its readings are still stored, and are scored
once it is resumed.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np
import structlog
from sqlalchemy import select

from cometad.alerting.alerts import Change
from cometad.alerting.verdicts import Called
from cometad.arrays import Floats
from cometad.errors import CometadError
from cometad.live.session import Session, Timed
from cometad.serve.arrivals import Accepted
from cometad.serve.events import changed_event, event_row, fill_events
from cometad.serve.live_stream import RECENT, LastScores, LiveStream
from cometad.serve.models import EventSummary
from cometad.serve.regular import paced
from cometad.serve.storage import schema
from cometad.serve.storage.history import HistoryRows, after, by_number, chunk, next_number
from cometad.serve.storage.store import StorageError, Store

if TYPE_CHECKING:
    from cometad.serve.recorder import Recorder

SNAPSHOT_EVERY = 1000  # readings of a stream: as many are scored again after a crash, at most
RETRY = 5.0  # seconds until a session is opened again that the database did not give

T = TypeVar("T")

_log = structlog.get_logger("cometad.serve")


@dataclass
class Stored:
    """What the scorer wants to have stored, all of it in one transaction."""

    scores: list[dict[str, Any]] = field(default_factory=list)  # chunks
    events: list[dict[str, Any]] = field(default_factory=list)
    snapshots: list[dict[str, Any]] = field(default_factory=list)
    tried: list[dict[str, Any]] = field(default_factory=list)  # verdicts: whether learned, else why not
    paused: list[dict[str, Any]] = field(default_factory=list)  # streams, and why

    def __bool__(self) -> bool:
        return any(vars(self).values())

    def add(self, other: "Stored") -> None:
        for name, rows in vars(other).items():
            getattr(self, name).extend(rows)

    def has(self, stream: LiveStream | None) -> bool:
        return any(stream is None or row["stream_id"] == stream.id for rows in vars(self).values() for row in rows)


class GivenVerdict(NamedTuple):
    """A verdict that is on disk and waits to be applied before reading `after_seq`."""

    stream: LiveStream
    id: int
    after_seq: int
    number: int  # of the event
    called: str | None
    at: float
    done: "Future[None]"

    @property
    def is_late(self) -> bool:
        """Whether the event is older than the settings of its stream."""
        return self.number <= self.stream.row.first_event


class FreshScores(NamedTuple):
    stream: LiveStream
    first: int  # step of the first score
    ats: Floats  # (time,)
    cells: Floats  # (time, 3)  alert score, threshold, flag
    variables: Floats  # (time, variable)  scores of each variable
    events: Sequence[tuple[str, EventSummary]]  # changes and events
    waited: float  # seconds since the oldest of the readings was accepted


class LiveScorer:
    """Scores readings of all streams, one after the other.

    In its thread, `watchers` hear of new scores, and `tell_state` of streams that were paused.
    """

    def __init__(self, store: Store, tell_state: Callable[[LiveStream], None]) -> None:
        self._store, self._tell_state = store, tell_state
        self.watchers: list[Callable[[FreshScores], None]] = []
        self._work: deque[Accepted | GivenVerdict | Callable[[], None]] = deque()
        # When the oldest waiting readings of a stream were accepted: of those in the queue, and of those being scored.
        self._queued: dict[int, float] = {}
        self._taken: dict[int, float] = {}
        self.unscored = 0  # readings
        self._wake = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="cometad-scorer", daemon=True)

    def start(self, recorder: "Recorder") -> None:
        """Start the thread; the recorder stores the results."""
        self._recorder = recorder
        self._thread.start()

    def stop(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

    def lag(self, stream: LiveStream) -> float | None:
        """Seconds that the oldest unscored reading of a stream has waited; None if none waits."""
        since = self._taken.get(stream.id, self._queued.get(stream.id))
        return None if since is None else max(0.0, time.monotonic() - since)

    def put(self, work: Iterable[Accepted | GivenVerdict]) -> None:
        """Take readings and verdicts that are on disk, in order."""
        with self._wake:
            for one in work:
                if isinstance(one, Accepted):
                    self.unscored += len(one.rows.ats)
                    self._queued.setdefault(one.stream.id, one.since)
                self._work.append(one)
            self._wake.notify()

    def do(self, action: Callable[[], T]) -> "Future[T]":
        """Do something in this thread, after the work before it: it owns the sessions."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(action())
            except Exception as error:  # goes to whoever waits for it
                done.set_exception(error)

        with self._wake:
            self._work.append(run)
            self._wake.notify()
        return done

    def _run(self) -> None:
        while True:
            with self._wake:
                while not (self._work or self._stopping):
                    self._wake.wait()
                if self._stopping and not self._work:
                    return
                work, self._work = self._work, deque()
                self._taken, self._queued = self._queued, {}
            pieces = list(_grouped(work))
            last = {one.stream.id: one for one in pieces if isinstance(one, Accepted)}
            for one in pieces:
                try:
                    self._take(one)
                except Exception as error:  # this thread must go on
                    _log.error("scoring failed", problem=str(error), exc_info=not isinstance(error, CometadError))
                if isinstance(one, Accepted):
                    if last[one.stream.id] is one:
                        self._taken.pop(one.stream.id, None)
                    with self._wake:
                        self.unscored -= len(one.rows.ats)

    def _take(self, one: Accepted | GivenVerdict | Callable[[], None]) -> None:
        if isinstance(one, Accepted):
            self._guarded(one.stream, partial(self._score_new, one), _reason)
        elif isinstance(one, GivenVerdict):
            self._give(one)
        else:
            one()

    # -- one stream -------------------------------------------------------------------------------------------------

    def _guarded(self, stream: LiveStream, action: Callable[[], None], reason: Callable[[Exception], str]) -> bool:
        """Do something with a stream: a failure pauses it and never stops another. False if the database is away."""
        if not stream.is_scored:  # another process may have it already, and scores what is stored
            stream.scoring.session = None  # it does not know these readings, unlike the database
            return True
        try:
            action()
        except StorageError as error:  # the stream is well, and its next reading opens it again
            stream.scoring.session = None
            _log.error("stream not opened", stream=stream.name, problem=str(error))
            return False
        except Exception as error:
            self.pause(stream, reason(error))
            _log.exception("stream paused", stream=stream.name)
        return True

    def _score_new(self, work: Accepted) -> None:
        scoring = work.stream.scoring
        if work.rows.first > scoring.scored_seq:  # readings between were dropped here: they are on disk
            scoring.session = None
        self.open(work.stream)
        if work.rows.stop > scoring.scored_seq:
            self._score(work.stream, work.rows.part(scoring.scored_seq), work.since)

    def open_later(self, stream: LiveStream) -> "Future[None]":
        """Open the session of a stream, after the work before; a failure pauses it."""

        def open_now() -> None:
            if not self._guarded(stream, partial(self.open, stream), "Its state cannot be restored: {}".format):
                later = threading.Timer(paced(RETRY), self.open_later, [stream])
                later.daemon = True
                later.start()

        return self.do(open_now)

    def open(self, stream: LiveStream) -> None:
        """Open the session of a stream: its snapshot, then the readings since."""
        scoring, row = stream.scoring, stream.row
        if scoring.session is not None:
            return
        self._recorder.flush(stream)  # else scores that are on their way would be taken for missing
        with self._store.read() as connection:
            own = schema.snapshots.c.stream_id == stream.id
            saved = connection.execute(select(schema.snapshots).where(own)).one_or_none()
            session = stream.new_session(None if saved is None else saved.content)
            scoring.scored_seq = row.first_seq if saved is None else saved.seq
            scoring.known_verdict = 0 if saved is None else saved.verdict
            scoring.stored_step = max(row.first_step, next_number(connection, schema.scores, stream.id))
            recent = by_number(connection, schema.scores, stream.id, scoring.stored_step - RECENT, 2**62)
            scoring.last = LastScores()
            if len(recent.ats):
                scoring.last.add(recent.ats, recent.cells)
            fill_events(connection, {stream.id: stream})
            stream.publish()
            scoring.session = session
            scoring.snapshot_due = SNAPSHOT_EVERY - stream.id % SNAPSHOT_EVERY  # not all streams at once
            table = schema.verdicts
            later = (table.c.stream_id == stream.id) & (table.c.id > scoring.known_verdict)
            verdicts = deque(connection.execute(select(table).where(later).order_by(table.c.id)).all())
            for rows in after(connection, schema.readings, stream.id, scoring.scored_seq):
                while verdicts and verdicts[0].after_seq < rows.stop:
                    self._score(stream, rows.part(scoring.scored_seq, verdicts[0].after_seq), None)
                    self._apply(stream, verdicts.popleft())
                self._score(stream, rows.part(scoring.scored_seq), None)
            for verdict in verdicts:
                self._apply(stream, verdict)

    def _score(self, stream: LiveStream, rows: HistoryRows, since: float | None) -> None:
        if not len(rows.ats):
            return
        scoring = stream.scoring
        timed = cast(Session, scoring.session).take_many(rows.cells, rows.ats.tolist())
        scoring.scored_seq = rows.stop
        stored = Stored()
        for one in timed:
            self._result(stream, one, stored, since)
        scoring.snapshot_due -= len(rows.ats)
        if scoring.snapshot_due <= 0:
            stored.snapshots.append(_snapshot(stream))
        if stored:
            self._recorder.keep(stream, stored)

    def _result(self, stream: LiveStream, timed: Timed, stored: Stored, since: float | None) -> None:
        scored, scoring = timed.scored, stream.scoring
        first, count = stream.row.first_step + scored.start, len(scored)
        new = max(scoring.stored_step - first, 0)  # the rest was stored before a crash
        if new >= count:
            return
        ats = np.array([_seconds(at) for at in timed.times])[new:]
        cells = np.empty((count, 3))
        cells[:, 0], cells[:, 1], cells[:, 2] = scored.alert_scores, scored.thresholds, scored.flags
        cells = cells[new:]
        before, scoring.stored_step = scoring.stored_step, first + count
        scoring.last.add(ats, cells)
        stored.scores.append(chunk(stream.id, HistoryRows(first + new, ats, cells)))
        told = [
            (change.kind, self._event(stream, change, timed, stored))
            for change in scored.changes
            if stream.row.first_step + change.step >= before
        ]
        stream.publish(scored.variables[-1])
        waited = 0.0 if since is None else time.monotonic() - since
        fresh = FreshScores(stream, first + new, ats, cells, scored.variables[new:], told, waited)
        for watcher in self.watchers:
            watcher(fresh)

    def _event(self, stream: LiveStream, change: Change, timed: Timed, stored: Stored) -> EventSummary:
        scored, scoring = timed.scored, stream.scoring

        def time_of(step: int) -> float | None:
            if step >= scored.start:
                return _seconds(timed.times[step - scored.start])
            return scoring.last.at(scoring.stored_step - 1 - stream.row.first_step - step)

        row = change.step - scored.start
        event, profile = changed_event(stream, change, scored.variables[row], float(scored.thresholds[row]), time_of)
        if change.kind == "opened":
            scoring.events += 1
            first = scoring.stored_step - stream.budget_window[0]
            scoring.openings = (*(start for start in scoring.openings if start >= first), event.start)
        scoring.open_event = event if event.state == "open" else None
        scoring.peak_profile = profile
        stored.events.append(event_row(stream, event, profile))
        return event

    # -- verdicts, pauses, snapshots --------------------------------------------------------------------------------

    def _apply(self, stream: LiveStream, verdict: Any) -> tuple[bool, str | None]:
        """Apply a verdict to the session, which then knows it; returns whether it learned, else why not."""
        stream.scoring.known_verdict = verdict.id
        try:
            cast(Session, stream.scoring.session).verdict(verdict.number, cast(Called | None, verdict.called))
        except CometadError as error:
            return False, str(error)
        return verdict.called == "normal", None

    def _give(self, verdict: GivenVerdict) -> None:
        stream, called = verdict.stream, verdict.called
        stored = Stored()
        try:
            learned, note = self._tried(verdict, stored)
            outcome = {"taught": None if called is None else learned, "note": note}
            stored.tried.append({"stream_id": stream.id, "number": verdict.number, **outcome})
            self._recorder.keep(stream, stored)
            known = stream.scoring.open_event
            if known is not None and known.number == verdict.number:
                said = {"verdict": called, "verdict_at": None if called is None else verdict.at}
                stream.scoring.open_event = known.model_copy(update=said)
                stream.publish()
            verdict.done.set_result(None)
        except StorageError as error:  # the stream is well, and learns the verdict once it is opened again
            stream.scoring.session = None
            verdict.done.set_exception(error)
            self.open_later(stream)
        except Exception as error:
            verdict.done.set_exception(error)
            self.pause(stream, _reason(error))
            _log.exception("stream paused", stream=stream.name)

    def _tried(self, verdict: GivenVerdict, stored: Stored) -> tuple[bool, str | None]:
        stream = verdict.stream
        if not stream.owned:
            stream.scoring.session = None  # it does not know the verdict, unlike the database
            return False, "The stream is moving; the verdict takes effect once it is scored again."
        if stream.row.paused:
            return False, "The stream is paused; the verdict takes effect once it is resumed."
        self.open(stream)
        if verdict.id <= stream.scoring.known_verdict:  # opening the session has applied it
            return verdict.called == "normal", None
        tried = self._apply(stream, verdict._replace(number=verdict.number - stream.row.first_event))
        stored.snapshots.append(_snapshot(stream))
        return tried

    def pause(self, stream: LiveStream, reason: str) -> None:
        stream.scoring.session = None
        if not stream.owned:  # another process may have it already, and finds the reason itself
            return
        stream.change(paused=True, reason=reason)
        self._recorder.keep(stream, Stored(paused=[{"stream_id": stream.id, "reason": reason}]))
        self._tell_state(stream)

    def save(self, streams: Iterable[LiveStream]) -> None:
        """Store a snapshot of each open session, so that the next start is quick."""
        for stream in streams:
            scoring = stream.scoring
            if stream.owned and scoring.session is not None and scoring.snapshot_due < SNAPSHOT_EVERY:
                try:
                    self._recorder.keep(stream, Stored(snapshots=[_snapshot(stream)]))
                except Exception:  # its readings since the last snapshot are scored again
                    _log.exception("snapshot not saved", stream=stream.name)


def _snapshot(stream: LiveStream) -> dict[str, Any]:
    scoring = stream.scoring
    scoring.snapshot_due = SNAPSHOT_EVERY
    return {
        "stream_id": stream.id,
        "seq": scoring.scored_seq,
        "verdict": scoring.known_verdict,
        "content": cast(Session, scoring.session).snapshot(),
    }


def _grouped(work: Iterable[Any]) -> Iterator[Any]:
    """The work with readings of one stream that follow each other joined, as long as no verdict lies between."""
    waiting: dict[int, list[Accepted]] = {}
    for one in work:
        if isinstance(one, Accepted):
            own = waiting.setdefault(one.stream.id, [])
            if own and own[-1].rows.stop != one.rows.first:
                yield _joined_batches(own)
                own.clear()
            own.append(one)
        else:
            yield from map(_joined_batches, waiting.values())
            waiting = {}
            yield one
    yield from map(_joined_batches, waiting.values())


def _joined_batches(parts: Sequence[Accepted]) -> Accepted:
    if len(parts) == 1:
        return parts[0]
    columns = (np.concatenate(column) for column in zip(*(one.rows[1:] for one in parts), strict=True))
    return parts[0]._replace(rows=HistoryRows(parts[0].rows.first, *columns))


def _seconds(at: Any) -> float:
    """The time of a score: a number or, of a bin, a date."""
    if isinstance(at, str):
        return datetime.fromisoformat(at).timestamp()
    return float(at)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, CometadError) else f"Scoring failed ({type(error).__name__}: {error})."

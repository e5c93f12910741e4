"""The thread that scores: takes readings that are on disk, and gives scores to the recorder and to whoever listens.

A stream whose scoring fails is paused with its reason; the others go on. Its readings are still stored, and are scored
once it is resumed.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from datetime import datetime
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import structlog
from sqlalchemy import Connection, func, select

from cometad.alerting.alerts import Change
from cometad.alerting.verdicts import Called
from cometad.arrays import Floats
from cometad.errors import CometadError
from cometad.live.session import Session, Timed
from cometad.serve.event_rows import changed_event, event_of, event_row
from cometad.serve.live_stream import RECENT, LiveStream, top_of
from cometad.serve.recorder import Accepted, GivenVerdict, Stored
from cometad.serve.storage import schema
from cometad.serve.storage.history import HistoryRows, after, by_number, chunk, next_number
from cometad.serve.storage.store import StorageError, Store

SNAPSHOT_EVERY = 1000  # readings of a stream: as many are scored again after a crash, at most

T = TypeVar("T")

_log = structlog.get_logger("cometad.serve")


class FreshScores(NamedTuple):
    """New scores of a stream, for those who listen."""

    stream: LiveStream
    first: int  # step of the first score
    ats: Floats  # (time,)
    cells: Floats  # (time, 3)  alert score, threshold, flag
    variables: Floats  # (time, variable)  scores of each variable
    events: list[tuple[str, Any]]  # changes and events
    waited: float  # seconds since the oldest of the readings was accepted


class LiveScorer:
    """Scores readings of all streams, one after the other."""

    def __init__(
        self,
        store: Store,
        keep: Callable[[LiveStream, Stored], None],
        flush: Callable[[LiveStream], None],
        tell: Callable[[FreshScores], None],
        tell_paused: Callable[[LiveStream], None],
    ) -> None:
        self._store, self._keep, self._flush, self._tell, self._tell_paused = store, keep, flush, tell, tell_paused
        self._work: deque[Accepted | GivenVerdict | Callable[[], None]] = deque()
        self._unscored = 0
        self._wake = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="cometad-scorer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Score what waits and end the thread."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

    @property
    def unscored(self) -> int:
        """Readings that wait to be scored."""
        return self._unscored

    def put(self, work: Iterable[Accepted | GivenVerdict]) -> None:
        """Take readings and verdicts that are on disk, in order."""
        with self._wake:
            for one in work:
                if isinstance(one, Accepted):
                    self._unscored += len(one.rows.ats)
                    one.stream.waiting_since = one.stream.waiting_since or one.since
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
                work = list(self._work)
                self._work.clear()
            for one in _grouped(work):
                if isinstance(one, Accepted):
                    self._score_guarded(one)
                    with self._wake:
                        self._unscored -= len(one.rows.ats)
                elif isinstance(one, GivenVerdict):
                    self._give(one)
                else:
                    one()

    # -- one stream -------------------------------------------------------------------------------------------------

    def _score_guarded(self, work: Accepted) -> None:
        stream = work.stream
        stream.waiting_since = None
        if stream.paused or not stream.owned:  # whoever takes it next scores what is stored
            return
        try:
            self.open(stream)
            if work.rows.stop > stream.scored_seq:
                self._score(stream, _from(work.rows, stream.scored_seq), work.since)
        except StorageError as error:  # its next reading opens the session again, and what waits is scored then
            stream.session = None
            _log.error("stream not opened", stream=stream.name, problem=str(error))
        except Exception as error:  # one bad stream never stops another
            self.pause(stream, _reason(error))
            _log.exception("stream paused", stream=stream.name)

    def open(self, stream: LiveStream) -> None:
        """Open the session of a stream: its snapshot, then the readings since."""
        if stream.session is not None:
            return
        self._flush(stream)  # else scores that are on their way would be taken for missing
        with self._store.read() as connection:
            own = schema.snapshots.c.stream_id == stream.id
            saved = connection.execute(select(schema.snapshots).where(own)).one_or_none()
            session = stream.new_session(None if saved is None else saved.content)
            stream.scored_seq = stream.first_seq if saved is None else saved.seq
            stream.known_verdict = 0 if saved is None else saved.verdict
            stream.stored_step = max(stream.first_step, next_number(connection, schema.scores, stream.id))
            _show_recent(stream, by_number(connection, schema.scores, stream.id, stream.stored_step - RECENT, 2**62))
            _show_events(connection, stream)
            stream.publish()
            stream.session = session
            stream.snapshot_due = SNAPSHOT_EVERY - stream.id % SNAPSHOT_EVERY  # not all streams at once
            verdicts = self._later_verdicts(connection, stream)
            for rows in after(connection, schema.readings, stream.id, stream.scored_seq):
                self._replay(stream, rows, verdicts)
            self._replay_verdicts(stream, verdicts)

    def _later_verdicts(self, connection: Connection, stream: LiveStream) -> deque[Any]:
        table = schema.verdicts
        later = (table.c.stream_id == stream.id) & (table.c.id > stream.known_verdict)
        return deque(connection.execute(select(table).where(later).order_by(table.c.id)).all())

    def _replay(self, stream: LiveStream, rows: HistoryRows, verdicts: deque[Any]) -> None:
        while verdicts and verdicts[0].after_seq < rows.stop:
            verdict = verdicts.popleft()
            before = HistoryRows(rows.first, *(part[: max(verdict.after_seq - rows.first, 0)] for part in rows[1:]))
            self._score(stream, _from(before, stream.scored_seq), None)
            self._apply(stream, verdict.id, verdict.number, verdict.called)
        self._score(stream, _from(rows, stream.scored_seq), None)

    def _replay_verdicts(self, stream: LiveStream, verdicts: deque[Any]) -> None:
        while verdicts:
            verdict = verdicts.popleft()
            self._apply(stream, verdict.id, verdict.number, verdict.called)

    def _score(self, stream: LiveStream, rows: HistoryRows, since: float | None) -> None:
        if not len(rows.ats):
            return
        session = cast(Session, stream.session)
        timed = session.take_many(rows.cells, rows.ats.tolist())
        stream.scored_seq = rows.stop
        stored = Stored()
        for one in timed:
            self._result(stream, one, stored, since)
        stream.snapshot_due -= len(rows.ats)
        if stream.snapshot_due <= 0:
            stored.snapshots.append(self._snapshot(stream))
        if stored.scores or stored.events or stored.snapshots:
            self._keep(stream, stored)

    def _result(self, stream: LiveStream, timed: Timed, stored: Stored, since: float | None) -> None:
        """Add new scores to what is stored, and tell those who listen."""
        scored = timed.scored
        if not len(scored):
            return
        first = stream.first_step + scored.start
        ats = np.array([_seconds(at) for at in timed.times])
        cells = np.column_stack([scored.alert_scores, scored.thresholds, scored.flags])
        new = max(stream.stored_step - first, 0)  # the rest was stored before a crash
        changes = [one for one in scored.changes if stream.first_step + one.step >= stream.stored_step]
        if new >= len(ats):
            return
        stream.last.add(ats[new:], cells[new:])
        stored.scores.append(chunk(stream.id, HistoryRows(first + new, ats[new:], cells[new:])))
        stream.stored_step = first + len(ats)
        told = [self._event(stream, change, timed, stored) for change in changes]
        stream.publish(top_of(stream.detector.names_, scored.variables[-1]))
        waited = 0.0 if since is None else time.monotonic() - since
        self._tell(FreshScores(stream, first + new, ats[new:], cells[new:], scored.variables[new:], told, waited))

    def _event(self, stream: LiveStream, change: Change, timed: Timed, stored: Stored) -> tuple[str, Any]:
        scored = timed.scored

        def time_of(step: int) -> float | None:
            if step >= scored.start:
                return _seconds(timed.times[step - scored.start])
            return stream.last.at(stream.stored_step - 1 - stream.first_step - step)

        row = change.step - scored.start
        event, profile = changed_event(stream, change, scored.variables[row], float(scored.thresholds[row]), time_of)
        if change.kind == "opened":
            stream.events += 1
            first = stream.stored_step - stream.budget_window[0]
            stream.openings = [start for start in stream.openings if start >= first] + [event.start]
        stream.open_event = event if event.state == "open" else None
        stream.peak_profile = profile
        stored.events.append(event_row(stream, event, profile))
        return change.kind, event

    def _snapshot(self, stream: LiveStream) -> dict[str, Any]:
        stream.snapshot_due = SNAPSHOT_EVERY
        return {
            "stream_id": stream.id,
            "seq": stream.scored_seq,
            "verdict": stream.known_verdict,
            "content": cast(Session, stream.session).snapshot(),
        }

    def _apply(self, stream: LiveStream, verdict: int, number: int, called: str | None) -> tuple[bool, str | None]:
        """Apply a verdict to the session, which then knows it; returns whether it learned, else why not."""
        stream.known_verdict = verdict
        try:
            cast(Session, stream.session).verdict(number, cast(Called | None, called))
        except CometadError as error:
            return False, str(error)
        return called == "normal", None

    def _give(self, verdict: GivenVerdict) -> None:
        stream, stored = verdict.stream, Stored()
        try:
            learned, note = self._tried(verdict, stored)
            outcome = {"taught": None if verdict.called is None else learned, "note": note}
            stored.tried.append({"stream_id": stream.id, "number": verdict.number, **outcome})
            self._keep(stream, stored)
            known, called = stream.open_event, verdict.called
            if known is not None and known.number == verdict.number:
                said = {"verdict": called, "verdict_at": None if called is None else verdict.at}
                stream.open_event = known.model_copy(update=said)
            verdict.done.set_result(None)
        except Exception as error:
            verdict.done.set_exception(error)
            self.pause(stream, _reason(error))
            _log.exception("stream paused", stream=stream.name)

    def _tried(self, verdict: GivenVerdict, stored: Stored) -> tuple[bool, str | None]:
        """Apply a verdict if that is possible now; returns whether it learned, else why not."""
        stream = verdict.stream
        if not stream.owned:
            stream.session = None  # it does not know the verdict, unlike the database
            return False, "The stream is moving; the verdict takes effect once it is scored again."
        if stream.paused:
            return False, "The stream is paused; the verdict takes effect once it is resumed."
        self.open(stream)
        if verdict.id <= stream.known_verdict:  # opening the session has applied it
            return verdict.called == "normal", None
        tried = self._apply(stream, verdict.id, verdict.number - stream.first_event, verdict.called)
        stored.snapshots.append(self._snapshot(stream))
        return tried

    def pause(self, stream: LiveStream, reason: str) -> None:
        """Stop scoring a stream; its readings are stored and wait."""
        stream.paused, stream.reason, stream.session = True, reason, None
        self._keep(stream, Stored(paused=[(stream.id, reason)]))
        self._tell_paused(stream)

    def save(self, streams: Iterable[LiveStream]) -> None:
        """Store a snapshot of each open session, so that the next start is quick."""
        for stream in streams:
            if stream.owned and stream.session is not None and stream.snapshot_due < SNAPSHOT_EVERY:
                try:
                    self._keep(stream, Stored(snapshots=[self._snapshot(stream)]))
                except Exception:  # its readings since the last snapshot are scored again
                    _log.exception("snapshot not saved", stream=stream.name)


def _grouped(work: list[Any]) -> Iterable[Any]:
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


def _joined_batches(parts: list[Accepted]) -> Accepted:
    if len(parts) == 1:
        return parts[0]
    columns = (np.concatenate(column) for column in zip(*(one.rows[1:] for one in parts), strict=True))
    return parts[0]._replace(rows=HistoryRows(parts[0].rows.first, *columns))


def _from(rows: HistoryRows, seq: int) -> HistoryRows:
    """The rows from a number on."""
    skip = max(seq - rows.first, 0)
    return rows if skip == 0 else HistoryRows(rows.first + skip, rows.ats[skip:], rows.cells[skip:])


def _show_recent(stream: LiveStream, rows: HistoryRows) -> None:
    stream.last = type(stream.last)()
    if len(rows.ats):
        stream.last.add(rows.ats, rows.cells)


def _show_events(connection: Connection, stream: LiveStream) -> None:
    """Fill in what was known of the events of a stream."""
    table = schema.events
    own = table.c.stream_id == stream.id
    stream.events = connection.execute(select(func.count()).select_from(table).where(own)).scalar_one()
    newest = connection.execute(select(table).where(own).order_by(table.c.number.desc()).limit(1)).one_or_none()
    if newest is not None and newest.closed_at is None and newest.number > stream.first_event:
        stream.open_event, stream.peak_profile = event_of(newest, stream), newest.profile
    since = max(stream.first_step, stream.stored_step - stream.budget_window[0])
    stream.openings = list(connection.execute(select(table.c.start).where(own, table.c.start >= since)).scalars())


def _seconds(at: Any) -> float:
    """The time of a score: a number or, of a bin, a date."""
    if isinstance(at, str):
        return datetime.fromisoformat(at).timestamp()
    return float(at)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, CometadError) else f"Scoring failed ({type(error).__name__}: {error})."

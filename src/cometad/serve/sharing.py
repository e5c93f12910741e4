"""Shares streams with other processes: finds new ones, releases idle ones, finishes those of dead processes."""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

import numpy as np
from sqlalchemy import FromClause, Table, select, true

from cometad.serve.events import event_of
from cometad.serve.live_stream import LiveStream
from cometad.serve.members import Members
from cometad.serve.recorder import Recorder
from cometad.serve.regular import RegularWork, paced
from cometad.serve.scorer import LiveScorer
from cometad.serve.storage import schema
from cometad.serve.storage.store import Store

UNKNOWN_FOR = 1.0  # seconds until an unknown stream is looked up again
LEFT_FOR = 10.0  # seconds until the streams of a dead process are finished, unless new readings arrive
LOOK_EVERY = 1.0  # seconds
TRIES = 100  # to release a stream while readings arrive
TICK = 2.0  # seconds
MOST_DELETED = 1000  # streams deleted here that a row read just before must not bring back


class StreamSharing(RegularWork):
    """Moves streams between this process and others; with SQLite there are no others, and it does nothing.

    `restore` creates a stream from its database row. `lock` guards the streams.
    """

    def __init__(
        self,
        store: Store,
        streams: dict[str, LiveStream],
        members: Members,
        recorder: Recorder,
        scorer: LiveScorer,
        restore: Callable[[Any], LiveStream],
        lock: threading.RLock,
    ) -> None:
        self._store, self._streams, self._members = store, streams, members
        self._recorder, self._scorer, self._restore, self._lock = recorder, scorer, restore, lock
        self._unknown: dict[str, float] = {}  # when a lookup found nothing
        self._orphans: dict[str, float] = {}  # when a stream's process was found dead
        self._deleted: deque[int] = deque(maxlen=MOST_DELETED)
        self._idle: list[str] = []
        self._looked = -LOOK_EVERY
        # Not the heartbeat thread: this one waits for the scorer, and a process without heartbeat is declared dead.
        super().__init__("sharing", paced(TICK), self.tick)

    def start(self) -> None:
        if not self._store.is_sqlite:
            super().start()

    # -- streams that others created, changed or deleted ------------------------------------------------------------

    def find(self, name: str) -> LiveStream | None:
        """A stream created by another process."""
        now = time.monotonic()
        if self._store.is_sqlite or now - self._unknown.get(name, -UNKNOWN_FOR) < UNKNOWN_FOR:
            return None
        row = self._row(name)
        if row is None:
            self._unknown = {one: at for one, at in self._unknown.items() if now - at < UNKNOWN_FOR} | {name: now}
            return None
        self._add(row)
        return self._streams.get(name)

    def current(self, name: str) -> LiveStream | None:
        """A stream as it is stored now, if there is one: others may have created, changed or deleted it."""
        known = self._streams.get(name)
        if self._store.is_sqlite or (known is not None and known.owned):
            return known
        row = self._row(name)
        if row is not None:
            self._learn(row)
        return None if row is None else self._streams.get(name)

    def _row(self, name: str) -> Any:
        return self._store.row(select(schema.streams).where(schema.streams.c.name == name))

    def deleted(self, stream: LiveStream) -> None:
        """Forget a stream that this process deleted; called while no transaction of the recorder runs."""
        self._deleted.append(stream.id)
        found = self._streams.get(stream.name)
        if found is not None and found.id == stream.id:  # its readings come, and it was found once more
            found.held = "gone"
            del self._streams[stream.name]

    def refresh(self) -> None:
        """Pick up streams that others created, changed, scored or deleted."""
        before = list(self._streams.items())  # streams created later may not be among the rows
        rows = {row.name: row for row in self._store.rows(select(schema.streams))}

        def forget_deleted() -> None:
            for name, stream in before:
                if name not in rows and not stream.owned and self._streams.get(name) is stream:
                    stream.held = "gone"
                    del self._streams[name]

        with self._lock:
            self._recorder.exclusive(forget_deleted)
        for row in rows.values():
            self._learn(row)

    def _learn(self, row: Any) -> None:
        """Know a stream as it is in a row of the database, unless this process has it."""
        known = self._streams.get(row.name)
        if known is None:
            self._add(row)
        elif not known.owned and (known.gone or row.id != known.id or row.epoch > known.row.epoch):
            self._recorder.exclusive(partial(self._exchange, known, self._restore(row)))

    def _exchange(self, known: LiveStream, fresh: LiveStream) -> None:
        if not known.owned and self._streams.get(fresh.name) is known:
            known.held, self._streams[fresh.name] = "gone", fresh

    def _add(self, row: Any) -> None:
        """Know a stream that is new here, unless this process deleted it after the row was read."""
        fresh = self._restore(row)

        def add() -> None:
            if row.id not in self._deleted:
                self._streams.setdefault(row.name, fresh)

        self._recorder.exclusive(add)

    # -- streams that move ------------------------------------------------------------------------------------------

    def take(self, stream: LiveStream) -> None:
        """Take a stream; raises `Elsewhere` if another process has it."""
        elsewhere = self._recorder.exclusive(partial(self._members.take, [stream]))
        if elsewhere:
            raise elsewhere[stream.name]

    def release(self, names: Iterable[str]) -> None:
        """Release streams once all their readings are scored and stored."""
        left = [stream for name in names if (stream := self._streams.get(name)) is not None and stream.owned]
        for _ in range(TRIES):
            if self._store.is_sqlite or not left:
                return
            left = self._scorer.do(partial(self._released, left)).result()
        # The others keep receiving readings: another source feeds them here.

    def _released(self, streams: list[LiveStream]) -> list[LiveStream]:
        """Save and release streams, in the scoring thread; returns those that received readings meanwhile."""
        streams = [stream for stream in streams if stream.owned]
        self._scorer.save(streams)
        self._recorder.flush()

        def release() -> None:
            self._members.release([one for one in streams if one.row.paused or self._scorer.lag(one) is None])

        self._recorder.exclusive(release)
        return [stream for stream in streams if stream.owned]

    def leave_part(self, connection: str, part: int, names: Collection[str]) -> None:
        """Release a part of a source and the streams it feeds."""
        self.release(names)
        self._recorder.exclusive(partial(self._members.leave_part, connection, part))

    # -- streams that others score, from what is stored -------------------------------------------------------------

    def look(self) -> None:
        """Update the displayed state of streams that other processes score, at most once a second."""
        now = time.monotonic()
        if self._store.is_sqlite or now - self._looked < LOOK_EVERY:
            return
        self._looked = now
        foreign = {stream.id: stream for stream in list(self._streams.values()) if not stream.owned}
        rows = self._stored_states(foreign) if foreign else []

        def show() -> None:
            for row, event in rows:
                stream = foreign[row.id]
                # If nobody has it since it was released here, the state in memory may still be needed.
                if not stream.owned and (row.owner is not None or row.epoch > stream.row.epoch):
                    _show(stream, row, event)

        self._recorder.exclusive(show)

    def _stored_states(self, streams: Collection[int]) -> list[tuple[Any, Any]]:
        """The newest readings and scores of streams, and their open events, as rows."""
        table = schema.streams
        readings, scores = _newest(schema.readings), _newest(schema.scores)
        kinds = (("reading", readings), ("score", scores))
        columns = [column.label(f"{kind}_{column.name}") for kind, one in kinds for column in one.c]
        query = select(table.c.id, table.c.owner, table.c.epoch, table.c.paused, table.c.reason, *columns)
        query = query.outerjoin_from(table, readings, true()).outerjoin(scores, true()).where(table.c.id.in_(streams))
        events = schema.events
        with self._store.read() as connection:
            rows = connection.execute(query).all()
            still_open = events.c.closed_at.is_(None) & events.c.stream_id.in_(streams)
            found = {row.stream_id: row for row in connection.execute(select(events).where(still_open)).all()}
        return [(row, found.get(row.id)) for row in rows]

    # -- regular work -----------------------------------------------------------------------------------------------

    def release_idle(self) -> None:
        """Release streams opened at startup at the next tick; their state stays in memory in case it is needed."""
        self._idle = [one.name for one in list(self._streams.values()) if one.owned and not one.arrivals.fed]

    def tick(self) -> None:
        """Release idle streams, pick up changes by others, and finish the streams of dead processes."""
        idle, self._idle = self._idle, []
        self.release(name for name in idle if name in self._streams and not self._streams[name].arrivals.fed)
        self.refresh()
        self._finish_orphans()

    def _finish_orphans(self) -> None:
        """Score what dead processes had stored but not scored, unless their streams were taken meanwhile.

        The same for streams whose release failed in this process.
        """
        now = time.monotonic()
        self._orphans = {name: self._orphans.get(name, now) for name in self._members.orphans()}
        due = [name for name, since in self._orphans.items() if now - since >= LEFT_FOR]

        def take() -> list[LiveStream]:
            found = [one for name in due if (one := self._streams.get(name)) is not None and not one.owned]
            if found:
                self._members.take(found)
            return [self._streams[one.name] for one in found if one.name in self._streams]

        mine = self._recorder.exclusive(take)
        for stream in mine:
            if stream.is_scored:
                self._scorer.do(partial(self._scorer.open, stream)).result()
        self.release(stream.name for stream in mine if not stream.arrivals.fed)


def _newest(table: Table) -> FromClause:
    columns = [table.c[name] for name in ("first", "count", "last_at", "ats", "cells")]
    own = select(*columns).where(table.c.stream_id == schema.streams.c.id)
    return own.order_by(table.c.first.desc()).limit(1).lateral()


def _show(stream: LiveStream, row: Any, event: Any) -> None:
    """Show the stored state of a stream; it is reloaded before this process scores it again."""
    arrivals, scoring = stream.arrivals, stream.scoring
    stream.change(paused=row.paused or stream.row.lost_detector, reason=row.reason)
    if row.reading_first is not None:
        seq = row.reading_first + row.reading_count
        if seq != arrivals.next_seq:
            arrivals.next_seq, arrivals.last_received = seq, time.time()
    if row.score_first is not None:
        ats, cells = np.frombuffer(row.score_ats, "<f8"), np.frombuffer(row.score_cells, "<f8").reshape(-1, 3)
        new = max(scoring.stored_step - row.score_first, 0)
        if new < len(ats):
            scoring.last.add(ats[new:], cells[new:])
            scoring.stored_step = row.score_first + len(ats)
    known = event is not None and event.number > stream.row.first_event
    scoring.open_event = event_of(event, stream) if known else None
    stream.publish()

"""Shares streams with other processes: finds new ones, releases idle ones, finishes those of dead processes."""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

import structlog
from sqlalchemy import select

from cometad.errors import CometadError
from cometad.serve.live_stream import LiveStream
from cometad.serve.members.ownership import Ownership
from cometad.serve.members.seen_elsewhere import show, stored_states
from cometad.serve.recorder import Recorder
from cometad.serve.scorer import LiveScorer
from cometad.serve.storage import schema
from cometad.serve.storage.store import Store

UNKNOWN_FOR = 1.0  # seconds until an unknown stream is looked up again
LEFT_FOR = 10.0  # seconds until the streams of a dead process are finished, unless new readings arrive
LOOK_EVERY = 1.0  # seconds
TRIES = 100  # to release a stream while readings arrive
TICK = 2.0  # seconds
MOST_DELETED = 1000  # streams deleted here that a row read just before must not bring back

_log = structlog.get_logger("cometad.serve")


class StreamSharing:
    """Moves streams between this process and others; with SQLite there are no others, and it does nothing.

    `restore` creates a stream from its database row. `lock` guards the streams.
    """

    def __init__(
        self,
        store: Store,
        streams: dict[str, LiveStream],
        owners: Ownership,
        recorder: Recorder,
        scorer: LiveScorer,
        restore: Callable[[Any], LiveStream],
        lock: threading.RLock,
    ) -> None:
        self._store, self._streams, self._owners = store, streams, owners
        self._recorder, self._scorer, self._restore, self._lock = recorder, scorer, restore, lock
        self._unknown: dict[str, float] = {}  # when a lookup found nothing
        self._orphans: dict[str, float] = {}  # when a stream's process was found dead
        self._deleted: deque[int] = deque(maxlen=MOST_DELETED)
        self._idle: list[str] = []
        self._looked = -LOOK_EVERY
        self._end = threading.Event()
        # Not the heartbeat thread: this one waits for the scorer, and a process without heartbeat is declared dead.
        self._thread = threading.Thread(target=self._run, name="cometad-sharing", daemon=True)

    def start(self) -> None:
        """Start the regular work."""
        if not self._store.is_sqlite:
            self._thread.start()

    def stop(self) -> None:
        """End the regular work; the scorer must still run."""
        self._end.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(TICK):
            try:
                self.tick()
            except Exception as error:  # the database may be unavailable for a while
                _log.error("sharing failed", problem=str(error), exc_info=not isinstance(error, CometadError))

    def find(self, name: str) -> LiveStream | None:
        """A stream created by another process."""
        now = time.monotonic()
        if self._store.is_sqlite or now - self._unknown.get(name, -UNKNOWN_FOR) < UNKNOWN_FOR:
            return None
        with self._store.read() as connection:
            row = connection.execute(select(schema.streams).where(schema.streams.c.name == name)).one_or_none()
        if row is None:
            self._unknown = {one: at for one, at in self._unknown.items() if now - at < UNKNOWN_FOR} | {name: now}
            return None
        self._add(row)
        return self._streams.get(name)

    def deleted(self, stream: LiveStream) -> None:
        """Remember that this process deleted a stream; called while no transaction of the recorder runs."""
        self._deleted.append(stream.id)

    def current(self, name: str) -> LiveStream | None:
        """A stream as it is stored now, if there is one: others may have created, changed or deleted it."""
        known = self._streams.get(name)
        if self._store.is_sqlite or (known is not None and known.owned):
            return known
        with self._store.read() as connection:
            row = connection.execute(select(schema.streams).where(schema.streams.c.name == name)).one_or_none()
        if row is not None:
            self._learn(row)
        return None if row is None else self._streams.get(name)

    def take(self, stream: LiveStream) -> None:
        """Take a stream; raises `Elsewhere` if another process has it."""
        with self._recorder.paused():
            elsewhere = self._owners.take([stream])
        if elsewhere:
            raise elsewhere[stream.name]

    def release(self, names: Iterable[str]) -> None:
        """Release streams once all their readings are scored and stored."""
        left = [stream for name in names if (stream := self._streams.get(name)) is not None and stream.owned]
        for again in range(TRIES):
            if self._store.is_sqlite or not left:
                return
            left = self._scorer.do(partial(self._released, left, again > 0)).result()
        # The others keep receiving readings: another source feeds them here.

    def _released(self, streams: list[LiveStream], again: bool) -> list[LiveStream]:
        """Save and release streams, in the scoring thread; returns those that received readings meanwhile."""
        streams = [stream for stream in streams if stream.owned and not stream.gone]
        self._scorer.save(streams)
        self._recorder.flush()
        with self._recorder.paused():
            self._owners.release([stream for stream in streams if _is_done(stream, again)])
        return [stream for stream in streams if stream.owned and not stream.gone]

    def leave_part(self, connection: str, part: int, names: Collection[str]) -> None:
        """Release a part of a source and the streams it feeds."""
        self.release(names)
        with self._recorder.paused():
            self._owners.leave_part(connection, part)

    def look(self) -> None:
        """Update the displayed state of streams that other processes score, at most once a second."""
        now = time.monotonic()
        if self._store.is_sqlite or now - self._looked < LOOK_EVERY:
            return
        self._looked = now
        foreign = {stream.id: stream for stream in list(self._streams.values()) if not stream.owned}
        rows = stored_states(self._store, foreign) if foreign else []
        with self._recorder.paused():
            for row, event in rows:
                stream = foreign[row.id]
                if not stream.owned and row.epoch > stream.epoch:  # otherwise the state in memory may still be needed
                    show(stream, row, event)

    # -- regular work -----------------------------------------------------------------------------------------------

    def release_idle(self) -> None:
        """Release streams opened at startup at the next tick; their state stays in memory in case it is needed."""
        self._idle = [stream.name for stream in list(self._streams.values()) if stream.owned and not stream.fed]

    def tick(self) -> None:
        """Release idle streams, pick up changes by others, and finish the streams of dead processes."""
        idle, self._idle = self._idle, []
        self.release(name for name in idle if name in self._streams and not self._streams[name].fed)
        self.refresh()
        self._finish_orphans()

    def refresh(self) -> None:
        """Pick up streams that others created, changed, scored or deleted."""
        before = list(self._streams.items())  # streams created later may not be among the rows
        with self._store.read() as connection:
            rows = {row.name: row for row in connection.execute(select(schema.streams)).all()}
        with self._lock, self._recorder.paused():
            for name, stream in before:
                if name not in rows and not stream.owned and self._streams.get(name) is stream:
                    stream.gone = True
                    del self._streams[name]
        for row in rows.values():
            self._learn(row)

    def _learn(self, row: Any) -> None:
        """Know a stream as it is in a row of the database, unless this process has it."""
        known = self._streams.get(row.name)
        if known is None:
            self._add(row)
        elif not known.owned and (known.gone or row.id != known.id or row.epoch > known.epoch):
            fresh = self._restore(row)
            with self._recorder.paused():
                if not known.owned and self._streams.get(row.name) is known:
                    known.gone, self._streams[row.name] = True, fresh

    def _add(self, row: Any) -> None:
        """Know a stream that is new here, unless this process deleted it after the row was read."""
        fresh = self._restore(row)
        with self._recorder.paused():
            if row.id not in self._deleted:
                self._streams.setdefault(row.name, fresh)

    def _finish_orphans(self) -> None:
        """Score what dead processes had stored but not scored, unless their streams were taken meanwhile.

        The same for streams whose release failed in this process.
        """
        now = time.monotonic()
        self._orphans = {name: self._orphans.get(name, now) for name in self._owners.orphans()}
        due = [name for name, since in self._orphans.items() if now - since >= LEFT_FOR]
        with self._recorder.paused():
            found = [one for name in due if (one := self._streams.get(name)) is not None and not one.owned]
            if found:
                self._owners.take(found)
        mine = [self._streams[one.name] for one in found if one.name in self._streams]
        for stream in mine:
            if stream.owned and not stream.paused:
                self._scorer.do(partial(self._scorer.open, stream)).result()
        self.release(stream.name for stream in mine if not stream.fed)


def _is_done(stream: LiveStream, again: bool) -> bool:
    """Whether all readings of a stream that can be scored here are; `again` tells that none waits to be passed on."""
    if stream.session is None:  # its first readings may be on their way, or the database did not give its session
        return stream.paused or again or not stream.fed
    return stream.paused or stream.scored_seq == stream.arrivals.next_seq

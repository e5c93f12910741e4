"""Shares streams with other processes: finds new ones, releases idle ones, finishes those of dead processes."""

import threading
import time
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

from sqlalchemy import select

from cometad.serve.live_stream import LiveStream
from cometad.serve.recorder import Recorder
from cometad.serve.scorer import LiveScorer
from cometad.serve.several.ownership import Ownership
from cometad.serve.several.seen_elsewhere import show, stored_states
from cometad.serve.storage import schema
from cometad.serve.storage.store import Store

UNKNOWN_FOR = 1.0  # seconds until an unknown stream is looked up again
LEFT_FOR = 10.0  # seconds until the streams of a dead process are finished, unless new readings arrive
LOOK_EVERY = 1.0  # seconds
TRIES = 100  # to release a stream while readings arrive


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
        self._idle: list[str] = []
        self._looked = -LOOK_EVERY

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
        return self._streams.setdefault(name, self._restore(row))

    def take(self, stream: LiveStream) -> None:
        """Take a stream; raises `Elsewhere` if another process has it."""
        with self._recorder.paused():
            elsewhere = self._owners.take([stream])
        if elsewhere:
            raise elsewhere[stream.name]

    def release(self, names: Iterable[str]) -> None:
        """Release streams once all their readings are scored and stored."""
        left = [stream for name in names if (stream := self._streams.get(name)) is not None and stream.owned]
        for _ in range(TRIES):
            if self._store.is_sqlite or not left:
                return
            left = self._scorer.do(partial(self._released, left)).result()
        with self._recorder.paused():  # readings keep arriving; the next owner scores the rest
            for stream in left:
                stream.gone = True
            self._owners.release(left)

    def _released(self, streams: list[LiveStream]) -> list[LiveStream]:
        """Save and release streams, in the scoring thread; returns those that received readings meanwhile."""
        streams = [stream for stream in streams if stream.owned and not stream.gone]
        self._scorer.save(streams)
        self._recorder.flush()
        with self._recorder.paused():
            done = [
                one for one in streams if one.paused or one.session is None or one.scored_seq == one.arrivals.next_seq
            ]
            self._owners.release(done)
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
        if self._owners.leads:
            self._finish_orphans()

    def refresh(self) -> None:
        """Pick up streams that others created, changed, scored or deleted."""
        with self._store.read() as connection:
            rows = {row.name: row for row in connection.execute(select(schema.streams)).all()}
        with self._lock, self._recorder.paused():
            for name, stream in list(self._streams.items()):
                if name not in rows and not stream.owned:
                    stream.gone = True
                    del self._streams[name]
        for name, row in rows.items():
            known = self._streams.get(name)
            if known is None:
                self._streams.setdefault(name, self._restore(row))
            elif not known.owned and (known.gone or row.epoch > known.epoch):
                fresh = self._restore(row)
                with self._recorder.paused():
                    if not known.owned and self._streams.get(name) is known:
                        known.gone, self._streams[name] = True, fresh

    def _finish_orphans(self) -> None:
        """Score what dead processes had stored but not scored, unless their streams were taken meanwhile."""
        table, now = schema.streams, time.monotonic()
        living = select(schema.members.c.id)
        with self._store.read() as connection:
            orphan = table.c.owner.is_not(None) & table.c.owner.not_in(living)
            names = set(connection.execute(select(table.c.name).where(orphan)).scalars())
        self._orphans = {name: self._orphans.get(name, now) for name in names}
        due = [name for name, since in self._orphans.items() if now - since >= LEFT_FOR]
        found = [stream for name in due if (stream := self._streams.get(name)) is not None]
        if not found:
            return
        with self._recorder.paused():
            self._owners.take(found)
        mine = [self._streams[one.name] for one in found if one.name in self._streams]
        for stream in mine:
            if stream.owned and not stream.paused:
                self._scorer.do(partial(self._scorer.open, stream)).result()
        self.release(stream.name for stream in mine if not stream.fed)

"""Ownership of streams. Several processes may share a PostgreSQL database; a SQLite file belongs to one.

Each process is a row of the table `members` and holds a PostgreSQL advisory lock on its id, which the server frees the
moment the process dies. A member without its lock, or without a recent heartbeat, is dead: any other deletes its row,
and its streams are free. Every transaction that writes readings or scores first locks its member's row against that. So
a process that was declared dead writes nothing more: it is fenced, rejoins as a new member, and takes its streams again
unless others have them.

A stream is taken when readings for it arrive: it is read from its row, as after a restart. Its epoch counts how often
it was taken or released, so that one which nobody took since it was released here need not be read again. In doubt,
such as after a transaction that may or may not be stored, a stream is dropped from memory.
"""

import json
import os
import socket
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress

import structlog
from sqlalchemy import ColumnElement, Connection, Float, Update, delete, func, insert, select, text, update
from sqlalchemy.exc import SQLAlchemyError

from cometad.connect.contract import Elsewhere, Lost
from cometad.errors import CometadError
from cometad.serve.live_stream import LiveStream
from cometad.serve.regular import RegularWork
from cometad.serve.storage import schema
from cometad.serve.storage.store import Store, storage_errors
from cometad.serve.stored_streams import StoredStreams

LOCKS = 0x636F6D65  # "come": the class of our locks in PostgreSQL
BEAT = 2.0  # seconds between heartbeats
DEAD_AFTER = 15.0  # seconds without a heartbeat
_NOW = func.extract("epoch", func.clock_timestamp()).cast(Float)
_LOCKED = text(
    "SELECT objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid::bigint = :locks "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)

_log = structlog.get_logger("cometad.serve")


class Fenced(Lost):
    """Other processes declared this one dead; its streams may be theirs."""

    def __init__(self) -> None:
        super().__init__(
            "Other processes declared this one dead, so it is reloading its streams. Send these readings again."
        )


class Moved(Lost):
    """A stream was released to other processes just now."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"The stream {stream!r} is moving to another process. Try again.")


class Members:
    """The processes that share the database, as this one sees them. Alone (SQLite), it owns everything."""

    id: int | None = None  # of its row, where there are others

    def __init__(self, store: Store) -> None:
        self.write = store.write  # a transaction during which no other process takes anything from this one

    @property
    def alone(self) -> bool:
        """Whether no other process uses the database."""
        return True

    @property
    def leads(self) -> bool:
        """Whether this process does the work that only one of them should do."""
        return True

    def start(self, fenced: Callable[[], None]) -> None:
        """Join and give signs of life; `fenced` is called when others declared this process dead while it was idle."""

    def leave(self) -> None:
        """Release everything."""

    def forget(self) -> None:
        """Give up everything after being fenced; the next transaction joins anew."""

    def in_charge(self, streams: Collection[int]) -> Collection[int]:
        """The streams this process is responsible for: its own and, if it leads, those without an owner."""
        return streams

    # The three below are called while no transaction of the recorder runs.

    def take(self, names: Collection[str]) -> dict[str, Elsewhere]:
        """Take streams; returns those owned by other processes."""
        return {}

    def release(self, streams: Iterable[LiveStream]) -> None:
        """Release streams with everything stored; if the transaction fails, they are `orphans`."""

    def doubt(self, streams: Iterable[LiveStream]) -> None:
        """Read streams again before they are used: it is unknown whether a transaction was committed."""

    def share(self, connection: str, parts: int) -> int:
        """How many parts of a source this process should read: as many as its other readers, or one more.

        Zero `parts` means that it no longer reads the source.
        """
        return parts

    def take_part(self, connection: str, part: int) -> bool:
        """Take a part of a source, if no other process owns it."""
        return True

    def leave_part(self, connection: str, part: int) -> None:
        """Release a part of a source."""

    def holds(self, connection: str, part: int) -> bool:
        """Whether this process owns a part of a source."""
        return True


class SharedMembers(Members):
    def __init__(self, store: Store, streams: StoredStreams) -> None:
        self._store, self._streams = store, streams
        self.write = self._fenced_write
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._lock = threading.RLock()  # of the connection below
        self._link: Connection | None = None  # its session holds the lock in PostgreSQL
        self._parts: set[tuple[str, int]] = set()
        self._reads: set[str] = set()
        self._regular = RegularWork("membership", BEAT, self._beat)  # at no other pace: others count on it

    # -- membership -------------------------------------------------------------------------------------------------

    def join(self) -> None:
        """Join the processes that share the database, unless already joined."""
        if self.id is not None:
            return
        with self._lock:
            if self.id is None:
                self._join()

    def start(self, fenced: Callable[[], None]) -> None:
        self.join()
        self._fenced = fenced
        self._regular.start()

    def _join(self) -> None:
        with storage_errors():
            self._unlink()
            self._link = self._store.engine.connect()
            with self._link.begin():
                values = {"name": self._name, "reads": json.dumps(sorted(self._reads))}
                row = insert(schema.members).values(**values, seen=_NOW)
                (found,) = self._link.execute(row).inserted_primary_key or (0,)
                self._link.execute(text("SELECT pg_advisory_lock(:locks, :id)"), {"locks": LOCKS, "id": found})
            self.id = int(found)
        self._bury()

    def leave(self) -> None:
        self._regular.stop()
        with self._lock, suppress(CometadError, SQLAlchemyError):  # others notice by the lock
            if self.id is not None:
                with self._store.write() as connection:
                    streams, parts = schema.streams, schema.parts
                    connection.execute(_released(streams.c.owner == self.id))
                    connection.execute(update(parts).where(parts.c.owner == self.id).values(owner=None))
                    connection.execute(delete(schema.members).where(schema.members.c.id == self.id))
        with self._lock:
            self._unlink()
            self.id = None

    def _unlink(self) -> None:
        if self._link is not None:
            _end(self._link)
            self._link = None

    def _beat(self) -> None:
        if not self._signed():
            self._fenced()
        self._bury()

    def _signed(self) -> bool:
        """Send a heartbeat over the session with the lock; False if this member is dead."""
        with self._lock:
            if self.id is None:
                return True
            try:
                if self._link is not None:  # it is None if no new session could be opened
                    return self._sign(self._link)
            except SQLAlchemyError:
                self._unlink()
            with storage_errors():  # a new session: perhaps nobody noticed that the lock was briefly free
                link = self._store.engine.connect()
                taken = text("SELECT pg_try_advisory_lock(:locks, :id)")
                try:
                    with link.begin():
                        is_locked = link.execute(taken, {"locks": LOCKS, "id": self.id}).scalar_one()
                    if is_locked:
                        self._link = link
                    return self._sign(link)
                finally:
                    if self._link is not link:  # the old session has not ended yet; the next beat tries again
                        _end(link)

    def _sign(self, link: Connection) -> bool:
        own = schema.members.c.id == self.id
        with link.begin():
            return link.execute(update(schema.members).where(own).values(seen=_NOW)).rowcount == 1

    def _bury(self) -> None:
        table = schema.members
        with self._store.write() as connection:
            found = connection.execute(select(table).where(table.c.id != (self.id or 0))).all()
            if not found:
                return
            now = connection.execute(select(_NOW)).scalar_one()
            locked = set(connection.execute(_LOCKED, {"locks": LOCKS}).scalars())
            for row in found:
                if row.id in locked and row.seen > now - DEAD_AFTER:
                    continue
                # It may have sent a heartbeat meanwhile; the delete waits for its running transaction.
                dead = (table.c.id == row.id) & (table.c.seen <= row.seen)
                if connection.execute(delete(table).where(dead)).rowcount:
                    _log.warning("process died", process=row.name)

    def _ids(self) -> list[int]:
        return [row.id for row in self._store.rows(select(schema.members.c.id).order_by(schema.members.c.id))]

    @property
    def alone(self) -> bool:
        return self._ids() == [self.id]

    @property
    def leads(self) -> bool:
        return self._ids()[:1] == [self.id]

    def in_charge(self, streams: Collection[int]) -> Collection[int]:
        table = schema.streams
        mine = table.c.owner == self.id
        if self.leads:
            mine |= table.c.owner.is_(None) | _owner_is_dead()
        return {row.id for row in self._store.rows(select(table.c.id).where(table.c.id.in_(streams), mine))}

    @contextmanager
    def _fenced_write(self) -> Iterator[Connection]:
        self.join()
        with self._store.write() as connection:
            own = select(schema.members.c.id).where(schema.members.c.id == self.id)
            # A heartbeat does not wait for this lock, but deleting the row does.
            if connection.execute(own.with_for_update(read=True, key_share=True)).one_or_none() is None:
                raise Fenced
            yield connection

    def forget(self) -> None:
        with self._lock:
            self._streams.drop(self._streams.values())
            self._parts.clear()
            self.id = None

    # -- streams ----------------------------------------------------------------------------------------------------

    def take(self, names: Collection[str]) -> dict[str, Elsewhere]:
        missing = [name for name in names if name not in self._streams]
        elsewhere = self._take(missing) if missing else {}
        if elsewhere:  # one of the owners may have just died
            self._bury()
            elsewhere = self._take(elsewhere)
        return elsewhere

    def _take(self, names: Collection[str]) -> dict[str, Elsewhere]:
        table = schema.streams
        with self.write() as connection:
            # Lock the rows first, then look up the living members: one may have joined while this waited.
            wanted = select(table.c.id, table.c.name, table.c.owner, table.c.epoch).where(table.c.name.in_(names))
            found = connection.execute(wanted.order_by(table.c.id).with_for_update()).all()
            others = schema.members.c.id != self.id
            living = {row.id: row.name for row in connection.execute(select(schema.members).where(others))}
            free = [row for row in found if row.owner not in living]
            mine = table.c.id.in_([row.id for row in free])
            connection.execute(update(table).where(mine).values(owner=self.id, epoch=table.c.epoch + 1))
        known = [stream for row in free if (stream := self._streams.unchanged(row)) is not None]
        new = {row.id for row in free} - {stream.id for stream in known}
        self._streams.add([*known, *(self._streams.load(table.c.id.in_(new)) if new else ())])
        return {row.name: Elsewhere(row.name, living[row.owner]) for row in found if row.owner in living}

    def release(self, streams: Iterable[LiveStream]) -> None:
        own = {stream.id: stream for stream in streams if stream.owned}
        if not own:
            return
        self.doubt(own.values())  # an error may come from a transaction that was stored
        table = schema.streams
        mine = table.c.id.in_(own) & (table.c.owner == self.id)
        with self._store.write() as connection:
            rows = connection.execute(_released(mine).returning(table.c.id, table.c.epoch)).all()
        for row in rows:
            self._streams.keep_released(own[row.id], row.epoch)

    def doubt(self, streams: Iterable[LiveStream]) -> None:
        self._streams.drop(streams)

    def orphans(self) -> set[str]:
        """The streams whose owner is dead, if this process leads, and those that are its own in the database only."""
        table = schema.streams
        lost = table.c.owner == self.id
        if self.leads:
            lost |= _owner_is_dead()
        return {row.name for row in self._store.rows(select(table.c.name).where(lost))} - self._streams.keys()

    # -- parts of sources -------------------------------------------------------------------------------------------

    def share(self, connection: str, parts: int) -> int:
        self.join()
        reads = self._reads | {connection} if parts else self._reads - {connection}
        if reads != self._reads:
            own = schema.members.c.id == self.id
            self._store.change(update(schema.members).where(own).values(reads=json.dumps(sorted(reads))))
            self._reads = reads
        self._bury()
        rows = self._store.rows(select(schema.members.c.id, schema.members.c.reads).order_by(schema.members.c.id))
        readers = [row.id for row in rows if connection in json.loads(row.reads)]
        if self.id not in readers:  # declared dead
            return 0
        return parts // len(readers) + (readers.index(self.id) < parts % len(readers))

    def take_part(self, connection: str, part: int) -> bool:
        table = schema.parts
        one = (table.c.connection == connection) & (table.c.part == part)
        with self.write() as link:
            new = self._store.insert(table).values(connection=connection, part=part, owner=None)
            link.execute(new.on_conflict_do_nothing())
            owner = link.execute(select(table.c.owner).where(one).with_for_update()).scalar_one()
            living = set(link.execute(select(schema.members.c.id)).scalars()) - {self.id}
            if owner in living:
                return False
            link.execute(update(table).where(one).values(owner=self.id))
        self._parts.add((connection, part))
        return True

    def leave_part(self, connection: str, part: int) -> None:
        table = schema.parts
        if not self.holds(connection, part):
            return
        self._parts.discard((connection, part))
        one = (table.c.connection == connection) & (table.c.part == part) & (table.c.owner == self.id)
        self._store.change(update(table).where(one).values(owner=None))

    def holds(self, connection: str, part: int) -> bool:
        return (connection, part) in self._parts


def _end(link: Connection) -> None:
    with suppress(SQLAlchemyError):
        link.invalidate()  # otherwise the pool would keep the session, and the lock with it
        link.close()


def _owner_is_dead() -> ColumnElement[bool]:
    """Asked within one statement: a process that joins between two would look dead."""
    return schema.streams.c.owner.not_in(select(schema.members.c.id))


def _released(which: ColumnElement[bool]) -> Update:
    table = schema.streams
    return update(table).where(which).values(owner=None, epoch=table.c.epoch + 1)

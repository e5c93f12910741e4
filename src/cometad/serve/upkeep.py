"""Regular work: joins small chunks, deletes what is too old or too much, and notices streams that fell silent."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, delete, func, select, text

from cometad.serve.explaining import keep_explanation, unexplained
from cometad.serve.live_stream import LiveStream
from cometad.serve.members import Members
from cometad.serve.regular import RegularWork, paced
from cometad.serve.settings import Settings
from cometad.serve.storage import schema
from cometad.serve.storage.history import delete_before, join_chunks, longest_history
from cometad.serve.storage.store import Store

EVERY = 5.0  # seconds
CLEAN_EVERY = 60.0
DAY = 86_400.0
EXPLAINED_AT_ONCE = 50  # events
PORTION = 5  # streams whose chunks are joined or deleted in one transaction: readings wait for its end
JOIN_AFTER = 1000  # readings or scores of a stream; a row is rewritten at most four times until its chunk is full
PAGES = 500  # of the database file, freed in one transaction
GIGABYTE = 1e9
STEP_BACK = 0.05  # of the time kept: what is deleted at once if there is too much

Work = TypeVar("Work")


class Upkeep(RegularWork):
    """A thread for regular work; `silent` is called once for a stream that fell silent."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        streams: dict[str, LiveStream],
        silent: Callable[[LiveStream], None],
        members: Members,
    ) -> None:
        self._store, self._settings, self._streams, self._silent = store, settings, streams, silent
        self._members = members
        steps = (self._notice_silence, self.explain, partial(self.join, JOIN_AFTER), self._clean_sometimes)
        super().__init__("upkeep", paced(EVERY), *steps)
        self._cleaned = time.monotonic()
        self._told: dict[int, float | None] = {}  # of streams that fell silent: when their last reading came
        self._joined: dict[tuple[str, int], int] = {}  # by table and stream: rows when their chunks were joined

    def _clean_sometimes(self) -> None:
        if time.monotonic() - self._cleaned >= CLEAN_EVERY:
            self._cleaned = time.monotonic()
            if self._members.leads:
                self.clean()

    def _notice_silence(self) -> None:
        for stream in list(self._streams.values()):
            received = stream.arrivals.last_received
            if stream.state(time.time())[0] == "silent" and self._told.get(stream.id) != received:
                self._told[stream.id] = received
                self._silent(stream)

    def explain(self) -> None:
        """Explain events that were closed, while their readings are there."""
        streams = {stream.id: stream for stream in list(self._streams.values()) if not stream.row.lost_detector}
        rows = unexplained(self._store, streams, EXPLAINED_AT_ONCE)
        for row in self._paced(rows):
            keep_explanation(self._store, streams[row.stream_id], row)

    def join(self, grown: int = 1) -> None:
        """Join small chunks before the snapshot of each stream that has grown, so that history is read quickly."""
        for table in (schema.readings, schema.scores):
            for ids in self._portions(self._grown(table, grown)):
                with self._store.write() as connection:
                    for stream_id in ids:
                        join_chunks(connection, table, stream_id, self._before(connection, table, stream_id))

    def _grown(self, table: Table, least: int) -> list[int]:
        grown = []
        for stream in list(self._streams.values()):
            rows = stream.arrivals.next_seq if table is schema.readings else stream.scoring.stored_step
            if rows - self._joined.get((table.name, stream.id), 0) >= least:
                self._joined[table.name, stream.id] = rows
                grown.append(stream.id)
        return grown

    def _portions(self, ids: Sequence[int]) -> Iterator[Sequence[int]]:
        return self._paced([ids[first : first + PORTION] for first in range(0, len(ids), PORTION)])

    def _paced(self, work: Iterable[Work]) -> Iterator[Work]:
        """One piece of work at a time, with pauses as long as it took: others write and compute, too."""
        for one in work:
            begun = time.monotonic()
            yield one
            if self.ended.wait(max(time.monotonic() - begun, 0.02)):
                return

    def _before(self, connection: Connection, table: Table, stream_id: int) -> int:
        """The number before which rows of a stream are not needed to score it again."""
        if table is schema.scores:
            return 2**62
        own = schema.snapshots.c.stream_id == stream_id
        seq = connection.execute(select(schema.snapshots.c.seq).where(own)).scalar()
        return 0 if seq is None else int(seq)

    def clean(self) -> None:
        """Delete what is older than the settings say, then the oldest until the data is small enough.

        Age counts back from the newest reading of a stream: times may be of a replay, or count from the last start.
        """
        self._delete(self._settings.keep_readings_days * DAY, self._settings.keep_scores_days * DAY)
        for _ in range(round(1 / STEP_BACK)):
            if self._used() <= self._settings.keep_gigabytes * GIGABYTE or self.ended.is_set():
                break
            with self._store.read() as connection:
                longest = longest_history(connection)
            if longest is None:
                break
            age = longest - max(STEP_BACK * longest, 1.0)
            self._delete(age, age)

    def _delete(self, readings_age: float, scores_age: float) -> None:
        newest = select(schema.readings.c.stream_id, func.max(schema.readings.c.last_at))
        newest = newest.where(schema.readings.c.stream_id.in_(select(schema.streams.c.id)))
        ends = dict(self._store.rows(newest.group_by(schema.readings.c.stream_id)))
        for table, age in ((schema.readings, readings_age), (schema.scores, scores_age)):
            firsts = self._store.rows(select(table.c.stream_id, func.min(table.c.last_at)).group_by(table.c.stream_id))
            limits = {
                one: end - age for one, first in firsts if (end := ends.get(one)) is not None and first < end - age
            }
            for ids in self._portions(sorted(limits)):
                with self._store.write() as connection:
                    for one in ids:
                        delete_before(connection, table, one, limits[one], self._before(connection, table, one))
            self._delete_orphans(table)
        self._free_pages()

    def _delete_orphans(self, table: Table) -> None:
        """Delete readings or scores that were on their way while their stream was deleted."""
        own = select(schema.streams.c.id)
        for (stream_id,) in self._store.rows(select(table.c.stream_id).where(table.c.stream_id.not_in(own)).distinct()):
            self._store.change(delete(table).where(table.c.stream_id == stream_id, table.c.stream_id.not_in(own)))

    def _free_pages(self) -> None:
        if self._store.is_sqlite:
            with closing(self._store.engine.raw_connection()) as connection:
                # As a script: a plain statement would end after its first page.
                driver: Any = connection.driver_connection
                driver.executescript(f"PRAGMA incremental_vacuum({PAGES})")

    def _used(self) -> float:
        """Bytes of readings and scores that are left; PostgreSQL keeps the space of deleted rows for new ones."""
        if self._store.is_sqlite:
            return self.size()
        with self._store.read() as connection:
            sizes = [
                connection.execute(select(func.sum(func.length(table.c.ats) + func.length(table.c.cells)))).scalar()
                for table in (schema.readings, schema.scores)
            ]
        return float(sum(size or 0 for size in sizes))

    def size(self) -> float:
        with self._store.read() as connection:
            if not self._store.is_sqlite:
                return float(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())
            pages, free, size = (
                connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
                for name in ("page_count", "freelist_count", "page_size")
            )
        return float((pages - free) * size)

"""Regular work: joins small chunks, deletes what is too old or too much, and notices streams that fell silent."""

import threading
import time
from collections.abc import Callable

import structlog
from sqlalchemy import delete, select, text

from cometad.errors import CometadError
from cometad.serve.explaining import keep_explanation, unexplained
from cometad.serve.live_stream import LiveStream
from cometad.serve.settings import Settings
from cometad.serve.storage import schema
from cometad.serve.storage.history import crowded, delete_before, join_chunks, oldest
from cometad.serve.storage.store import Store

EVERY = 5.0  # seconds
CLEAN_EVERY = 60.0
DAY = 86_400.0
EXPLAINED_AT_ONCE = 50  # events
PORTION = 20  # streams whose chunks are joined in one transaction
GIGABYTE = 1e9
STEP_BACK = 0.05  # of the time kept: what is deleted at once if there is too much

_log = structlog.get_logger("cometad.serve")


class Upkeep:
    """A thread for regular work; `silent` is called once for a stream that fell silent."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        streams: dict[str, LiveStream],
        silent: Callable[[LiveStream], None],
    ) -> None:
        self._store, self._settings, self._streams, self._silent = store, settings, streams, silent
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cometad-upkeep", daemon=True)
        self._cleaned = time.monotonic()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._end.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(EVERY):
            try:
                self._notice_silence()
                self.explain()
                self.join()
                if time.monotonic() - self._cleaned >= CLEAN_EVERY:
                    self.clean()
                    self._cleaned = time.monotonic()
            except CometadError as error:
                _log.error("upkeep failed", problem=str(error))

    def _notice_silence(self) -> None:
        for stream in list(self._streams.values()):
            if not stream.silence_told and stream.state(time.time())[0] == "silent":
                stream.silence_told = True
                self._silent(stream)

    def explain(self) -> None:
        """Explain events that were closed, while their readings are there."""
        streams = {stream.id: stream for stream in list(self._streams.values())}
        for row in unexplained(self._store, EXPLAINED_AT_ONCE):
            if row.stream_id in streams and not self._end.is_set():
                keep_explanation(self._store, streams[row.stream_id], row)

    def join(self) -> None:
        """Join small chunks before the snapshot of each stream, so that history is read quickly."""
        for table in (schema.readings, schema.scores):
            with self._store.read() as connection:
                ids = crowded(connection, table)
            for first in range(0, len(ids), PORTION):
                if self._end.is_set():
                    return
                with self._store.write() as connection:
                    for stream_id in ids[first : first + PORTION]:
                        join_chunks(connection, table, stream_id, self._before(connection, table, stream_id))
                time.sleep(0.02)  # others write too

    def _before(self, connection: object, table: object, stream_id: int) -> int:
        """The number before which rows of a stream are not needed to score it again."""
        if table is schema.scores:
            return 2**62
        own = schema.snapshots.c.stream_id == stream_id
        seq = connection.execute(select(schema.snapshots.c.seq).where(own)).scalar()  # type: ignore[attr-defined]
        return 0 if seq is None else int(seq)

    def clean(self) -> None:
        """Delete what is older than the settings say, then the oldest until the data is small enough."""
        now = time.time()
        self._delete(now - self._settings.keep_readings_days * DAY, now - self._settings.keep_scores_days * DAY)
        for _ in range(round(1 / STEP_BACK)):
            if self.size() <= self._settings.keep_gigabytes * GIGABYTE or self._end.is_set():
                break
            with self._store.read() as connection:
                first = oldest(connection)
            if first is None:
                break
            before = first + max(STEP_BACK * (now - first), 1.0)
            self._delete(before, before)

    def _delete(self, readings_before: float, scores_before: float) -> None:
        with self._store.write() as connection:
            for stream in list(self._streams.values()):
                keep = self._before(connection, schema.readings, stream.id)
                delete_before(connection, schema.readings, stream.id, readings_before, keep)
                delete_before(connection, schema.scores, stream.id, scores_before, 2**62)
            # Readings that were on their way while their stream was deleted.
            for table in (schema.readings, schema.scores):
                gone = table.c.stream_id.not_in(select(schema.streams.c.id))
                connection.execute(delete(table).where(gone))
        if self._store.is_sqlite:
            with self._store.engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA incremental_vacuum(2000)")

    def size(self) -> float:
        """Bytes that the data takes."""
        with self._store.read() as connection:
            if not self._store.is_sqlite:
                return float(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())
            pages, free, size = (
                connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
                for name in ("page_count", "freelist_count", "page_size")
            )
        return float((pages - free) * size)

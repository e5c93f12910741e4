"""The streams of this process in memory, and all others as rows of the database.

With SQLite all streams are in memory. With PostgreSQL only those are that this process has taken (`members.py`); any
other is read when somebody asks for it, or when its readings arrive.
"""

import json
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import structlog
from sqlalchemy import ColumnElement, Select, Table, func, select, true

from cometad.comet import Comet
from cometad.connect.intake import Connection
from cometad.data.text import Layout
from cometad.detector import Detector
from cometad.errors import CometadError
from cometad.serve.events import fill_events
from cometad.serve.live_stream import Arrivals, LastScores, LiveStream, StreamRow
from cometad.serve.models import StreamSettings
from cometad.serve.storage import schema
from cometad.serve.storage.store import StorageError, Store
from cometad.serve.stored_detectors import StoredDetectors

MOST_RELEASED = 1000  # streams kept in memory in case nobody else takes them
UNKNOWN_FOR = 1.0  # seconds until a stream that was not there is looked up again
MOST_UNKNOWN = 10_000  # names

_FACTS = ("first_seq", "first_step", "first_event", "paused", "reason", "epoch")
_log = structlog.get_logger("cometad.serve")


class StoredStreams(dict[str, LiveStream]):
    """The streams of this process by name; `add` and `drop` are called while no transaction of the recorder runs."""

    def __init__(self, store: Store, detectors: StoredDetectors) -> None:
        self._store, self._detectors = store, detectors
        self.sources: dict[str, Connection] = {}  # that feed streams, by their names
        self._unknown: dict[str, float] = {}  # names that no stream had, and when that was
        self.created = 0  # streams, by this process: what was looked up meanwhile may be out of date
        self._released: OrderedDict[int, LiveStream] = OrderedDict()
        self._received: dict[int, tuple[int, float]] = {}  # by id: how many readings, and when that was noticed

    def add(self, streams: Iterable[LiveStream]) -> None:
        for stream in streams:
            stream.is_copy, stream.owned, self[stream.name] = False, True, stream
            if stream.row.lost_detector:
                _log.error("stream paused", stream=stream.name, problem=stream.row.reason)

    def drop(self, streams: Iterable[LiveStream]) -> None:
        """Forget streams: what is still on its way for them is not stored."""
        for stream in list(streams):
            stream.owned = False
            if self.get(stream.name) is stream:
                del self[stream.name]

    def keep_released(self, stream: LiveStream, epoch: int) -> None:
        """Keep a stream that was released in memory: it is valid as long as it has this epoch and no owner."""
        stream.change(epoch=epoch)
        stream.source = None
        self.sources.pop(stream.name, None)
        self._released[stream.id] = stream
        while len(self._released) > MOST_RELEASED:
            self._released.popitem(last=False)

    def unchanged(self, row: Any) -> LiveStream | None:
        """The stream of a row as this process released it, if nobody has taken it since."""
        stream = self._released.get(row.id)
        if stream is None or (row.owner is None and row.epoch == stream.row.epoch):
            return stream
        self._released.pop(row.id, None)
        return None

    # -- as they are stored -----------------------------------------------------------------------------------------

    def find(self, name: str) -> LiveStream | None:
        found = self.get(name)
        unknown = self._store.is_sqlite or time.monotonic() - self._unknown.get(name, -UNKNOWN_FOR) < UNKNOWN_FOR
        return self.stored(name) if found is None and not unknown else found

    def stored(self, name: str) -> LiveStream | None:
        """A stream that this process may not have, as it is stored now."""
        created = self.created
        found = next(iter(self.load(schema.streams.c.name == name)), None)
        self._unknown.pop(name, None)
        if found is None:
            if len(self._unknown) >= MOST_UNKNOWN:
                self._unknown.clear()
            self._unknown[name] = time.monotonic()
            if self.created != created:
                self._unknown.pop(name, None)
        return found

    def all(self) -> list[LiveStream]:
        mine = list(self.values())
        return mine if self._store.is_sqlite else mine + self.load(schema.streams.c.id.not_in([one.id for one in mine]))

    def by_id(self, ids: Collection[int]) -> dict[int, LiveStream]:
        """Streams by their ids, without those that are deleted."""
        found = [stream for stream in list(self.values()) if stream.id in ids]
        missing = set(ids) - {stream.id for stream in found}
        if missing and not self._store.is_sqlite:
            found += self.load(schema.streams.c.id.in_(missing))
        return {stream.id: stream for stream in found}

    def load(self, which: ColumnElement[bool] = true()) -> list[LiveStream]:
        """Streams as they are stored, with what their next readings are compared with.

        One without its detector is paused, with an unfitted placeholder.
        """
        rows = self._store.rows(_with_newest(schema.readings, "last_at", "last_time", "last_sequence").where(which))
        settings = {text: self._opened(text) for text in {row.settings for row in rows}}
        return [self.unchanged(row) or self._stored(row, *settings[row.settings]) for row in rows]

    def _opened(self, text: str) -> tuple[StreamSettings, Detector, Layout, str | None]:
        """Settings, what they ask for, and why the detector is missing if it is."""
        settings = StreamSettings.model_validate_json(text)
        try:
            return settings, *self._detectors.for_stream(settings), None
        except StorageError:  # the detector is well
            raise
        except CometadError as error:
            layout = self._detectors.stored_layout(settings.detector)
            return settings, Comet(), layout, f"Its detector cannot be used: {error}"

    def _stored(
        self, row: Any, settings: StreamSettings, detector: Detector, layout: Layout, lost: str | None
    ) -> LiveStream:
        facts = StreamRow(row.id, row.name, settings, **{name: getattr(row, name) for name in _FACTS})
        if lost is not None:
            facts = replace(facts, paused=True, reason=lost, lost_detector=True)
        arrivals = Arrivals()
        arrivals.dates.restore(json.loads(row.dates))
        if row.first is not None:
            arrivals.next_seq = row.first + row.count
            arrivals.last_at, arrivals.last_sequence = row.last_at, row.last_sequence
            arrivals.timed = json.loads(row.last_time) is not None
            if self._received.get(row.id, (0, 0.0))[0] != arrivals.next_seq:
                self._received[row.id] = (arrivals.next_seq, time.time())
            arrivals.last_received = self._received[row.id][1]  # silence counts from when this process noticed
        return LiveStream(facts, detector, layout, arrivals, source=self.sources.get(row.name), is_copy=True)

    def look(self, streams: Iterable[LiveStream]) -> None:
        """Fill in the last scores and the events of streams that this process never scored, as they are stored."""
        foreign = {one.id: one for one in streams if one.is_copy}
        if not foreign:
            return
        with self._store.read() as connection:
            scores = _with_newest(schema.scores, "ats", "cells").where(schema.streams.c.id.in_(foreign))
            for row in connection.execute(scores):
                scoring = foreign[row.id].scoring
                scoring.last = LastScores()
                if row.first is not None:
                    scoring.stored_step = row.first + row.count
                    scoring.last.add(np.frombuffer(row.ats, "<f8"), np.frombuffer(row.cells, "<f8").reshape(-1, 3))
            fill_events(connection, foreign)
        for stream in foreign.values():
            stream.publish()


def _with_newest(table: Table, *names: str) -> Select[Any]:
    """The rows of streams with columns of their newest chunk, if there is one."""
    streams, other = schema.streams, table.alias()
    newest = select(func.max(other.c.first)).where(other.c.stream_id == streams.c.id).scalar_subquery()
    last = (table.c.stream_id == streams.c.id) & (table.c.first == newest)
    columns = [table.c[name] for name in ("first", "count", *names)]
    return select(streams, *columns).outerjoin_from(streams, table, last).order_by(streams.c.id)

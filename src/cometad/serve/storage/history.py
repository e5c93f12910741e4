"""Readings and scores of a stream over time: appended in chunks, read by time or number, joined, and deleted by age.

Both tables have the same columns: `first` counts rows from 0, `ats` are their times, `cells` their values.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, Table, delete, func, select

from cometad.arrays import Floats
from cometad.serve.storage.schema import readings, scores

FULL = 4096  # rows of a joined chunk
SMALL = 64  # chunks read at once


class HistoryRows(NamedTuple):
    first: int  # number of the first row
    ats: Floats  # (row,)
    cells: Floats  # (row, column)

    @property
    def stop(self) -> int:
        return self.first + len(self.ats)

    def part(self, start: int, stop: int = 2**62) -> "HistoryRows":
        """Those with numbers from `start` on, before `stop`."""
        keep = slice(max(start - self.first, 0), max(stop - self.first, 0))
        return HistoryRows(max(start, self.first), self.ats[keep], self.cells[keep])


def chunk(stream_id: int, rows: HistoryRows) -> dict[str, Any]:
    """The row of a table that holds consecutive rows."""
    return {
        "stream_id": stream_id,
        "first": rows.first,
        "count": len(rows.ats),
        "first_at": float(rows.ats[0]),
        "last_at": float(rows.ats[-1]),
        "ats": np.asarray(rows.ats, "<f8").tobytes(),
        "cells": np.asarray(rows.cells, "<f8").tobytes(),
    }


def next_number(connection: Connection, table: Table, stream_id: int) -> int:
    last = select(table.c.first + table.c.count).where(table.c.stream_id == stream_id)
    found: int | None = connection.execute(last.order_by(table.c.first.desc()).limit(1)).scalar()
    return found or 0


def by_number(connection: Connection, table: Table, stream_id: int, start: int, stop: int) -> HistoryRows:
    """The rows with numbers from `start` on, before `stop`; those that were deleted are missing at the start."""
    inside = (table.c.first < stop) & (table.c.first + table.c.count > start)
    return _joined_chunks(connection, table, stream_id, inside).part(start, stop)


def by_time(
    connection: Connection, table: Table, stream_id: int, start: float, stop: float, least: int = 0
) -> HistoryRows:
    """The rows with times from `start` up to and including `stop`; only chunks from the number `least` on."""
    inside_chunk = (table.c.last_at >= start) & (table.c.first_at <= stop) & (table.c.first >= least)
    rows = _joined_chunks(connection, table, stream_id, inside_chunk)
    inside = np.flatnonzero((rows.ats >= start) & (rows.ats <= stop))
    begin, end = (int(inside[0]), int(inside[-1]) + 1) if len(inside) else (0, 0)
    return rows.part(rows.first + begin, rows.first + end)


def last_by_time(
    connection: Connection, table: Table, stream_id: int, start: float, stop: float, most: int
) -> HistoryRows:
    """The last rows, at most `most`, with times from `start` up to and including `stop`."""
    inside = (table.c.stream_id == stream_id) & (table.c.last_at >= start) & (table.c.first_at <= stop)
    newest = connection.execute(select(table.c.first_at).where(inside).order_by(table.c.first.desc()).limit(most)).all()
    if not newest:
        return HistoryRows(0, np.empty(0), np.empty((0, 0)))
    rows = by_time(connection, table, stream_id, max(start, newest[-1].first_at), stop)
    return rows.part(rows.stop - most)


def after(connection: Connection, table: Table, stream_id: int, start: int) -> Iterator[HistoryRows]:
    """All rows with numbers from `start` on, a few thousand at a time."""
    while True:
        chunks = connection.execute(
            select(table)
            .where(table.c.stream_id == stream_id, table.c.first + table.c.count > start)
            .order_by(table.c.first)
            .limit(SMALL)
        ).all()
        if not chunks:
            return
        rows = _unpacked(chunks)
        yield rows.part(start)
        start = rows.stop


class KnownTimes:
    """Which times the stored readings of a stream have.

    Readings that come again mostly follow each other, so each query reads further ahead than the one before: a body
    that is sent again costs a few queries, not one for each of its readings.
    """

    def __init__(self, connection: Connection, stream_id: int) -> None:
        self._connection, self._stream_id = connection, stream_id
        self._start, self._stop = np.inf, -np.inf  # the times from here to there were read
        self._ats = np.empty(0)
        self._chunks = 1  # to read with the next query

    def __contains__(self, at: float) -> bool:
        if not self._start <= at <= self._stop:
            self._read(at)
        place = int(np.searchsorted(self._ats, at))
        return place < len(self._ats) and bool(self._ats[place] == at)

    def _read(self, at: float) -> None:
        self._chunks = min(2 * self._chunks, SMALL) if at > self._stop > -np.inf else 1
        # Times only grow, so the first chunk that ends at this time or later has it, if any has.
        near = (readings.c.stream_id == self._stream_id) & (readings.c.last_at >= at)
        query = select(readings.c.ats).where(near).order_by(readings.c.last_at, readings.c.first).limit(self._chunks)
        found = self._connection.execute(query).scalars().all()
        self._ats = np.frombuffer(b"".join(found), "<f8")
        self._start, self._stop = at, (self._ats[-1] if len(self._ats) else np.inf)


def join_chunks(connection: Connection, table: Table, stream_id: int, before: int) -> int:
    """Join small neighboring chunks that end before a number; returns how many there are fewer."""
    small = table.c.count < FULL // 2
    chunks = connection.execute(
        select(table)
        .where(table.c.stream_id == stream_id, small, table.c.first + table.c.count <= before)
        .order_by(table.c.first)
        .limit(FULL)
        .with_for_update()  # the process that had the stream before may still join its chunks
    ).all()
    fewer = 0
    for group in _neighbors(chunks):
        if len(group) > 1:
            rows = _unpacked(group)
            firsts = [one.first for one in group]
            connection.execute(
                delete(table).where(
                    table.c.stream_id == stream_id, table.c.first >= firsts[0], table.c.first <= firsts[-1]
                )
            )
            last = {name: getattr(group[-1], name) for name in ("last_time", "last_sequence") if name in table.c}
            connection.execute(table.insert(), [chunk(stream_id, rows) | last])
            fewer += len(group) - 1
    return fewer


def delete_before(connection: Connection, table: Table, stream_id: int, at: float, before: int) -> int:
    """Delete chunks that ended before a time and a number; returns how many. The newest chunk always stays."""
    newest = select(func.max(table.c.first)).where(table.c.stream_id == stream_id).scalar_subquery()
    old = (table.c.last_at < at) & (table.c.first + table.c.count <= before) & (table.c.first < newest)
    return connection.execute(delete(table).where(table.c.stream_id == stream_id, old)).rowcount


def longest_history(connection: Connection) -> float | None:
    """The longest time between the first and the last row of a stream, in seconds."""
    spans: list[float] = []
    for table in (readings, scores):
        span = func.max(table.c.last_at) - func.min(table.c.first_at)
        spans += connection.execute(select(span).group_by(table.c.stream_id)).scalars()
    return max(spans, default=None)


def _joined_chunks(connection: Connection, table: Table, stream_id: int, inside: Any) -> HistoryRows:
    chunks = connection.execute(
        select(table).where(table.c.stream_id == stream_id, inside).order_by(table.c.first)
    ).all()
    return _unpacked(chunks) if chunks else HistoryRows(0, np.empty(0), np.empty((0, 0)))


def _unpacked(chunks: Any) -> HistoryRows:
    ats = np.frombuffer(b"".join(one.ats for one in chunks), "<f8")
    cells = np.frombuffer(b"".join(one.cells for one in chunks), "<f8")
    return HistoryRows(int(chunks[0].first), ats, cells.reshape(len(ats), -1))


def _neighbors(chunks: Any) -> Iterator[list[Any]]:
    """Groups of chunks that follow each other, up to a full one."""
    group: list[Any] = []
    rows = 0
    for one in chunks:
        follows = group and group[-1].first + group[-1].count == one.first and _width(group[-1]) == _width(one)
        if group and (not follows or rows + one.count > FULL):
            yield group
            group, rows = [], 0
        group.append(one)
        rows += one.count
    if group:
        yield group


def _width(one: Any) -> int:
    return len(one.cells) // int(one.count)  # differs between detectors

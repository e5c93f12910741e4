"""Put arriving readings in order: which are new, which are repeated, and which are late."""

import json
import operator
import time as clock
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection

from cometad.arrays import Floats
from cometad.connect.contract import Elsewhere, Position, ReadingBatch, Receipt, Refusal, UnknownStream
from cometad.errors import InputError
from cometad.serve.live_stream import Arrivals, LiveStream
from cometad.serve.storage.history import HistoryRows, KnownTimes, chunk

AHEAD = 86_400.0  # seconds that a reading may be ahead: one with a wrong year would make all others late


class Admitted(NamedTuple):
    """New readings of a stream, in order."""

    ats: Floats  # (reading,) their times or, without any, when they arrived
    values: Floats  # (reading, variable)
    last_time: str | float | None  # of the last reading, as it was sent


def admit(
    batch: ReadingBatch,
    stream: LiveStream,
    arrivals: Arrivals,
    received: float,
    known: Callable[[float], bool],
    receipt: Receipt,
) -> Admitted:
    """The new readings of a batch; moves `arrivals` on, and adds to the receipt what became of each reading.

    A reading is repeated if its sequence number is not above the last one, or if there is a reading of its time, which
    `known` tells. Any other reading that is not after the one before is late: it is refused, or dropped if the settings
    of the stream say so.
    """
    ats = _all_new(batch, stream, arrivals, received)
    if ats is not None:
        admitted = Admitted(np.array(ats), batch.values, batch.times[-1])
    else:
        kept, ats = _one_by_one(batch, stream, arrivals, received, known, receipt)
        admitted = Admitted(np.array(ats), batch.values[kept], batch.times[kept[-1]] if kept else None)
    arrivals.next_seq += len(ats)
    receipt.accepted += len(ats)
    return admitted


def _all_new(batch: ReadingBatch, stream: LiveStream, arrivals: Arrivals, received: float) -> list[float] | None:
    """Fast path: the times in seconds, if every reading has one after the one before. None for any other batch."""
    if arrivals.timed is False or None in batch.times or batch.sequences.count(None) < len(batch.sequences):
        return None
    dates = copy(arrivals.dates)
    try:
        ats: list[Any] = list(map(dates.seconds, batch.times, batch.lines))
    except InputError:
        return None
    before = -np.inf if arrivals.last_at is None else arrivals.last_at
    in_order = all(map(operator.lt, [before, *ats], ats)) and ats[-1] <= received + AHEAD
    if not (in_order and stream.can_have(ats[0]) and stream.can_have(ats[-1])):
        return None
    arrivals.keep_dates(dates)
    arrivals.timed, arrivals.last_at = True, ats[-1]
    return ats


def _one_by_one(
    batch: ReadingBatch,
    stream: LiveStream,
    arrivals: Arrivals,
    received: float,
    known: Callable[[float], bool],
    receipt: Receipt,
) -> tuple[list[int], list[float]]:
    kept, ats = list[int](), list[float]()
    for i, (time, sequence, line) in enumerate(zip(batch.times, batch.sequences, batch.lines, strict=True)):
        try:
            at = _moment(time, line, stream, arrivals, received)
            last_at, last_sequence = arrivals.last_at, arrivals.last_sequence
            is_old = sequence is not None and last_sequence is not None and sequence <= last_sequence
            if not is_old and (time is None or last_at is None or at > last_at):
                kept.append(i)
                ats.append(at)
                arrivals.last_at, arrivals.timed = at, time is not None
                arrivals.last_sequence = last_sequence if sequence is None else sequence
            elif is_old or at == last_at or _has(ats, at) or known(at):
                arrivals.repeated += 1
                receipt.repeated += 1
            else:
                arrivals.late += 1
                if stream.settings.late == "refuse":
                    late = f"Reading {line}: the time {time} is before that of the last reading."
                    raise InputError(f"{late} Send readings in time order.")
                receipt.dropped += 1
        except InputError as error:
            receipt.refused.append(Refusal(line, stream.name, str(error)))
    return kept, ats


def _has(ats: list[float], at: float) -> bool:
    """Whether times in order have this one."""
    place = bisect_left(ats, at)
    return place < len(ats) and ats[place] == at


def _moment(time: str | float | None, line: int, stream: LiveStream, arrivals: Arrivals, received: float) -> float:
    """The time of a reading in seconds: its own or, if readings have none, that of the clock, which never goes back."""
    if time is None:
        if arrivals.timed:
            raise InputError(f"Reading {line} has no time, but the readings before it have one. Send one with each.")
        return received if arrivals.last_at is None else max(received, arrivals.last_at)
    if arrivals.timed is False:
        raise InputError(
            f"Reading {line} has a time, but the readings before it have none. Send none, or use another stream."
        )
    dates = copy(arrivals.dates)
    at = dates.seconds(time, line)
    assert at is not None
    if at > received + AHEAD:
        raise InputError(f"Reading {line}: the time {time} is more than a day ahead of the clock here. Correct it.")
    if not stream.can_have(at):
        raise InputError(f"Reading {line}: the time {time} is out of range. Correct that reading and send it again.")
    arrivals.keep_dates(dates)  # a reading that is refused does not decide how times are written
    return at


class Accepted(NamedTuple):
    """Readings of a stream that are on disk and wait to be scored."""

    stream: LiveStream
    rows: HistoryRows
    since: float  # when they were accepted, by a clock that never goes back


class Admission:
    """The readings of one transaction: chunks to write, readings to score, and the arrivals of streams after them."""

    def __init__(
        self, connection: Connection, streams: Mapping[str, LiveStream], elsewhere: Mapping[str, Elsewhere]
    ) -> None:
        self._connection, self._streams, self._elsewhere = connection, streams, elsewhere
        self._received, self._since = clock.time(), clock.monotonic()
        self._times: dict[int, KnownTimes] = {}  # of streams with readings that may be repeated
        self.chunks: list[dict[str, Any]] = []
        self.accepted: list[Accepted] = []
        self.arrivals: dict[str, tuple[LiveStream, Arrivals]] = {}

    def take(self, batches: Sequence[ReadingBatch], position: Position | None) -> Receipt:
        """Admit the readings of streams that no other process has; with a position, all of them or none."""
        moving = [self._elsewhere[one.stream] for one in batches if one.stream in self._elsewhere]
        if moving and position is not None:
            return Receipt(elsewhere=[(one, moving[0]) for one in batches])
        receipt = Receipt()
        for batch in batches:
            if batch.stream in self._elsewhere:
                receipt.elsewhere.append((batch, self._elsewhere[batch.stream]))
            else:
                self._admit(batch, receipt)
        return receipt

    def _admit(self, batch: ReadingBatch, receipt: Receipt) -> None:
        stream = self._streams.get(batch.stream)
        if stream is None or batch.names != stream.layout.names:  # deleted or changed meanwhile
            reason = str(UnknownStream(batch.stream))
            receipt.refused += [Refusal(line, batch.stream, reason) for line in batch.lines]
            return
        arrivals = self.after(stream)
        first = arrivals.next_seq
        admitted = admit(batch, stream, arrivals, self._received, partial(self._is_known, stream.id), receipt)
        if len(admitted.ats):
            rows = HistoryRows(first, admitted.ats, admitted.values)
            last = {"last_time": json.dumps(admitted.last_time), "last_sequence": arrivals.last_sequence}
            self.chunks.append(chunk(stream.id, rows) | last)
            self.accepted.append(Accepted(stream, rows, self._since))
            arrivals.last_received = self._received

    def after(self, stream: LiveStream) -> Arrivals:
        """The arrivals of a stream after what was admitted so far; kept once the transaction is on disk."""
        if stream.name not in self.arrivals:
            self.arrivals[stream.name] = (stream, stream.arrivals.copy())
        return self.arrivals[stream.name][1]

    def _is_known(self, stream_id: int, at: float) -> bool:
        """Whether there is a reading of this time, on disk or among those to write."""
        known = self._times.setdefault(stream_id, KnownTimes(self._connection, stream_id))
        if at in known:
            return True
        own = (one for one in self.chunks if one["stream_id"] == stream_id and one["first_at"] <= at <= one["last_at"])
        return any(at in np.frombuffer(one["ats"], "<f8") for one in own)

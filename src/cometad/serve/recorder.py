"""The thread that writes: many requests and many scores in one transaction, then acknowledges them.

A reading is acknowledged once it is on disk. Scores, events and snapshots of the scorer are stored with the next
transaction. So a snapshot is never newer than the readings, and what follows it can be scored again.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import structlog
from sqlalchemy import Connection, insert, update

from cometad.connect.contract import Busy, Elsewhere, Lost, Position, ReadingBatch, Receipt, Refusal, UnknownStream
from cometad.errors import CometadError, InputError
from cometad.serve.arrivals import Admitted, admit
from cometad.serve.event_rows import verdict_columns
from cometad.serve.live_stream import Arrivals, LiveStream
from cometad.serve.members.ownership import Fenced, Moved, Ownership
from cometad.serve.notify.outbox import Outbox
from cometad.serve.storage import schema
from cometad.serve.storage.history import HistoryRows, KnownTimes, chunk
from cometad.serve.storage.store import StorageError, Store

MOST_WAITING = 200_000  # readings accepted but not stored, or stored but not scored
ROUND = 50_000  # readings in one transaction
RETRY = 1.0  # seconds after a failed transaction
GATHER = 0.1  # seconds that results wait for readings to be stored with: each transaction waits for the disk

T = TypeVar("T")

_log = structlog.get_logger("cometad.serve")


@dataclass
class Stored:
    """What the scorer wants to have stored, all of it in one transaction."""

    scores: list[dict[str, Any]] = field(default_factory=list)  # chunks
    events: list[dict[str, Any]] = field(default_factory=list)
    snapshots: list[dict[str, Any]] = field(default_factory=list)
    tried: list[dict[str, Any]] = field(default_factory=list)  # verdicts: whether learned, else why not
    paused: list[tuple[int, str]] = field(default_factory=list)  # streams, and why

    def add(self, other: "Stored") -> None:
        """Add what else to store."""
        self.scores += other.scores
        self.events += other.events
        self.snapshots += other.snapshots
        self.tried += other.tried
        self.paused += other.paused

    def streams(self) -> set[int]:
        """The streams it has anything of."""
        rows = (*self.scores, *self.events, *self.snapshots, *self.tried)
        return {row["stream_id"] for row in rows} | {stream_id for stream_id, _ in self.paused}


class Accepted(NamedTuple):
    """Readings of a stream that are on disk and wait to be scored."""

    stream: LiveStream
    rows: HistoryRows
    since: float  # when they were accepted, by a clock that never goes back


class GivenVerdict(NamedTuple):
    """A verdict that is on disk and waits to be applied before reading `after_seq`."""

    stream: LiveStream
    id: int
    after_seq: int
    number: int  # of the event
    called: str | None
    at: float
    done: "Future[None]"


@dataclass
class _Request:
    batches: Sequence[ReadingBatch]
    position: Position | None
    readings: int
    done: "Future[Receipt]"


class Recorder:
    """Stores readings and results; `pass_on` gets everything that is on disk and waits to be scored."""

    def __init__(
        self,
        store: Store,
        streams: dict[str, LiveStream],
        owners: Ownership,
        pass_on: Callable[[list[Accepted | GivenVerdict]], None],
        unscored: Callable[[], int],
        outbox: Outbox,
    ) -> None:
        self._store, self._streams, self._owners = store, streams, owners
        self._pass_on, self._unscored = pass_on, unscored
        self._outbox = outbox
        self._requests: deque[_Request] = deque()
        self._verdicts: deque[GivenVerdict] = deque()
        self._stored, self._unwritten = Stored(), set[int]()  # the streams whose results are being written
        self._waiting = 0  # readings in requests
        self._wake = threading.Condition()
        self._committing = threading.Lock()
        self._closed = self._stopping = self._busy = False
        self.problem: str | None = None  # why the last transaction failed
        self._rounds = 0  # transactions that went well
        self.round_seconds = 0.0  # of the last transaction
        self._thread = threading.Thread(target=self._run, name="cometad-recorder", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close_intake(self) -> None:
        """Take no more readings; returns once those taken before are on disk and passed on."""
        with self._wake:
            self._closed = True
            while self._requests or self._verdicts or self._busy:
                self._wake.wait(0.05)

    def flush(self, stream: LiveStream | None = None) -> None:
        """Return once all results of the scorer, or those of a stream, are on disk.

        Raises an error if they cannot be written.
        """
        with self._wake:
            if stream is not None and stream.id not in self._stored.streams() | self._unwritten:
                return
            enough = self._rounds + 2  # the round that runs, and the one that takes what waits now
            while (self._has_results() or self._busy) and self._rounds < enough and self._thread.is_alive():
                if self.problem is not None:
                    raise StorageError(self.problem)
                self._wake.wait(0.01)

    def paused(self) -> threading.Lock:
        """A lock to hold while no transaction may begin."""
        return self._committing

    def stop(self) -> None:
        """Store what there is and end the thread."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        self._thread.join()

    def submit(self, batches: Sequence[ReadingBatch], position: Position | None = None) -> "Future[Receipt]":
        """Take readings; the future is done once they are on disk. Raises `Busy` if too much is waiting."""
        readings = sum(len(batch.lines) for batch in batches)
        if readings > MOST_WAITING:
            raise InputError(f"These are {readings:,} readings. Send at most {MOST_WAITING:,} at once.")
        with self._wake:
            if self._closed or self._waiting + readings + self._unscored() > MOST_WAITING:
                raise Busy
            request = _Request(batches, position, readings, _uncancelled(Future()))
            self._requests.append(request)
            self._waiting += readings
            self._wake.notify_all()
        return request.done

    def wake(self) -> None:
        """Begin a transaction even if there is nothing to write: it notices that this process was fenced."""
        with suppress(Busy):
            self.submit([])

    def rule(self, stream: LiveStream, number: int, called: str | None) -> "Future[None]":
        """Take a verdict on an event; the future is done once the scorer has tried it."""
        done: Future[None] = _uncancelled(Future())
        with self._wake:
            if self._closed:
                raise Busy
            self._verdicts.append(GivenVerdict(stream, 0, 0, number, called, time.time(), done))
            self._wake.notify_all()
        return done

    def keep(self, stream: LiveStream, stored: Stored) -> None:
        """Take results of a stream from the scorer; those of a stream that another process has now are dropped."""
        with self._wake:
            if stream.gone:
                return
            first = not self._has_results()
            self._stored.add(stored)
            if first or stored.tried:
                self._wake.notify_all()

    @property
    def waiting(self) -> int:
        """Readings that wait to be stored."""
        return self._waiting

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wait_for_work()
                if self._stopping and not (self._requests or self._verdicts or self._has_results()):
                    return
                requests, verdicts, stored = self._taken()
                self._busy, self._unwritten = True, stored.streams()
            begun = time.monotonic()
            try:
                with self._committing:
                    accepted = self._committed(requests, verdicts, stored)
                self.problem = None
                self._rounds += 1
            except Fenced as error:
                self._start_over(requests, verdicts, error)
                accepted = []
            except Exception as error:  # goes to those who wait; this thread must go on
                self._give_back(requests, verdicts, stored, error)
                accepted = []
            self.round_seconds = time.monotonic() - begun
            self._pass_on(accepted)
            with self._wake:
                self._busy, self._unwritten = False, set()
                self._wake.notify_all()

    def _wait_for_work(self) -> None:
        """Return once there is something to store; results alone wait a moment for others, unless a person waits."""
        while not (self._requests or self._verdicts or self._stored.tried or self._stopping):
            if not self._wake.wait(GATHER if self._has_results() else None):
                return

    def _has_results(self) -> bool:
        results = self._stored
        return bool(results.scores or results.events or results.snapshots or results.tried or results.paused)

    def _taken(self) -> tuple[list[_Request], list[GivenVerdict], Stored]:
        requests, readings = list[_Request](), 0
        while self._requests and (not requests or readings + self._requests[0].readings <= ROUND):
            requests.append(self._requests.popleft())
            readings += requests[-1].readings
        self._waiting -= readings
        verdicts = list(self._verdicts)
        self._verdicts.clear()
        stored, self._stored = self._stored, Stored()
        return requests, verdicts, stored

    def _give_back(
        self, requests: list[_Request], verdicts: list[GivenVerdict], stored: Stored, error: Exception
    ) -> None:
        """After a failed transaction: requests get the error, results are kept for the next one."""
        self.problem = str(error)
        _log.error("transaction failed", problem=str(error), exc_info=not isinstance(error, CometadError))
        for request in requests:
            if not request.done.done():
                request.done.set_exception(error)
        for verdict in verdicts:
            if not verdict.done.done():
                verdict.done.set_exception(error)
        with self._wake:
            stored.add(self._stored)
            self._stored = stored
            if self._stopping:  # nothing more can be done: scores will be computed again from the readings
                self._stored = Stored()
                return
        time.sleep(RETRY)

    def _start_over(self, requests: list[_Request], verdicts: list[GivenVerdict], error: Fenced) -> None:
        """After others took this process for dead: whatever it knows is out of date, and requests are tried again."""
        _log.warning("fenced", problem=str(error))
        for verdict in verdicts:
            if not verdict.done.done():
                verdict.done.set_exception(error)
        with self._wake:
            requests = [request for request in requests if not request.done.done()]
            self._owners.forget()
            self._stored = Stored()
            self._rounds += 1  # what waits for results waits no longer
            if self._stopping:
                for request in requests:
                    request.done.set_exception(error)
                return
            self._requests.extendleft(reversed(requests))
            self._waiting += sum(request.readings for request in requests)

    def _take_streams(self, requests: list[_Request]) -> dict[str, Elsewhere]:
        """Take the streams of requests that nobody has; returns those of other processes."""
        names = {batch.stream for request in requests for batch in request.batches}
        wanted = [stream for name in names if (stream := self._streams.get(name)) is not None and not stream.owned]
        return self._owners.take(wanted) if wanted else {}

    def _committed(
        self, requests: list[_Request], verdicts: list[GivenVerdict], stored: Stored
    ) -> list[Accepted | GivenVerdict]:
        try:
            return self._commit(requests, verdicts, stored)
        except Fenced:
            raise
        except Exception:  # raised again
            # The connection may have ended after the transaction was committed and before the answer arrived.
            names = {batch.stream for request in requests for batch in request.batches}
            found = [stream for name in names if (stream := self._streams.get(name)) is not None]
            self._owners.doubt([*found, *(verdict.stream for verdict in verdicts)])
            raise

    def _commit(
        self, requests: list[_Request], verdicts: list[GivenVerdict], stored: Stored
    ) -> list[Accepted | GivenVerdict]:
        chunks: list[dict[str, Any]] = []
        accepted: list[Accepted | GivenVerdict] = []
        moved: dict[str, tuple[LiveStream, Arrivals]] = {}
        receipts: list[Receipt] = []
        self._owners.join()
        requests = self._still_read(requests)
        verdicts = self._still_owned(verdicts)
        elsewhere = self._take_streams(requests)
        with self._store.write() as connection:
            self._owners.fence(connection)
            for request in requests:
                moving = _moving(request, elsewhere)
                if moving and request.position is not None:  # all of it or nothing
                    first = next(iter(moving.values()))
                    receipts.append(Receipt(elsewhere=[(batch, first) for batch in request.batches]))
                else:
                    receipts.append(self._taken_in(connection, request, moving, chunks, accepted, moved))
            if chunks:
                connection.execute(insert(schema.readings), chunks)
            accepted += [self._stored_verdict(connection, verdict, moved) for verdict in verdicts]
            told = self._write_results(connection, stored)
            self._store.upsert(connection, schema.positions, _reached(requests, receipts))
            for stream, arrivals in moved.values():
                facts = arrivals.dates.facts()
                if facts != stream.stored_dates:
                    own = schema.streams.c.id == stream.id
                    connection.execute(update(schema.streams).where(own).values(dates=json.dumps(facts)))
        for stream, arrivals in moved.values():
            if arrivals.next_seq > stream.arrivals.next_seq:
                stream.last_received, stream.fed = time.time(), True
            stream.arrivals, stream.stored_dates = arrivals, arrivals.dates.facts()
        for request, receipt in zip(requests, receipts, strict=True):
            request.done.set_result(receipt)
        if told:
            self._outbox.wake(False)
        return accepted

    def _still_read(self, requests: list[_Request]) -> list[_Request]:
        """The requests without those from a part of a source that another process reads now."""
        found = []
        for request in requests:
            at = request.position
            if at is None or at.part is None or self._owners.holds(at.connection, at.part):
                found.append(request)
            else:
                request.done.set_exception(Lost(f"Another process reads part {at.part} of {at.connection} now."))
        return found

    def _still_owned(self, verdicts: list[GivenVerdict]) -> list[GivenVerdict]:
        """The verdicts without those on streams that this process has left meanwhile."""
        for verdict in verdicts:
            if not verdict.stream.owned:
                verdict.done.set_exception(Moved(verdict.stream.name))
        return [verdict for verdict in verdicts if verdict.stream.owned]

    def _taken_in(
        self,
        connection: Connection,
        request: _Request,
        elsewhere: dict[str, Elsewhere],
        chunks: list[dict[str, Any]],
        accepted: list[Accepted | GivenVerdict],
        moved: dict[str, tuple[LiveStream, Arrivals]],
    ) -> Receipt:
        """Admit the readings of a request: adds chunks to write, readings to score and what moved on."""
        total, received, since = Receipt(), time.time(), time.monotonic()
        for batch in request.batches:
            if batch.stream in elsewhere:
                total.elsewhere.append((batch, elsewhere[batch.stream]))
                continue
            stream = self._streams.get(batch.stream)
            if stream is None or batch.names != stream.layout.names:  # deleted or changed meanwhile
                total.add(_unknown(batch))
                continue
            if batch.stream not in moved:
                moved[batch.stream] = (stream, replace(stream.arrivals))
            arrivals = moved[batch.stream][1]
            first = arrivals.next_seq
            stored = KnownTimes(connection, stream.id)

            def known(at: float, stream_id: int = stream.id, stored: KnownTimes = stored) -> bool:
                return at in stored or _among(chunks, stream_id, at)

            admitted, receipt = admit(batch, stream, arrivals, received, known)
            total.add(receipt)
            if len(admitted.ats):
                rows = HistoryRows(first, admitted.ats, admitted.values)
                chunks.append(_reading_chunk(stream, rows, admitted, arrivals))
                accepted.append(Accepted(stream, rows, since))
        return total

    def _stored_verdict(
        self, connection: Connection, verdict: GivenVerdict, moved: dict[str, tuple[LiveStream, Arrivals]]
    ) -> GivenVerdict:
        stream = verdict.stream
        after = moved[stream.name][1] if stream.name in moved else stream.arrivals
        values = {
            "stream_id": stream.id,
            "after_seq": after.next_seq,
            "number": verdict.number - stream.first_event,  # in the session
            "called": verdict.called,
            "at": verdict.at,
        }
        learned = verdict.called == "normal"  # unless the scorer finds otherwise
        change_event(connection, stream.id, verdict.number, verdict_columns(verdict.called, verdict.at, learned))
        (found,) = connection.execute(insert(schema.verdicts).values(values)).inserted_primary_key or (0,)
        return verdict._replace(id=int(found), after_seq=after.next_seq)

    def _write_results(self, connection: Connection, stored: Stored) -> bool:
        """Store results and the messages about their events; returns whether there are any messages."""
        if stored.scores:
            # A session that was opened again while the database was away may have given some of them twice.
            connection.execute(self._store.insert(schema.scores).on_conflict_do_nothing(), stored.scores)
        self._store.upsert(connection, schema.events, _newest(stored.events, "number"))
        self._store.upsert(connection, schema.snapshots, _newest(stored.snapshots))
        for one in stored.tried:
            change_event(connection, one["stream_id"], one["number"], {name: one[name] for name in ("taught", "note")})
        for stream_id, reason in stored.paused:
            own = schema.streams.c.id == stream_id
            connection.execute(update(schema.streams).where(own).values(paused=True, reason=reason))
        return self._outbox.write(connection, stored.events)


def _uncancelled(future: "Future[T]") -> "Future[T]":
    """A future that whoever waits for it cannot cancel: its result is set in any case."""
    future.set_running_or_notify_cancel()
    return future


def change_event(connection: Connection, stream_id: int, number: int, columns: dict[str, Any]) -> None:
    """Change columns of a stored event."""
    own = (schema.events.c.stream_id == stream_id) & (schema.events.c.number == number)
    connection.execute(update(schema.events).where(own).values(columns))


def _reading_chunk(stream: LiveStream, rows: HistoryRows, admitted: Admitted, arrivals: Arrivals) -> dict[str, Any]:
    return {
        **chunk(stream.id, rows),
        "last_time": json.dumps(admitted.last_time),
        "last_sequence": arrivals.last_sequence,
    }


def _among(chunks: list[dict[str, Any]], stream_id: int, at: float) -> bool:
    """Whether a chunk that is not written yet has a reading of this time."""
    own = (one for one in chunks if one["stream_id"] == stream_id and one["first_at"] <= at <= one["last_at"])
    return any(at in np.frombuffer(one["ats"], "<f8") for one in own)


def _moving(request: _Request, elsewhere: dict[str, Elsewhere]) -> dict[str, Elsewhere]:
    """The streams of a request that other processes have."""
    if not elsewhere:
        return {}
    return {batch.stream: elsewhere[batch.stream] for batch in request.batches if batch.stream in elsewhere}


def _reached(requests: list[_Request], receipts: list[Receipt]) -> list[dict[str, Any]]:
    """How far each source was read."""
    taken = [one.position for one, receipt in zip(requests, receipts, strict=True) if not receipt.elsewhere]
    newest = {position.name: position.content for position in taken if position is not None}
    return [{"connection": name, "position": json.dumps(content)} for name, content in newest.items()]


def _unknown(batch: ReadingBatch) -> Receipt:
    reason = str(UnknownStream(batch.stream))
    return Receipt(refused=[Refusal(line, batch.stream, reason) for line in batch.lines])


def _newest(rows: list[dict[str, Any]], *keys: str) -> list[dict[str, Any]]:
    """The last row for each stream and key."""
    return list({tuple(row[key] for key in ("stream_id", *keys)): row for row in rows}.values())

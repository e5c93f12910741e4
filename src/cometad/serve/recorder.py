"""The thread that writes: many requests and many scores in one transaction, then acknowledges them.

A reading is acknowledged once it is on disk. Scores, events and snapshots of the scorer are stored with the next
transaction. So a snapshot is never newer than the readings, and what follows it can be scored again.

Locks are taken in this order: that of the service, the one between transactions (`exclusive`), that of a queue.
"""

import asyncio
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import structlog
from sqlalchemy import Connection, insert, update

from cometad.connect.contract import Busy, Lost, Position, ReadingBatch, Receipt
from cometad.errors import CometadError, InputError
from cometad.serve.arrivals import Accepted, Admission
from cometad.serve.events import NOT_LEARNED, change_event, verdict_columns
from cometad.serve.live_stream import LiveStream
from cometad.serve.members import Fenced, Members, Moved
from cometad.serve.notify.outbox import Outbox
from cometad.serve.regular import paced
from cometad.serve.scorer import GivenVerdict, LiveScorer, Stored
from cometad.serve.storage import schema
from cometad.serve.storage.store import StorageError, Store
from cometad.serve.stored_streams import StoredStreams
from cometad.serve.watching import Figures

MOST_WAITING = 200_000  # readings accepted but not stored, or stored but not scored
ROUND = 50_000  # readings in one transaction
RETRY = 1.0  # seconds after a failed transaction
GATHER = 0.1  # seconds that results wait for readings to be stored with: each transaction waits for the disk

T = TypeVar("T")

_log = structlog.get_logger("cometad.serve")


class _Request(NamedTuple):
    batches: Sequence[ReadingBatch]
    position: Position | None
    readings: int
    done: "Future[Receipt]"


Waiting = TypeVar("Waiting", _Request, GivenVerdict)


class _Round(NamedTuple):
    """What one transaction stores; `done` tells when it is on disk."""

    requests: list[_Request]
    verdicts: list[GivenVerdict]
    results: Stored
    done: "Future[None]"

    def fail(self, error: Exception) -> None:
        """Tell everybody who waits, unless told before."""
        waiting: list[Any] = [*self.requests, *self.verdicts, self]
        for one in waiting:
            if not one.done.done():
                one.done.set_exception(error)


class Recorder:
    """Stores readings and results, and passes what waits to be scored on to the scorer."""

    def __init__(
        self,
        store: Store,
        streams: StoredStreams,
        members: Members,
        scorer: LiveScorer,
        outbox: Outbox,
        figures: Figures,
    ) -> None:
        self._store, self._streams, self._members = store, streams, members
        self._scorer, self._outbox, self._figures = scorer, outbox, figures
        self._requests: deque[_Request] = deque()
        self._verdicts: list[GivenVerdict] = []
        self._results, self._written = Stored(), _future()  # of the next round, and whether it is on disk
        self._running: _Round | None = None
        self.waiting = 0  # readings in requests
        self._wake, self._gather = threading.Condition(), paced(GATHER)
        self._committing = threading.Lock()
        self._closed = self._stopping = self._urgent = False
        self.problem: str | None = None  # why the last transaction failed
        self.round_seconds = 0.0  # of the last transaction
        self._thread = threading.Thread(target=self._run, name="cometad-recorder", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close_intake(self) -> None:
        """Take no more readings; returns once those taken before are on disk and passed on."""
        with self._wake:
            self._closed = True
            while self._requests or self._verdicts or self._running:
                self._wake.wait()

    def stop(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        self._thread.join()

    # -- what it takes ----------------------------------------------------------------------------------------------

    async def receive(self, batches: Sequence[ReadingBatch], position: Position | None = None) -> Receipt:
        """Take readings and count them; returns once they are on disk. Raises `Busy` if too much is waiting."""
        receipt = await asyncio.wrap_future(self.submit(batches, position))
        self._figures.received(receipt)
        return receipt

    def submit(self, batches: Sequence[ReadingBatch], position: Position | None = None) -> "Future[Receipt]":
        """Take readings; the future is done once they are on disk. Raises `Busy` if too much is waiting."""
        readings = sum(len(batch.lines) for batch in batches)
        if readings > MOST_WAITING:
            raise InputError(f"These are {readings:,} readings. Send at most {MOST_WAITING:,} at once.")
        with self._wake:
            if self._closed or self.waiting + readings + self._scorer.unscored > MOST_WAITING:
                raise Busy
            request = _Request(batches, position, readings, _future())
            self._requests.append(request)
            self.waiting += readings
            self._wake.notify_all()
        return request.done

    def wake(self) -> None:
        """Begin a transaction even if there is nothing to write: it notices that this process was fenced."""
        with suppress(Busy):
            self.submit([])

    def rule(self, stream: LiveStream, number: int, called: str | None) -> "Future[None]":
        """Take a verdict on an event; the future is done once the scorer has tried it."""
        done: Future[None] = _future()
        with self._wake:
            if self._closed:
                raise Busy
            self._verdicts.append(GivenVerdict(stream, 0, 0, number, called, time.time(), done))
            self._wake.notify_all()
        return done

    def keep(self, stream: LiveStream, stored: Stored) -> None:
        """Take results of a stream from the scorer; those of a stream that another process has now are dropped."""
        with self._wake:
            if not stream.owned:
                return
            first = not self._results
            self._results.add(stored)
            self._urgent |= bool(stored.tried)  # a person waits
            if first or self._urgent:
                self._wake.notify_all()

    def flush(self, stream: LiveStream | None = None) -> None:
        """Return once all results of the scorer, or those of a stream, are on disk.

        Raises an error if they cannot be written.
        """
        with self._wake:
            if not self._thread.is_alive():
                return
            running = self._running
            rounds = [] if running is None or not (stream is None or running.results.has(stream)) else [running.done]
            if self._results.has(stream):
                rounds.append(self._written)
                self._urgent = True
                self._wake.notify_all()
        for written in rounds:
            written.result()

    def exclusive(self, action: Callable[[], T]) -> T:
        """Do something while no transaction of this thread runs, and return its result.

        What was committed before is passed on, and nobody but the action changes arrivals meanwhile. The action must
        not wait for this thread (`flush`), nor for another that does.
        """
        with self._committing:
            return action()

    # -- rounds -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (found := self._next_round()) is not None:
            begun = time.monotonic()
            with self._committing:
                try:
                    self._scorer.put(self._stored(found))
                    self.problem = None
                    found.done.set_result(None)
                except Fenced as error:
                    self._start_over(found, error)
                except Exception as error:  # goes to those who wait; this thread must go on
                    self._give_back(found, error)
            if self.problem is not None and not self._stopping:
                time.sleep(paced(RETRY))
            self.round_seconds = time.monotonic() - begun
            with self._wake:
                self._running = None
                self._wake.notify_all()
        self._written.set_result(None)

    def _next_round(self) -> _Round | None:
        """Wait for something to store; results alone wait a moment for others. None at the end."""
        with self._wake:
            while not (self._requests or self._verdicts or self._urgent or self._stopping):
                if not self._wake.wait(self._gather if self._results else None):
                    break
            requests, readings = list[_Request](), 0
            while self._requests and (not requests or readings + self._requests[0].readings <= ROUND):
                requests.append(self._requests.popleft())
                readings += requests[-1].readings
            if not (requests or self._verdicts or self._results or not self._stopping):
                return None
            self.waiting -= readings
            self._running = _Round(requests, self._verdicts, self._results, self._written)
            self._verdicts, self._results, self._written, self._urgent = [], Stored(), _future(), False
            return self._running

    def _give_back(self, failed: _Round, error: Exception) -> None:
        """After a failed transaction: requests get the error, results are kept for the next one."""
        self.problem = str(error)
        _log.error("transaction failed", problem=str(error), exc_info=not isinstance(error, CometadError))
        # The connection may have ended after the transaction was committed and before the answer arrived.
        names = {batch.stream for request in failed.requests for batch in request.batches}
        names |= {verdict.stream.name for verdict in failed.verdicts}
        self._members.doubt([stream for name in names if (stream := self._streams.get(name)) is not None])
        failed.done.set_exception(StorageError(self.problem))
        failed.fail(error)
        with self._wake:
            if self._stopping:  # nothing more can be done: scores will be computed again from the readings
                self._results = Stored()
            else:
                failed.results.add(self._results)
                self._results = failed.results

    def _start_over(self, fenced: _Round, error: Fenced) -> None:
        """After others took this process for dead: whatever it knows is out of date, and requests are tried again."""
        _log.warning("fenced", problem=str(error))
        again = [request for request in fenced.requests if not request.done.done()]
        fenced.done.set_result(None)  # what waits for results waits no longer
        with self._wake:
            self._members.forget()
            self._results = Stored()
            if not self._stopping:
                fenced.requests.clear()
                self._requests.extendleft(reversed(again))
                self.waiting += sum(request.readings for request in again)
        fenced.fail(error)

    # -- one transaction --------------------------------------------------------------------------------------------

    def _stored(self, found: _Round) -> Sequence[Accepted | GivenVerdict]:
        """Store a round and acknowledge its requests; returns what waits to be scored."""
        requests = _valid(found.requests, self._lost_part)
        verdicts = _valid(found.verdicts, _moved)
        wanted = {batch.stream for request in requests for batch in request.batches}
        missing = [name for name in wanted if name not in self._streams]
        elsewhere = self._members.take(missing) if missing else {}
        with self._members.write() as connection:
            admission = Admission(connection, self._streams, elsewhere)
            receipts = [admission.take(request.batches, request.position) for request in requests]
            if admission.chunks:
                connection.execute(insert(schema.readings), admission.chunks)
            given = [_stored_verdict(connection, verdict, admission) for verdict in verdicts]
            told = self._write_results(connection, found.results)
            self._store.upsert(connection, schema.positions, _reached(requests, receipts))
            for stream, arrivals in admission.arrivals.values():
                if arrivals.dates is not stream.arrivals.dates:
                    _change_stream(connection, stream.id, dates=json.dumps(arrivals.dates.state()))
        for stream, arrivals in admission.arrivals.values():
            stream.arrivals = arrivals
        for name in missing:
            if (taken := self._streams.get(name)) is not None:  # whoever had it may have left readings without scores
                self._scorer.open_later(taken)
        for request, receipt in zip(requests, receipts, strict=True):
            request.done.set_result(receipt)
        for verdict in verdicts:
            if verdict.is_late:
                verdict.done.set_result(None)
        if told:
            self._outbox.wake(False)
        return [*admission.accepted, *(verdict for verdict in given if verdict is not None)]

    def _lost_part(self, request: _Request) -> Lost | None:
        at = request.position
        if at is None or at.part is None or self._members.holds(at.connection, at.part):
            return None
        return Lost(f"Another process reads part {at.part} of {at.connection} now.")

    def _write_results(self, connection: Connection, stored: Stored) -> bool:
        """Store results and the messages about their events; returns whether there are any messages."""
        if stored.scores:
            # A session that was opened again while the database was away may have given some of them twice.
            connection.execute(self._store.insert(schema.scores).on_conflict_do_nothing(), stored.scores)
        self._store.upsert(connection, schema.events, _newest(stored.events, "number"))
        self._store.upsert(connection, schema.snapshots, _newest(stored.snapshots))
        for one in stored.tried:
            change_event(connection, one["stream_id"], one["number"], {name: one[name] for name in ("taught", "note")})
        for one in stored.paused:
            _change_stream(connection, one["stream_id"], paused=True, reason=one["reason"])
        return bool(self._outbox.receivers) and self._outbox.write(connection, stored.events)


def _future() -> "Future[Any]":
    """A future that whoever waits for it cannot cancel: its result is set in any case."""
    found: Future[Any] = Future()
    found.set_running_or_notify_cancel()
    return found


def _moved(verdict: GivenVerdict) -> Moved | None:
    return None if verdict.stream.owned or verdict.is_late else Moved(verdict.stream.name)


def _valid(waiting: list[Waiting], problem_of: Callable[[Waiting], Lost | None]) -> list[Waiting]:
    """Those without a problem; each of the others gets its own as an error."""
    found = []
    for one in waiting:
        problem = problem_of(one)
        if problem is None:
            found.append(one)
        else:
            one.done.set_exception(problem)
    return found


def _stored_verdict(connection: Connection, verdict: GivenVerdict, admission: Admission) -> GivenVerdict | None:
    """Store what a person said and, unless it comes too late, what is to be learned: both or nothing."""
    stream, called = verdict.stream, verdict.called
    if verdict.is_late:
        said = verdict_columns(called, verdict.at, False, NOT_LEARNED)
        change_event(connection, stream.id, verdict.number, said)
        return None
    after_seq = admission.after(stream).next_seq
    values = {
        "stream_id": stream.id,
        "after_seq": after_seq,
        "number": verdict.number - stream.row.first_event,  # in the session
        "called": called,
        "at": verdict.at,
    }
    learned = called == "normal"  # unless the scorer finds otherwise
    change_event(connection, stream.id, verdict.number, verdict_columns(called, verdict.at, learned))
    (found,) = connection.execute(insert(schema.verdicts).values(values)).inserted_primary_key or (0,)
    return verdict._replace(id=int(found), after_seq=after_seq)


def _change_stream(connection: Connection, stream_id: int, **columns: Any) -> None:
    connection.execute(update(schema.streams).where(schema.streams.c.id == stream_id).values(columns))


def _reached(requests: list[_Request], receipts: list[Receipt]) -> list[dict[str, Any]]:
    taken = [one.position for one, receipt in zip(requests, receipts, strict=True) if not receipt.elsewhere]
    newest = {position.name: position.content for position in taken if position is not None}
    return [{"connection": name, "position": json.dumps(content)} for name, content in newest.items()]


def _newest(rows: list[dict[str, Any]], *keys: str) -> list[dict[str, Any]]:
    return list({tuple(row[key] for key in ("stream_id", *keys)): row for row in rows}.values())

"""What each receiver is sent, as fast as it accepts it: events from the outbox, or copies of scores.

Receivers are independent: a dead one delays neither others nor scoring. Events are never dropped; scores are in the
database anyway, so if a receiver is down for long, the oldest copies are dropped and counted.
"""

import asyncio
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import structlog

from cometad.arrays import Floats
from cometad.connect.contract import Lost, retry_wait
from cometad.connect.out.message import EXAMPLE
from cometad.connect.out.notifier import SCORE_WRITERS, Notifier, Rejected, notifier_of
from cometad.connect.out.posting import RemoteWriter, ScoreSamples
from cometad.errors import CometadError, ParameterError
from cometad.serve.models import ReceiverState
from cometad.serve.notify.outbox import Messages, Outbox
from cometad.serve.regular import LoopThread
from cometad.serve.scorer import FreshScores
from cometad.serve.settings import NotifySettings, Settings, address
from cometad.serve.storage.store import StorageError, Store
from cometad.serve.stored_detectors import Missing
from cometad.serve.stored_streams import StoredStreams
from cometad.serve.watching import Figures, delivery_gauges

LONGEST_WAIT = 300.0  # seconds until a failed receiver of events is retried
LONGEST_COPY_WAIT = 30.0  # the same for scores
REFUSALS = 5  # refusals after which a message is given up on
LOOK_EVERY = 30.0  # seconds between checks if nobody wakes us
SHORTEST_WAIT = 0.05
MOST = 500_000  # scores that wait
BATCH = 5000  # scores in a request
GATHER = 1.0  # seconds
FORGET_EVERY = 3600.0
STOP_WITHIN = 5.0  # seconds for running requests when the service stops
COUNTS = ("waiting", "delivered", "undelivered")  # messages or scores
BAD_REQUEST = 400  # also Prometheus's response to a request with one sample that is too old: it accepts none

_log = structlog.get_logger("cometad.serve")


async def _guarded(work: Coroutine[Any, Any, float | None]) -> float:
    """Do some work; returns how long to wait. An error affects neither others nor the next round."""
    try:
        return await work or 0.0
    except StorageError as error:  # the database is unavailable
        _log.error("deliveries failed", problem=str(error))
    except Exception:  # a bug with one receiver must not end the thread that serves all of them
        _log.exception("deliveries failed")
    return LOOK_EVERY


class _Outgoing:
    """One receiver, and how it is."""

    gets: Literal["events", "scores"]
    counted: ClassVar[str]  # the figure of its messages or scores

    def __init__(self, settings: NotifySettings, notifier: Notifier, figures: Figures) -> None:
        self.settings, self.name, self.url = settings, settings.name, notifier.destination.shown  # without secrets
        self._figures = figures
        self.failures = 0  # since it accepted anything
        self.error: str | None = None  # why the last message was not accepted
        self.last_delivered: float | None = None

    def count(self, result: str, number: int) -> None:
        self._figures.count(self.counted, self.name, result, by=number)

    def accepted(self) -> None:
        self.failures, self.error, self.last_delivered = 0, None, time.time()

    def failed(self, error: str) -> None:
        """Record why something was not accepted; logged once per outage."""
        if self.error is None:
            _log.warning("receiver failed", receiver=self.name, problem=error)
        self.error = error

    def state_with(self, *counts: int) -> ReceiverState:
        """Its state, with the numbers of `COUNTS`."""
        own = {name: getattr(self, name) for name in ("name", "url", "gets", "last_delivered", "error")}
        return ReceiverState(**(own | dict(zip(COUNTS, counts, strict=True))))


class EventReceiver(_Outgoing):
    """A receiver of events: gets the messages of the outbox, in order."""

    gets, counted = "events", "deliveries"

    def __init__(self, settings: NotifySettings, notifier: Notifier, figures: Figures, outbox: Outbox) -> None:
        super().__init__(settings, notifier, figures)
        self._notifier, self._outbox = notifier, outbox
        self._refusals = Counter[int]()  # by delivery
        self._retry_at = 0.0  # next attempt after a failure
        self._resent = 0.0  # when open events were last resent, by `time.monotonic`
        self._woken = asyncio.Event()

    def wake(self, asked: bool) -> None:
        """Check the outbox now. New events do not wake a receiver that is failing; an explicit request does."""
        if asked or not self.failures:
            self._woken.set()

    async def run(self) -> None:
        try:
            while True:
                wait = await _guarded(self._round())
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), max(wait, SHORTEST_WAIT))
                self._woken.clear()
        finally:
            await self._notifier.close()

    async def _round(self) -> float:
        """Send all due messages; returns how long to wait until the next round."""
        while True:
            due, later = await asyncio.to_thread(self._outbox.due, self.name, self._notifier.most)
            if not await (self._send(due) if due else self._resend()):
                return self._retry_at - time.time()
            if not due:
                break
        waits = [LOOK_EVERY]
        waits += [] if later is None else [later - time.time()]
        waits += [] if self._notifier.resend is None else [self._notifier.resend / 4]
        return min(waits)

    async def _send(self, written: Messages) -> bool:
        """Send messages and record the results; returns whether the receiver is reachable."""
        rows = [row for row, _ in written]
        try:
            await self._notifier.send([message for _, message in written])
        except Lost as error:
            await self._lost(rows, str(error))
            return False
        except Exception as error:
            if len(written) > 1:  # find out which one is refused
                for one in written:
                    if not await self._send([one]):
                        return False
            else:
                await self._refused(rows[0], error)
            return True
        self.accepted()
        for row in rows:
            self._refusals.pop(row.id, None)
        await self._tried(rows, "delivered", state="delivered", error=None, done_at=time.time())
        return True

    async def _tried(self, rows: Sequence[Any], result: str, **values: Any) -> None:
        await asyncio.to_thread(self._outbox.tried, rows, **values)
        self.count(result, len(rows))

    def _unreachable(self, error: str) -> None:
        self.failed(error)
        self.failures += 1
        self._retry_at = time.time() + retry_wait(self.failures, LONGEST_WAIT)

    async def _lost(self, rows: Sequence[Any], error: str) -> None:
        self._unreachable(error)
        await self._tried(rows, "failed", error=error, next_at=self._retry_at)
        old = await asyncio.to_thread(self._outbox.give_up_old, self.name, self.settings.give_up_hours, error)
        if old:
            self.count("given_up", old)
            self._log_given_up(old, error)

    def _log_given_up(self, messages: int, error: str) -> None:
        _log.error("receiver given up", receiver=self.name, messages=messages, problem=error)

    async def _refused(self, row: Any, error: Exception) -> None:
        """Handle a refused message: retry a few times, without blocking others."""
        reason = str(error)
        if not isinstance(error, CometadError):
            reason = f"Sending failed ({type(error).__name__}: {error})."
            _log.exception("deliveries failed")
        if self.error != reason:
            _log.warning("receiver failed", receiver=self.name, problem=reason)
        self.error = reason
        self._refusals[row.id] += 1
        if self._refusals[row.id] < REFUSALS:
            next_at = time.time() + retry_wait(self._refusals[row.id] + 1, LONGEST_WAIT)
            await self._tried([row], "failed", error=reason, next_at=next_at)
        else:
            del self._refusals[row.id]
            await self._tried([row], "given_up", state="undelivered", error=reason, done_at=time.time())
            self._log_given_up(1, reason)

    async def _resend(self) -> bool:
        """Resend open events to a receiver that needs it; returns whether it is reachable."""
        every, now = self._notifier.resend, time.monotonic()
        if every is None or (self._resent and now - self._resent < every):
            return True
        rows = await asyncio.to_thread(self._outbox.still_open, self.name)
        for first in range(0, len(rows), self._notifier.most):
            part = rows[first : first + self._notifier.most]
            written = await asyncio.to_thread(self._outbox.written, part)
            try:
                if written:
                    await self._notifier.send([message for _, message in written])
                    self.failures, self.error = 0, None
            except Lost as error:
                self._unreachable(str(error))
                return False
            except CometadError as error:  # the next one may be accepted
                self.error = str(error)
        self._resent = now
        return True


class ScoreReceiver(_Outgoing):
    """A receiver of scores: gets copies of them, through a bounded queue."""

    gets, counted = "scores", "scores_copied"

    def __init__(self, settings: NotifySettings, writer: RemoteWriter, figures: Figures) -> None:
        super().__init__(settings, writer, figures)
        self._writer = writer
        self._queue: deque[ScoreSamples] = deque()
        self._lock = threading.Lock()
        self.waiting = self.written = self.lost = 0  # scores

    def add(self, scores: FreshScores) -> None:
        if not self.settings.wants(scores.stream.name):
            return
        values = np.column_stack([scores.cells[:, :2], _is_open(scores)])
        with self._lock:
            for first in range(0, len(values), BATCH):
                part = slice(first, first + BATCH)
                self._queue.append(ScoreSamples(scores.stream.name, scores.ats[part], values[part]))
            self.waiting += len(scores.ats)
            dropped = 0
            while self.waiting > MOST and len(self._queue) > 1:
                dropped += len(self._queue[0].ats)
                self.waiting -= len(self._queue.popleft().ats)
        if dropped:
            self._gone("dropped", dropped)

    async def run(self) -> None:
        batches = list[list[ScoreSamples]]()
        try:
            while True:
                batches = batches or self._taken()
                if not batches:
                    await asyncio.sleep(GATHER)
                    continue
                try:
                    batches[:1] = await self._write(batches[0])
                    self.failures = 0
                except Lost as error:
                    self.failed(str(error))
                    self.failures += 1
                    await asyncio.sleep(retry_wait(self.failures, LONGEST_COPY_WAIT))
        finally:
            await self._writer.close()

    async def _write(self, batch: list[ScoreSamples]) -> list[list[ScoreSamples]]:
        """Write scores; returns smaller batches to write instead if this one was refused as a whole."""
        count = sum(len(one.ats) for one in batch)
        try:
            await self._writer.write(batch)
        except Lost:
            raise
        except Exception as error:  # the next ones may be accepted
            streams = {one.stream for one in batch}
            if isinstance(error, Rejected) and error.status == BAD_REQUEST and len(streams) > 1:
                return [[one for one in batch if one.stream == stream] for stream in sorted(streams)]
            if not isinstance(error, CometadError):
                _log.exception("deliveries failed")
            self.failed(str(error))
            self._gone("refused", count)
        else:
            self.accepted()
            self.written += count
            self.count("written", count)
        return []

    def _taken(self) -> list[list[ScoreSamples]]:
        found, count = list[ScoreSamples](), 0
        with self._lock:
            while self._queue and (not found or count + len(self._queue[0].ats) <= BATCH):
                found.append(self._queue.popleft())
                count += len(found[-1].ats)
            self.waiting -= count
        return [found] if found else []

    def _gone(self, result: str, count: int) -> None:
        self.lost += count
        self.count(result, count)


def _is_open(scores: FreshScores) -> Floats:
    """1 at the times (time,) at which an event was open, else 0."""
    if not scores.events:
        return np.full(len(scores.ats), float(scores.stream.shown.open_event is not None))
    found = np.zeros(len(scores.ats))
    for event in {event.id: event for _, event in scores.events}.values():  # the last state of each
        start = -np.inf if event.start_time is None else event.start_time
        stop = np.inf if event.state == "open" or event.stop_time is None else event.stop_time
        found[(scores.ats >= start) & (scores.ats <= stop)] = 1.0
    return found


def notifiers_of(notify: Sequence[NotifySettings]) -> dict[str, Notifier]:
    found: dict[str, Notifier] = {}
    names = [one.name for one in notify]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ParameterError(f"Two receivers have the name {twice!r}. Give each [[notify]] table its own.")
    for one in notify:
        destination = one.destination()
        writes_scores = destination.address.scheme in SCORE_WRITERS
        found[one.name] = RemoteWriter(destination) if writes_scores else notifier_of(destination)
    return found


class Notifications:
    """Sends to the configured receivers: `told` of events by their names, and `copies` of scores."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        notifiers: dict[str, Notifier],
        streams: StoredStreams,
        figures: Figures,
        in_charge: Callable[[Collection[int]], Collection[int]],
    ) -> None:
        of_events = [one for one in settings.notify if not isinstance(notifiers[one.name], RemoteWriter)]
        url = settings.public_url or address(settings.host, settings.port)
        self.outbox = Outbox(store, of_events, streams, in_charge, url)
        self.told: dict[str, EventReceiver] = {}
        self.copies: list[ScoreReceiver] = []
        for one in settings.notify:
            to = notifiers[one.name]
            if isinstance(to, RemoteWriter):
                self.copies.append(ScoreReceiver(one, to, figures))
            else:
                self.told[one.name] = EventReceiver(one, to, figures, self.outbox)
        self._thread = LoopThread("cometad-deliveries", self._sending)
        figures.watch(lambda: delivery_gauges(self.outbox.counts()))

    def start(self) -> None:
        self.outbox.give_up_unknown()
        if self.told or self.copies:
            self.outbox.wake = lambda asked: self._thread.call(self._wake, asked)
            self._thread.start()

    def stop(self) -> None:
        """Stop sending; unsent messages wait for the next start."""
        self._thread.stop(STOP_WITHIN)

    def _sending(self) -> list[Coroutine[Any, Any, Any]]:
        copying = [_guarded(one.run()) for one in self.copies]
        return [*(one.run() for one in self.told.values()), *copying, self._forget()]

    def _wake(self, asked: bool) -> None:
        for receiver in self.told.values():
            receiver.wake(asked)

    async def _forget(self) -> None:
        while True:
            await _guarded(asyncio.to_thread(self.outbox.forget_old))
            await asyncio.sleep(FORGET_EVERY)

    # -- people -----------------------------------------------------------------------------------------------------

    def receivers(self) -> list[ReceiverState]:
        counts = self.outbox.counts()
        told = [one.state_with(*(counts.get((one.name, state), 0) for state in COUNTS)) for one in self.told.values()]
        return told + [one.state_with(one.waiting, one.written, one.lost) for one in self.copies]

    async def send_example(self, receiver: str) -> None:
        """Send an example to a receiver now, ahead of waiting messages; raises `Lost` or `Rejected`."""
        notifier = notifier_of(self._receiver(receiver).settings.destination())
        now = time.time()
        example = replace(EXAMPLE, id=uuid.uuid4().hex, link=self.outbox.link(EXAMPLE.event), opened_at=now)
        try:
            await notifier.send([replace(example, start_time=now, stop_time=now)])
        finally:
            await notifier.close()

    def retry_one(self, delivery: int) -> int:
        """Retry an undelivered message; returns 0 if it was delivered meanwhile."""
        if not self.outbox.exists(delivery):
            raise Missing(f"There is no delivery {delivery}.")
        return self.outbox.retry(id=delivery)

    def retry_all(self, receiver: str) -> int:
        return self.outbox.retry(receiver=self._receiver(receiver).name)

    def _receiver(self, name: str) -> EventReceiver:
        if name not in self.told:
            raise Missing(f"There is no receiver {name!r} of events. Add a [[notify]] table for it to cometad.toml.")
        return self.told[name]

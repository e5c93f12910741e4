"""The thread that sends events; receivers are independent, so a dead one delays neither others nor scoring."""

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import structlog

from cometad.connect.contract import Lost
from cometad.connect.out.message import EventMessage
from cometad.connect.out.notifier import Notifier
from cometad.errors import CometadError
from cometad.serve.notify.messages import MessageWriter
from cometad.serve.notify.outbox import Outbox
from cometad.serve.storage.store import StorageError

FIRST_WAIT = 0.5  # seconds until a failed receiver is retried
LONGEST_WAIT = 300.0
REFUSALS = 5  # refusals after which a message is given up on
LOOK_EVERY = 30.0  # seconds between checks if nobody wakes us
SHORTEST_WAIT = 0.05
FORGET_EVERY = 3600.0
STOP_WITHIN = 5.0  # seconds for running requests when the service stops

_log = structlog.get_logger("cometad.serve")


@dataclass
class EventReceiver:
    """A receiver of events, and its state."""

    name: str
    url: str  # without secrets
    notifier: Notifier
    give_up_hours: float
    failures: int = 0  # since the last accepted message
    error: str | None = None  # why the last message was not accepted
    last_delivered: float | None = None
    refusals: Counter[int] = field(default_factory=Counter)  # by delivery
    retry_at: float = 0.0  # next attempt after a failure
    resent: float = 0.0  # when open events were last resent, by `time.monotonic`
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    def answered(self) -> None:
        """Record that it accepted a message."""
        self.failures, self.error = 0, None

    def lost(self, error: str) -> None:
        """Record that it is unreachable, and schedule the next attempt."""
        if self.error is None:  # once per outage
            _log.warning("receiver failed", receiver=self.name, problem=error)
        self.failures, self.error = self.failures + 1, error
        wait = min(FIRST_WAIT * 2.0 ** min(self.failures - 1, 30), LONGEST_WAIT)
        self.retry_at = time.time() + wait * random.uniform(0.8, 1.2)  # jitter: not all receivers at once


class Deliveries:
    """Sends messages from the outbox. `count` is called with receiver, result and number of messages.

    `others` run alongside until it is stopped.
    """

    def __init__(
        self,
        outbox: Outbox,
        writer: MessageWriter,
        receivers: Sequence[EventReceiver],
        count: Callable[[str, str, int], None],
        others: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
    ) -> None:
        self._outbox, self._writer, self._count = outbox, writer, count
        self._others = others
        self.receivers = {one.name: one for one in receivers}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="cometad-deliveries", daemon=True)

    def start(self) -> None:
        """Start the thread, if there are receivers."""
        self._outbox.give_up_unknown()
        if self.receivers or self._others:
            self._outbox.wake = self.wake
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread; unsent messages wait for the next start."""
        self._stopping = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it has just ended
                self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread.ident is not None:
            self._thread.join(STOP_WITHIN)

    def wake(self, asked: bool = False) -> None:
        """Check the outbox now; may be called from any thread.

        New events do not wake a receiver that is failing; an explicit request (`asked`) does.
        """
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake_all, asked)

    def _wake_all(self, asked: bool) -> None:
        for receiver in self.receivers.values():
            if asked or not receiver.failures:
                receiver.woken.set()

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self._stopping:  # stopped before the loop existed
            return
        tasks = [asyncio.create_task(self._serve(one)) for one in self.receivers.values()]
        tasks += [asyncio.create_task(self._guarded(other())) for other in self._others]
        tasks.append(asyncio.create_task(self._forget()))
        await self._stop.wait()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=STOP_WITHIN)

    async def _forget(self) -> None:
        while True:
            await self._guarded(asyncio.to_thread(self._outbox.forget_old))
            await asyncio.sleep(FORGET_EVERY)

    async def _serve(self, receiver: EventReceiver) -> None:
        """Send due messages until cancelled."""
        try:
            while True:
                wait = await self._guarded(self._round(receiver))
                await self._sleep(receiver, LOOK_EVERY if wait is None else wait)
        finally:
            await receiver.notifier.close()

    async def _guarded(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do some work; returns how long to wait. An error affects neither others nor the next round."""
        try:
            return await work
        except StorageError as error:  # the database is unavailable
            _log.error("deliveries failed", problem=str(error))
        except Exception:  # a bug with one receiver must not end the thread that serves all of them
            _log.exception("deliveries failed")
        return LOOK_EVERY

    async def _sleep(self, receiver: EventReceiver, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(receiver.woken.wait(), max(seconds, SHORTEST_WAIT))
        receiver.woken.clear()

    async def _round(self, receiver: EventReceiver) -> float:
        """Send all due messages; returns how long to wait until the next round."""
        while True:
            rows, later = await asyncio.to_thread(self._outbox.due, receiver.name, receiver.notifier.most)
            if not rows:
                break
            written = await asyncio.to_thread(self._writer.written, rows)
            known = {row.id for row, _ in written}
            await self._drop([row for row in rows if row.id not in known])
            if not await self._send(receiver, written):
                return receiver.retry_at - time.time()
        if not await self._resend(receiver):
            return receiver.retry_at - time.time()
        waits = [LOOK_EVERY]
        waits += [] if later is None else [later - time.time()]
        waits += [] if receiver.notifier.resend is None else [receiver.notifier.resend / 4]
        return min(waits)

    async def _drop(self, rows: Sequence[Any]) -> None:
        """Give up on messages about deleted events."""
        if rows:
            await asyncio.to_thread(self._outbox.give_up, rows, "The event was deleted.")

    async def _send(self, receiver: EventReceiver, written: Sequence[tuple[Any, EventMessage]]) -> bool:
        """Send messages and record the results; returns whether the receiver is reachable."""
        if not written:
            return True
        rows = [row for row, _ in written]
        try:
            await receiver.notifier.send([message for _, message in written])
        except Lost as error:
            await self._lost(receiver, rows, str(error))
            return False
        except Exception as error:
            if len(written) > 1:  # find out which one is refused
                for one in written:
                    if not await self._send(receiver, [one]):
                        return False
                return True
            await self._refused(receiver, rows[0], error)
            return True
        receiver.answered()
        receiver.last_delivered = time.time()
        for row in rows:
            receiver.refusals.pop(row.id, None)
        await asyncio.to_thread(self._outbox.delivered, rows)
        self._count(receiver.name, "delivered", len(rows))
        return True

    async def _lost(self, receiver: EventReceiver, rows: Sequence[Any], error: str) -> None:
        receiver.lost(error)
        await asyncio.to_thread(self._outbox.failed, rows, error, receiver.retry_at)
        given_up = await asyncio.to_thread(self._outbox.give_up_old, receiver.name, receiver.give_up_hours, error)
        self._count(receiver.name, "failed", len(rows))
        if given_up:
            self._count(receiver.name, "given_up", given_up)
            _log.error("receiver given up", receiver=receiver.name, messages=given_up, problem=error)

    async def _refused(self, receiver: EventReceiver, row: Any, error: Exception) -> None:
        """Handle a refused message: retry a few times, without blocking others."""
        if isinstance(error, CometadError):
            reason = str(error)
        else:
            reason = f"Sending failed ({type(error).__name__}: {error})."
            _log.exception("deliveries failed")
        receiver.refusals[row.id] += 1
        times = receiver.refusals[row.id]
        if receiver.error != reason:
            _log.warning("receiver failed", receiver=receiver.name, problem=reason)
        receiver.error = reason
        if times >= REFUSALS:
            del receiver.refusals[row.id]
            await asyncio.to_thread(self._outbox.give_up, [row], reason)
            self._count(receiver.name, "given_up", 1)
            _log.error("receiver given up", receiver=receiver.name, messages=1, problem=reason)
        else:
            next_at = time.time() + FIRST_WAIT * 2.0**times
            await asyncio.to_thread(self._outbox.failed, [row], reason, next_at)
            self._count(receiver.name, "failed", 1)

    async def _resend(self, receiver: EventReceiver) -> bool:
        """Resend open events to a receiver that needs it; returns whether it is reachable."""
        every, now = receiver.notifier.resend, time.monotonic()
        if every is None or (receiver.resent and now - receiver.resent < every):
            return True
        rows = await asyncio.to_thread(self._outbox.still_open, receiver.name)
        for first in range(0, len(rows), receiver.notifier.most):
            written = await asyncio.to_thread(self._writer.written, rows[first : first + receiver.notifier.most])
            try:
                if written:
                    await receiver.notifier.send([message for _, message in written])
                    receiver.answered()
            except Lost as error:
                receiver.lost(str(error))
                return False
            except CometadError as error:  # the next one may be accepted
                receiver.error = str(error)
        receiver.resent = now
        return True

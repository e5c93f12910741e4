"""A Kafka consumer behind asyncio: one thread makes all its calls, and each partition has a bounded buffer.

librdkafka prefetches in its own threads. It reports errors through callbacks within `poll`, and logs nothing here.
"""

import asyncio
import contextlib
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from cometad.connect.contract import Lost
from cometad.errors import InputError, ParameterError, needs_extra

kafka: Any = needs_extra("confluent_kafka", "connect")

BATCH = 1000  # messages taken at once
COMMIT = 1.0  # seconds between commits
LAST_COMMITS, CLOSE = 2.0, 3.0  # seconds for the last commits, and for closing the client
POLL = 0.1  # seconds that a call waits for messages; it blocks other calls
ANSWER = 10.0  # seconds to wait for a broker's response
REFUSED = 2.0  # seconds to wait for a broker if another connection failed
SLICE = 0.5  # seconds per call, so that a refusal is noticed at once
PATIENCE = 1.0  # seconds until a blocked partition is paused so that it no longer blocks the others
METADATA = 30.0  # seconds until partitions are counted again
SETTINGS: dict[str, Any] = {
    "enable.auto.commit": False,  # commit only what is on disk, and nothing while no broker responds
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # report messages deleted before they were read
    "allow.auto.create.topics": False,
    "socket.timeout.ms": 10_000,
    "queued.max.messages.kbytes": 16_384,
    "log_level": 0,
}
REFUSALS = (
    "TOPIC_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "INVALID_GROUP_ID",
    "TOPIC_EXCEPTION",
)
HOPELESS = ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "_SSL")  # retrying does not help
MISSING = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
T = TypeVar("T")


class KafkaLink:
    """A connection to a topic. `messages` returns those of an assigned partition.

    Each method raises `Lost` if no broker responds, and `InputError` if one refuses.
    """

    def __init__(self, settings: dict[str, Any], topic: str, shown: str) -> None:
        self._topic, self._shown, self._servers = topic, shown, settings["bootstrap.servers"]
        self._problem: Any = None  # the client's last error
        self._is_suspect = self._is_down = False
        self._count, self._counted = 0, -METADATA
        self._buffers: dict[int, list[Any]] = {}
        self._early: list[Any] = []  # messages for the next `_polled`; used only by the thread
        self._paused: set[int] = set()
        self._pending: dict[int, int] = {}  # offsets not committed yet
        self._last_commit = 0.0
        self._news, self._room = asyncio.Condition(), asyncio.Event()
        self.uncommitted: str | None = None  # why commits fail
        callbacks = {"error_cb": self._heard, "on_commit": self._committed}
        try:
            self._consumer: Any = kafka.Consumer({**SETTINGS, **settings, **callbacks})
        except kafka.KafkaException as error:
            said = " ".join(str(error.args[0].str()).split()).rstrip(".")
            raise ParameterError(f"Kafka refused these options: {said}. Correct them.") from error
        self._thread = _CallThread()
        self._thread.start()

    # -- callbacks, called by the consumer ---------------------------------------------------------------------------

    def _heard(self, error: Any) -> None:
        self._is_suspect = True
        if error.name() == "_ALL_BROKERS_DOWN":
            self._is_down = True
        elif self._problem is None or self._problem.name() not in HOPELESS:
            self._problem = error

    def _committed(self, error: Any, offsets: Sequence[Any]) -> None:
        for one in offsets:
            if one.error is None and self._pending.get(one.partition) == one.offset:
                del self._pending[one.partition]
        found = error or next((one.error for one in offsets if one.error is not None), None)
        if found is None:
            self.uncommitted = None
        elif found.name() != "_NO_OFFSET":
            said = f"Cannot commit offsets to the group: {_words(found)}."
            self.uncommitted = f"{said} Choose another group, or grant the rights."

    # -- calls ------------------------------------------------------------------------------------------------------

    async def _do(self, call: Callable[..., T], *arguments: Any, **named: Any) -> T:
        try:
            return await asyncio.wrap_future(self._thread.submit(partial(call, *arguments, **named)))
        except kafka.KafkaException as error:
            raise self._failure(error.args[0]) from error

    async def close(self) -> None:
        """Close the connection and its threads; quick if the brokers respond."""
        ended = self._thread.submit(self._end)
        self._thread.submit(None)
        # A pending commit to a dead broker delays librdkafka's close, and the last one may be refused.
        with contextlib.suppress(TimeoutError, kafka.KafkaException):
            await asyncio.wait_for(asyncio.wrap_future(ended), CLOSE)

    def _end(self) -> None:
        end = time.monotonic() + LAST_COMMITS
        self._commit()
        while self._pending and not self._is_suspect and time.monotonic() < end:
            self._consumer.poll(0.02)
        self._consumer = None

    async def partitions(self) -> int:
        """The number of partitions of the topic, refreshed from time to time."""
        if time.monotonic() - self._counted > METADATA:
            await self._do(self._count_partitions)
        return self._count

    def _count_partitions(self) -> None:
        self._is_suspect = self._is_down = False
        self._problem, begun = None, time.monotonic()
        while True:
            try:
                found = self._consumer.list_topics(self._topic, timeout=SLICE).topics[self._topic]
                break
            except kafka.KafkaException:
                self._early += self._consumer.consume(1, 0)  # calls _heard
                hopeless = self._is_down or (self._problem is not None and self._problem.name() in HOPELESS)
                if hopeless or time.monotonic() - begun > (ANSWER if self._problem is None else REFUSED):
                    raise
        if found.error is not None and found.error.name() != "LEADER_NOT_AVAILABLE":
            raise kafka.KafkaException(found.error)
        if not found.partitions:
            raise Lost(f"The topic {self._topic!r} at {self._shown} has no partitions yet.")
        self._count, self._counted = len(found.partitions), time.monotonic()

    async def bounds(self, part: int) -> tuple[int, int]:
        low, high = await self._do(self._consumer.get_watermark_offsets, self._at(part), timeout=ANSWER)
        return low, high

    async def committed(self, part: int) -> int | None:
        (found,) = await self._do(self._consumer.committed, [self._at(part)], timeout=ANSWER)
        if found.error is not None:
            raise self._failure(found.error)
        return found.offset if found.offset >= 0 else None

    async def assign(self, part: int, offset: int) -> None:
        self._buffers[part] = []
        self._paused.discard(part)
        await self._do(self._assign, part, offset)

    def _assign(self, part: int, offset: int) -> None:
        self._consumer.incremental_assign([self._at(part, offset)])
        self._consumer.resume([self._at(part)])  # librdkafka keeps a pause beyond the end of an assignment

    async def unassign(self, part: int) -> None:
        if part in self._buffers:
            await self._do(self._unassign, part)
            del self._buffers[part]
            self._paused.discard(part)
            self._room.set()

    def _unassign(self, part: int) -> None:
        self._commit()
        self._consumer.incremental_unassign([self._at(part)])
        self._early = [one for one in self._early if one.partition() != part]

    def done(self, part: int, offset: int) -> None:
        """Mark everything before an offset as on disk; it is committed within a second."""
        self._pending[part] = offset

    def _commit(self) -> None:
        if self._pending and not self._is_suspect:
            offsets = [self._at(part, offset) for part, offset in list(self._pending.items())]
            self._consumer.commit(offsets=offsets, asynchronous=True)
            self._last_commit = time.monotonic()

    def _at(self, part: int, *offset: int) -> Any:
        return kafka.TopicPartition(self._topic, part, *offset)

    # -- messages ---------------------------------------------------------------------------------------------------

    async def messages(self, part: int) -> list[Any]:
        """The next messages of a partition; the last may be an error, if its offset was deleted."""
        async with self._news:
            await self._news.wait_for(lambda: self._buffers[part])
        found, self._buffers[part] = self._buffers[part], []
        self._room.set()
        if part in self._paused:
            self._paused.discard(part)
            await self._do(self._consumer.resume, [self._at(part)])
        return found

    async def pull(self) -> None:
        """Fill the buffers until cancelled. A partition whose buffer stays full is paused."""
        while True:
            await self._wait_for_room()
            if self._is_suspect:  # one broker of several may be down, or have closed an idle connection
                await self._do(self._count_partitions)
            found = await self._do(self._polled)
            if found:
                async with self._news:
                    self._keep(found)
                    self._news.notify_all()

    def _polled(self) -> list[Any]:
        if time.monotonic() - self._last_commit > COMMIT:
            self._commit()
        early, self._early = self._early, []
        first = self._consumer.poll(POLL)
        return early if first is None else [*early, first, *self._consumer.consume(BATCH - 1, 0)]

    def _keep(self, messages: Sequence[Any]) -> None:
        for one in messages:
            error = one.error()
            if error is not None and error.name() != "_AUTO_OFFSET_RESET":
                if error.name() in (*REFUSALS, *MISSING):
                    raise self._failure(error)
                self._problem = error  # librdkafka retries
            elif one.partition() in self._buffers:
                self._buffers[one.partition()].append(one)

    async def _wait_for_room(self) -> None:
        end = time.monotonic() + PATIENCE
        while full := [
            part for part, found in self._buffers.items() if len(found) >= BATCH and part not in self._paused
        ]:
            self._room.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._room.wait(), max(end - time.monotonic(), 0))
            if time.monotonic() > end:
                self._paused.update(full)
                await self._do(self._consumer.pause, [self._at(part) for part in full])

    # -- errors -----------------------------------------------------------------------------------------------------

    def _failure(self, error: Any) -> Lost | InputError:
        """The error to report: one that needs a person, or `Lost` if no broker responds."""
        if error.name() in MISSING:
            return InputError(f"There is no topic {self._topic!r} at {self._shown}. Create it, or correct the URL.")
        if error.name() in REFUSALS:
            return InputError(
                f"Kafka at {self._shown} refused: {_words(error)}. Grant the user read rights on topic and group."
            )
        said = self._problem if self._problem is not None else error
        if said.name() in HOPELESS and said.name() != "_SSL":
            return InputError(
                f"The Kafka broker at {self._servers} refused the login: {_words(said)}. "
                "Check user, password variable and mechanism."
            )
        if said.name() == "_SSL":
            return InputError(
                f"Cannot connect to {self._servers} with TLS: {_words(said)}. Check the options security and ca."
            )
        return Lost(f"No Kafka broker responds at {self._servers}: {_words(said)}.")


class _CallThread(threading.Thread):
    """Makes calls one after the other. Unlike an executor's thread, it never blocks process exit."""

    def __init__(self) -> None:
        super().__init__(name="cometad-kafka", daemon=True)
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any] | None]] = SimpleQueue()

    def submit(self, call: Callable[[], T] | None) -> "Future[T]":
        future: Future[T] = Future()
        self._calls.put((future, call))
        return future

    def run(self) -> None:
        while True:
            future, call = self._calls.get()
            if call is None:
                return
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except Exception as error:  # passed on to the caller
                    future.set_exception(error)


def _words(error: Any) -> str:
    """The message of librdkafka, without addresses and states."""
    text = " ".join(str(error.str()).split())
    text = re.sub(r"^(?:\w+: )?(?:\w+://)?\S+:\d+(?:/\w+)?: ", "", text)
    text = re.sub(r" \(after \d+ms in state [^)]*\)", "", text)
    return text.removeprefix("Broker: ").removeprefix("Local: ").rstrip(".")

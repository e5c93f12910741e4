"""NATS JetStream: one durable pull consumer for each part of a stream, so that several processes can share it.

JetStream itself assigns subjects to parts (a subject transform with `partition`), so all messages of a machine are in
one part, in order. The process that takes a part (`read_parts`) resets its consumer to the stored position.
"""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from typing import Any, ClassVar, TypeVar

from cometad.connect.address import Address, Option, whole_number
from cometad.connect.contract import Lost, Message
from cometad.connect.intake import Intake
from cometad.connect.source import START, ConnectedSource, read_parts
from cometad.errors import InputError, ParameterError, needs_extra

nats: Any = needs_extra("nats", "connect")
api: Any = needs_extra("nats.js.api", "connect")
errors: Any = needs_extra("nats.errors", "connect")
js_errors: Any = needs_extra("nats.js.errors", "connect")

PORT = 4222
PARTS = 16  # of a new stream
BATCH = 500  # messages per fetch; no more are fetched while they are stored
FETCH = 1.0  # seconds that a fetch waits
ACK_WAIT = 600.0  # seconds; taking a part resets its consumer, so nothing waits for this
ANSWER, FLUSH = 5.0, 2  # seconds to wait for the server's response, and for the flush at the end
CAN_RESET = (2, 14)  # server version that can reset a consumer
_NAME = re.compile(r"[^\s.*>/\\]+")
_PARTITION = re.compile(r"\{\{\s*partition\((\d+)[^)]*\)\s*\}\}", re.IGNORECASE)

T = TypeVar("T")


def _group(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ParameterError(f"Cannot use the group {text!r}. Write one word, without dots.")
    return text


class NatsSource(ConnectedSource):
    """A JetStream stream: `nats://host:4222/STREAM?subject=readings.*`.

    A missing stream is created if `subject` is given, with `parts` for several processes to share (16 if the subject
    ends in `*`). `group` is the prefix of the consumer names. `start=new` reads only new messages.
    """

    OPTIONS: ClassVar = {
        "subject": Option(),
        "parts": whole_number(1024, "The option parts is {}. Write a number from 1 to 1,024."),
        "group": Option("cometad", _group),
        "start": START,
        "tls": Option("no"),
    }

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._stream, self._subject = address.path, self.options["subject"] or None
        if not address.host or not _NAME.fullmatch(self._stream):
            raise ParameterError(
                f"{address.shown!r} names no JetStream stream. Write nats://host/STREAM?subject=readings.*."
            )
        keyed = self._subject is not None and self._subject.split(".")[-1] == "*"
        if (self.options["parts"] or 1) > 1 and not keyed:
            raise ParameterError("The option parts needs a subject that ends in the machine, such as readings.*.")
        self._new_parts = self.options["parts"] or (PARTS if keyed else 1)  # of a stream that is created
        self._problem = ""  # the server's last error

    async def open(self, intake: Intake, closing: AsyncExitStack) -> None:
        self._client = await self._connected()
        closing.push_async_callback(self._client.close)
        self._js = self._client.jetstream(timeout=ANSWER)
        self._info = await self._answer(self._found())
        self._filters = _filters(self._info.config, self._subject)

    async def pull(self, intake: Intake) -> None:
        await read_parts(self, intake)

    async def _connected(self) -> Any:
        address, client = self.address, nats.aio.client.Client()
        self._closed, self._problem = asyncio.Event(), ""
        scheme = "tls" if self.options["tls"] == "yes" else "nats"
        host = f"[{address.host}]" if ":" in address.host else address.host

        async def on_error(error: Exception) -> None:
            self._problem = str(error)

        async def on_closed() -> None:
            self._closed.set()

        try:
            await client.connect(
                f"{scheme}://{host}:{address.port(PORT)}",
                name="cometad",
                user=address.username,
                password=address.password,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=int(ANSWER),
                error_cb=on_error,
                disconnected_cb=on_closed,
                closed_cb=on_closed,
            )
        except (OSError, errors.Error) as error:
            await client.close()
            if "authorization" in f"{error} {self._problem}".lower():
                raise InputError(
                    f"The NATS server at {address.shown} refused the login. Check the user and the password variable."
                ) from error
            raise Lost(f"No NATS server responds at {address.host}:{address.port(PORT)}.") from error
        return client

    async def _answer(self, request: Awaitable[T]) -> T:
        """The server's response; a refusal becomes one sentence."""
        try:
            return await request
        except (TimeoutError, js_errors.ServiceUnavailableError, errors.NoRespondersError) as error:
            if "permissions violation" in self._problem.lower():
                said = self._problem.removeprefix("nats: ").strip("'").rstrip(".")
                raise InputError(f"The NATS server refused: {said}. Grant the user JetStream permissions.") from error
            if isinstance(error, TimeoutError):
                raise Lost(f"JetStream at {self.address.shown} does not respond.") from error
            raise InputError(
                f"The NATS server at {self.address.shown} has no JetStream. Start it with -js or jetstream {{}}."
            ) from error
        except js_errors.APIError as error:
            raise InputError(
                f"JetStream refused a request for {self._stream!r}: {str(error.description).rstrip('.')}. "
                "Correct the stream or the URL."
            ) from error
        except (errors.Error, OSError) as error:
            raise self._gone() from error

    def _gone(self) -> Lost:
        return Lost(f"The connection to {self.address.shown} was lost.")

    async def _found(self) -> Any:
        """Information about the stream, which is created if it is missing and `subject` is given."""
        try:
            return await self._js.stream_info(self._stream)
        except js_errors.NotFoundError as error:
            if self._subject is None:
                raise InputError(
                    f"There is no JetStream stream {self._stream!r}. Create it, or add ?subject=readings.* to the URL."
                ) from error
        config = api.StreamConfig(name=self._stream, subjects=[self._subject], storage=api.StorageType.FILE)
        if self._new_parts > 1:
            config.subject_transform = api.SubjectTransform(self._subject, _divided(self._subject, self._new_parts))
        return await self._js.add_stream(config)

    async def parts(self) -> int:
        return len(self._filters)

    async def ended(self) -> None:
        await self._closed.wait()

    async def read(self, part: int, intake: Intake) -> None:
        subject = self._filters[part]
        created, position = self._info.created.isoformat(), await asyncio.to_thread(lambda: intake.position)
        same = position is not None and position.get("created") == created  # otherwise the stream was recreated
        reached = int(position["sequence"]) if same else 0
        name, delivered = f"{self.options['group']}-{part}", 0
        await self._answer(self._reset(name, subject, reached))
        messages = await self._answer(self._js.pull_subscribe_bind(consumer=name, stream=self._stream))
        keyed = subject is None or subject.split(".")[-1] in ("*", ">")
        try:
            while True:
                found = await self._fetched(messages)
                if await self._is_missing_some(name, found, delivered):
                    await self._answer(self._reset(name, subject, reached))
                    delivered = 0
                    continue
                if found:
                    new = [one for one in found if one.metadata.sequence.stream > reached]
                    delivered, reached = found[-1].metadata.sequence.consumer, found[-1].metadata.sequence.stream
                    position = {"created": created, "sequence": reached}
                    await intake.take([self._message(one, keyed, created) for one in new], position)
                    for one in found:
                        await self._answer(one.ack())
        finally:
            if not self._client.is_closed:  # otherwise messages would still be sent to a reader that is gone
                with contextlib.suppress(errors.Error, OSError):  # the server may not respond, which is known already
                    await messages.unsubscribe()
                    await self._client.flush(FLUSH)

    def _message(self, one: Any, keyed: bool, created: str) -> Message:
        number = one.metadata.sequence.stream
        return Message(
            one.data,
            f"{self._stream} {number}, {one.subject}",
            stream=self.address.stream,
            key=one.subject.rpartition(".")[2] if keyed else None,
            position={"created": created, "sequence": number},
        )

    async def _fetched(self, messages: Any) -> list[Any]:
        """The next messages; empty if none arrive for a while."""
        try:
            return list(await messages.fetch(BATCH, timeout=FETCH))
        except TimeoutError:
            return []
        except (errors.Error, OSError) as error:
            raise self._gone() from error

    async def _is_missing_some(self, name: str, found: Sequence[Any], delivered: int) -> bool:
        """Whether a pending request of the part's previous reader still received messages.

        Then the delivery numbers have a gap or, if no message arrives, some messages are unacknowledged.
        """
        if not found:
            known = await self._answer(self._js.consumer_info(self._stream, name))
            return bool(known.num_ack_pending)
        numbers = [one.metadata.sequence.consumer for one in found]
        return numbers != list(range(delivered + 1, delivered + 1 + len(found)))

    async def _reset(self, name: str, subject: str | None, reached: int) -> None:
        """Let the consumer of a part resume after the last stored message, or after the last acknowledged one.

        Otherwise, messages that a dead process left unacknowledged would be redelivered out of order.
        """
        known, retention = None, self._info.config.retention
        with contextlib.suppress(js_errors.NotFoundError):
            known = await self._js.consumer_info(self._stream, name)
        first = reached + 1
        if known is not None:
            version = self._client.connected_server_version
            if (version.major, version.minor) >= CAN_RESET:
                await self._js.reset_consumer(self._stream, name, seq=first if reached else None)
                return
            if retention not in (None, api.RetentionPolicy.LIMITS):
                raise InputError(
                    f"The stream {self._stream!r} deletes acknowledged messages, which needs NATS 2.14 or later. "
                    "Upgrade the server, or use the retention policy limits."
                )
            await self._js.delete_consumer(self._stream, name)
        if not reached and known is not None:
            first = known.ack_floor.stream_seq + 1
        elif not reached and self.options["start"] == "new":
            first = self._info.state.last_seq + 1
        config = api.ConsumerConfig(
            durable_name=name, filter_subject=subject, ack_wait=ACK_WAIT, max_ack_pending=2 * BATCH
        )
        if retention != api.RetentionPolicy.WORK_QUEUE:  # which supports no other start
            config.deliver_policy, config.opt_start_seq = api.DeliverPolicy.BY_START_SEQUENCE, first
        await self._js.add_consumer(self._stream, config)


def _filters(config: Any, subject: str | None) -> list[str | None]:
    """The subject filter of each part; a single part if the stream has no partition transform."""
    transform = config.subject_transform
    found = None if transform is None else _PARTITION.search(transform.dest)
    if found is None:
        return [subject]
    dest = [_PARTITION.sub(str(part), transform.dest) for part in range(int(found[1]))]
    return [re.sub(r"\{\{.*?\}\}", "*", one) for one in dest]


def _divided(subject: str, parts: int) -> str:
    """The destination of the JetStream subject transform that adds the part to a subject."""
    tokens, count = list[str](), 0
    for token in subject.split("."):
        count += token == "*"
        tokens.append(f"{{{{wildcard({count})}}}}" if token == "*" else token)
    tokens.insert(-1, f"{{{{partition({parts},{count})}}}}")
    return ".".join(tokens)

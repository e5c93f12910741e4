"""The connections of the service: each source of `cometad.toml` runs in one thread, beside the HTTP server."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import structlog

from cometad.connect.address import Address
from cometad.connect.contract import Receiver
from cometad.connect.intake import Connection, Intake
from cometad.connect.source import LONGEST_WAIT, ReadingSource, source_of, supervise
from cometad.errors import ParameterError

_log = structlog.get_logger("cometad.serve")


class Connections:
    """Sources that feed a receiver, each supervised; `changed` is called when one is connected or lost.

    Bad addresses are refused when it is made, so that a service with a typing error does not start.
    """

    def __init__(
        self,
        addresses: Iterable[Address],
        receiver: Receiver,
        changed: Callable[[Connection], None] = lambda one: None,
    ) -> None:
        self._sources: list[tuple[ReadingSource, Intake]] = []
        self._tell = changed
        for address in addresses:
            streams = set() if address.stream is None else {address.stream}
            connection = Connection(address.name, address.shown, streams)
            if connection.name in self.by_name:
                raise ParameterError(f"Two connections are named {connection.name!r}. Give each a name of its own.")
            self._sources.append((source_of(address), Intake(receiver, connection, self._changed)))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="cometad-connections", daemon=True)
        self._tasks: Sequence[asyncio.Task[None]] = ()
        self._stopping = False
        self.ended = threading.Event()  # once every source has come to its end

    @property
    def by_name(self) -> dict[str, Connection]:
        """The state of each connection."""
        return {intake.connection.name: intake.connection for _, intake in self._sources}

    def start(self) -> None:
        """Start to read; nothing happens without a source."""
        if self._sources:
            self._thread.start()

    def stop(self) -> None:
        """Stop reading; what was received and not acknowledged comes again at the next start."""
        self._stopping = True
        if self._loop is not None:
            with suppress(RuntimeError):  # every source came to its end just now
                self._loop.call_soon_threadsafe(self._cancel)
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            runner.run(self._read_all())
        self.ended.set()

    async def _read_all(self) -> None:
        self._tasks = [asyncio.create_task(self._guarded(source, intake)) for source, intake in self._sources]
        if self._stopping:  # before there was anything to cancel
            self._cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _guarded(self, source: ReadingSource, intake: Intake) -> None:
        """Run a source; a bug in one never stops another."""
        while True:
            try:
                await supervise(source, intake)
                return
            except Exception as error:
                intake.mark("failed", f"The connector stopped ({type(error).__name__}: {error}).")
                _log.exception("connection failed", connection=intake.connection.name)
            await asyncio.sleep(LONGEST_WAIT)

    def _changed(self, connection: Connection) -> None:
        level = _log.info if connection.state in ("connected", "connecting") else _log.warning
        level(connection.state, connection=connection.name, url=connection.url, reason=connection.reason)
        self._tell(connection)

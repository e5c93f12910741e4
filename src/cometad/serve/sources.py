"""The sources of `cometad.toml`: each runs beside the others, and their rejected messages and positions are stored."""

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

import structlog
from sqlalchemy import delete, insert, select

from cometad.connect.address import Address
from cometad.connect.contract import LONGEST_WAIT, Receiver, Rejection
from cometad.connect.intake import Connection, Intake
from cometad.connect.source import ReadingSource, source_of, supervise
from cometad.errors import ParameterError
from cometad.serve.models import AsideMessage
from cometad.serve.regular import LoopThread
from cometad.serve.storage import schema
from cometad.serve.storage.store import Store

MOST = 1000  # rejected messages kept of a connection; of more, the newest

_log = structlog.get_logger("cometad.serve")


class Connections:
    """Sources that feed a receiver, each supervised; `changed` is called when one is connected or lost.

    Bad addresses are refused when it is made, so that a service with a typing error does not start.
    """

    def __init__(
        self, addresses: Iterable[Address], receiver: Receiver, changed: Callable[[Connection], None] = lambda one: None
    ) -> None:
        self._sources: list[tuple[ReadingSource, Intake]] = []
        self._tell = changed
        for address in addresses:
            streams = set() if address.stream is None else {address.stream}
            connection = Connection(address.name, address.shown, streams)
            if connection.name in self.by_name:
                raise ParameterError(f"Two connections are named {connection.name!r}. Give each a name of its own.")
            self._sources.append((source_of(address), Intake(receiver, connection, self._changed)))
        self._thread = LoopThread("cometad-connections", self._reading)
        self.ended = self._thread.ended

    @property
    def by_name(self) -> dict[str, Connection]:
        return {intake.connection.name: intake.connection for _, intake in self._sources}

    def start(self) -> None:
        """Start to read; nothing happens without a source."""
        if self._sources:
            self._thread.start()

    def stop(self) -> None:
        """Stop reading; what was received and not acknowledged comes again at the next start."""
        self._thread.stop()

    def _reading(self) -> list[Coroutine[Any, Any, None]]:
        return [_guarded(source, intake) for source, intake in self._sources]

    def _changed(self, connection: Connection) -> None:
        level = _log.info if connection.state in ("connected", "connecting") else _log.warning
        level(connection.state, connection=connection.name, url=connection.url, reason=connection.reason)
        self._tell(connection)


async def _guarded(source: ReadingSource, intake: Intake) -> None:
    """Run a source; a bug in one never stops another."""
    while True:
        try:
            await supervise(source, intake)
            return
        except Exception as error:
            intake.mark("failed", f"The connector stopped ({type(error).__name__}: {error}).")
            _log.exception("connection failed", connection=intake.connection.name)
        await asyncio.sleep(LONGEST_WAIT)


def reject(store: Store, name: str, messages: Sequence[Rejection]) -> None:
    """Store messages of a connection that could not be used; its oldest make room."""
    table, now = schema.set_aside, time.time()
    rows = [
        {"connection": name, "at": now, "stream": one.stream, "place": one.where}
        | {"content": one.content, "reason": one.reason}
        for one in messages[-MOST:]
    ]
    with store.write() as connection:
        connection.execute(insert(table), rows)
        newest = select(table.c.id).where(table.c.connection == name).order_by(table.c.id.desc())
        limit = connection.execute(newest.offset(MOST).limit(1)).scalar()
        if limit is not None:
            connection.execute(delete(table).where(table.c.connection == name, table.c.id <= limit))


def rejected(store: Store, name: str, limit: int) -> list[AsideMessage]:
    """The newest rejected messages of a connection."""
    table = schema.set_aside
    newest = select(table).where(table.c.connection == name).order_by(table.c.id.desc()).limit(limit)
    return [
        AsideMessage(
            time=row.at,
            stream=row.stream,
            where=row.place,
            content=row.content.decode("utf-8", "backslashreplace"),
            reason=row.reason,
        )
        for row in store.rows(newest)
    ]


def forget_rejected(store: Store, name: str) -> None:
    store.change(delete(schema.set_aside).where(schema.set_aside.c.connection == name))


def stored_position(store: Store, name: str) -> Any:
    """How far a source was read, as JSON; None if nothing is known."""
    table = schema.positions
    found = store.value(select(table.c.position).where(table.c.connection == name))
    return None if found is None else json.loads(found)

"""What connections leave in the database: messages that could not be used, and how far a source was read."""

import json
import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import delete, insert, select

from cometad.connect.contract import SetAside
from cometad.serve.storage import schema
from cometad.serve.storage.store import Store

MOST = 1000  # messages kept of a connection; of more, the newest


def keep_aside(store: Store, messages: Sequence[SetAside]) -> None:
    """Store messages that could not be used; the oldest of a connection make room."""
    table, now = schema.set_aside, time.time()
    rows = [
        {"connection": one.connection, "at": now, "stream": one.stream, "place": one.where}
        | {"content": one.content, "reason": one.reason}
        for one in messages[-MOST:]
    ]
    if not rows:
        return
    with store.write() as connection:
        connection.execute(insert(table), rows)
        for name in {one.connection for one in messages}:
            newest = select(table.c.id).where(table.c.connection == name).order_by(table.c.id.desc())
            limit = connection.execute(newest.offset(MOST).limit(1)).scalar()
            if limit is not None:
                connection.execute(delete(table).where(table.c.connection == name, table.c.id <= limit))


def aside(store: Store, name: str, limit: int) -> list[Any]:
    """The newest messages of a connection that were set aside, as rows."""
    table = schema.set_aside
    with store.read() as connection:
        own = select(table).where(table.c.connection == name).order_by(table.c.id.desc()).limit(limit)
        return list(connection.execute(own).all())


def forget_aside(store: Store, name: str) -> int:
    """Delete the messages of a connection that were set aside; returns how many."""
    table = schema.set_aside
    with store.write() as connection:
        return connection.execute(delete(table).where(table.c.connection == name)).rowcount


def stored_position(store: Store, name: str) -> Any:
    """How far a source was read, as JSON; None if nothing is known."""
    table = schema.positions
    with store.read() as connection:
        found = connection.execute(select(table.c.position).where(table.c.connection == name)).scalar()
    return None if found is None else json.loads(found)

"""The tables. Readings and scores are stored in chunks of one or many rows, so that history stays small and quick.

A chunk is one row of a table with packed arrays: those of single readings are joined later (`history.py`). Times are
seconds since 1970.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    false,
)

metadata = MetaData()


class Packed(LargeBinary):
    """Bytes as they are: both databases take and give them, and most values are written once and rarely read."""

    cache_ok = True

    def bind_processor(self, dialect: Any) -> None:
        """None: `memoryview` for each value would take longer than to write it."""


tokens = Table(
    "tokens",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("hash", Text, nullable=False, unique=True),  # SHA-256 of the token, which has 256 random bits
    Column("scope", Text, nullable=False),
    Column("created", Float, nullable=False),
)

detectors = Table(
    "detectors",
    metadata,
    Column("name", Text, primary_key=True),
    Column("state", Text, nullable=False),  # fitting, ready or failed
    Column("kind", Text, nullable=False, default=""),
    Column("variables", Text, nullable=False, default="[]"),  # JSON
    Column("content", Packed),  # the saved detector
    Column("sha256", Text, nullable=False, default=""),
    Column("error", Text),
    Column("created", Float, nullable=False),
)

streams = Table(
    "streams",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("settings", Text, nullable=False),  # JSON
    Column("created", Float, nullable=False),
    Column("paused", Boolean, nullable=False),
    Column("reason", Text),  # why it is paused
    Column("dates", Text, nullable=False),  # JSON: how its times are written
    # A stream whose settings change starts anew from its next reading: numbers before these belong to earlier runs.
    Column("first_seq", BigInteger, nullable=False),
    Column("first_step", BigInteger, nullable=False),
    Column("first_event", BigInteger, nullable=False),
    # Where several processes share a database: the member that scores the stream, and how often it was taken.
    Column("owner", Integer),
    Column("epoch", BigInteger, nullable=False, server_default="0"),
    sqlite_autoincrement=True,  # ids are in the names of events, so they are never used again
)

members = Table(
    "members",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False),  # host and process
    Column("url", Text),  # where it listens
    Column("seen", Float, nullable=False),  # clock of the database
    Column("reads", Text, nullable=False),  # JSON: the connections it shares with others
)

parts = Table(
    "parts",
    metadata,
    Column("connection", Text, primary_key=True),
    Column("part", Integer, primary_key=True, autoincrement=False),
    Column("owner", Integer),  # the member that reads it
)

readings = Table(
    "readings",
    metadata,
    Column("stream_id", Integer, primary_key=True, autoincrement=False),
    Column("first", BigInteger, primary_key=True, autoincrement=False),  # number of the first reading; counts from 0
    Column("count", Integer, nullable=False),
    Column("first_at", Float, nullable=False),
    Column("last_at", Float, nullable=False),
    Column("last_time", Text, nullable=False),  # JSON: the last time as it was sent
    Column("last_sequence", BigInteger),  # the highest number given by the sender so far
    Column("ats", Packed, nullable=False),  # float64 (reading,): its time, or when it arrived
    Column("cells", Packed, nullable=False),  # float64 (reading, variable)
    Index("readings_by_time", "stream_id", "last_at"),
    sqlite_with_rowid=False,
)

scores = Table(
    "scores",
    metadata,
    Column("stream_id", Integer, primary_key=True, autoincrement=False),
    Column("first", BigInteger, primary_key=True, autoincrement=False),  # time step of the first score
    Column("count", Integer, nullable=False),
    Column("first_at", Float, nullable=False),
    Column("last_at", Float, nullable=False),
    Column("ats", Packed, nullable=False),  # float64 (time,)
    Column("cells", Packed, nullable=False),  # float64 (time, 3): alert score, threshold, flag
    Index("scores_by_time", "stream_id", "last_at"),
    sqlite_with_rowid=False,
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("stream_id", Integer, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, nullable=False),  # the next reading
    Column("verdict", Integer, nullable=False),  # the last verdict it knows; 0 if there is none
    Column("content", Packed, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("stream_id", Integer, primary_key=True, autoincrement=False),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("start", BigInteger, nullable=False),
    Column("stop", BigInteger, nullable=False),
    Column("peak", BigInteger, nullable=False),
    Column("steps", BigInteger, nullable=False),
    Column("start_at", Float),
    Column("stop_at", Float),
    Column("peak_at", Float),
    Column("opened_at", Float, nullable=False),  # clock of the service
    Column("closed_at", Float),
    Column("peak_score", Float, nullable=False),
    Column("threshold", Float, nullable=False),  # at its peak
    Column("severity", Float, nullable=False),
    Column("variables", Text, nullable=False),  # JSON: the highest ones at its peak
    Column("profile", Packed, nullable=False),  # float32 (variable,): scores at its peak
    Column("explanation", Text),  # JSON; kept once the event is closed
    Column("verdict", Text),
    Column("verdict_at", Float),
    Column("taught", Boolean),
    Column("note", Text),
    Column("level", Text, nullable=False, server_default="alert"),  # or notice
    Column("new_level", Boolean, nullable=False, server_default=false()),
    Index("events_by_opening", "opened_at"),
)

verdicts = Table(
    "verdicts",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("stream_id", Integer, nullable=False),
    Column("after_seq", BigInteger, nullable=False),  # takes effect before this reading
    Column("number", BigInteger, nullable=False),  # of the event
    Column("called", Text),  # None withdraws
    Column("at", Float, nullable=False),
    Index("verdicts_by_stream", "stream_id", "after_seq"),
)

set_aside = Table(
    "set_aside",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("connection", Text, nullable=False, index=True),
    Column("at", Float, nullable=False),
    Column("stream", Text, nullable=False),  # empty if it is not known
    Column("place", Text, nullable=False),  # in the source
    Column("content", Packed, nullable=False),  # the beginning of the message
    Column("reason", Text, nullable=False),
)

positions = Table(
    "positions",
    metadata,
    Column("connection", Text, primary_key=True),
    Column("position", Text, nullable=False),  # JSON: how far a source was read
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("uid", Text, nullable=False),  # the id that the receiver gets
    Column("receiver", Text, nullable=False),
    Column("stream_id", Integer, nullable=False),
    Column("number", BigInteger, nullable=False),  # of the event
    Column("change", Text, nullable=False),  # opened or closed
    Column("state", Text, nullable=False),  # waiting, delivered or undelivered
    Column("created", Float, nullable=False),
    Column("since", Float, nullable=False),  # it is given up some hours after this
    Column("next_at", Float, nullable=False),  # not tried before this
    Column("attempts", Integer, nullable=False),
    Column("error", Text),  # of the last attempt
    Column("done_at", Float),  # when it was delivered or given up
    UniqueConstraint("receiver", "stream_id", "number", "change"),
    Index("deliveries_by_state", "receiver", "state", "id"),
)

"""Format 1: the first tables."""

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "tokens",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("hash", sa.Text, nullable=False, unique=True),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
    )
    op.create_table(
        "detectors",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("variables", sa.Text, nullable=False),
        sa.Column("content", sa.LargeBinary),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("created", sa.Float, nullable=False),
    )
    op.create_table(
        "streams",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("settings", sa.Text, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("paused", sa.Boolean, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("dates", sa.Text, nullable=False),
        sa.Column("first_seq", sa.BigInteger, nullable=False),
        sa.Column("first_step", sa.BigInteger, nullable=False),
        sa.Column("first_event", sa.BigInteger, nullable=False),
        sqlite_autoincrement=True,  # ids are in the names of events, so they are never used again
    )
    op.create_table(
        "readings",
        sa.Column("stream_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("first", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("first_at", sa.Float, nullable=False),
        sa.Column("last_at", sa.Float, nullable=False),
        sa.Column("last_time", sa.Text, nullable=False),
        sa.Column("last_sequence", sa.BigInteger),
        sa.Column("ats", sa.LargeBinary, nullable=False),
        sa.Column("cells", sa.LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "scores",
        sa.Column("stream_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("first", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("first_at", sa.Float, nullable=False),
        sa.Column("last_at", sa.Float, nullable=False),
        sa.Column("ats", sa.LargeBinary, nullable=False),
        sa.Column("cells", sa.LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("readings_by_time", "readings", ["stream_id", "last_at"])
    op.create_index("scores_by_time", "scores", ["stream_id", "last_at"])
    op.create_table(
        "snapshots",
        sa.Column("stream_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("verdict", sa.Integer, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("stream_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("start", "stop", "peak", "steps")),
        *(sa.Column(name, sa.Float) for name in ("start_at", "stop_at", "peak_at")),
        sa.Column("opened_at", sa.Float, nullable=False),
        sa.Column("closed_at", sa.Float),
        *(sa.Column(name, sa.Float, nullable=False) for name in ("peak_score", "threshold", "severity")),
        sa.Column("variables", sa.Text, nullable=False),
        sa.Column("profile", sa.LargeBinary, nullable=False),
        sa.Column("explanation", sa.Text),
        sa.Column("verdict", sa.Text),
        sa.Column("verdict_at", sa.Float),
        sa.Column("taught", sa.Boolean),
        sa.Column("note", sa.Text),
    )
    op.create_index("events_by_opening", "events", ["opened_at"])
    op.create_table(
        "verdicts",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("stream_id", sa.Integer, nullable=False),
        sa.Column("after_seq", sa.BigInteger, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("called", sa.Text),
        sa.Column("at", sa.Float, nullable=False),
    )
    op.create_index("verdicts_by_stream", "verdicts", ["stream_id", "after_seq"])

"""Format 2: connections (messages set aside, positions in sources), deliveries of events, sharing of streams."""

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"


def upgrade() -> None:
    """Add tables, and columns to streams."""
    op.create_table(
        "set_aside",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("connection", sa.Text, nullable=False, index=True),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("stream", sa.Text, nullable=False),
        sa.Column("place", sa.Text, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
    )
    op.create_table(
        "positions",
        sa.Column("connection", sa.Text, primary_key=True),
        sa.Column("position", sa.Text, nullable=False),
    )
    op.create_table(
        "deliveries",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("uid", sa.Text, nullable=False),
        sa.Column("receiver", sa.Text, nullable=False),
        sa.Column("stream_id", sa.Integer, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("change", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("since", sa.Float, nullable=False),
        sa.Column("next_at", sa.Float, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("done_at", sa.Float),
        sa.UniqueConstraint("receiver", "stream_id", "number", "change"),
    )
    op.create_index("deliveries_by_state", "deliveries", ["receiver", "state", "id"])
    op.create_table(
        "members",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("url", sa.Text),
        sa.Column("seen", sa.Float, nullable=False),
        sa.Column("reads", sa.Text, nullable=False),
    )
    op.create_table(
        "parts",
        sa.Column("connection", sa.Text, primary_key=True),
        sa.Column("part", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("owner", sa.Integer),
    )
    op.add_column("streams", sa.Column("owner", sa.Integer))
    op.add_column("streams", sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0"))

"""Format 3: events are alerts or notices, and may end as a new level."""

import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = "2"


def upgrade() -> None:
    """Add columns to events; those of before were all sent, so they are alerts."""
    op.add_column("events", sa.Column("level", sa.Text, nullable=False, server_default="alert"))
    op.add_column("events", sa.Column("new_level", sa.Boolean, nullable=False, server_default=sa.false()))

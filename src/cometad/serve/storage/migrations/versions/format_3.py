"""Format 3: events are alerts or notices, and may end as a new level; streams with a budget of alerts start anew."""

import time

import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = "2"

BUDGETED = """settings LIKE '%"alerts_per_day"\\:%' AND settings NOT LIKE '%"alerts_per_day"\\:null%'"""
OF_BUDGETED = f"stream_id IN (SELECT id FROM streams WHERE {BUDGETED})"


def upgrade() -> None:
    """Add columns to events; those of before were all sent, so they are alerts.

    The rule behind a budget of alerts is another one now, so such streams cannot go on from their snapshots: they start
    anew from their next reading, as if their settings had been changed.
    """
    op.add_column("events", sa.Column("level", sa.Text, nullable=False, server_default="alert"))
    op.add_column("events", sa.Column("new_level", sa.Boolean, nullable=False, server_default=sa.false()))
    for column, table, newest in (
        ("first_seq", "readings", 'MAX("first" + "count")'),
        ("first_step", "scores", 'MAX("first" + "count")'),
        ("first_event", "events", "MAX(number)"),
    ):
        found = f"(SELECT {newest} FROM {table} WHERE {table}.stream_id = streams.id)"
        op.execute(f"UPDATE streams SET {column} = COALESCE({found}, {column}) WHERE {BUDGETED}")
    op.execute(f"DELETE FROM snapshots WHERE {OF_BUDGETED}")
    op.execute(f"UPDATE events SET closed_at = {time.time()} WHERE closed_at IS NULL AND {OF_BUDGETED}")

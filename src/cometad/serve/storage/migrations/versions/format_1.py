"""Format 1: the first tables. A new database gets those of `schema.py` at once."""

revision = "1"
down_revision = None


def upgrade() -> None:
    """Nothing to do: no data is older."""

"""Run by alembic for each migration, with the connection that `Store` passes."""

from alembic import context

from cometad.serve.storage.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()

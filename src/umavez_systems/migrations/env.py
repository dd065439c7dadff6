"""Alembic's environment: the connection is handed over by `migrate()`, inside its transaction."""

from alembic import context

from umavez_systems.migrations import VERSION_TABLE

connection = context.config.attributes["connection"]
context.configure(connection=connection, version_table=VERSION_TABLE, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()

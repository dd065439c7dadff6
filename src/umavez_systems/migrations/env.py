"""Alembic's environment: the connection is handed over by `migrate()`, inside its transaction."""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection, version_table="systems_version", render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()

"""How a transaction is told apart from another one: a joined handler must leave the one it was given alone.

A handler that commits by itself parts its effect from the response: a crash in between leaves an effect that
nothing tells about. So the transaction is marked before the handler runs and the mark looked for afterwards:
SQLAlchemy has an object for each transaction, PostgreSQL a number (a missing savepoint would spoil there what is
to be recorded next), the others have savepoints. On drivers not listed here this is not checked. The watching is in
`_async.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from umavez.errors import ConfigurationError

NAME = "umavez_joined"
SAVEPOINT = f"SAVEPOINT {NAME}"
RELEASE = f"RELEASE SAVEPOINT {NAME}"
NUMBER = "SELECT txid_current_if_assigned()"

_KINDS = {
    "sqlalchemy": "object",
    "psycopg": "number",
    "sqlite3": "savepoint",
    "aiosqlite": "savepoint",
    "pymysql": "savepoint",
    "asyncmy": "savepoint",
}
"""How a connection's transaction is told apart from another one, by the package that the connection is of."""


class TransactionEnded(ConfigurationError):
    """A joined handler has committed or rolled back what was to commit together with its response."""

    def __init__(self, operation: str) -> None:
        super().__init__(
            f"The handler of {operation} ended the transaction it was given; leave commit and rollback to joined=, "
            "which commits what was written together with the response, or declare the route without joined=."
        )


class Mark(NamedTuple):
    """A transaction as it was before the handler ran."""

    kind: str | None
    connection: Any
    value: Any


def kind_of(connection: Any) -> tuple[str | None, Any]:
    """How to tell its transactions apart, and whom to ask: of SQLAlchemy's awaited objects, what stands behind."""
    packages = [cls.__module__.partition(".")[0] for cls in type(connection).__mro__]
    kind = next((_KINDS[package] for package in packages if package in _KINDS), None)
    behind = getattr(connection, "sync_connection", None) or getattr(connection, "sync_session", None)
    return kind, behind or connection


def fetched(connection: Any, text: str) -> Any:
    """Execute one of the statements above; the number that NUMBER asks for."""
    cursor = connection.cursor()
    try:
        cursor.execute(text)
        return cursor.fetchone() if text is NUMBER else None
    finally:
        cursor.close()


async def async_fetched(connection: Any, text: str) -> Any:
    """See `fetched`. Tasks may have connections that are not awaited, too."""
    if not hasattr(connection, "__aenter__"):
        return fetched(connection, text)
    async with connection.cursor() as cursor:
        await cursor.execute(text)
        return await cursor.fetchone() if text is NUMBER else None

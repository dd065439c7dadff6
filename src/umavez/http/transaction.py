"""Whether a joined handler has left its transaction alone: it must still be the one that the claim was made in.

A handler that commits by itself parts its effect from the response: a crash in between leaves an effect that
nothing tells about. So the transaction is marked before the handler runs and the mark looked for afterwards:
SQLAlchemy has an object for each transaction, PostgreSQL a number (a missing savepoint would spoil there what is
to be recorded next), the others have savepoints. Handlers on drivers not listed here are taken at their word.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple

from umavez.errors import ConfigurationError
from umavez.http.keyed import Over

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


class Watch:
    """Watches the transaction of one joined request. `check` raises TransactionEnded where the handler ended it.

    It is to be asked once all is over: where a handler has committed, the outcome is recorded all the same, so
    that a repeat is answered and has no second effect. `parted`: that has to be done apart from the connection, which
    may be back in its pool.
    """

    def __init__(self, operation: str) -> None:
        self._operation = operation
        self._ended = False
        self.parted = False

    def check(self) -> None:
        """Raise TransactionEnded, if so it was."""
        if self._ended:
            raise TransactionEnded(self._operation)

    @contextmanager
    def over(self, connection: Any) -> Iterator[None]:
        """Around the handler, after the claim."""
        mark = marked(connection)
        try:
            yield
        except Over:
            self._ended = ended(mark)
            raise
        self._saw(mark, ended(mark))

    @asynccontextmanager
    async def aover(self, connection: Any) -> AsyncIterator[None]:
        """See `over`."""
        mark = await amarked(connection)
        try:
            yield
        except Over:
            self._ended = await aended(mark)
            raise
        self._saw(mark, await aended(mark))

    def _saw(self, mark: Mark, is_ended: bool) -> None:
        self._ended = is_ended
        self.parted = is_ended and mark.kind == "object"


def marked(connection: Any) -> Mark:
    """Mark the transaction of `connection`, in which a claim was made just now."""
    kind, asked = _kind(connection)
    if kind == "object":
        return Mark(kind, asked, asked.get_transaction())
    if kind is None:
        return Mark(None, None, None)
    return Mark(kind, connection, _fetched(connection, NUMBER if kind == "number" else SAVEPOINT))


def ended(mark: Mark) -> bool:
    """Whether another transaction, or none, stands where `mark` was made."""
    kind, connection, value = mark
    if kind is None or kind == "object":
        return kind is not None and connection.get_transaction() is not value
    try:
        found = _fetched(connection, NUMBER if kind == "number" else RELEASE)
    except Exception as error:  # noqa: BLE001 - other trouble is told by what is recorded next
        return NAME in str(error)
    return bool(found != value)


async def amarked(connection: Any) -> Mark:
    """See `marked`."""
    kind, _ = _kind(connection)
    if kind in (None, "object") or not hasattr(connection, "__aenter__"):
        return marked(connection)
    return Mark(kind, connection, await _afetched(connection, NUMBER if kind == "number" else SAVEPOINT))


async def aended(mark: Mark) -> bool:
    """See `ended`."""
    kind, connection, value = mark
    if kind in (None, "object") or not hasattr(connection, "__aenter__"):
        return ended(mark)
    try:
        found = await _afetched(connection, NUMBER if kind == "number" else RELEASE)
    except Exception as error:  # noqa: BLE001 - as above
        return NAME in str(error)
    return bool(found != value)


def _kind(connection: Any) -> tuple[str | None, Any]:
    """How to tell its transactions apart, and whom to ask: of SQLAlchemy's awaited objects, what stands behind."""
    packages = [cls.__module__.partition(".")[0] for cls in type(connection).__mro__]
    kind = next((_KINDS[package] for package in packages if package in _KINDS), None)
    behind = getattr(connection, "sync_connection", None) or getattr(connection, "sync_session", None)
    return kind, behind or connection


def _fetched(connection: Any, text: str) -> Any:
    cursor = connection.cursor()
    try:
        cursor.execute(text)
        return cursor.fetchone() if text is NUMBER else None
    finally:
        cursor.close()


async def _afetched(connection: Any, text: str) -> Any:
    async with connection.cursor() as cursor:
        await cursor.execute(text)
        return await cursor.fetchone() if text is NUMBER else None

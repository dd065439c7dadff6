"""Joining: the driver's own connection behind whatever the caller's code works with.

SQLAlchemy is recognised by the module of the object's type, so that it is never imported for those who do
not use it. Whatever is not SQLAlchemy's is taken to be a driver's connection already.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from umavez.errors import ConfigurationError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from umavez.core.record import Draft


LOG = logging.getLogger("umavez")


def warn_of_parting(draft: Draft) -> None:
    """Say that the transaction of a joined block was ended inside it: its effect no longer commits with its outcome."""
    LOG.warning(
        "The transaction that %s %r was joined to was ended inside its block (a commit, or a statement that commits by "
        "itself); a crash from there on leaves its outcome unknown. Leave commit and rollback to the end.",
        draft.key.operation,
        draft.key.value,
    )


def driver_connection(connection: Any) -> Any:
    """The driver's connection behind a SQLAlchemy Connection or Session, its transaction begun.

    Anything that is not SQLAlchemy's is returned as it is. Raises ConfigurationError for a closed connection, an
    engine or an asynchronous object; StoreUnavailable when SQLAlchemy cannot reach its database.
    """
    if not _of_sqlalchemy(connection):
        return connection
    if _asynchronous(connection):
        raise ConfigurationError(f"{_kind(connection)} is asynchronous; join it with AsyncOnce, or give a Connection.")
    with _failures(connection):
        return _behind(_begun(connection), connection)


async def async_driver_connection(connection: Any) -> Any:
    """The driver's connection behind a SQLAlchemy AsyncConnection or AsyncSession; see `driver_connection`."""
    if not _of_sqlalchemy(connection):
        return connection
    if not _asynchronous(connection):
        raise ConfigurationError(
            f"{_kind(connection)} is not asynchronous; join it with Once, or give an AsyncConnection."
        )
    with _failures(connection):
        begun = await _abegun(connection)
        return _raw(await begun.get_raw_connection(), connection)


def _begun(connection: Any) -> Any:
    """The SQLAlchemy Connection, inside a transaction: its own, or the one a session works with."""
    if _is_session(connection):
        return connection.connection()
    _refuse_closed(connection)
    # Without this SQLAlchemy would not know of our statements, and commit() would leave them out.
    if not connection.in_transaction():
        connection.begin()
    return connection


async def _abegun(connection: Any) -> Any:
    if _is_session(connection):
        return await connection.connection()
    _refuse_closed(connection)
    if not connection.in_transaction():
        await connection.begin()
    return connection


def _behind(begun: Any, given: Any) -> Any:
    return _raw(begun.connection, given)


def _raw(proxied: Any, given: Any) -> Any:
    driver = getattr(proxied, "driver_connection", None)
    if driver is None:
        raise ConfigurationError(f"{_kind(given)} has no driver connection any more; give one that is open.")
    return driver


def _refuse_closed(connection: Any) -> None:
    if not hasattr(connection, "in_transaction"):
        raise ConfigurationError(f"{_kind(connection)} holds no transaction to join; give a Connection or a Session.")
    if connection.closed:
        raise ConfigurationError(f"{_kind(connection)} is closed; give one that is open.")


@contextmanager
def _failures(connection: Any) -> Iterator[None]:
    """Turn SQLAlchemy's errors into ours: what the database said, and what the caller did wrong."""
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError  # noqa: PLC0415 - only where an object of it was given

    try:
        yield
    except DBAPIError as error:
        raise StoreUnavailable(f"{_kind(connection)} could not reach its database; nothing was written.") from error
    except SQLAlchemyError as error:
        raise ConfigurationError(
            f"{_kind(connection)} cannot be joined as it is; roll it back or open another."
        ) from error


def _of_sqlalchemy(connection: Any) -> bool:
    return any(cls.__module__.partition(".")[0] == "sqlalchemy" for cls in type(connection).__mro__)


def _asynchronous(connection: Any) -> bool:
    return any(cls.__module__.startswith("sqlalchemy.ext.asyncio") for cls in type(connection).__mro__)


def _is_session(connection: Any) -> bool:
    """A session has a method where a connection has a property: asked of the type, since the property may raise."""
    return callable(getattr(type(connection), "connection", None))


def _kind(connection: Any) -> str:
    return f"This SQLAlchemy {type(connection).__name__}"

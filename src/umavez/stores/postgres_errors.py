"""What went wrong at PostgreSQL, in umavez's words; the driver's error stays as the cause."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection, errors

from umavez.core.key import Key
from umavez.errors import (
    NotStorable,
    OperationInProgress,
    SchemaOutdated,
    StoreUnavailable,
    StoreUncertain,
    UmavezError,
)

RETRY_AFTER = 1.0
"""Seconds a caller is asked to wait when an open transaction holds the key: how long it lasts is unknown."""

_OUTDATED = (errors.UndefinedTable, errors.UndefinedColumn, errors.UndefinedObject, errors.UndefinedFunction)
_REPEATABLE = (errors.DeadlockDetected, errors.SerializationFailure)


def not_reached(error: Exception) -> StoreUnavailable:
    """No connection: nothing was sent."""
    return StoreUnavailable(f"PostgreSQL cannot be reached ({_first_line(error)}); check the URL and the server.")


def is_lost(error: Exception, connection: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Whether the statement's outcome is unknown: the connection broke, or the server said that it ends it."""
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    return connection.closed or error.sqlstate is None or error.sqlstate.startswith(("08", "57P"))


def failed(error: Exception, lost: bool, key: Key | None = None) -> UmavezError:
    """What a failed statement means. `lost` says that the connection broke, so the outcome is not known."""
    if isinstance(error, UnicodeEncodeError | errors.CharacterNotInRepertoire | errors.UntranslatableCharacter):
        return _not_text(key)
    if isinstance(error, errors.LockNotAvailable) and key is not None:
        return OperationInProgress(key, RETRY_AFTER)
    if isinstance(error, _OUTDATED):
        return SchemaOutdated(
            "The tables of umavez are missing or older than this version; run `umavez migrate` or once.migrate()."
        )
    if lost:
        return StoreUncertain(
            f"The connection to PostgreSQL broke before the answer came ({_first_line(error)});"
            " send the same call again to learn what stands."
        )
    return StoreUnavailable(f"PostgreSQL refused the statement ({_first_line(error)}); nothing was written.")


def failed_joined(error: Exception, lost: bool, key: Key | None = None) -> UmavezError:
    """The same inside the caller's transaction, which is the caller's to repeat."""
    if isinstance(error, _REPEATABLE):
        return StoreUnavailable(
            "Another transaction changed the same record; roll back and run the whole transaction again."
        )
    if isinstance(error, errors.InFailedSqlTransaction):
        return StoreUnavailable("The transaction has failed already; roll back and run the whole transaction again.")
    return failed(error, lost, key)


def _not_text(key: Key | None) -> UmavezError:
    if key is None:
        return StoreUnavailable("A text of this batch cannot be stored; nothing was written.")
    return NotStorable(
        f"A text of {key.operation} {key.value!r} holds NUL or a lone surrogate, which PostgreSQL cannot store;"
        " remove it."
    )


def _first_line(error: Exception) -> str:
    """The driver's first line only: the lines after it may quote values."""
    if isinstance(error, psycopg.Error) and error.diag.message_primary:
        return error.diag.message_primary
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

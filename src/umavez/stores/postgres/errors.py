"""What went wrong at PostgreSQL, in umavez's words; the driver's error stays as the cause."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import BaseConnection, errors

from umavez.core.key import Key
from umavez.errors import (
    TABLES_MISSING,
    NotStorable,
    OperationInProgress,
    SchemaOutdated,
    StoreError,
    StoreUnavailable,
    StoreUncertain,
    UmavezError,
)

RETRY_AFTER = 1.0
"""Seconds a caller is asked to wait when an open transaction holds the key: how long it lasts is unknown."""

GRACE = 1.0
"""Seconds in which the server's own statement_timeout may still be heard, before it counts as silent."""

TRIES: dict[type[BaseException], int] = {
    errors.DeadlockDetected: 8,
    errors.SerializationFailure: 8,
    errors.LockNotAvailable: 2,
}
"""How often a transaction is sent that the server refuses for a rival's sake. A lock time-out has waited already."""

_UNPREPARED = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement)
_OUTDATED = (errors.UndefinedTable, errors.UndefinedColumn, errors.UndefinedObject, errors.UndefinedFunction)
_REPEATABLE = (errors.DeadlockDetected, errors.SerializationFailure)


class NoReply(psycopg.OperationalError):
    """The server said nothing for so long that it is not waited for any more."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no answer within {seconds:g} s")


def not_reached(error: Exception) -> StoreUnavailable:
    """No connection: nothing was sent."""
    if "unsupported startup parameter" in str(error):
        return StoreUnavailable(
            "A pooler refuses the settings that a connection is opened with; set ignore_startup_parameters = options"
            " in PgBouncer and run ALTER ROLE name SET lock_timeout = '800ms', or connect past it."
        )
    return StoreUnavailable(
        f"PostgreSQL cannot be reached ({_first_line(error)}); check the URL and the server.",
        waited=isinstance(error, errors.ConnectionTimeout),
    )


def lock_timeout_dropped() -> StoreUnavailable:
    """A pooler between us and the server keeps settings to itself: one held key would stop every caller."""
    return StoreUnavailable(
        "A pooler dropped lock_timeout, without which one held key stops all others;"
        " run ALTER ROLE name SET lock_timeout = '800ms' for the store's account, or connect past the pooler."
    )


def overtaken() -> StoreUnavailable:
    """Rivals won every round."""
    return StoreUnavailable("Others kept changing the record while it was written; try again.")


def is_lost(error: BaseException, connection: BaseConnection[Any] | None = None) -> bool:
    """Whether the statement's outcome is unknown: the connection broke, or the server said that it ends it."""
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    closed = connection is not None and connection.closed
    return closed or error.sqlstate is None or error.sqlstate.startswith(("08", "57P"))


def translate(error: BaseException) -> StoreError | None:
    """What a driver's error on a plain connection means; None for an error of somebody else."""
    if not isinstance(error, psycopg.Error):
        return None
    meant = failed(error, is_lost(error))
    return meant if isinstance(meant, StoreError) else None


def tries(error: BaseException | None) -> int:
    """How often a transaction that met this error is sent in all; 0 for an error that no rival caused."""
    return 0 if error is None else TRIES.get(type(error), 0)


def failed(error: Exception, lost: bool, key: Key | None = None) -> UmavezError:
    """What a failed statement means. `lost` says that the connection broke, so the outcome is not known."""
    if isinstance(error, UnicodeEncodeError | errors.CharacterNotInRepertoire | errors.UntranslatableCharacter):
        return _not_text(key)
    if isinstance(error, errors.LockNotAvailable) and key is not None:
        return OperationInProgress(key, RETRY_AFTER)
    if isinstance(error, _OUTDATED):
        return SchemaOutdated(TABLES_MISSING)
    if isinstance(error, _UNPREPARED):
        return StoreUnavailable(
            f"PostgreSQL forgot a prepared statement ({_first_line(error)}); with PgBouncer in transaction mode use"
            " version 1.21 or later with max_prepared_statements, prepare_threshold=None, or connect past it."
        )
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return StoreUnavailable(
            "This PostgreSQL is a standby and takes no writes; name all hosts in the URL, with"
            " target_session_attrs=read-write."
        )
    if lost:
        return StoreUncertain(
            f"The connection to PostgreSQL broke before the answer came ({_first_line(error)});"
            " send the same call again to learn what stands.",
            waited=isinstance(error, NoReply),
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

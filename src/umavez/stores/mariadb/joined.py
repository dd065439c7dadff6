"""Joined: what working in the caller's transaction asks for, without I/O. The stores are in `_async/joined.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from umavez.core.key import Key
from umavez.core.record import Draft
from umavez.errors import ConfigurationError, OperationInProgress, StoreError, StoreUnavailable
from umavez.sql.joining import warn_of_parting
from umavez.stores.mariadb.errors import CHANGED_SINCE_READ, DEADLOCK, LOCK_TIMEOUT, failed, number
from umavez.stores.mariadb.statements import Statement
from umavez.stores.rows import refuse_long_texts

IN_TRANSACTION = 1
"""The bit of the server's status that says a transaction is open."""

WHERE = "the caller's connection"

DATABASE = Statement("SELECT DATABASE(), @@character_set_client, coalesce(@@character_set_results, 'utf8mb4')", ())
KNOWN: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""The database of each connection that was joined; asked once, for the drivers do not keep it up to date."""


def database_of(row: Sequence[Any]) -> str:
    """The answer to DATABASE. Raises ConfigurationError where the connection would change texts on their way."""
    name, *charsets = row
    for charset in charsets:
        if charset != "utf8mb4":
            raise ConfigurationError(
                f"The connection speaks {charset}, in which an outcome may come back with other characters;"
                " open it with charset=utf8mb4 to join it."
            )
    return name or ""


def check_ready(connection: Any, expected: str | None, draft: Draft) -> None:
    """Refuse what could not be undone with the caller's work."""
    refuse_long_texts(draft)
    if connection.server_status & IN_TRANSACTION:
        return
    if expected is not None:
        # A change follows a claim in the same transaction; somebody has ended it.
        warn_of_parting(draft)
    if connection.get_autocommit():
        raise ConfigurationError("The connection has no transaction open; call begin() before joining it.")


def patient(statement: Statement, wait: float) -> Statement:
    """The statement with its own bound on waiting for locks, in whole seconds as the server counts; 0 does not wait.

    Strict too, as our own connections are: see `sql.dialect.strictly`.
    """
    bound = max(0, math.ceil(wait))
    text = (
        f"SET STATEMENT innodb_lock_wait_timeout = {bound}, sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')"
        f" FOR {statement.text}"
    )
    return Statement(text, statement.values)


def failed_joined(error: BaseException, key: Key | None, wait: float) -> StoreError | OperationInProgress:
    """What a driver's error means inside the caller's transaction, which is the caller's to repeat."""
    code = number(error)
    if code == LOCK_TIMEOUT and key is not None:
        return OperationInProgress(key, max(wait, 1.0))
    if code in (DEADLOCK, CHANGED_SINCE_READ):
        return StoreUnavailable(
            f"MariaDB rolled the whole transaction back (error {code}); roll back and run it again."
        )
    return failed(error, WHERE)

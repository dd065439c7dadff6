# Written by tools/sync.py from src/umavez/stores/postgres/_async/upgrade.py: change that, then run `make format`.
"""Carries the upgrade from version 1 to 2 out; see `umavez.stores.postgres.upgrade`. For tasks."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from psycopg import Connection
from psycopg.errors import LockNotAvailable

from umavez.stores.postgres import upgrade as online
from umavez.stores.postgres.statements import INSTALLED

T = TypeVar("T")


def upgraded(connection: Connection[Any]) -> None:
    """Bring the tables of version 1 to 2 on a connection in autocommit mode; returns too when another process did.

    Raises StoreUnavailable when others hold the table or a record for too long, and psycopg's errors.
    """
    connection.execute(online.SESSION)
    _alone(connection)
    if _value(connection, INSTALLED) != 1:
        return
    between_transactions(partial(connection.execute, online.EXPAND))
    _backfilled(connection)
    between_transactions(partial(connection.execute, online.ALL_HAVE_ONE))
    for text in online.BESIDE:
        between_transactions(partial(connection.execute, text))
    # An index that is built beside the callers waits for their transactions without being in anybody's way.
    connection.execute("SET lock_timeout = 0")
    for name, text in online.INDEXES.items():
        _indexed(connection, name, text)
    connection.execute(online.SESSION)
    between_transactions(partial(_contracted, connection))


def _alone(connection: Connection[Any]) -> None:
    """Wait until no other process upgrades. The lock ends with the session."""
    deadline = time.monotonic() + 60 * online.PATIENCE
    while not _value(connection, online.ALONE):
        if time.monotonic() > deadline:
            raise online.held_up("the upgrade itself")
        time.sleep(0.2)


def _backfilled(connection: Connection[Any]) -> None:
    """Give every record an id, some at a time; new ones get theirs by themselves."""
    progressed_at = time.monotonic()
    last: bytes | None = b""
    while True:
        began_at = time.monotonic()
        cursor = connection.execute(online.BACKFILL, (last, online.BATCH))
        ((count, last),) = cursor.fetchall()
        if count:
            progressed_at = time.monotonic()
            time.sleep((progressed_at - began_at) * online.SHARE)
            continue
        if not _value(connection, online.LEFT):
            return
        if time.monotonic() - progressed_at > online.PATIENCE:
            raise online.held_up("a record")
        last = b""  # another round, for what was held in this one
        time.sleep(0.1)


def _indexed(connection: Connection[Any], name: str, text: str) -> None:
    cursor = connection.execute(online.VALID, (name,))
    found = cursor.fetchone()
    if found is not None and found[0]:
        return
    connection.execute(online.unfinished(name))
    connection.execute(text)


def _contracted(connection: Connection[Any]) -> None:
    with connection.transaction():
        connection.execute(online.LOCKED)
        first = int(_value(connection, online.NEXT_ID))
        connection.execute(online.contract(first))


def between_transactions(change: Callable[[], T]) -> T:
    """Make a change of the table in a moment in which nobody uses it. Steps back and tries again, for a while.

    `change` bounds its own wait for locks by `online.BRIEF`. Raises StoreUnavailable when there was no such moment.
    """
    deadline = time.monotonic() + online.PATIENCE
    while True:
        try:
            return change()
        except LockNotAvailable as error:
            if time.monotonic() > deadline:
                raise online.held_up("the table") from error
            time.sleep(online.BRIEF)


def _value(connection: Connection[Any], text: str) -> Any:
    cursor = connection.execute(text)
    row = cursor.fetchone()
    return None if row is None else row[0]

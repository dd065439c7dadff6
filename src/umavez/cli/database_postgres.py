"""A connection to PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg

from umavez.errors import StoreError, StoreUnavailable
from umavez.stores.postgres_errors import failed, not_reached
from umavez.stores.postgres_target import target_of

ERRORS = (psycopg.Error,)


@contextmanager
def connected(url: str, *, writing: bool) -> Iterator[psycopg.Connection[Any]]:
    """The database of `url`, set up like the store's own connections. A transaction begins with the first statement."""
    try:
        connection = psycopg.connect(target_of(url).conninfo)
    except psycopg.Error as error:
        raise not_reached(error) from error
    with closing(connection):
        connection.read_only = not writing
        yield connection


def meaning(error: psycopg.Error) -> StoreError:
    """What a driver's error says."""
    lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    lost = lost and (error.sqlstate is None or error.sqlstate.startswith(("08", "57P")))
    told = failed(error, lost)
    return told if isinstance(told, StoreError) else StoreUnavailable(str(told))

"""Lines to PostgreSQL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import psycopg

from umavez.errors import StoreError
from umavez.messaging.database import Line
from umavez.sql import AsyncSql
from umavez.stores.postgres_errors import failed
from umavez.stores.postgres_target import target_of


def opener(url: str) -> Callable[[], Awaitable[Line]]:
    """Opens lines to `url`, set up like the store's own connections."""
    conninfo = target_of(url).conninfo

    async def opened() -> Line:
        connection = await psycopg.AsyncConnection.connect(conninfo, autocommit=True)
        return Line(AsyncSql(connection), connection.close)

    return opened


def meaning(error: Exception) -> StoreError | None:
    """What a driver's error says; None for an error of somebody else."""
    if not isinstance(error, psycopg.Error):
        return None
    lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    lost = lost and (error.sqlstate is None or error.sqlstate.startswith(("08", "57P")))
    told = failed(error, lost)
    return told if isinstance(told, StoreError) else None

"""Lines to MariaDB."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import asyncmy
import asyncmy.errors

from umavez.errors import StoreError
from umavez.messaging.database import Line
from umavez.sql import AsyncSql
from umavez.stores.mariadb_address import ISOLATION, SESSION, address_of, refuse_other_servers
from umavez.stores.mariadb_faults import failed


def opener(url: str) -> Callable[[], Awaitable[Line]]:
    """Opens lines to `url`, set up like the store's own connections: READ COMMITTED, strict, impatient."""
    address = address_of(url)

    async def opened() -> Line:
        connection = await asyncmy.connect(**address.arguments())
        sql = AsyncSql(connection)
        try:
            await _set_up(sql, str(address))
        except BaseException:
            await connection.ensure_closed()
            raise
        return Line(sql, connection.ensure_closed)

    return opened


async def _set_up(sql: AsyncSql, where: str) -> None:
    version = await sql.rows("SELECT version()")
    refuse_other_servers(str(version[0][0]), where)
    await sql.count(SESSION)
    await sql.count(ISOLATION)


def meaning(error: Exception) -> StoreError | None:
    """What a driver's error says; None for an error of somebody else."""
    if not isinstance(error, asyncmy.errors.MySQLError | OSError):
        return None
    return failed(error, "the database of the messages")

"""Plain connections to PostgreSQL, for anybody who keeps tables beside the records or looks at the server.

The store's own are in `_async/connection.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.conninfo import make_conninfo

from umavez.stores.postgres.errors import not_reached
from umavez.stores.postgres.uncancelled import UncancelledConnection
from umavez.stores.postgres.url import given_in, target_of


def connect(url: str, *, read_only: bool = False, bare: bool = False) -> Connection[Any]:
    """A plain connection to the database of `url`, with the time-outs of the store's own.

    `bare` leaves the session as the server sets it up, and waits 3 seconds at most: for looking at the server itself.
    Raises StoreUnavailable where it cannot be reached.
    """
    conninfo = target_of(url).conninfo
    if bare:
        conninfo = make_conninfo(conninfo, options=given_in(url).get("options", ""), connect_timeout=3)
    try:
        connection = psycopg.connect(conninfo, autocommit=bare)
    except psycopg.Error as error:
        raise not_reached(error) from error
    connection.read_only = read_only
    return connection


def begin(connection: Connection[Any]) -> None:
    """Begin a transaction that writes: on a plain connection the first statement does."""


def async_connector(url: str) -> Callable[[], Awaitable[AsyncConnection[Any]]]:
    """Opens plain connections for tasks to the database of `url`, set up like the store's own, in autocommit mode.

    The URL is read at once: raises ConfigurationError. What is opened may raise StoreUnavailable.
    """
    conninfo = target_of(url).conninfo

    async def connect() -> AsyncConnection[Any]:
        try:
            return await UncancelledConnection.connect(conninfo, autocommit=True)
        except psycopg.Error as error:
            raise not_reached(error) from error

    return connect


def follows(_: Any) -> bool:
    """Whether the loop that runs now can use a connection that another has opened: psycopg waits in whichever runs."""
    return True


async def listen(url: str, channel: str, told: Callable[[], None]) -> None:
    """Call `told` at first and whenever somebody notifies `channel`, until cancelled or the connection fails."""
    async with await async_connector(url)() as connection:
        await connection.execute(f"LISTEN {channel}")
        told()  # what was committed before is not told
        async for _ in connection.notifies():
            told()

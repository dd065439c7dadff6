"""Plain connections to MariaDB, for anybody who keeps tables beside the records or looks at the server.

The store's own are in `_async/connection.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pymysql

from umavez.stores import without_password
from umavez.stores.mariadb._async.connection import set_up as async_set_up
from umavez.stores.mariadb._sync.connection import set_up
from umavez.stores.mariadb.drivers import async_cut, async_stranded
from umavez.stores.mariadb.errors import FAILURES, unreachable
from umavez.stores.mariadb.url import address_of, bare_address_of


def connect(url: str, *, read_only: bool = False, bare: bool = False) -> Any:
    """A plain connection to the database of `url`, set up like the store's own, in autocommit mode.

    `bare` leaves the session as the server sets it up, needs no database in the URL and waits seconds at most: for
    looking at the server itself. Raises StoreUnavailable, and ConfigurationError for a server that is no MariaDB.
    """
    if bare:
        return _reach_barely(url)
    connection, _ = set_up(address_of(url))
    if read_only:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION READ ONLY")
    return connection


def begin(connection: Any) -> None:
    """Begin a transaction that writes."""
    connection.begin()


def async_connector(url: str) -> Callable[[], Awaitable[Any]]:
    """Opens plain connections for tasks to the database of `url`, set up like the store's own, in autocommit mode.

    The URL is read at once: raises ConfigurationError. What is opened may raise StoreUnavailable, and
    ConfigurationError for a server that is no MariaDB.
    """
    address = address_of(url)

    async def connect() -> Any:
        connection, _ = await async_set_up(address)
        return connection

    return connect


def follows(connection: Any) -> bool:
    """Whether the loop that runs now can use a connection that another has opened; if not, it is closed."""
    if async_stranded(connection):
        async_cut(connection)
        return False
    return True


def _reach_barely(url: str) -> Any:
    arguments = bare_address_of(url)._replace(timeout=5.0).arguments() | {"connect_timeout": 3.0}
    try:
        return pymysql.connect(**arguments)
    except FAILURES as error:
        raise unreachable(error, without_password(url)) from error

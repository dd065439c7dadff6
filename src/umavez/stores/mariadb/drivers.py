"""Drivers: where PyMySQL, for threads, and asyncmy, for tasks, differ in more than awaiting. So both are by hand."""

from __future__ import annotations

import asyncio
import select
from typing import Any

import asyncmy
import pymysql

from umavez.concurrency.waiting import shut
from umavez.errors import ConfigurationError
from umavez.stores.mariadb.errors import FAILURES, unreachable
from umavez.stores.mariadb.url import GRACE, Address

Connection = pymysql.connections.Connection
AsyncConnection = asyncmy.connection.Connection
Cursor = pymysql.cursors.Cursor
AsyncCursor = asyncmy.cursors.Cursor


def reach(address: Address) -> Any:
    """A connection as the driver makes it. Raises StoreUnavailable."""
    # asyncmy knows no write_timeout.
    given = address.arguments() | {"autocommit": None, "write_timeout": address.timeout + GRACE}
    try:
        return pymysql.connect(**given)
    except FAILURES as error:
        raise unreachable(error, str(address)) from error


async def async_reach(address: Address) -> Any:
    """See `reach`."""
    try:
        return await asyncmy.connect(**address.arguments(), autocommit=None)
    except FAILURES as error:
        raise unreachable(error, str(address)) from error


def hung_up(connection: Any) -> bool:
    """Whether the server has closed the connection (KILL, wait_timeout, restart) while it was idle.

    Seen before sending, this costs nobody an uncertain answer.
    """
    sock = connection._sock  # noqa: SLF001 - PyMySQL shows its socket nowhere else
    if sock is None:
        return True
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def async_hung_up(connection: Any) -> bool:
    """See `hung_up`: the loop has noticed already."""
    return bool(connection._stream_broken)  # noqa: SLF001 - asyncmy shows it nowhere else


def stranded(_: Any) -> bool:
    """Never: any thread may use a connection."""
    return False


def async_stranded(connection: Any) -> bool:
    """Whether the connection belongs to an event loop that is no longer running, and so to nobody."""
    return connection.loop is not asyncio.get_running_loop()


def cut(connection: Any) -> None:
    """End the conversation at once; see `stranded`, which says of no connection here that it has to be."""
    let_go(connection)


def async_cut(connection: Any) -> None:
    """See `cut`. Its loop is over."""
    shut(connection._transport, connection.loop)  # noqa: SLF001 - asyncmy shows it nowhere else


def let_go(connection: Any) -> None:
    """Close the connection at once. PyMySQL complains about one that is closed already."""
    if connection.open:
        connection.close()


def async_let_go(connection: Any) -> None:
    """See `let_go`. asyncmy says no goodbye here; `async_leave` does."""
    connection.close()


def leave(connection: Any) -> None:
    """Take leave of the server and close the connection."""
    let_go(connection)


async def async_leave(connection: Any) -> None:
    """See `leave`."""
    await connection.ensure_closed()


def refuse_other_kinds(given: Any, wanted: type) -> None:
    """Raise ConfigurationError where `given` is not the driver's connection."""
    if not isinstance(given, wanted):
        driver = "PyMySQL" if wanted is Connection else "asyncmy"
        raise ConfigurationError(f"A {type(given).__name__} cannot be joined here; give a connection of {driver}.")

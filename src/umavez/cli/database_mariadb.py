"""A connection to MariaDB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pymysql

from umavez.errors import StoreError
from umavez.stores.mariadb_address import ISOLATION, SESSION, address_of, refuse_other_servers
from umavez.stores.mariadb_faults import failed, unreachable

ERRORS = (pymysql.MySQLError,)


@contextmanager
def connected(url: str, *, writing: bool) -> Iterator[pymysql.Connection[Any]]:
    """The database of `url`, set up like the store's own connections; writing begins a transaction."""
    address = address_of(url)
    try:
        connection = pymysql.connect(**address.arguments())
    except pymysql.MySQLError as error:
        raise unreachable(error, str(address)) from error
    with closing(connection):
        with connection.cursor() as cursor:
            cursor.execute("SELECT version()")
            refuse_other_servers(str((cursor.fetchone() or ("",))[0]), str(address))
            cursor.execute(SESSION)
            cursor.execute(ISOLATION)
        if writing:
            connection.begin()
        yield connection


def meaning(error: Exception) -> StoreError:
    """What a driver's error says."""
    return failed(error, "the database of --store")

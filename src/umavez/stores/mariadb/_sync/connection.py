# Written by tools/sync.py from src/umavez/stores/mariadb/_async/connection.py: change that, then run `make format`.
"""A connection of the MariaDB store's own, for threads."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from umavez.concurrency.hearing import heard
from umavez.errors import StoreUnavailable
from umavez.stores.mariadb.drivers import (
    cut,
    hung_up,
    leave,
    let_go,
    reach,
    stranded,
)
from umavez.stores.mariadb.errors import FAILURES, TRIES, failed, number, oversized, pause, unreachable, unstorable
from umavez.stores.mariadb.statements import Rows, Statement
from umavez.stores.mariadb.url import ISOLATION, LIMITS, Address, refuse_other_servers

Execute = Callable[[Statement], list[Rows]]


class MariadbConnection:
    """Runs statements, for one caller at a time. Opened at first use, dropped after any error or cancellation.

    It is never used by a forked child, nor by another event loop.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connection: Any = None
        self._pid = 0
        self._forgotten: list[Any] = []
        self._limit = 0
        self.retries = 0

    def run(self, statement: Statement) -> list[Rows]:
        """The result sets of one statement. A deadlock is tried again, boundedly. Raises StoreError."""
        results: list[Rows] = self.transact(lambda execute: execute(statement))
        return results

    def transact(self, work: Callable[[Execute], Any]) -> Any:
        """What `work` returns, which may send several statements of one transaction and must end it."""
        return heard(self._transacted(work))

    def _transacted(self, work: Callable[[Execute], Any]) -> Any:
        tries = 0
        while True:
            connection = self._open()
            try:
                return work(partial(self._execute, connection))
            except FAILURES as error:
                tries += 1
                if tries >= TRIES.get(number(error), 0):
                    self.drop()
                    raise failed(error, str(self._address)) from error
                self._roll_back(connection)
                self.retries += 1
                time.sleep(pause(tries))
            except UnicodeEncodeError as error:
                self.drop()
                raise unstorable(error) from error
            except BaseException:
                # Whatever it was, the conversation may be in the middle of an answer.
                self.drop()
                raise

    def _execute(self, connection: Any, statement: Statement) -> list[Rows]:
        with connection.cursor() as cursor:
            text = cursor.mogrify(statement.text, tuple(statement.values))
            size = len(text) if text.isascii() else len(text.encode())
            if size >= self._limit:
                raise oversized(size, self._limit)
            cursor.execute(text)
            return drained(cursor)

    def _open(self) -> Any:
        self._forget_if_foreign()
        if self._connection is not None and hung_up(self._connection):
            self.drop()
        if self._connection is None:
            self._connection, self._limit = set_up(self._address)
            self._pid = os.getpid()
        return self._connection

    def _forget_if_foreign(self) -> None:
        """Leave alone a connection of the parent process, and cut one of an event loop that is over."""
        connection = self._connection
        if connection is None:
            return
        if self._pid != os.getpid():
            # Not closed: the goodbye would go out on the parent's socket and end the parent's session.
            self._forgotten.append(connection)
        elif stranded(connection):
            # Kept, each loop would leave its sessions open at the server, until it lets nobody in any more.
            cut(connection)
        else:
            return
        self._connection = None

    def _roll_back(self, connection: Any) -> None:
        """End the transaction: after 1205 only the statement was undone, and a half would be left open."""
        try:
            connection.rollback()
        except FAILURES:
            self.drop()

    def drop(self) -> None:
        """Close the connection at once; the next use opens another."""
        connection = self._taken()
        if connection is not None:
            let_go(connection)

    def close(self) -> None:
        """Take leave of the server and close the connection."""
        connection = self._taken()
        if connection is not None:
            leave(connection)

    def _taken(self) -> Any:
        """The connection, which nobody else shall have any more; None where there is none."""
        self._forget_if_foreign()
        connection, self._connection = self._connection, None
        return connection


def set_up(address: Address) -> tuple[Any, int]:
    """A new connection with the settings of our own, and the size that its server takes at most.

    Of several hosts it is the first that takes commands: a Galera node outside its cluster answers, and takes none.
    Raises StoreUnavailable, and ConfigurationError for a server that is no MariaDB.
    """
    *before, last = address.each()
    for host in before:
        with suppress(StoreUnavailable):
            return _set_up(host)
    return _set_up(last)


def _set_up(address: Address) -> tuple[Any, int]:
    connection = reach(address)
    try:
        with connection.cursor() as cursor:
            cursor.execute(address.session())
            cursor.execute(ISOLATION)
            cursor.execute(LIMITS)
            ((limit, version),) = cursor.fetchall()
        refuse_other_servers(version, str(address))
    except BaseException as error:
        let_go(connection)
        if isinstance(error, FAILURES):
            raise unreachable(error, str(address)) from error
        raise
    return connection, limit


def drained(cursor: Any) -> list[Rows]:
    """Every result set of a compound statement, without the closing empty one."""
    results = []
    more = True
    while more:
        if cursor.description is not None:
            results.append(cursor.fetchall())
        more = cursor.nextset()
    return results

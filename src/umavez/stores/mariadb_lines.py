"""Lines: one connection each, which repairs itself, and the lanes of group commit on them (PyMySQL)."""

from __future__ import annotations

import os
import random
import select
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pymysql

from umavez.clock import Clock
from umavez.core.flow import Stale, Swap
from umavez.errors import StoreUnavailable
from umavez.stores.mariadb_address import ISOLATION, LIMITS, SESSION, Address, refuse_other_servers
from umavez.stores.mariadb_batch import Batch
from umavez.stores.mariadb_faults import TRIES, failed, number, oversized, unreachable
from umavez.stores.mariadb_sql import Reply, Rows, Statement, Texts, answer, reading, seen, swapping, texts_at

ROUNDS = 5
"""How often a swap whose answer says neither is repeated."""

STUBBORN = "Others kept changing this record; nothing was written, try again."

Connection = Any


def pause(tries: int) -> float:
    """Seconds to wait before the next try: random, so that rivals do not meet again; at most 64 ms."""
    return random.random() * 0.001 * float(2 ** min(tries, 6))  # noqa: S311 - spreads load, guards nothing


class Line:
    """One connection of our own, opened at first use, dropped after any error and never used by a forked child."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connection: Connection | None = None
        self._pid = 0
        self._forgotten: list[Connection] = []
        self._limit = 0
        self.retries = 0

    def run(self, statement: Statement) -> list[Rows]:
        """The result sets of one statement. A deadlock is tried again, boundedly. Raises StoreError."""
        results: list[Rows] = self.transact(lambda execute: execute(statement))
        return results

    def transact(self, work: Callable[[Callable[[Statement], list[Rows]]], Any]) -> Any:
        """What `work` returns, which may send several statements of one transaction and must end it."""
        tries = 0
        while True:
            connection = self._open()
            try:
                return work(partial(self._execute, connection))
            except (pymysql.MySQLError, OSError) as error:
                tries += 1
                if tries >= TRIES.get(number(error), 0):
                    self.drop()
                    raise failed(error, str(self._address)) from error
                self._roll_back(connection)
                self.retries += 1
                time.sleep(pause(tries))
            except BaseException:
                # Whatever it was, the conversation may be in the middle of an answer.
                self.drop()
                raise

    def _execute(self, connection: Connection, statement: Statement) -> list[Rows]:
        with connection.cursor() as cursor:
            text = cursor.mogrify(statement.text, statement.values)
            size = len(text) if text.isascii() else len(text.encode())
            if size >= self._limit:
                raise oversized(size, self._limit)
            cursor.execute(text)
            return drained(cursor)

    def _open(self) -> Connection:
        self._forget_if_forked()
        if self._connection is not None and _hung_up(self._connection):
            self.drop()
        if self._connection is None:
            self._connection, self._limit = _connect(self._address)
            self._pid = os.getpid()
        return self._connection

    def _forget_if_forked(self) -> None:
        # Not closed: the goodbye would go out on the parent's socket and end the parent's session.
        if self._connection is not None and self._pid != os.getpid():
            self._forgotten.append(self._connection)
            self._connection = None

    def _roll_back(self, connection: Connection) -> None:
        """End the transaction: after 1205 only the statement was undone, and a half would be left open."""
        try:
            connection.rollback()
        except (pymysql.MySQLError, OSError):
            self.drop()

    def drop(self) -> None:
        """Close the connection; the next use opens another."""
        self._forget_if_forked()
        connection, self._connection = self._connection, None
        if connection is not None and connection.open:
            connection.close()


class MariadbLane:
    """A line that carries swaps."""

    def __init__(self, address: Address, clock: Clock) -> None:
        self.line = Line(address)
        self._clock = clock

    def send(self, batch: Sequence[Swap]) -> Sequence[Reply]:
        """See Lane.send."""
        texts = texts_at(self._clock.offset)
        if len(batch) == 1:
            return (self._alone(texts, batch[0]),)
        together = Batch(batch, texts)
        answers = together.answers(self.line.run(together.statement()))
        return [reply or self._look(texts, swap) for swap, reply in zip(batch, answers, strict=True)]

    def _alone(self, texts: Texts, swap: Swap) -> Reply:
        for round_ in range(ROUNDS):
            reply = answer(swap, self.line.run(swapping(texts, swap, again=round_ > 0))[0])
            if reply is not None:
                return reply
        raise StoreUnavailable(STUBBORN)

    def _look(self, texts: Texts, swap: Swap) -> Stale:
        """A swap that was not done, and what stands in its way."""
        key = swap.draft.key
        return Stale(*seen(key, self.line.run(reading(texts, key))[0]))

    def close(self) -> None:
        """Close the connection."""
        self.line.drop()


def drained(cursor: Any) -> list[Rows]:
    """Every result set of a compound statement, without the closing empty one."""
    results = []
    more = True
    while more:
        if cursor.description is not None:
            results.append(cursor.fetchall())
        more = cursor.nextset()
    return results


def _connect(address: Address) -> tuple[Connection, int]:
    try:
        connection = pymysql.connect(**address.arguments(), autocommit=None, write_timeout=address.timeout)
    except (pymysql.MySQLError, OSError) as error:
        raise unreachable(error, str(address)) from error
    try:
        with connection.cursor() as cursor:
            cursor.execute(SESSION)
            cursor.execute(ISOLATION)
            cursor.execute(LIMITS)
            limit, version = cursor.fetchall()[0]
        refuse_other_servers(version, str(address))
    except BaseException as error:
        connection.close()
        if isinstance(error, pymysql.MySQLError | OSError):
            raise unreachable(error, str(address)) from error
        raise
    return connection, limit


def _hung_up(connection: Connection) -> bool:
    """Whether the server has closed the connection (KILL, wait_timeout, restart) while it was idle.

    Seen before sending, this costs nobody an uncertain answer.
    """
    sock = connection._sock  # noqa: SLF001 - PyMySQL shows its socket nowhere else
    if sock is None:
        return True
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))

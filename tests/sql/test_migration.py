"""Tables of messages and numbers change in a moment in which nobody uses them; who writes them never queues long."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from typing import Any, NamedTuple, Self

import psycopg
import pytest

from umavez import StoreUnavailable
from umavez.messaging import AsyncOutbox, Database, Message, Outbox
from umavez.messaging.tables import version as messaging
from umavez.migration import migrate
from umavez.sequences import AsyncSequences, Sequences
from umavez.sequences import version as sequences
from umavez.stores.postgres import upgrade as online

pytestmark = pytest.mark.postgres
LONGEST = 1.5
"""Seconds that a writer may have to wait: two moments of 0.3 s, on a machine that does other things."""


def append(connection: psycopg.Connection[Any], number: int) -> None:
    Outbox().append(connection, Message("t", str(number)))


def take(connection: psycopg.Connection[Any], number: int) -> None:
    Sequences().next_number(connection, "org", f"series-{number % 4}", key=str(number))


def by_outbox(url: str) -> None:
    with psycopg.connect(url) as connection:
        Outbox().migrate(connection)


def by_outbox_that_commits_at_once(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        Outbox().migrate(connection)


def by_sequences(url: str) -> None:
    with psycopg.connect(url) as connection:
        Sequences().migrate(connection)


def by_tasks(outbox: AsyncOutbox | AsyncSequences) -> Callable[[str], None]:
    async def migrated(url: str) -> None:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await outbox.migrate(connection)

    return lambda url: asyncio.run(migrated(url))


def by_database(url: str) -> None:
    async def migrated() -> None:
        database = Database(url)
        await database.migrate()
        await database.close()

    asyncio.run(migrated())


class Case(NamedTuple):
    """A door by which tables are migrated, their name, and how one of them is written."""

    door: Callable[[str], Any]
    tables: str
    write: Callable[[psycopg.Connection[Any], int], None]


MESSAGES = ("messaging", append)
NUMBERS = ("sequences", take)
CASES = {
    "migrate, messages": Case(migrate, *MESSAGES),
    "migrate, numbers": Case(migrate, *NUMBERS),
    "outbox": Case(by_outbox, *MESSAGES),
    "outbox at once": Case(by_outbox_that_commits_at_once, *MESSAGES),
    "outbox in tasks": Case(by_tasks(AsyncOutbox()), *MESSAGES),
    "database": Case(by_database, *MESSAGES),
    "sequences": Case(by_sequences, *NUMBERS),
    "sequences in tasks": Case(by_tasks(AsyncSequences()), *NUMBERS),
}


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def case(request: pytest.FixtureRequest) -> Case:
    assert isinstance(request.param, Case)
    return request.param


@pytest.fixture
def url(case: Case, empty_database: Callable[[str], str]) -> str:
    """Tables of an earlier version. That one had the same indexes is not known: each is asked for, under its lock."""
    url = empty_database("postgres")
    migrate(url)
    with psycopg.connect(url) as connection:
        for number in range(4):
            Sequences().define(connection, "org", f"series-{number}")
        connection.execute("UPDATE umavez_meta SET value = value - 1 WHERE name = %s", (case.tables,))
    return url


def is_done(url: str, tables: str) -> bool:
    newest = {"messaging": messaging.VERSION, "sequences": sequences.VERSION}[tables]
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT value FROM umavez_meta WHERE name = %s", (tables,)).fetchall()
    return rows == [(newest,)]


class Writers:
    """Threads that write all the time, and know how long the slowest had to wait."""

    def __init__(self, url: str, case: Case) -> None:
        self.slowest, self.written = 0.0, 0
        self.errors: list[Exception] = []
        self._url, self._case = url, case
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._writing, args=(number,)) for number in range(2)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(60)

    def _writing(self, which: int) -> None:
        with closing(psycopg.connect(self._url)) as connection:
            for turn in count():
                began = time.monotonic()
                try:
                    self._case.write(connection, 4 * turn + which)
                    connection.commit()
                except Exception as error:  # noqa: BLE001  # whatever a caller sees is what is asked about
                    self.errors.append(error)
                self.slowest = max(self.slowest, time.monotonic() - began)
                self.written += 1
                if self._ended.is_set():
                    return


@pytest.fixture
def holder(url: str, case: Case) -> Iterator[psycopg.Connection[Any]]:
    """Somebody who has written and does not commit."""
    with closing(psycopg.connect(url)) as connection:
        case.write(connection, -1)
        yield connection


def test_writers_pass_while_a_migration_waits_for_a_transaction_and_its_end_is_said(
    url: str, case: Case, holder: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(online, "PATIENCE", 1.2)

    with Writers(url, case) as writers, pytest.raises(StoreUnavailable, match="run umavez migrate again"):
        case.door(url)

    assert writers.errors == []
    assert writers.slowest < LONGEST
    assert writers.written > 5
    assert not is_done(url, case.tables)
    holder.commit()
    case.door(url)
    assert is_done(url, case.tables)


def test_it_is_done_as_soon_as_the_transaction_has_ended(url: str, case: Case, holder: psycopg.Connection[Any]) -> None:
    threading.Timer(1.0, holder.commit).start()

    case.door(url)

    assert is_done(url, case.tables)


def test_the_limits_of_the_callers_transaction_are_as_they_were(empty_database: Callable[[str], str]) -> None:
    with psycopg.connect(empty_database("postgres")) as connection:
        connection.execute("SET lock_timeout = '7s'; SET LOCAL statement_timeout = '9s'")

        Outbox().migrate(connection)
        Sequences().migrate(connection)

        asked = "SELECT current_setting('lock_timeout'), current_setting('statement_timeout')"
        assert connection.execute(asked).fetchall() == [("7s", "9s")]


@pytest.mark.mariadb
def test_on_mariadb_nothing_that_is_there_is_waited_for(empty_database: Callable[[str], str]) -> None:
    pymysql = pytest.importorskip("pymysql")
    from umavez.stores.mariadb.url import address_of

    url = empty_database("mariadb")
    migrate(url)
    with closing(pymysql.connect(**address_of(url).arguments())) as holder, closing(holder.cursor()) as cursor:
        cursor.execute("UPDATE umavez_meta SET value = 1 WHERE name = 'messaging'")
        holder.commit()
        Outbox().append(holder, Message("t", "1"))
        Sequences().define(holder, "org", "s")
        began = time.monotonic()

        migrate(url)

        assert time.monotonic() - began < 5
        holder.commit()

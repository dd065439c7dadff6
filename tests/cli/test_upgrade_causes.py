"""A message is linked to the key whose attempt wrote it; outboxes of before work as they are."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.instrument_benches import connect, connect_async, sql_url
from umavez import AsyncOnce, Key, Once
from umavez.messaging import AsyncOutbox, Message, Outbox
from umavez.messaging.inspection import Entry, Inspection
from umavez.migration import migrate
from umavez.sql.connection import Sql
from umavez.sql.database import reading, writing
from umavez.sql.flow import carry

__all__ = ["sql_url"]
SERVERS = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("postgres", "mariadb")]


@pytest.fixture(params=["sqlite", *SERVERS])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database with an outbox of before there were causes, and a message in it."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/loja.db?journal=delete"
    else:
        url = str(request.getfixturevalue("empty_database")(request.param))
    migrate(url)
    with writing(url, "tables") as connection:
        sql = Sql(connection)
        sql.count("DROP INDEX umavez_outbox_cause" + (" ON umavez_outbox" if url.startswith("mariadb") else ""))
        sql.count("ALTER TABLE umavez_outbox DROP COLUMN cause")
    with closing(connect(url)) as connection:
        Outbox().append(connection, Message("paid", "1", id="before"))
        connection.commit()
    return url


def pay(url: str, key: str, message: str) -> None:
    with Once(url, scope="loja") as once, closing(connect(url)) as connection:
        with once.joined(connection, "pay", key=key, unknown="rerun") as attempt:
            Outbox().append(connection, [Message("paid", "1", id=message), Message("told", "2", id=f"{message}-b")])
            assert not attempt.replayed
            attempt.succeed(1)
        connection.commit()


def digest(key: str) -> str:
    return Key("loja", "pay", key).digest.hex()


def caused(url: str, key: str) -> list[Entry]:
    with reading(url, "messages") as connection:
        sql = Sql(connection)
        return carry(Inspection(sql.dialect).caused(digest(key)), sql)


def entry(url: str, name: str, subscriber: str | None = None) -> Entry | None:
    with reading(url, "messages") as connection:
        sql = Sql(connection)
        return carry(Inspection(sql.dialect, subscriber).entry(name), sql)


def test_messages_of_an_attempt_are_found_by_its_key(sql_url: str) -> None:
    migrate(sql_url)
    key, name = secrets.token_hex(4), secrets.token_hex(4)
    pay(sql_url, key, name)
    with closing(connect(sql_url)) as connection:
        Sql(connection)
        Outbox().append(connection, Message("paid", "1", id=f"{name}-alone"))
        connection.commit()

    assert [(found.id, found.topic) for found in caused(sql_url, key)] == [(name, "paid"), (f"{name}-b", "told")]
    found, alone = entry(sql_url, name), entry(sql_url, f"{name}-alone")
    assert found is not None
    assert (found.cause, found.body) == (digest(key), "1")
    assert alone is not None
    assert alone.cause is None
    assert caused(sql_url, "another") == []
    assert entry(sql_url, name, "nobody") is None


def test_tasks_are_linked_too(sql_url: str) -> None:
    migrate(sql_url)
    key, name = secrets.token_hex(4), secrets.token_hex(4)

    async def run() -> None:
        connection = await connect_async(sql_url)
        async with AsyncOnce(sql_url, scope="loja") as once:
            async with once.joined(connection, "pay", key=key, unknown="rerun") as attempt:
                await AsyncOutbox().append(connection, Message("paid", "1", id=name))
                assert not attempt.replayed
                await attempt.succeed(1)
            await connection.commit()
        closed: Any = connection.close()
        if asyncio.iscoroutine(closed):
            await closed

    asyncio.run(run())
    assert [found.id for found in caused(sql_url, key)] == [name]


def test_an_outbox_of_before_takes_messages_without_their_cause(old: str) -> None:
    pay(old, "1", "between")
    assert caused(old, "1") == []
    found = entry(old, "between")
    assert found is not None
    assert found.cause is None


def test_migrating_adds_the_column_and_keeps_every_message(old: str) -> None:
    pay(old, "1", "between")
    before = [entry(old, name) for name in ("before", "between", "between-b")]

    migrate(old)

    assert None not in before
    assert [entry(old, name) for name in ("before", "between", "between-b")] == before
    pay(old, "2", "after")
    assert [found.id for found in caused(old, "2")] == ["after", "after-b"]
    with reading(old, "versions") as connection:
        versions = dict(Sql(connection).rows("SELECT name, value FROM umavez_meta"))
    assert versions["messaging"] == 3  # what an older release knows, and goes on with
    migrate(old)
    assert [found.id for found in caused(old, "2")] == ["after", "after-b"]


@contextmanager
def appending(url: str) -> Iterator[tuple[list[Any], list[int]]]:
    """A thread that writes messages, and what went wrong with it."""
    ended, errors, done = threading.Event(), [], []

    def append() -> None:
        with closing(connect(url)) as connection:
            while not ended.is_set():
                try:
                    Outbox().append(connection, Message("paid", "1"))
                    connection.commit()
                    done.append(1)
                except Exception as error:  # noqa: BLE001  # whatever it is, it is asked about
                    errors.append(error)
                    return

    thread = threading.Thread(target=append)
    thread.start()
    try:
        yield errors, done
    finally:
        ended.set()
        thread.join(30)


@pytest.mark.postgres
@pytest.mark.parametrize("old", SERVERS[:1], indirect=True)
def test_while_the_migration_waits_for_a_transaction_messages_are_written(old: str) -> None:
    with closing(connect(old)) as holder:
        holder.execute("SELECT count(*) FROM umavez_outbox")
        with appending(old) as (errors, done):
            migrating = threading.Thread(target=migrate, args=(old,))
            migrating.start()
            migrating.join(1.5)
            assert migrating.is_alive()
            assert len(done) > 3
            holder.rollback()
            migrating.join(30)
            assert not migrating.is_alive()
    assert errors == []
    assert caused(old, "1") == []
    pay(old, "1", "after")
    assert len(caused(old, "1")) == 2

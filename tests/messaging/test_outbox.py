"""Appending in the caller's transaction, with every driver that callers use."""

from __future__ import annotations

import asyncio
from contextlib import closing
from datetime import datetime
from typing import Any

import pymysql
import pytest

from tests.messaging.places import Place
from umavez import Once
from umavez.errors import ConfigurationError, InvalidJson, NotStorable
from umavez.messaging import AsyncOutbox, Message, Outbox, message_id
from umavez.sql.connection import async_close, dialect_of

COUNT = "SELECT count(*) FROM umavez_outbox"


def test_messages_are_there_after_the_commit_and_not_before(place: Place) -> None:
    with closing(place.connect()) as connection:
        Outbox().append(connection, [Message.of("order.paid", {"n": 1}), Message.of("order.paid", {"n": 2})])
        if place.kind != "sqlite":
            assert place.look(COUNT) == [(0,)]
        connection.commit()
    assert place.look(COUNT) == [(2,)]


def test_messages_go_with_a_rollback(place: Place) -> None:
    with closing(place.connect()) as connection:
        Outbox().append(connection, Message.of("order.paid", {}))
        connection.rollback()
    assert place.look(COUNT) == [(0,)]


def test_awaited_connections_append_too(place: Place, runner: asyncio.Runner) -> None:
    async def work() -> None:
        connection = await place.connect_async()
        ids = await AsyncOutbox().append(connection, [Message("a", "1"), Message("a", "2")])
        assert len(set(ids)) == 2
        await connection.commit()
        await AsyncOutbox().append(connection, Message("a", "3"))
        await connection.rollback()
        await async_close(connection)

    runner.run(work())
    assert place.look(COUNT) == [(2,)]


class Counting:
    """Counts the statements that a connection is given."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.statements: list[str] = []

    def cursor(self, *args: Any, **options: Any) -> Any:
        cursor, statements = self.connection.cursor(*args, **options), self.statements

        class Cursor:
            def execute(self, text: str, values: Any) -> None:
                statements.append(text)
                cursor.execute(text, values)

            def __getattr__(self, name: str) -> Any:
                return getattr(cursor, name)

        return Cursor()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)


@pytest.mark.parametrize("many", [1, 2000])
def test_any_number_of_messages_is_one_statement(place: Place, many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(place.connect()) as connection:
        dialect = dialect_of(connection)
        monkeypatch.setattr("umavez.sql._sync.dialect_of", lambda _: dialect)
        counting = Counting(connection)
        place.run(connection, "DELETE FROM umavez_subscriptions")
        Outbox().append(counting, [Message("a", str(number)) for number in range(many)])
        connection.commit()
    assert len(counting.statements) == 1
    assert place.look(COUNT) == [(many,)]


def test_the_order_of_an_append_is_kept(place: Place) -> None:
    with closing(place.connect()) as connection:
        Outbox().append(connection, [Message("a", str(number)) for number in range(300)])
        connection.commit()
    bodies = place.look("SELECT body FROM umavez_outbox ORDER BY seq")
    assert [int(body) for (body,) in bodies] == list(range(300))


@pytest.mark.parametrize("kind", ["connection", "session"])
def test_sqlalchemy_connections_and_sessions_append(place: Place, kind: str) -> None:
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session

    driver = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql"}[place.kind]
    engine = create_engine(place.url.replace(place.kind, driver, 1).partition("?")[0])
    try:
        with engine.connect() if kind == "connection" else Session(engine) as connection:
            Outbox().append(connection, Message("a", "1"))
            connection.commit()
            Outbox().append(connection, Message("a", "2"))
            connection.rollback()
    finally:
        engine.dispose()
    assert place.look("SELECT body FROM umavez_outbox") == [("1",)]


def test_rows_come_whole_whatever_cursor_the_caller_prefers(postgres_url: str, mariadb_url: str) -> None:
    import psycopg
    import pymysql
    from psycopg.rows import dict_row

    from tests.messaging.places import place_of
    from umavez.sequences import Sequences

    with psycopg.connect(postgres_url, row_factory=dict_row) as connection:
        Sequences().migrate(connection)
        Sequences().define(connection, "loja", "dicts")
        assert Sequences().next_number(connection, "loja", "dicts") == 1
    place = place_of(mariadb_url)
    with closing(pymysql.connect(**place._mariadb(), cursorclass=pymysql.cursors.DictCursor)) as connection:
        Sequences().migrate(connection)
        Sequences().define(connection, "loja", "dicts")
        assert Sequences().next_number(connection, "loja", "dicts") == 1


def test_a_text_that_the_connection_cannot_carry_is_no_other_text(mariadb_url: str) -> None:
    """Without strict mode MariaDB writes question marks in its place, and says nothing."""
    place = Place(mariadb_url)
    place.empty()
    options = {**place._mariadb(), "charset": "utf8mb3", "sql_mode": ""}
    with closing(pymysql.connect(**options)) as connection:
        for message in (Message.of("order.paid", "até 😀"), Message.of("order.paid", {}, aggregate="😀")):
            with pytest.raises(pymysql.MySQLError):
                Outbox().append(connection, message)
        Outbox().append(connection, Message.of("order.paid", "até amanhã"))
        connection.commit()
    assert place.look("SELECT body FROM umavez_outbox") == [('"até amanhã"',)]


@pytest.mark.parametrize("place", ["postgres", "mariadb"], indirect=True)
def test_a_connection_that_commits_at_once_is_refused(place: Place) -> None:
    """On SQLite a transaction is begun instead."""
    with closing(place.connect()) as connection:
        if place.kind == "postgresql":
            connection.autocommit = True
        else:
            connection.autocommit(True)
        with pytest.raises(ConfigurationError, match="autocommit"):
            Outbox().append(connection, Message("a", "1"))


@pytest.mark.parametrize(
    "message",
    [
        Message("", "1"),
        Message("t" * 256, "1"),
        Message("t", "1", aggregate=""),
        Message("t", "1", id="ç"),
        Message("t", "x" * (16 * 1024 * 1024 + 1)),
        Message("t", "1", available_at=datetime(2030, 1, 1)),  # noqa: DTZ001 - that is the point
        Message("t", "1", headers={"x-trace": "1"}),
        Message("t", "1", headers={"Umavez-Trace": "1"}),
        Message("t", "1", headers={"": "1"}),
        Message("t", "1", headers={"n": "1" * 32 * 1024}),
        Message("t", "1", headers={"n": 2**70}),
        Message("t", "1", headers={"n": "\ud800"}),
        Message("t", "1", headers={"\ud800": "1"}),
        Message("t", "1", headers={"n": "\0"}),
        Message("t", '"\ud800"'),
        Message("t", '"a\0b"'),
        Message("t", {"n": 1}),
        Message("t\0", "1"),
        Message("t\ud800", "1"),
        Message("t", "1", aggregate="\ud800"),
        Message.of("t", "\ud800"),
    ],
    ids=["no topic", "long topic", "empty aggregate", "strange id", "too large", "no time zone", *map(str, range(15))],
)
def test_what_cannot_travel_is_refused_where_it_is_written(message: Message) -> None:
    import sqlite3

    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(NotStorable):
        Outbox().append(connection, message)


def test_a_payload_that_is_not_json_is_refused() -> None:
    with pytest.raises(NotStorable):
        Message.of("t", object())
    with pytest.raises(NotStorable):
        Message.of("t", float("nan"))


@pytest.mark.parametrize("value", [5e-324, -1.7976931348623157e308, 10**308, {"a": [1e300, 0.1]}, "😀"])
def test_what_can_be_said_can_be_read(value: object) -> None:
    assert Message.of("t", value).payload == value


@pytest.mark.parametrize("body", ["1e999", "[" * 100_000, '"\\ud800"', "NaN", "9" * 5000, '{"a":1,"a":2}', "x"])
def test_a_strangers_body_is_read_within_bounds(body: str) -> None:
    with pytest.raises(InvalidJson):
        _ = Message("t", body).payload


def test_an_attempt_gives_its_messages_the_same_id_every_time() -> None:
    once = Once("memory:", scope="loja")
    ids = set()
    for _ in range(2):
        with (
            pytest.raises(RuntimeError),
            once.attempt("pay", key="1", unknown="rerun", free=(RuntimeError,)) as attempt,
        ):
            ids.add(Message.of("order.paid", {}, key=attempt.downstream_key("paid")).id)
            raise RuntimeError
    assert len(ids) == 1
    assert message_id("a") != message_id("b")


def test_an_sqlite_connection_with_rows_of_its_own_works_too(tmp_path, runner: asyncio.Runner) -> None:
    import sqlite3

    import aiosqlite

    from umavez.sequences import AsyncSequences, Sequences

    def rows_as_dicts(cursor: Any, row: Any) -> dict[str, Any]:
        return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}

    async def awaited() -> int:
        async with aiosqlite.connect(tmp_path / "rows.db") as connection:
            connection.row_factory = rows_as_dicts
            return await AsyncSequences().next_number(connection, "loja", "dicts")

    with closing(sqlite3.connect(tmp_path / "rows.db")) as connection:
        connection.row_factory = rows_as_dicts
        Sequences().migrate(connection)
        Sequences().define(connection, "loja", "dicts")
        assert Sequences().next_number(connection, "loja", "dicts") == 1
        connection.commit()
    assert runner.run(awaited()) == 2

"""Statements past psycopg's cursor: the same rows for the same values, in fewer round trips."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from umavez import ConfigurationError, Once, StoreUnavailable
from umavez_systems.database import Database, Duplicate, open_database
from umavez_systems.postgres.patience import PatientConnection
from umavez_systems.server import prepare
from umavez_systems.settings import Settings

pytestmark = pytest.mark.postgres

INSERT = "INSERT INTO trips (nome, email) VALUES (?, ?)"
COUNT = "SELECT count(*) AS many FROM trips"
EDGES = [0, -1, 32767, 32768, -32768, -32769, 2**31 - 1, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63)]


@pytest.fixture
def opened(postgres_url: str) -> Iterator[Database]:
    prepare(Settings(database=postgres_url))
    made = open_database(postgres_url, 1)
    with made.statements() as connection:
        connection.rows("DROP TABLE IF EXISTS trips, changing")
        connection.rows("CREATE TABLE trips (nome text, email text UNIQUE)")
    yield made
    made.close()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often the connection waited for the server."""
    counted: list[int] = []
    waiting = PatientConnection.wait

    def wait(self: PatientConnection, *args: Any, **options: Any) -> Any:
        counted.append(1)
        return waiting(self, *args, **options)

    monkeypatch.setattr(PatientConnection, "wait", wait)
    return counted


def test_a_transaction_begins_with_its_first_statement(opened: Database, waits: list[int]) -> None:
    for turn in range(3):
        waits.clear()
        with opened.transaction() as connection:
            connection.rows(INSERT, ("a", f"{turn}@b"))

    assert len(waits) == 2  # the statement with its BEGIN, and COMMIT
    with opened.statements() as connection:
        assert connection.row(COUNT) == {"many": 3}


def test_a_transaction_without_statements_costs_nothing(opened: Database, waits: list[int]) -> None:
    with opened.transaction():
        pass

    assert not waits


def test_whoever_asks_for_the_drivers_connection_is_in_the_transaction(opened: Database, postgres_url: str) -> None:
    with Once(opened.store_url, scope="s") as once, pytest.raises(ZeroDivisionError), opened.transaction() as tx:
        with once.joined(tx.raw, "o", key="1", unknown="hold") as attempt:
            assert not attempt.replayed
        raise ZeroDivisionError

    with Once(opened.store_url, scope="s") as once:
        assert once.find() == []
        with opened.statements() as alone:
            block = once.joined(alone.raw, "o", key="1", unknown="hold")
            with pytest.raises(ConfigurationError), block:
                pass


@pytest.mark.parametrize("many", [1, 2, 3, 4])
def test_a_statement_that_fails_with_its_begin_leaves_nothing_open(opened: Database, many: int) -> None:
    for turn in range(many):
        with opened.transaction() as connection:
            connection.rows(INSERT, ("a", f"{turn}@b"))
    with pytest.raises(Duplicate), opened.transaction() as connection:
        connection.rows(INSERT, ("a", "0@b"))

    with opened.transaction() as connection:
        assert connection.row(COUNT) == {"many": many}


@pytest.mark.parametrize("block", ["statements", "transaction"])
def test_a_connection_that_breaks_past_the_cursor_is_unavailable_and_replaced(opened: Database, block: str) -> None:
    leave = "SELECT CASE WHEN ? THEN pg_terminate_backend(pg_backend_pid()) END AS it"
    for _ in range(3):
        with getattr(opened, block)() as connection:
            connection.rows(leave, (False,))
    with pytest.raises(StoreUnavailable), getattr(opened, block)() as connection:
        connection.rows(leave, (True,))

    with opened.transaction() as connection:
        assert connection.row(COUNT) == {"many": 0}


def test_a_statement_left_halfway_takes_its_connection_along(opened: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    for turn in range(3):
        with opened.transaction() as connection:
            connection.rows(INSERT, ("a", f"{turn}@b"))

    def wait(self: PatientConnection, gen: Any) -> Any:
        next(gen)
        raise SystemExit

    with monkeypatch.context() as patch, pytest.raises(SystemExit), opened.transaction() as connection:
        patch.setattr(PatientConnection, "wait", wait)
        connection.rows(INSERT, ("a", "9@b"))

    with opened.transaction() as connection:
        assert connection.row(COUNT) == {"many": 3}


@pytest.mark.parametrize("value", [*EDGES, "", "ção\n€😀", b"", b"\0\xff", True, False, None])
def test_a_value_arrives_alike_by_the_cursor_and_past_it(opened: Database, value: Any) -> None:
    kind = {int: "bigint", str: "text", bytes: "bytea", bool: "boolean"}.get(type(value), "text")
    with opened.statements() as connection:
        found = [connection.row(f"SELECT ?::{kind} AS it", (value,)) for _ in range(4)]

    assert found == [{"it": value}] * 4


def test_what_is_not_plain_goes_by_the_cursor(opened: Database) -> None:
    with opened.statements() as connection:
        for _ in range(4):
            assert connection.row("SELECT ?::numeric AS it", (2**70,)) == {"it": 2**70}
            assert connection.row("SELECT ?::bigint[] AS it", ([1, 2],)) == {"it": [1, 2]}
            with pytest.raises(psycopg.DataError):
                connection.row("SELECT ?::text AS it", ("a\0b",))


def test_a_statement_whose_table_was_changed_is_prepared_anew(opened: Database) -> None:
    with opened.statements() as connection:
        connection.rows("CREATE TABLE changing (a integer)")
        for _ in range(4):
            connection.rows("SELECT * FROM changing WHERE a = ?", (1,))
        with opened.statements() as other:
            other.rows("ALTER TABLE changing ADD COLUMN b integer")
            other.rows("INSERT INTO changing VALUES (1, 2)")
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            connection.rows("SELECT * FROM changing WHERE a = ?", (1,))
        for _ in range(4):
            assert connection.rows("SELECT * FROM changing WHERE a = ?", (1,)) == [{"a": 1, "b": 2}]


def test_one_caller_makes_the_pool_open_one_connection(postgres_url: str) -> None:
    opened = open_database(postgres_url, 4)
    try:
        with opened.statements() as connection:
            first = connection.row("SELECT pg_backend_pid() AS pid")
        for _ in range(4):
            with opened.statements() as connection:
                assert connection.row("SELECT pg_backend_pid() AS pid") == first
        with opened.statements() as one, opened.statements() as other:
            assert one.row("SELECT pg_backend_pid() AS pid") != other.row("SELECT pg_backend_pid() AS pid")
    finally:
        opened.close()

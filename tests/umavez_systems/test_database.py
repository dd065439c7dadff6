"""Connections: what a block does stands or falls together, and a connection that broke is not met again."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import psycopg
import pytest

from umavez import StoreUnavailable, StoreUncertain
from umavez_systems.database import Database, Duplicate, open_database
from umavez_systems.server import prepare
from umavez_systems.settings import Settings

INSERT = "INSERT INTO clientes (nome, email) VALUES (?, ?)"
COUNT = "SELECT count(*) AS many FROM clientes"


@pytest.fixture
def opened(database: str) -> Iterator[Database]:
    prepare(Settings(database=database))
    made = open_database(database, 1)
    yield made
    made.close()


def many(database: Database) -> int:
    with database.statements() as connection:
        row = connection.row(COUNT)
    assert row is not None
    return int(row["many"])


def test_a_transaction_that_fails_leaves_nothing(opened: Database) -> None:
    with pytest.raises(ZeroDivisionError), opened.transaction() as connection:
        connection.rows(INSERT, ("a", "a@b"))
        raise ZeroDivisionError

    assert many(opened) == 0


def test_a_transaction_is_seen_by_others_only_when_it_is_over(opened: Database) -> None:
    # From another thread, because on SQLite a thread's second look would be through the same connection.
    with ThreadPoolExecutor(1) as other:
        with opened.transaction() as connection:
            connection.rows(INSERT, ("a", "a@b"))
            assert other.submit(many, opened).result(10) == 0

        assert other.submit(many, opened).result(10) == 1


def test_a_statement_stands_though_the_next_one_fails(opened: Database) -> None:
    with pytest.raises(Duplicate), opened.statements() as connection:
        connection.rows(INSERT, ("a", "a@b"))
        connection.rows(INSERT, ("b", "a@b"))

    assert many(opened) == 1


def test_a_duplicate_inside_a_transaction_takes_all_of_it_back(opened: Database) -> None:
    with pytest.raises(Duplicate), opened.transaction() as connection:
        connection.rows(INSERT, ("a", "a@b"))
        connection.rows(INSERT, ("b", "a@b"))

    assert many(opened) == 0


@pytest.mark.postgres
def test_a_failure_that_was_passed_over_is_not_taken_for_a_commit(postgres_url: str) -> None:
    """PostgreSQL answers the COMMIT of a failed transaction with a rollback, as if all were well."""
    prepare(Settings(database=postgres_url))
    with closing(open_database(postgres_url, 1)) as opened:
        with pytest.raises(StoreUnavailable, match="nothing of it was written"), opened.transaction() as connection:
            connection.rows(INSERT, ("a", "passed@over"))
            with suppress(Duplicate):
                connection.rows(INSERT, ("b", "passed@over"))
        with opened.statements() as connection:
            assert connection.rows("SELECT nome FROM clientes WHERE email = ?", ("passed@over",)) == []


@pytest.mark.postgres
@pytest.mark.parametrize("block", ["statements", "transaction"])
def test_a_connection_that_broke_is_unavailable_once_and_replaced(postgres_url: str, block: str) -> None:
    prepare(Settings(database=postgres_url))
    opened = open_database(postgres_url, 1)
    try:
        with pytest.raises(StoreUnavailable), getattr(opened, block)() as connection:
            connection.rows("SELECT pg_terminate_backend(pg_backend_pid())")
        for _ in range(5):
            many(opened)
    finally:
        opened.close()


@pytest.mark.postgres
def test_a_connection_that_the_server_left_is_replaced_before_anybody_is_told(postgres_url: str) -> None:
    """As after a failover: the first request of each connection must not pay for it."""
    prepare(Settings(database=postgres_url))
    opened = open_database(postgres_url, 1)
    try:
        with opened.statements() as connection:
            row = connection.row("SELECT pg_backend_pid() AS pid")
        assert row is not None
        with psycopg.connect(postgres_url, autocommit=True) as rival:
            rival.execute("SELECT pg_terminate_backend(%s, 5000)", (row["pid"],))
        many(opened)
    finally:
        opened.close()


@pytest.mark.postgres
def test_a_commit_that_was_not_answered_may_stand(postgres_url: str) -> None:
    prepare(Settings(database=postgres_url))
    with psycopg.connect(postgres_url, autocommit=True) as setup:
        setup.execute("CREATE TABLE leaving (n integer)")
        setup.execute(
            "CREATE FUNCTION leave() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$"
        )
        setup.execute(
            "CREATE CONSTRAINT TRIGGER leaves AFTER INSERT ON leaving DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION leave()"
        )
    opened = open_database(postgres_url, 1)
    try:
        with pytest.raises(StoreUncertain), opened.transaction() as connection:
            connection.rows("INSERT INTO leaving VALUES (1)")
        many(opened)
    finally:
        opened.close()


@pytest.mark.postgres
def test_a_standby_is_unavailable_and_left(postgres_url: str) -> None:
    prepare(Settings(database=postgres_url))
    sign = "&" if "?" in postgres_url else "?"
    opened = open_database(f"{postgres_url}{sign}options=-c%20default_transaction_read_only%3Don", 1)
    try:
        before = many(opened)  # the database may hold what another test left
        with pytest.raises(StoreUnavailable, match="no writes"), opened.transaction() as connection:
            connection.rows(INSERT, ("a", "a@b"))
        assert connection.raw.closed
        assert many(opened) == before
    finally:
        opened.close()


@pytest.mark.postgres
def test_several_hosts_in_one_url_are_migrated_and_served(postgres_url: str) -> None:
    """The first host is not there; the one that takes writes is found."""
    place = psycopg.conninfo.conninfo_to_dict(postgres_url)
    host, port = place.get("host", "127.0.0.1"), place.get("port", "5432")
    url = f"postgresql:///{place['dbname']}?user={place['user']}&host=127.0.0.1,{host}&port=1,{port}"
    if place.get("password"):
        url += f"&password={place['password']}"
    prepare(Settings(database=url))
    opened, direct = open_database(url, 1), open_database(postgres_url, 1)
    assert many(opened) == many(direct)  # the database may hold what another test left
    opened.close()
    direct.close()

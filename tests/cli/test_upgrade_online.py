"""Version 1 of the tables becomes version 2 on PostgreSQL while callers go on, wherever it is interrupted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from itertools import count
from typing import Any, Self

import psycopg
import pytest

from tests.cli.test_upgrade import MANY, statements
from umavez import Once, StoreUnavailable
from umavez.stores.postgres import upgrade as online
from umavez.stores.postgres._sync import upgrade as carrying
from umavez.stores.postgres.connection import connect

pytestmark = pytest.mark.postgres
ROWS = 1500
SHAPE = """
SELECT 'column', attname,
       format_type(atttypid, atttypmod) || ' ' || attnotnull::text || attidentity::text || attgenerated::text
FROM pg_attribute WHERE attrelid = 'idempotency_records'::regclass AND attnum > 0 AND NOT attisdropped
UNION ALL
SELECT 'constraint', conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE conrelid = 'idempotency_records'::regclass
UNION ALL
SELECT 'index', indexrelid::regclass::text, pg_get_indexdef(indexrelid) || indisvalid::text FROM pg_index
WHERE indrelid = 'idempotency_records'::regclass
UNION ALL
SELECT 'sequence', relname, '' FROM pg_class WHERE relkind = 'S' AND relnamespace = current_schema()::regnamespace
UNION ALL
SELECT 'version', name, value::text FROM umavez_meta WHERE name = 'schema'
ORDER BY 1, 2
"""


@pytest.fixture
def old(empty_database: Callable[[str], str]) -> str:
    """Tables of version 1 with records of a month."""
    url = empty_database("postgres")
    with closing(connect(url)) as connection, connection:
        for statement in statements(url):
            connection.execute(statement)
        connection.execute(MANY["postgres"].format(rows=ROWS))
        connection.execute("SELECT setval('umavez_fence', 100000)")
    return url


def asked(url: str, text: str) -> list[tuple[Any, ...]]:
    with closing(connect(url)) as connection:
        return connection.execute(text).fetchall()


def migrate(url: str) -> str:
    with Once(url, scope="loja") as once:
        return once.migrate()


def test_an_upgraded_table_is_the_one_that_a_new_database_gets(old: str, empty_database: Callable[[str], str]) -> None:
    new = empty_database("postgres")
    migrate(new)

    assert migrate(old) == "The tables were upgraded (schema 2)."

    assert asked(old, SHAPE) == asked(new, SHAPE)
    assert asked(old, "SELECT count(*), count(id), count(DISTINCT id) FROM idempotency_records") == [(ROWS,) * 3]
    highest = asked(old, "SELECT max(id) FROM idempotency_records")[0][0]
    with Once(old, scope="loja") as once:
        once.run("pay", key="new", call=lambda: 1, unknown="rerun")
    assert asked(old, "SELECT id FROM idempotency_records WHERE idempotency_key = 'new'")[0][0] > highest


class Callers:
    """Threads that pay: new keys, each asked for again at once and once more after others; and keys of all."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.errors: list[Exception] = []
        self.effects: list[str] = []
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._calling, args=(number,)) for number in range(3)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(30)

    def _calling(self, number: int) -> None:
        with Once(self.url, scope="loja") as once:
            for turn in count():
                key = f"live-{number}-{turn}"
                for again in (key, key, f"live-{number}-{max(turn - 9, 0)}", f"all-{turn % 40}"):
                    self._pay(once, again)
                if self._ended.is_set():
                    return

    def _pay(self, once: Once, key: str) -> None:
        try:
            once.run("pay", key=key, call=lambda: self.effects.append(key) or key, unknown="rerun", wait=10)
        except Exception as error:  # noqa: BLE001  # whatever a caller sees is what is asked about
            self.errors.append(error)


def test_callers_are_served_while_it_runs_and_nothing_runs_twice(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(online, "BATCH", 20)
    with Callers(old) as callers:
        migrate(old)

    assert callers.errors == []
    assert len(callers.effects) == len(set(callers.effects)) > 30
    assert asked(old, "SELECT count(*) FROM idempotency_records WHERE id IS NULL") == [(0,)]
    assert asked(old, "SELECT count(*) - count(DISTINCT id) FROM idempotency_records") == [(0,)]


class Interrupted(Exception):
    """The process that migrates is gone."""


def interrupting(after: int) -> Callable[..., Any]:
    """psycopg's execute, until so many statements were sent."""
    left, real = iter(range(after)), psycopg.Connection.execute

    def execute(self: Any, *given: Any, **options: Any) -> Any:
        if next(left, None) is None:
            raise Interrupted
        return real(self, *given, **options)

    return execute


def begin_anew(url: str) -> None:
    with closing(connect(url)) as connection, connection:
        connection.execute("DROP TABLE IF EXISTS idempotency_records, umavez_meta")
        connection.execute("DROP SEQUENCE IF EXISTS umavez_fence")
        for statement in statements(url):
            connection.execute(statement)
        connection.execute(MANY["postgres"].format(rows=7))


def was_interrupted(url: str, after: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    with monkeypatch.context() as patch:
        patch.setattr(online, "BATCH", 3)
        patch.setattr(psycopg.Connection, "execute", interrupting(after))
        try:
            migrate(url)
        except Interrupted:
            return True
    return False


def test_interrupted_after_any_statement_it_goes_on_where_it_stood(
    empty_database: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    new, url = empty_database("postgres"), empty_database("postgres")
    migrate(new)
    wanted, after, interrupted = asked(new, SHAPE), 4, True
    while interrupted:
        begin_anew(url)
        interrupted = was_interrupted(url, after, monkeypatch)
        with Once(url, scope="loja") as once:
            assert once.run("pay", key="between", call=lambda: 1, unknown="rerun").value == 1
        migrate(url)
        assert asked(url, SHAPE) == wanted, f"interrupted after {after} statements"
        assert asked(url, "SELECT count(DISTINCT id) FROM idempotency_records") == [(8,)]
        after += 1
    assert after > 15


def test_a_transaction_that_stays_open_is_named_and_nobody_is_held_up(
    old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying.online, "PATIENCE", 0.5)
    with closing(connect(old)) as holder:
        holder.execute("SELECT FROM idempotency_records WHERE idempotency_key = 'k7' FOR UPDATE")
        with pytest.raises(StoreUnavailable, match="run umavez migrate again"):
            migrate(old)
        with Once(old, scope="loja") as once:
            assert once.run("pay", key="meanwhile", call=lambda: 1, unknown="rerun").value == 1

    assert migrate(old) == "The tables were upgraded (schema 2)."


def test_a_migration_that_waits_for_a_transaction_lets_callers_pass(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    migrate(old)
    monkeypatch.setattr(carrying.online, "PATIENCE", 2.0)
    with closing(connect(old)) as holder:
        holder.execute("DROP TABLE umavez_meta")
        holder.commit()
        holder.execute("DELETE FROM idempotency_records WHERE idempotency_key = 'k7'")
        with Callers(old) as callers, pytest.raises(StoreUnavailable, match="run umavez migrate again"):
            migrate(old)
    assert callers.errors == []
    assert len(callers.effects) == len(set(callers.effects)) > 10

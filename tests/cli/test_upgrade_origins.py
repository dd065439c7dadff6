"""Tables of before records had an origin: they work as they are, and `umavez migrate` adds the column."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.instrument_benches import connect
from umavez import Key, Once, StoreUnavailable, open_store
from umavez.core.telling.origin import Origin
from umavez.migration import migrate
from umavez.sql.connection import Sql
from umavez.sql.database import reading, writing
from umavez.stores import Provenance
from umavez.stores.keeping import Keeping
from umavez.stores.mariadb import schema as mariadb
from umavez.stores.postgres import upgrade as postgres

SERVERS = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("postgres", "mariadb")]
ROWS = "SELECT idempotency_key, status, attempt, fence, stamp, result_data FROM idempotency_records ORDER BY fence"
MANY = 500
TRACE = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"


class Traced:
    """An observer that knows where every call comes from."""

    def __init__(self) -> None:
        self.replays: list[Origin | None] = []

    def __call__(self, event: Any) -> None:
        if event.kind == "replayed":
            self.replays.append(event.origin)

    def traceparent(self) -> str:
        return TRACE


class Down(Exception):
    """The far side is down."""


def fails() -> None:
    raise Down("no")


@pytest.fixture
def server(request: pytest.FixtureRequest) -> str:
    return _without_origins(request.getfixturevalue("empty_database")(request.param))


@pytest.fixture(params=["sqlite", *SERVERS])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return _without_origins(f"sqlite:///{tmp_path}/loja.db?journal=delete")
    return _without_origins(request.getfixturevalue("empty_database")(request.param))


def _without_origins(url: str) -> str:
    """Tables with schema 2 and events, with records in them, and no column for where they came from."""
    migrate(url)
    with Once(url, scope="loja") as once:
        for number in range(MANY if url.startswith("sqlite") else 20):
            once.run("pay", key=f"done-{number}", call=lambda: 1, unknown="rerun")
        with pytest.raises(Down):
            once.run("pay", key="failed", call=fails, unknown="rerun")
    with writing(url, "tables") as connection:
        Sql(connection).count("ALTER TABLE idempotency_records DROP COLUMN origin")
    return url


def rows(url: str, text: str) -> list[Any]:
    with reading(url, "tables") as connection:
        return [tuple(row) for row in Sql(connection).rows(text)]


def origin(url: str, key: str) -> Origin | None:
    with closing(open_store(url)) as store:
        assert isinstance(store, Provenance)
        return store.origin(Key("loja", "pay", key))


def test_migrating_adds_the_column_and_touches_no_record(old: str) -> None:
    before = rows(old, ROWS)

    migrate(old)

    assert rows(old, ROWS) == before
    assert len(before) > 20
    assert rows(old, "SELECT count(*) FROM idempotency_records WHERE origin IS NOT NULL") == [(0,)]
    assert dict(rows(old, "SELECT name, value FROM umavez_meta")).items() >= {"schema": 2, "events": 1}.items()
    with Once(old, scope="loja", observers=[Traced()]) as once:
        assert once.run("pay", key="done-7", call=lambda: 3, unknown="rerun").value == 1
        once.run("pay", key="failed", call=lambda: 2, unknown="rerun")
        once.run("pay", key="new", call=lambda: 2, unknown="rerun")
    assert origin(old, "done-7") is None
    for key in ("failed", "new"):
        kept = origin(old, key)
        assert kept is not None
        assert kept.trace == TRACE
    before = rows(old, ROWS)
    migrate(old)
    assert rows(old, ROWS) == before


def test_who_knows_nothing_of_origins_goes_on_beside_those_who_do(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The statements without an origin are those of before; who replays its answer is shown none that is not its."""
    migrate(old)
    traced = Traced()
    with Once(old, scope="loja", observers=[traced]) as once, pytest.raises(Down):
        once.run("pay", key="mixed", call=fails, unknown="rerun")
    with monkeypatch.context() as before, Once(old, scope="loja") as once:
        before.setattr(Keeping, "there", property(lambda _: False))
        once.run("pay", key="mixed", call=lambda: 2, unknown="rerun")
    with Once(old, scope="loja", observers=[traced]) as once:
        assert once.run("pay", key="mixed", call=lambda: 3, unknown="rerun").value == 2
    assert traced.replays == [None]
    assert origin(old, "mixed") is not None  # of the claim that failed


@pytest.mark.parametrize("server", SERVERS, indirect=True)
def test_until_then_traced_calls_go_on_without_it(server: str, caplog: pytest.LogCaptureFixture) -> None:
    traced = Traced()
    with (
        caplog.at_level(logging.WARNING, "umavez"),
        Once(server, scope="loja", observers=[traced]) as once,
    ):
        for _ in range(2):
            assert once.run("pay", key="1", call=lambda: 1, unknown="rerun").value == 1
        with connect(server) as connection:
            for _ in range(2):
                with once.joined(connection, "pay", key="2", unknown="rerun") as attempt:
                    if not attempt.replayed:
                        attempt.succeed("done")
            connection.commit()
        with pytest.raises(Down):
            once.run("pay", key="3", call=fails, unknown="rerun")
        assert once.run("pay", key="3", call=lambda: 3, unknown="rerun").attempt == 2

    assert traced.replays == [None, None]
    assert len([line for line in caplog.records if "umavez migrate" in line.message]) == 1
    assert origin(server, "1") is None


@contextmanager
def calling(url: str) -> Iterator[list[Any]]:
    """Threads that pay, and what went wrong with them."""
    ended, errors = threading.Event(), []

    def pay(number: int) -> None:
        with Once(url, scope="loja") as once:
            turn = 0
            while not ended.is_set():
                turn += 1
                try:
                    once.run("pay", key=f"live-{number}-{turn}", call=lambda: 1, unknown="rerun")
                except Exception as error:  # noqa: BLE001  # whatever a caller sees is what is asked about
                    errors.append(error)

    threads = [threading.Thread(target=pay, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield errors
    finally:
        ended.set()
        for thread in threads:
            thread.join(30)


@pytest.mark.parametrize("server", SERVERS, indirect=True)
def test_a_transaction_that_stays_open_holds_the_migration_up_and_no_caller(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "PATIENCE", 1.0)
    monkeypatch.setattr(mariadb, "PATIENCE", 1.0)
    with connect(server) as holder:
        Sql(holder).rows("SELECT count(*) FROM idempotency_records")  # its lock on the table lasts as long as it does
        with calling(server) as errors, pytest.raises(StoreUnavailable, match="run umavez migrate again"):
            migrate(server)
        holder.rollback()

    assert errors == []
    assert origin(server, "done-7") is None
    with calling(server) as errors:
        migrate(server)
    assert errors == []
    assert rows(server, "SELECT count(*) FROM idempotency_records WHERE origin IS NOT NULL") == [(0,)]

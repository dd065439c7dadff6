"""Tables of before there were events: they work as they are, and `umavez migrate` adds what is missing."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.instrument_benches import connect
from umavez import Event, Key, KeyReused, Once, Status, open_store
from umavez.migration import migrate
from umavez.observe.minutes import Minutes
from umavez.sql.connection import Sql
from umavez.sql.database import reading, writing
from umavez.stores import Chronicle
from umavez.stores.keeping import Keeping

SERVERS = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("postgres", "mariadb")]
ROWS = "SELECT idempotency_key, status, attempt, fence FROM idempotency_records ORDER BY idempotency_key"


class Down(Exception):
    """The far side is down."""


def fails() -> None:
    raise Down("no")


@pytest.fixture
def server(request: pytest.FixtureRequest) -> str:
    return _without_events(request.getfixturevalue("empty_database")(request.param))


@pytest.fixture(params=["sqlite", *SERVERS])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return _without_events(f"sqlite:///{tmp_path}/loja.db?journal=delete")
    return _without_events(request.getfixturevalue("empty_database")(request.param))


def _without_events(url: str) -> str:
    """Tables with schema 2 and nothing beside them, with a record that succeeded and one that failed."""
    migrate(url)
    with Once(url, scope="loja") as once:
        once.run("pay", key="done", call=lambda: 1, fingerprint="a", unknown="rerun")
        with pytest.raises(Down):
            once.run("pay", key="failed", call=fails, unknown="rerun")
    with writing(url, "tables") as connection:
        sql = Sql(connection)
        for table in ("umavez_events", "umavez_holders"):
            sql.count(f"DROP TABLE {table}")
        sql.count("DELETE FROM umavez_meta WHERE name = 'events'")
    return url


def rows(url: str, text: str) -> list[Any]:
    with reading(url, "tables") as connection:
        return [tuple(row) for row in Sql(connection).rows(text)]


def kinds(url: str, key: str) -> list[str]:
    with closing(open_store(url)) as store:
        assert isinstance(store, Chronicle)
        return [event.kind for event in store.history(Key("loja", "pay", key))]


def test_migrating_adds_the_tables_and_touches_no_record(old: str) -> None:
    before = rows(old, ROWS)

    told = migrate(old)[0]

    assert rows(old, ROWS) == before
    assert len(before) == 2
    assert "already" not in told
    assert dict(rows(old, "SELECT name, value FROM umavez_meta")).items() >= {"schema": 2, "events": 1}.items()
    with Once(old, scope="loja") as once:
        once.run("pay", key="failed", call=lambda: 2, unknown="rerun")
        assert once.run("pay", key="done", call=lambda: 3, fingerprint="a", unknown="rerun").value == 1
    assert kinds(old, "failed") == ["retried", "succeeded"]
    assert migrate(old)[0] != told or old.startswith("sqlite")


def test_who_knows_nothing_of_events_goes_on_beside_those_who_do(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The statements without events are those of before, and the schema's version is the one it knew."""
    migrate(old)
    with monkeypatch.context() as before, Once(old, scope="loja") as once:
        before.setattr(Keeping, "there", property(lambda _: False))
        with pytest.raises(Down):
            once.run("pay", key="mixed", call=fails, unknown="rerun")
    with Once(old, scope="loja") as once:
        once.run("pay", key="mixed", call=lambda: 2, unknown="rerun")

    assert kinds(old, "mixed")[-2:] == ["retried", "succeeded"]


@pytest.mark.parametrize("server", SERVERS, indirect=True)
def test_until_then_everything_but_the_history_goes_on(server: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "umavez"), Once(server, scope="loja") as once:
        for _ in range(2):
            with pytest.raises(Down):
                once.run("pay", key="1", call=fails, unknown="rerun")
        with connect(server) as connection:
            with once.joined(connection, "pay", key="1", unknown="rerun", max_retries=9) as attempt:
                attempt.succeed("done")
            connection.commit()
        with pytest.raises(KeyReused):
            once.run("pay", key="done", call=fails, fingerprint="other", unknown="rerun")
        record = once.get("pay", "1")
        assert record is not None
        assert (record.status, record.attempt) == (Status.SUCCESS, 3)
        assert once.sweep() == 0

    assert len([line for line in caplog.records if "umavez migrate" in line.message]) == 1
    assert kinds(server, "1") == []


def test_without_a_table_of_minutes_nothing_is_counted_and_nobody_fails(
    old: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Tables of before there were minutes: calls go on, it is said once, and migrating adds the table."""
    with writing(old, "tables") as connection:
        Sql(connection).count("DROP TABLE umavez_minutes")
        Sql(connection).count("DELETE FROM umavez_meta WHERE name = 'minutes'")
    before = rows(old, ROWS)
    minutes = Minutes(old)
    with caplog.at_level(logging.WARNING, "umavez"):
        for _ in range(3):
            minutes(Event("succeeded", Key("loja", "pay", "1"), 1, 0.1))
            minutes.flush()
        minutes.close()
    made_at_once = old.startswith("sqlite")  # when the file is opened to write
    assert len([line for line in caplog.records if "umavez migrate" in line.message]) == (0 if made_at_once else 1)

    migrate(old)

    assert rows(old, ROWS) == before
    assert dict(rows(old, "SELECT name, value FROM umavez_meta")).items() >= {"schema": 2, "minutes": 1}.items()
    minutes = Minutes(old)
    minutes(Event("succeeded", Key("loja", "pay", "1"), 1, 0.1))
    minutes.close()
    assert int(rows(old, "SELECT sum(n) FROM umavez_minutes WHERE span = 60000")[0][0]) == (4 if made_at_once else 1)

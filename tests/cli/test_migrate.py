"""`umavez migrate`: one command, one table of versions, safe to repeat and from several hosts at once."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Command
from umavez import SchemaOutdated
from umavez.errors import TABLE_FOREIGN
from umavez.messaging.tables import version as messaging
from umavez.migration import migrate
from umavez.sequences import version as sequences
from umavez.sql.connection import Sql
from umavez.sql.database import reading, writing
from umavez.stores import holds_tables

ON_SERVERS = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("postgres", "mariadb")]
TABLES = {
    "idempotency_records",
    "umavez_outbox",
    "umavez_subscriptions",
    "umavez_deliveries",
    "umavez_sequences",
    "umavez_sequence_ranges",
    "umavez_numbers",
    "umavez_minutes",
}
OF_SYSTEMS = {"clientes", "propostas", "ride_confirmations", "processos", "systems_version"}
_TABLES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
    "postgresql": "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()",
    "mariadb": "SELECT table_name FROM information_schema.tables WHERE table_schema = database()",
}
_COLUMNS = {
    "sqlite": "SELECT count(*) FROM pragma_table_info('idempotency_records')",
    "postgresql": "SELECT count(*) FROM information_schema.columns WHERE table_name = 'idempotency_records'",
    "mariadb": "SELECT count(*) FROM information_schema.columns WHERE table_schema = database()"
    " AND table_name = 'idempotency_records'",
}


@pytest.fixture(params=["sqlite", *ON_SERVERS])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A database in which nothing of ours is."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/loja.db?journal=delete"
    empty = request.getfixturevalue("empty_database")
    return empty(request.param)


def tables(url: str) -> set[str]:
    with reading(url, "tables") as connection:
        return {str(name) for (name,) in Sql(connection).rows(_TABLES[url.partition(":")[0]])}


def versions(url: str) -> dict[str, int]:
    with reading(url, "versions") as connection:
        return {str(name): int(value) for name, value in Sql(connection).rows("SELECT name, value FROM umavez_meta")}


def test_one_command_makes_every_table_that_the_database_can_hold(command: Command, url: str) -> None:
    said = command("migrate", "--store", url).stdout

    assert tables(url) >= TABLES
    assert (tables(url) >= OF_SYSTEMS) is not url.startswith("mariadb")
    known = {"schema": 2, "events": 1, "messaging": messaging.VERSION, "sequences": sequences.VERSION}
    assert versions(url).items() >= known.items()
    assert all(line.endswith(".") for line in said.splitlines())
    assert len(said.splitlines()) == 4


def test_what_is_up_to_date_is_left_alone(command: Command, url: str) -> None:
    command("migrate", "--store", url)
    before = tables(url), versions(url)

    assert "now" not in command("migrate", "--store", url).stdout
    assert (tables(url), versions(url)) == before


def test_the_systems_can_be_left_out(command: Command, url: str) -> None:
    command("migrate", "--no-systems", "--store", url)

    assert tables(url) >= TABLES
    assert not tables(url) & OF_SYSTEMS


def test_many_hosts_may_migrate_at_once(url: str) -> None:
    words = [sys.executable, "-m", "umavez.cli", "migrate", "--store", url]
    hosts = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(6)]
    said = [host.communicate(timeout=120) for host in hosts]

    assert [host.returncode for host in hosts] == [0] * 6, said
    assert [errors for _, errors in said] == [""] * 6
    assert tables(url) >= TABLES


def test_an_older_version_of_a_part_is_brought_up_to_date(url: str) -> None:
    migrate(url)
    with writing(url, "versions") as connection:
        Sql(connection).count("UPDATE umavez_meta SET value = 0 WHERE name = 'messaging'")

    assert "The tables of messaging are now at version" in " ".join(migrate(url))
    assert versions(url)["messaging"] == messaging.VERSION


@pytest.mark.parametrize("table", ["umavez_outbox", "umavez_numbers", "umavez_minutes", "idempotency_records"])
def test_a_table_that_somebody_dropped_is_made_again(url: str, table: str) -> None:
    migrate(url)
    with writing(url, "tables") as connection:
        if url.startswith("postgresql"):
            table = f"{table} CASCADE"
        Sql(connection).count(f"DROP TABLE {table}")

    migrate(url)

    assert tables(url) >= TABLES


def test_a_table_of_somebody_else_is_named_and_left_alone(command: Command, url: str) -> None:
    with writing(url, "tables") as connection:
        Sql(connection).count("CREATE TABLE idempotency_records (k varchar(50) PRIMARY KEY, body text)")

    refused = command("migrate", "--store", url, code=1)

    assert refused.stderr == f"umavez: {TABLE_FOREIGN}\n"
    assert tables(url) - {"sqlite_sequence"} == {"idempotency_records"}
    with reading(url, "tables") as connection:
        assert Sql(connection).rows("SELECT k, body FROM idempotency_records") == []
        assert Sql(connection).rows(_COLUMNS[url.partition(":")[0]])[0][0] == 2


def test_a_newer_version_of_any_part_is_refused(url: str) -> None:
    migrate(url)
    for name in ("messaging", "sequences"):
        with writing(url, "versions") as connection:
            Sql(connection).count("UPDATE umavez_meta SET value = value + 98 WHERE name = ?", (name,))
        with pytest.raises(SchemaOutdated, match="upgrade umavez"):
            migrate(url)
        with writing(url, "versions") as connection:
            Sql(connection).count("UPDATE umavez_meta SET value = value - 98 WHERE name = ?", (name,))


def test_a_store_without_tables_says_so(command: Command, store_url: str) -> None:
    if holds_tables(store_url):
        pytest.skip("it has tables")
    assert "it needs no tables" in command("migrate", "--store", store_url).stdout
    assert command("migrate", "--store", "memory:").stdout == "The memory store has no tables.\n"


def test_a_wal_file_gets_the_engines_tables_and_a_word_about_the_systems(command: Command, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/loja.db"
    said = command("migrate", "--store", url).stdout

    assert "?journal=delete" in said
    assert tables(url) >= TABLES
    assert not tables(url) & OF_SYSTEMS
    with closing(sqlite3.connect(tmp_path / "loja.db")) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.postgres
def test_a_database_without_a_host_is_the_local_one(
    command: Command, empty_database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """postgresql:///loja: libpq fills the host from its own settings."""
    url = empty_database("postgres")
    monkeypatch.setenv("PGHOST", "127.0.0.1")
    monkeypatch.setenv("PGUSER", url.partition("://")[2].partition("@")[0])
    short = f"postgresql:///{url.rpartition('/')[2]}"

    command("migrate", "--store", short)

    assert tables(short) >= TABLES | OF_SYSTEMS

"""The doctor, on real servers and on settings that nobody should have."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Command
from umavez.cli.doctor import mariadb as doctor_mariadb
from umavez.cli.doctor import postgres as doctor_postgres
from umavez.cli.doctor import redis as doctor_redis
from umavez.cli.doctor import sqlite as doctor_sqlite
from umavez.cli.doctor.findings import Finding, Level, clock_finding, judged, schema_finding


def diagnosis(command: Command, url: str, code: int = 0) -> dict[str, Any]:
    (store,) = json.loads(command("doctor", "--store", url, "--json", code=code).stdout)["stores"]
    assert isinstance(store, dict)
    return store


def finding(store: dict[str, Any], setting: str) -> dict[str, Any]:
    (found,) = [found for found in store["findings"] if found["setting"] == setting]
    assert isinstance(found, dict)
    return found


def levels(findings: list[Finding]) -> dict[str, Level]:
    return {found.setting: found.level for found in findings}


def test_every_store_is_reachable_and_says_its_version(command: Command, store_url: str) -> None:
    command("migrate", "--store", store_url)
    store = diagnosis(command, store_url)
    assert store["reachable"]
    assert store["version"][0].isdigit()
    assert store["schema"] in {"2", "none needed"}
    for found in store["findings"]:
        assert (found["advice"] is None) is (found["level"] == "fine"), found


def test_a_risky_setting_is_found_on_a_real_server(command: Command, postgres_url: str) -> None:
    risky = f"{postgres_url}?options=-c%20synchronous_commit%3Doff"
    assert finding(diagnosis(command, postgres_url), "synchronous_commit")["level"] == "fine"
    assert finding(diagnosis(command, risky), "synchronous_commit")["level"] == "danger"
    text = command("doctor", "--store", risky, "--strict", code=1).stdout
    assert "set synchronous_commit = on" in text


def test_missing_tables_are_found_on_a_real_server(command: Command, postgres_url: str) -> None:
    elsewhere = f"{postgres_url}?options=-c%20search_path%3Dpg_temp"
    found = finding(diagnosis(command, elsewhere), "schema")
    assert (found["value"], found["level"]) == ("missing", "warning")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://127.0.0.1:1/x",
        "mariadb://127.0.0.1:1/x",
        "redis://127.0.0.1:1/0",
        "sqlite:////no/such/folder/x.db",
        f"sqlite:////tmp/{'x' * 300}.db",
        "postgresql://127.0.0.1:port/x",
        "what://ever",
        "what",
    ],
)
def test_a_store_that_is_not_there_is_exit_code_2(command: Command, url: str) -> None:
    store = diagnosis(command, url, code=2)
    assert not store["reachable"]
    assert store["problem"]
    assert "not reachable" in command("doctor", "--store", url, code=2).stdout


def test_warnings_fail_only_when_strict(command: Command) -> None:
    assert "ends with the process" in command("doctor", "--store", "memory:").stdout
    command("doctor", "--store", "memory:", "--strict", code=1)


def test_one_dead_store_among_several_is_exit_code_2(command: Command) -> None:
    command("doctor", "--store", "memory:", "--store", "redis://127.0.0.1:1/0", code=2)


def test_the_environments_store_is_looked_at_without_being_split(
    command: Command, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command("migrate", "--store", sqlite_url)
    monkeypatch.setenv("UMAVEZ_STORE", sqlite_url)
    first, *_ = json.loads(command("doctor", "--json").stdout)["stores"]
    assert (first["url"], first["schema"]) == (sqlite_url, "2")


def test_looking_at_a_file_that_is_not_there_does_not_make_it(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    assert diagnosis(command, f"sqlite:///{path}")["schema"] == "missing"
    assert not path.exists()


def test_a_file_that_is_no_database_is_a_problem(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("no database " * 100)
    assert "cannot be read" in diagnosis(command, f"sqlite:///{path}", code=2)["problem"]


def test_a_wal_file_is_told_by_its_journal_mode(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "wal.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (x)")
    assert finding(diagnosis(command, f"sqlite:///{path}"), "journal_mode")["value"] == "wal"


@pytest.mark.parametrize(
    ("version", "races"),
    [
        ((3, 6, 23), False),
        ((3, 7, 0), True),
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 50, 7), False),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 53, 0), False),
    ],
)
def test_the_libraries_with_the_wal_race_are_known(version: tuple[int, int, int], races: bool) -> None:
    assert doctor_sqlite.races(version) is races
    expected = Level.WARNING if races else Level.FINE
    assert doctor_sqlite.library_finding(version, "wal").level is expected
    assert not doctor_sqlite.library_finding(version, "delete").level.counts


def test_the_innermost_mount_names_the_file_system(tmp_path: Path) -> None:
    shared = tmp_path / "with space" / "deep"
    shared.mkdir(parents=True)
    mounts = tmp_path / "mountinfo"
    point = str(tmp_path.resolve() / "with space").replace(" ", "\\040")
    mounts.write_text(f"1 0 0:1 / / rw - ext4 /dev/a rw\n2 1 0:2 / {point} rw shared:1 - nfs4 host:/x rw\n")
    assert doctor_sqlite.file_system(shared, mounts) == "nfs4"
    assert doctor_sqlite.file_system(tmp_path, mounts) == "ext4"
    assert doctor_sqlite.file_system(tmp_path, tmp_path / "absent") is None


def test_a_full_disk_is_a_warning() -> None:
    assert doctor_sqlite.disk_finding(1 << 20).level is Level.WARNING
    assert doctor_sqlite.disk_finding(1 << 40).level is Level.FINE


def test_settings_of_postgresql_that_lose_records_are_dangers() -> None:
    names = ("fsync", "synchronous_commit", "full_page_writes")
    found = levels(judged(doctor_postgres.RULES, dict.fromkeys(names, "off")))
    assert found == dict.fromkeys(names, Level.DANGER)
    isolation = {"default_transaction_isolation": "serializable", "default_transaction_read_only": "on"}
    assert set(levels(judged(doctor_postgres.RULES, isolation)).values()) == {Level.WARNING, Level.DANGER}


def test_replicas_standbys_and_poolers_of_postgresql_are_told() -> None:
    assert doctor_postgres.standby_finding(standby=True).level is Level.DANGER
    judged = doctor_postgres.replica_finding
    assert judged([], "").level is Level.FINE
    assert judged(["async"], "").level is Level.DANGER
    assert judged(["async", "potential"], "ANY 1 (a)").level is Level.DANGER
    assert judged(["quorum", "async"], "ANY 1 (a)").level is Level.FINE
    assert judged(["sync"], "a").level is Level.FINE
    assert judged([], "ANY 1 (a)").level is Level.DANGER  # commits hang
    assert judged([None], "ANY 1 (a)").level is Level.WARNING
    levels = {
        word: doctor_postgres.commit_finding(word).level for word in ("on", "remote_apply", "remote_write", "local")
    }
    assert levels == {
        "on": Level.FINE,
        "remote_apply": Level.FINE,
        "remote_write": Level.WARNING,
        "local": Level.DANGER,
    }
    assert doctor_postgres.pooler_finding(pooled=True, lock_timeout="800ms").level is Level.WARNING
    assert doctor_postgres.pooler_finding(pooled=True, lock_timeout="0").level is Level.DANGER
    assert doctor_postgres.version_finding("9.6", 90600).level is Level.WARNING


def test_settings_of_mariadb_that_lose_records_are_dangers() -> None:
    risky = {"innodb_flush_log_at_trx_commit": "2", "wsrep_on": "ON", "innodb_doublewrite": "OFF", "read_only": "ON"}
    assert set(levels(judged(doctor_mariadb.RULES, risky)).values()) == {Level.DANGER}
    (binlog,) = doctor_mariadb.binary_log_findings({"log_bin": "ON", "sync_binlog": "0"})
    assert binlog.level is Level.WARNING
    assert doctor_mariadb.binary_log_findings({"log_bin": "OFF", "sync_binlog": "0"}) == []
    assert doctor_mariadb.strict_finding("NO_ENGINE_SUBSTITUTION").level is Level.WARNING
    assert doctor_mariadb.version_finding("8.0.36").level is Level.DANGER
    assert doctor_mariadb.version_finding("10.5.9-MariaDB").level is Level.DANGER
    assert doctor_mariadb.version_finding("10.6.1-MariaDB").level is Level.FINE


def test_settings_of_redis_that_lose_records_are_told() -> None:
    facts = {"maxmemory-policy": "allkeys-lru", "appendonly": "yes", "appendfsync": "everysec"}
    assert levels(doctor_redis.settings_findings(facts)) == {
        "maxmemory-policy": Level.DANGER,
        "appendonly": Level.FINE,
        "appendfsync": Level.WARNING,
    }
    assert "appendfsync" not in levels(doctor_redis.settings_findings(facts | {"appendonly": "no"}))
    assert levels(doctor_redis.role_findings({"role": "slave"})) == {"role": Level.DANGER}
    assert levels(doctor_redis.role_findings({"role": "master", "connected_slaves": 1}))["replicas"] is Level.WARNING
    assert doctor_redis.write_findings({"aof_last_write_status": "err"})[0].level is Level.DANGER


def test_tables_of_another_version_are_told() -> None:
    assert schema_finding(None, 2).level is Level.WARNING
    assert schema_finding(1, 2).level is Level.WARNING
    assert schema_finding(2, 2).level is Level.FINE
    assert schema_finding(3, 2).level is Level.DANGER


def test_clocks_apart_are_only_a_note() -> None:
    assert clock_finding(1_000_000, 1_000_400).level is Level.FINE
    assert clock_finding(1_000_000, 4_600_000).level is Level.NOTE

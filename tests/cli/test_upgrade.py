"""S3.01: records of version 1 come to version 2 with everything in them, and are found by the key's text."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from umavez import Happened, Once, OutcomeUnknown, SchemaOutdated, Status, open_store
from umavez.core.key import Key
from umavez.core.record import Query
from umavez.migration import migrate
from umavez.sql.connection import Sql
from umavez.sql.database import reading, writing
from umavez.stores.mariadb import statements as mariadb
from umavez.stores.postgres import queries as postgres
from umavez.stores.sqlite import statements as sqlite

ON_SERVERS = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("postgres", "mariadb")]
LONG = "é" * 255
OLD = Path(__file__).parent / "version_1"
AT = 1_790_000_000_000
"""An instant of the old records, in milliseconds."""
COLUMNS = (
    "digest, scope, operation_name, idempotency_key, stamp, fence, status, attempt, created_at, updated_at,"
    " lease_until, expires_at, fingerprint, process_instance_id, activity_id, outcome_kept, result_data,"
    " error_message, progress, evidence"
)
TIMES = ("created_at", "updated_at", "lease_until", "expires_at")
ROWS = 3000


def kind_of(url: str) -> str:
    return {"postgresql": "postgres"}.get(url.partition(":")[0], url.partition(":")[0])


def statements(url: str) -> list[str]:
    text = (OLD / f"{kind_of(url)}.sql").read_text("utf-8")
    return [part.strip() for part in re.sub(r"--[^\n]*", "", text).split(";") if part.strip()]


@pytest.fixture(params=["sqlite", *ON_SERVERS])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of version 1: a settled record, one that failed thrice, one nobody knows, and somebody's view."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/loja.db?journal=delete"
    else:
        url = request.getfixturevalue("empty_database")(request.param)
    with writing(url, "tables") as connection:
        sql = Sql(connection)
        for statement in statements(url):
            sql.count(statement)
        for values in RECORDS:
            sql.count(f"INSERT INTO idempotency_records ({COLUMNS}) VALUES ({marks(url)})", values)
        sql.count("CREATE VIEW relatorio AS SELECT idempotency_key, scope, status FROM idempotency_records")
        if kind_of(url) == "sqlite":
            sql.count("UPDATE umavez_meta SET value = 9 WHERE name = 'fence'")
        else:
            sequence = "'umavez_fence'" if kind_of(url) == "postgres" else "umavez_fence"
            sql.rows(f"SELECT setval({sequence}, 9)")
    return str(url)


def marks(url: str) -> str:
    names = [name.strip() for name in COLUMNS.split(",")]
    moment = "to_timestamp(CAST(? AS bigint) / 1000.0)" if kind_of(url) == "postgres" else "?"
    return ", ".join(moment if name in TIMES else "?" for name in names)


def _record(key: Key, stamp: str, fence: int, status: str, *rest: Any) -> tuple[Any, ...]:
    return (key.digest, key.scope, key.operation, key.value, stamp, fence, status, *rest)


PAID, TRIED, LOST = Key("loja", "pay", "a"), Key("loja", LONG, LONG), Key("outra", "pay", "a")
LATER = AT * 2
RECORDS = [
    _record(LOST, "s1", 7, "UNKNOWN", 1, AT + 1, AT + 1, None, None, None, None, None, False, None, None, '"n"', "[]"),
    _record(PAID, "s2", 3, "SUCCESS", 1, AT, AT + 2, None, LATER, "f", "p-1", "a-1", True, '{"é":1}', None, None, None),
    _record(TRIED, "s3", 9, "FAILED", 3, AT + 2, AT + 9, None, LATER, None, LONG, LONG, False, None, "não", None, None),
]


def contents(url: str) -> list[tuple[Any, ...]]:
    with reading(url, "records") as connection:
        found = Sql(connection).rows(f"SELECT {COLUMNS}, retry_count FROM idempotency_records ORDER BY fence")
    return [tuple(bytes(cell) if isinstance(cell, memoryview) else cell for cell in row) for row in found]


def rows(url: str, text: str) -> list[tuple[Any, ...]]:
    with reading(url, "records") as connection:
        return [tuple(row) for row in Sql(connection).rows(text)]


def test_every_record_of_version_1_is_there_afterwards(old: str) -> None:
    before = contents(old)
    assert len(before) == 3

    migrate(old)

    assert contents(old) == before
    assert rows(old, "SELECT value FROM umavez_meta WHERE name = 'schema'") == [(2,)]
    assert len(rows(old, "SELECT idempotency_key, scope, status FROM relatorio")) == 3
    assert len(rows(old, "SELECT idempotency_key FROM idempotency_records")) == 3


def test_upgrading_twice_changes_nothing(old: str) -> None:
    migrate(old)
    before = contents(old), rows(old, SEEN[kind_of(old)])

    migrate(old)

    assert (contents(old), rows(old, SEEN[kind_of(old)])) == before


SEEN = {
    "sqlite": "SELECT id, hex(digest) FROM idempotency_records ORDER BY id",
    "postgres": "SELECT id, encode(digest, 'hex') FROM idempotency_records ORDER BY id",
    "mariadb": "SELECT hex(digest) FROM idempotency_records ORDER BY digest",
}


def test_the_engine_goes_on_with_records_of_version_1(old: str) -> None:
    migrate(old)
    with Once(old, scope="loja") as once, Once(old, scope="outra") as other:
        assert once.get("pay", "a") is not None
        again = once.run("pay", key="a", call=lambda: "twice", unknown="rerun")
        assert (again.value, again.replayed) == ({"é": 1}, True)
        tried = once.get(LONG, LONG)
        assert tried is not None
        assert (tried.status, tried.attempt, tried.process_instance) == (Status.FAILED, 3, LONG)
        with pytest.raises(OutcomeUnknown):
            other.run("pay", key="a", call=lambda: "twice", unknown="hold")
        other.resolve("pay", "a", Happened("once"), by="ana", reason="asked")
        assert other.run("pay", key="a", call=lambda: "twice", unknown="hold").value == "once"
        fresh = once.run("pay", key="b", call=lambda: "new", unknown="rerun")
        assert (fresh.value, fresh.replayed) == ("new", False)
        made = once.get("pay", "b")
        assert made is not None
        assert made.fence > 9


def test_what_a_newer_umavez_made_is_not_upgraded(old: str) -> None:
    with writing(old, "versions") as connection:
        Sql(connection).count("UPDATE umavez_meta SET value = 3 WHERE name = 'schema'")
    before = contents(old)

    with pytest.raises(SchemaOutdated, match="upgrade umavez"):
        migrate(old)

    assert contents(old) == before


@pytest.fixture
def seeded(old: str) -> str:
    """The same, in the databases that hold seed 003's table."""
    if kind_of(old) == "mariadb":
        pytest.skip("the systems are not kept in MariaDB")
    migrate(old)
    return old


def test_s3_01_id_is_a_key_that_stays_with_its_record_and_is_never_given_again(seeded: str) -> None:
    def identity(key: str) -> int:
        found = rows(seeded, f"SELECT id FROM idempotency_records WHERE idempotency_key = '{key}' AND scope = 'loja'")
        return int(found[0][0])

    assert len({number for (number,) in rows(seeded, "SELECT id FROM idempotency_records")}) == 3
    with Once(seeded, scope="loja") as once:
        with pytest.raises(ValueError, match="no"):
            once.run("pay", key="n", call=_fails, unknown="rerun", max_retries=3)
        first = identity("n")
        once.run("pay", key="n", call=lambda: 1, unknown="rerun", max_retries=3)
        assert identity("n") == first
        with writing(seeded, "records") as connection:
            Sql(connection).count("DELETE FROM idempotency_records WHERE idempotency_key = 'n'")
        once.run("pay", key="n", call=lambda: 2, unknown="rerun")
        assert identity("n") > first


def _fails() -> None:
    raise ValueError("no")


@pytest.mark.parametrize("column", ["idempotency_key", "operation_name", "scope", "process_instance_id", "activity_id"])
def test_s3_01_a_text_beyond_its_length_is_refused_by_the_table(seeded: str, column: str) -> None:
    with writing(seeded, "records") as connection:
        sql = Sql(connection)
        assert sql.count(f"UPDATE idempotency_records SET {column} = ? WHERE fence = 3", ("é" * 255,)) == 1
    with pytest.raises(Exception, match=r"(?i)check"), writing(seeded, "records") as connection:
        Sql(connection).count(f"UPDATE idempotency_records SET {column} = ? WHERE fence = 3", ("é" * 256,))


def test_s3_01_the_seeds_key_index_stands_on_the_text_and_identity_on_the_digest(seeded: str) -> None:
    if kind_of(seeded) == "postgres":
        text = "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'idempotency_records'"
    else:
        text = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'idempotency_records'"
    found = {name: " ".join(str(words).split()) for name, words in rows(seeded, text)}

    assert found["idx_idempotency_key"].endswith("(idempotency_key)")
    assert "UNIQUE" in found["idx_digest"]
    assert {"idx_process_instance", "idx_created_at", "idx_expires_at"} <= set(found)


MANY = {
    "sqlite": "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})"
    " INSERT INTO idempotency_records (digest, scope, operation_name, idempotency_key, stamp, fence, status, attempt,"
    " created_at, updated_at, outcome_kept)"
    " SELECT randomblob(32), 'loja', 'pay', 'k' || i, 's', 1000 + i, 'SUCCESS', 1, i, i, 0 FROM n",
    "postgres": "INSERT INTO idempotency_records (digest, scope, operation_name, idempotency_key, stamp, fence,"
    " status, attempt, created_at, updated_at, outcome_kept)"
    " SELECT sha256(i::text::bytea), 'loja', 'pay', 'k' || i, 's', 1000 + i, 'SUCCESS', 1, now(), now(), false"
    " FROM generate_series(1, {rows}) i",
    "mariadb": "INSERT INTO idempotency_records (digest, scope, operation_name, idempotency_key, stamp, fence, status,"
    " attempt, created_at, updated_at, outcome_kept)"
    " SELECT unhex(sha2(seq, 256)), 'loja', 'pay', concat('k', seq), 's', 1000 + seq, 'SUCCESS', 1, seq, seq, 0"
    " FROM seq_1_to_{rows}",
}
COUNTED = {
    "sqlite": "ANALYZE",
    "postgres": "ANALYZE idempotency_records",
    "mariadb": "ANALYZE TABLE idempotency_records",
}


def test_s3_08_finding_by_the_keys_text_walks_an_index(old: str) -> None:
    """At 400,000 records a look through the table took 327 ms on PostgreSQL."""
    migrate(old)
    with writing(old, "records") as connection:
        sql = Sql(connection)
        sql.count(MANY[kind_of(old)].format(rows=ROWS))
        counting = COUNTED[kind_of(old)]
        _ = sql.rows(counting) if kind_of(old) == "mariadb" else sql.count(counting)
    for query in (Query(value="k77", limit=10), Query(scope="loja", operation="pay", value="k77", limit=10)):
        assert re.search("idx_(idempotency_key|key_text)", explained(old, query)), query
    with closing(open_store(old)) as store:
        assert [record.key.value for record in store.find(Query(value="k77", limit=10))] == ["k77"]


def explained(url: str, query: Query) -> str:
    """The plan of `find`, as the database tells it."""
    with reading(url, "records") as connection:
        if kind_of(url) == "postgres":
            text, values = postgres.looking(query, 0)
            plain = re.sub(r"\$\d+", "?", text)
            return str(Sql(connection).rows(f"EXPLAIN {plain}", values))
        if kind_of(url) == "mariadb":
            statement = mariadb.finding(query, 0)
            return str(Sql(connection).rows(f"EXPLAIN {statement.text.replace('%s', '?')}", statement.values))
        text, values = sqlite.finding(query, 0)
        return str(Sql(connection).rows(f"EXPLAIN QUERY PLAN {text}", values))

"""What only the PostgreSQL store has: its schema, its statements, its errors."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest

from umavez.clock import SYSTEM, Clock
from umavez.concurrency.group_commit import GroupCommit
from umavez.console.books import _bounded
from umavez.core.flow import Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Query, Settled, Status
from umavez.errors import ConfigurationError, NotStorable, SchemaOutdated, StoreUnavailable
from umavez.stores.postgres import queries, values
from umavez.stores.postgres import statements as sql
from umavez.stores.postgres import store as postgres
from umavez.stores.postgres import url as target
from umavez.stores.postgres.arrays import batch, plain


def new_key() -> Key:
    return Key("postgres", "charge", secrets.token_hex(8))


def claim(key: Key, stamp: str = "a") -> Draft:
    return Draft(key, stamp, Status.PENDING, True, 1, 30_000, None, "fp")


def settled(draft: Draft, stamp: str = "b", body: str = "{}") -> Draft:
    return draft._replace(
        stamp=stamp, claims=False, status=Status.SUCCESS, lease=None, keep=60_000, settled=Settled(True, body)
    )


@pytest.fixture
def store(postgres_url: str) -> Iterator[Any]:
    store = postgres.PostgresStore(postgres_url)
    store.migrate()
    yield store
    store.close()


@pytest.fixture
def session(postgres_url: str) -> Iterator[Any]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def empty_database(postgres_url: str, session: Any) -> Iterator[str]:
    """A database without tables."""
    name = f"umavez_{secrets.token_hex(6)}"
    session.execute(f"CREATE DATABASE {name}")
    yield postgres_url.rpartition("/")[0] + f"/{name}"
    session.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_the_four_indexes_of_the_seed_exist_by_name(store: Any, session: Any) -> None:
    rows = session.execute(
        "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'idempotency_records'"
    ).fetchall()
    found = dict(rows)
    assert {"idx_idempotency_key", "idx_process_instance", "idx_created_at", "idx_expires_at"} <= set(found)
    assert found["idx_idempotency_key"].endswith("(idempotency_key)")
    assert "UNIQUE" in found["idx_digest"]
    assert "WHERE (process_instance_id IS NOT NULL)" in found["idx_process_instance"]
    assert "WHERE (expires_at IS NOT NULL)" in found["idx_expires_at"]


def test_the_columns_of_the_seed_can_be_read_as_they_are(store: Any, session: Any) -> None:
    key = new_key()
    store.swap(None, claim(key)._replace(attempt=3, process_instance="p", activity="v"))
    row = session.execute(
        "SELECT idempotency_key, process_instance_id, activity_id, operation_name, status, retry_count,"
        " created_at = updated_at, expires_at FROM idempotency_records WHERE digest = %s",
        [key.digest],
    ).fetchone()
    assert row == (key.value, "p", "v", "charge", "PENDING", 2, True, None)


def test_many_migrate_at_once_and_all_succeed(empty_database: str) -> None:
    stores = [postgres.PostgresStore(empty_database) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        said = sorted(pool.map(lambda store: store.migrate(), stores))
    assert [sentence.split(" (")[0] for sentence in said] == [
        "The tables are up to date",
        "The tables are up to date",
        "The tables are up to date",
        "The tables were created",
    ]


def test_missing_tables_are_named_and_work_after_migrating(empty_database: str) -> None:
    store = postgres.PostgresStore(empty_database)
    with pytest.raises(SchemaOutdated, match="umavez migrate"):
        store.swap(None, claim(new_key()))
    store.migrate()
    assert isinstance(store.swap(None, claim(new_key())), Swapped)
    store.close()


def test_a_newer_schema_is_refused(empty_database: str) -> None:
    store = postgres.PostgresStore(empty_database)
    store.migrate()
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("UPDATE umavez_meta SET value = 99 WHERE name = 'schema'")
    with pytest.raises(SchemaOutdated, match="99"):
        store.migrate()
    with pytest.raises(SchemaOutdated, match="99"):
        asyncio.run(postgres.AsyncPostgresStore(empty_database).migrate())


def test_a_batch_answers_each_swap_as_a_single_one_would(store: Any) -> None:
    lane = store._lanes[0]
    free, taken, owned, overtaken, gone = (new_key() for _ in range(5))
    for key in (taken, owned, overtaken):
        store.swap(None, claim(key, "old"))
    before = store.read(owned).current
    replies = lane.send(
        [
            Swap(None, claim(free)),
            Swap(None, claim(taken)),
            Swap("old", settled(claim(owned), body='{"é": "\U0001f600"}')),
            Swap("other", settled(claim(overtaken))),
            Swap("old", settled(claim(gone))),
        ]
    )
    assert [type(reply) for reply in replies] == [Swapped, Stale, Swapped, Stale, Stale]
    assert replies[1].current.stamp == replies[3].current.stamp == "old"
    assert replies[4].current is None
    assert [store.read(key).current.stamp for key in (taken, overtaken)] == ["old", "old"]
    after = store.read(owned).current
    assert (after.fence, after.created_at) == (before.fence, before.created_at)
    assert after.settled == Settled(True, '{"é": "\U0001f600"}')
    assert store.read(free).current.lease_until == replies[0].now + 30_000


def test_a_batch_writes_every_field_that_a_single_swap_writes(store: Any) -> None:
    full = Draft(new_key(), "s", Status.FAILED, True, 7, 5, 6, "fp", "pi", "ac", Settled(False, ""), "er", "pr", "ev")
    twin = full._replace(key=new_key())
    bare = Draft(new_key(), "s", Status.PENDING, True)
    store.swap(None, full)
    replies = store._lanes[0].send([Swap(None, twin), Swap(None, bare)])
    assert [type(reply) for reply in replies] == [Swapped, Swapped]

    def shape(key: Key) -> tuple[Any, ...]:
        record = store.read(key).current
        return (
            record._replace(key=None, fence=0, created_at=0, updated_at=0, lease_until=0, expires_at=0),
            record.lease_until - record.updated_at,
            record.expires_at - record.updated_at,
        )

    assert shape(full.key) == shape(twin.key)
    assert store.read(bare.key).current.settled is None


def test_a_replay_writes_no_wal_takes_no_number_and_no_transaction_id(empty_database: str) -> None:
    """In a table of one record: on a full page any reader may clear away, and log, what writers left there."""
    key = new_key()
    again = Swap(None, claim(key, "rival"))
    with (
        closing(postgres.PostgresStore(empty_database)) as store,
        psycopg.connect(empty_database) as session,
    ):
        store.migrate()
        store.swap(None, claim(key))
        store.swap("a", settled(claim(key)))
        before = session.execute("SELECT last_value FROM umavez_fence").fetchone()
        cursor = psycopg.RawCursor(session)
        values.adapt(cursor)
        for text, given in (
            (sql.INSERT, values.inserting(again, 0)),
            (sql.BATCH, batch([again], 0)),
            (sql.BATCH_PLAIN, plain([again], 0)),
            (sql.JOINED_INSERT, (*values.inserting(again, 0), 1)),
        ):
            (plan,) = cursor.execute(f"EXPLAIN (ANALYZE, WAL, FORMAT JSON) {text}", given).fetchone()
            assert _wal_records(plan[0]["Plan"]) == 0
        assert session.execute("SELECT pg_current_xact_id_if_assigned()").fetchone() == (None,)
        assert session.execute("SELECT last_value FROM umavez_fence").fetchone() == before


def test_a_first_claim_does_write_wal(store: Any, session: Any) -> None:
    """Guards the test above: it must be able to see WAL."""
    cursor = psycopg.RawCursor(session)
    values.adapt(cursor)
    given = values.inserting(Swap(None, claim(new_key())), 0)
    (plan,) = cursor.execute(f"EXPLAIN (ANALYZE, WAL, FORMAT JSON) {sql.INSERT}", given).fetchone()
    assert _wal_records(plan[0]["Plan"]) > 0


def _wal_records(plan: dict[str, Any]) -> int:
    own: int = plan.get("WAL Records", 0)
    return own + sum(_wal_records(part) for part in plan.get("Plans", ()))


@pytest.mark.parametrize("text", ["INSERT", "UPDATE", "UPDATE_PLAIN", "BATCH", "BATCH_PLAIN", "SWEEP"])
def test_no_plan_scans_the_table(text: str, store: Any) -> None:
    swap = Swap("s", claim(new_key()))
    settling = Swap("s", settled(claim(new_key())))
    given = {
        "INSERT": values.inserting(swap, 0),
        "UPDATE": values.updating(swap, 0),
        "UPDATE_PLAIN": values.updating(swap, 0),
        "BATCH": batch([swap], 0),
        "BATCH_PLAIN": plain([Swap(None, claim(new_key())), settling], 0),
        "SWEEP": (0, 0, 10),
    }[text]
    rows = store._ask(f"EXPLAIN {getattr(sql, text)}", *given)
    plan = "\n".join(row[0] for row in rows)
    assert "Seq Scan" not in plan
    assert "Index" in plan


def test_what_is_unknown_is_found_by_its_own_index_whatever_the_plan_is_kept_for(store: Any, session: Any) -> None:
    """Planned once for all values, as the store's connections do: 41 ms against 0.4 at 50,000 records without it."""
    text, given = queries.looking(Query(status=Status.UNKNOWN, limit=50), 0)
    session.execute("SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off")
    session.execute(f"PREPARE looking AS {text}")
    shown = ", ".join(repr(one) for one in given)
    plan = "\n".join(row[0] for row in session.execute(f"EXPLAIN EXECUTE looking({shown})").fetchall())
    assert "idx_unknown" in plan


def test_sweeping_passes_over_what_somebody_holds(store: Any, session: Any, clock: Clock, postgres_url: str) -> None:
    own = postgres.PostgresStore(postgres_url, clock)
    keys = [new_key() for _ in range(3)]
    for key in keys:
        own.swap(None, claim(key))
        own.swap("a", settled(claim(key)))
    clock.offset += 61_000
    with session.transaction():
        session.execute("SELECT FROM idempotency_records WHERE digest = %s FOR UPDATE", [keys[0].digest])
        own.sweep(10_000)
        assert [own.read(key).current is None for key in keys] == [False, True, True]
    own.sweep(10_000)
    assert own.read(keys[0]).current is None
    own.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_sweeping_goes_on_in_batches_up_to_its_limit(
    store: Any, clock: Clock, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("umavez.stores.postgres._sync.store.SWEPT", 4)
    own = postgres.PostgresStore(postgres_url, clock)
    own.sweep(1_000_000)
    for _ in range(11):
        key = new_key()
        own.swap(None, claim(key))
        own.swap("a", settled(claim(key))._replace(keep=1))
    clock.offset += 5_000
    assert own.sweep(10) == 10
    assert own.sweep(10) == 1
    assert own.sweep(10) == 0
    own.close()


def test_text_that_postgres_cannot_hold_fails_alone(store: Any) -> None:
    good, bad = new_key(), new_key()
    held = threading.Event()
    group = GroupCommit([_Slow(store._lanes[0], held)])
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(group.swap, Swap(None, claim(new_key())))
        _until(lambda: not group._idle)
        second = pool.submit(group.swap, Swap(None, claim(good)))
        third = pool.submit(group.swap, Swap(None, claim(bad)._replace(error="a\0b")))
        _until(lambda: len(group._queue) == 2)
        held.set()
        assert isinstance(first.result(), Swapped)
        assert isinstance(second.result(), Swapped)
        with pytest.raises(NotStorable, match="NUL"):
            third.result()
    with pytest.raises(NotStorable, match="surrogate"):
        store.swap(None, claim(new_key())._replace(error="\ud800"))
    assert store.read(bad).current is None


class _Slow:
    """A lane whose first send waits, so that others queue behind it."""

    def __init__(self, lane: Any, held: threading.Event) -> None:
        self._lane = lane
        self._held = held

    def send(self, batch: Any) -> Any:
        self._held.wait(5)
        return self._lane.send(batch)

    def close(self) -> None:
        self._lane.close()


def _until(condition: Any) -> None:
    for _ in range(5_000):
        if condition():
            return
        threading.Event().wait(0.001)
    raise AssertionError("it did not come about within five seconds")


def test_find_uses_the_age_by_the_clock_of_the_server(store: Any) -> None:
    scope = f"find-{secrets.token_hex(4)}"
    store.swap(None, claim(Key(scope, "charge", "1")))
    assert len(store.find(Query(scope=scope, older_than=0))) == 1
    assert store.find(Query(scope=scope, older_than=60_000)) == []


def test_the_url_keeps_libpq_parameters_and_takes_its_own() -> None:
    found = target.target_of("postgresql://me@db:5433/x?lanes=3&application_name=shop&connect_timeout=2")
    parts = psycopg.conninfo.conninfo_to_dict(found.conninfo)
    assert found.lanes == 3
    assert (parts["application_name"], parts["connect_timeout"], parts["port"]) == ("shop", "2", "5433")
    assert "lock_timeout=800" in parts["options"]


def test_a_plus_sign_in_the_url_is_one() -> None:
    """As to libpq itself: in a password it is part of it."""
    found = target.target_of("postgresql://db/x?user=me&password=a+b%2Bc%20d&lanes=3")
    assert psycopg.conninfo.conninfo_to_dict(found.conninfo)["password"] == "a+b+c d"
    again = target.target_of(_bounded("postgresql://db/x?password=a+b%2Bc&options=-c%20work_mem=1MB"))
    parts = psycopg.conninfo.conninfo_to_dict(again.conninfo)
    assert parts["password"] == "a+b+c"
    assert "work_mem=1MB -c plan_cache_mode=force_custom_plan" in parts["options"]


def test_several_hosts_get_short_waits_and_the_one_that_takes_writes() -> None:
    found = target.target_of("postgresql://me@a:1,b:2,c:3/x?connect_timeout=7")
    parts = psycopg.conninfo.conninfo_to_dict(found.conninfo)
    assert (parts["host"], parts["port"], parts["target_session_attrs"]) == ("a,b,c", "1,2,3", "read-write")
    assert (parts["connect_timeout"], parts["tcp_user_timeout"], parts["keepalives_idle"]) == ("7", "5000", "5")
    one = psycopg.conninfo.conninfo_to_dict(target.target_of("postgresql://me@a:1/x").conninfo)
    assert "target_session_attrs" not in one
    assert one["connect_timeout"] == "10"


def test_a_statement_that_another_prepared_in_the_same_session_is_used_as_it_is(postgres_url: str) -> None:
    """As behind a pooler, which lets several of us use one session of the server, one after the other."""
    with closing(postgres.open_store(postgres_url, SYSTEM)) as store:
        store.migrate()
        key = new_key()
        assert isinstance(store.swap(None, claim(key)), Swapped)
        for lane in store._group._lanes:
            if lane.connection._session is not None:
                lane.connection._session.names.clear()  # as a process that knows nothing of the first
        assert isinstance(store.swap(None, claim(new_key())), Swapped)


def test_a_standby_says_that_it_is_one(postgres_url: str) -> None:
    sign = "&" if "?" in postgres_url else "?"
    with (
        closing(
            postgres.open_store(f"{postgres_url}{sign}options=-c%20default_transaction_read_only%3Don", SYSTEM)
        ) as store,
        pytest.raises(StoreUnavailable, match=r"standby.*target_session_attrs=read-write"),
    ):
        store.swap(None, claim(new_key()))


@pytest.mark.parametrize("query", ["lanes=0", "lanes=many", "nonsense=1"])
def test_a_wrong_url_says_what_to_do_and_hides_the_password(query: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        postgres.open_store(f"postgresql://me:secret@db/x?{query}", SYSTEM)
    assert "secret" not in str(caught.value)


def test_an_unreachable_server_took_nothing() -> None:
    store = postgres.PostgresStore("postgresql://root@127.0.0.1:1/x")
    with pytest.raises(StoreUnavailable) as caught:
        store.swap(None, claim(new_key()))
    assert not caught.value.may_have_happened


def test_own_connections_are_named_and_never_left_in_a_transaction(store: Any, session: Any) -> None:
    store.swap(None, claim(new_key()))
    store.find(Query())
    own = (store._lanes[-1].connection, *store._looks._spare)
    pids = [connection._session.connection.info.backend_pid for connection in own]
    assert len(pids) == 2
    states = session.execute(
        "SELECT DISTINCT state, application_name FROM pg_stat_activity WHERE pid = ANY(%s)", [pids]
    ).fetchall()
    assert states == [("idle", "umavez")]

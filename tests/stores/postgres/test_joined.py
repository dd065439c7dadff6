"""The PostgreSQL store inside the caller's transaction: one commit for claim, effect and outcome."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from umavez.core.flow import Stale, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Query, Settled, Status
from umavez.errors import ConfigurationError, OperationInProgress, StoreUnavailable
from umavez.stores.postgres import store as postgres

PATIENCE = "-c lock_timeout=2000"
"""A joined claim must never block in the server; if it does, the test fails instead of hanging."""


def new_key() -> Key:
    return Key("joined", "submit", secrets.token_hex(8))


def claim(key: Key, stamp: str = "a") -> Draft:
    return Draft(key, stamp, Status.PENDING, True, 1, 30_000, None, "fp")


def settled(draft: Draft, stamp: str = "b") -> Draft:
    return draft._replace(
        stamp=stamp, claims=False, status=Status.SUCCESS, lease=None, keep=60_000, settled=Settled(True, "{}")
    )


@pytest.fixture
def store(postgres_url: str) -> Iterator[Any]:
    store = postgres.PostgresStore(postgres_url)
    store.migrate()
    yield store
    store.close()


@pytest.fixture
def mine(postgres_url: str) -> Iterator[Any]:
    with psycopg.connect(postgres_url, options=PATIENCE) as connection:
        yield connection
        connection.rollback()


@pytest.fixture
def theirs(postgres_url: str) -> Iterator[Any]:
    with psycopg.connect(postgres_url, options=PATIENCE) as connection:
        yield connection
        connection.rollback()


def test_claim_and_outcome_stand_only_after_the_callers_commit(store: Any, mine: Any) -> None:
    key = new_key()
    joined = store.joined(mine)
    first = joined.swap(None, claim(key))
    second = joined.swap("a", settled(claim(key)))
    assert isinstance(first, Swapped)
    assert isinstance(second, Swapped)
    assert first.fence == second.fence
    assert joined.read(key).current.settled == Settled(True, "{}")
    assert [record.key for record in joined.find(Query(value=key.value))] == [key]
    assert store.read(key).current is None
    mine.commit()
    assert store.read(key).current.settled == Settled(True, "{}")


def test_a_rollback_leaves_nothing(store: Any, mine: Any) -> None:
    key = new_key()
    store.joined(mine).swap(None, claim(key))
    mine.rollback()
    assert isinstance(store.swap(None, claim(key)), Swapped)


def test_a_rival_waits_and_then_sees_what_was_committed(store: Any, mine: Any, theirs: Any) -> None:
    key = new_key()
    joined = store.joined(mine)
    joined.swap(None, claim(key))
    asked = threading.Event()
    rival = store.joined(theirs)
    rows = rival._rows

    def telling(*given: Any) -> Any:
        answer = rows(*given)
        asked.set()
        return answer

    rival._rows = telling
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(rival.swap, None, claim(key, "rival"))
        assert asked.wait(5)
        assert not reply.done()
        joined.swap("a", settled(claim(key)))
        mine.commit()
        assert reply.result(5).current.settled == Settled(True, "{}")


def test_a_rival_takes_over_after_a_rollback(store: Any, mine: Any, theirs: Any) -> None:
    key = new_key()
    store.joined(mine).swap(None, claim(key))
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(store.joined(theirs).swap, None, claim(key, "rival"))
        mine.rollback()
        assert isinstance(reply.result(5), Swapped)


def test_a_rival_that_waited_too_long_keeps_its_transaction(store: Any, mine: Any, theirs: Any) -> None:
    key = new_key()
    store.joined(mine).swap(None, claim(key))
    theirs.execute("CREATE TEMPORARY TABLE notes (text text) ON COMMIT DROP")
    with pytest.raises(OperationInProgress) as caught:
        store.joined(theirs, wait=0.02).swap(None, claim(key, "rival"))
    assert caught.value.key == key
    theirs.execute("INSERT INTO notes VALUES ('still usable')")
    assert isinstance(store.joined(theirs).swap(None, claim(new_key())), Swapped)
    theirs.commit()


def test_a_rival_of_a_takeover_neither_blocks_nor_takes_it(store: Any, mine: Any, theirs: Any) -> None:
    key = new_key()
    store.swap(None, claim(key, "lapsed"))
    assert isinstance(store.joined(mine).swap("lapsed", claim(key, "mine")), Swapped)
    with pytest.raises(OperationInProgress):
        store.joined(theirs, wait=0.02).swap("lapsed", claim(key, "theirs"))
    mine.commit()
    reply = store.joined(theirs).swap("lapsed", claim(key, "theirs"))
    assert isinstance(reply, Stale)
    assert reply.current.stamp == "mine"


def test_a_replay_takes_no_lock(store: Any, mine: Any) -> None:
    key = new_key()
    store.swap(None, claim(key))
    assert isinstance(store.joined(mine).swap(None, claim(key, "rival")), Stale)
    (locks,) = mine.execute(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
    ).fetchone()
    assert locks == 0


def test_under_repeatable_read_the_whole_transaction_is_to_be_run_again(store: Any, mine: Any, theirs: Any) -> None:
    key = new_key()
    theirs.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    theirs.execute("SELECT count(*) FROM idempotency_records")
    store.joined(mine).swap(None, claim(key))
    mine.commit()
    with pytest.raises(StoreUnavailable, match="whole transaction again"):
        store.joined(theirs).swap(None, claim(key, "rival"))


def test_a_failed_transaction_is_named(store: Any, mine: Any) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        mine.execute("SELECT 1 / 0")
    with pytest.raises(StoreUnavailable, match="roll back"):
        store.joined(mine).swap(None, claim(new_key()))


def test_without_a_transaction_nothing_is_claimed(store: Any, postgres_url: str) -> None:
    key = new_key()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        with pytest.raises(ConfigurationError, match="transaction"):
            store.joined(connection).swap(None, claim(key))
        with connection.transaction():
            assert isinstance(store.joined(connection).swap(None, claim(key)), Swapped)
    assert store.read(key).current is not None


def test_a_connection_of_another_kind_is_refused(store: Any, postgres_url: str) -> None:
    with pytest.raises(ConfigurationError, match="Connection here"):
        store.joined(object())
    with pytest.raises(ConfigurationError, match="AsyncConnection here"):
        postgres.AsyncPostgresStore(postgres_url).joined(object())


def test_a_connection_with_its_own_rows_is_joined_all_the_same(store: Any, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, row_factory=psycopg.rows.dict_row) as connection:
        key = new_key()
        joined = store.joined(connection)
        joined.swap(None, claim(key))
        assert joined.read(key).current.stamp == "a"
        assert connection.execute("SELECT 1 AS one").fetchone() == {"one": 1}
        connection.rollback()


def test_async_rivals_wait_replay_and_give_up(postgres_url: str) -> None:
    async def main() -> None:
        store = postgres.AsyncPostgresStore(postgres_url)
        await store.migrate()
        async with (
            await psycopg.AsyncConnection.connect(postgres_url) as mine,
            await psycopg.AsyncConnection.connect(postgres_url) as theirs,
        ):
            key = new_key()
            joined = store.joined(mine)
            assert isinstance(await joined.swap(None, claim(key)), Swapped)
            with pytest.raises(OperationInProgress):
                await store.joined(theirs, wait=0.02).swap(None, claim(key, "rival"))
            waiting = asyncio.create_task(store.joined(theirs).swap(None, claim(key, "rival")))
            await asyncio.sleep(0)
            await joined.swap("a", settled(claim(key)))
            assert (await joined.read(key)).current.settled == Settled(True, "{}")
            assert len(await joined.find(Query(value=key.value))) == 1
            assert not waiting.done()
            await mine.commit()
            assert (await waiting).current.settled == Settled(True, "{}")
            await theirs.rollback()
        await store.close()

    asyncio.run(main())


def test_a_joined_store_only_reads_and_swaps(store: Any, mine: Any) -> None:
    joined = store.joined(mine)
    with pytest.raises(ConfigurationError, match="sweep"):
        joined.sweep(1)
    with pytest.raises(ConfigurationError, match="migrate"):
        joined.migrate()
    with pytest.raises(ConfigurationError, match="join"):
        joined.joined(mine)
    joined.close()
    assert not mine.closed

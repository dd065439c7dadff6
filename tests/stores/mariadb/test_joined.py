"""Claim, effect and outcome in the caller's own MariaDB transaction."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import asyncmy
import pymysql
import pytest

from umavez.core.flow import Stale, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Query, Settled, Status
from umavez.errors import ConfigurationError, OperationInProgress, SchemaOutdated, StoreUnavailable
from umavez.stores.mariadb.store import AsyncMariadbStore, MariadbStore
from umavez.stores.mariadb.url import address_of


@pytest.fixture
def store(mariadb_url: str) -> Iterator[MariadbStore]:
    store = MariadbStore(address_of(mariadb_url))
    store.migrate()
    with closing(_connect(store)) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS ledger (entry VARCHAR(64))")
    yield store
    store.close()


def _arguments(store: MariadbStore) -> dict[str, Any]:
    address = store._address
    return {"host": address.host, "port": address.port, "user": address.user, "database": address.database}


def _connect(store: MariadbStore, isolation: str = "REPEATABLE READ", **options: Any) -> Any:
    return pymysql.connect(
        **_arguments(store), init_command=f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}", **options
    )


def claim(stamp: str = "a", value: str = "") -> Draft:
    return Draft(Key("joined", "test", value or secrets.token_hex(8)), stamp, Status.PENDING, True, 1, 30_000)


def outcome(draft: Draft) -> Draft:
    settled = Settled(True, "{}")
    return draft._replace(stamp=f"{draft.stamp}/1", status=Status.SUCCESS, claims=False, settled=settled, keep=10_000)


def entries(store: MariadbStore, entry: str) -> int:
    with closing(_connect(store)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM ledger WHERE entry = %s", (entry,))
        return int(cursor.fetchone()[0])


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_claim_effect_and_outcome_end_together(store: MariadbStore, end: str) -> None:
    draft = claim()
    with closing(_connect(store)) as connection, connection.cursor() as cursor:
        joined = store.joined(connection)
        assert isinstance(joined.swap(None, draft), Swapped)
        cursor.execute("INSERT INTO ledger VALUES (%s)", (draft.key.value,))
        assert isinstance(joined.swap("a", outcome(draft)), Swapped)
        assert joined.read(draft.key).current.settled == Settled(True, "{}")
        assert [record.key for record in joined.find(Query(value=draft.key.value))] == [draft.key]
        assert store.read(draft.key).current is None
        getattr(connection, end)()
    kept = store.read(draft.key).current
    assert (kept is not None, entries(store, draft.key.value)) == (end == "commit", end == "commit")


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "READ COMMITTED", "SERIALIZABLE"])
def test_a_rival_waits_for_the_first_and_then_replays(store: MariadbStore, isolation: str) -> None:
    draft = claim()
    replies: list[Any] = []
    with closing(_connect(store, isolation)) as first, closing(_connect(store, isolation)) as second:
        with second.cursor() as cursor:
            # Opens the rival's snapshot, in which the first one's record will never appear.
            cursor.execute("SELECT count(*) FROM ledger")
        store.joined(first).swap(None, draft)
        rival = threading.Thread(
            target=lambda: replies.append(store.joined(second).swap(None, claim("r", draft.key.value)))
        )
        rival.start()
        _until_somebody_waits(store)
        store.joined(first).swap("a", outcome(draft))
        first.commit()
        rival.join()
        assert isinstance(replies[0], Stale)
        assert replies[0].current.settled == Settled(True, "{}")
        with second.cursor() as cursor:
            cursor.execute("INSERT INTO ledger VALUES (%s)", (draft.key.value,))
        second.commit()
    assert entries(store, draft.key.value) == 1


def _until_somebody_waits(store: MariadbStore) -> None:
    with closing(_connect(store, autocommit=True)) as connection, connection.cursor() as cursor:
        while not cursor.execute("SELECT 1 FROM information_schema.innodb_lock_waits"):
            time.sleep(0.005)


def test_a_rival_that_waited_long_enough_is_told_and_its_transaction_lives(store: MariadbStore) -> None:
    draft = claim()
    with closing(_connect(store)) as first, closing(_connect(store)) as second, second.cursor() as cursor:
        store.joined(first).swap(None, draft)
        cursor.execute("INSERT INTO ledger VALUES (%s)", (draft.key.value,))
        for wait in (0, 0.4):
            with pytest.raises(OperationInProgress) as told:
                store.joined(second, wait=wait).swap(None, claim("r", draft.key.value))
            assert told.value.key == draft.key
        cursor.execute("SELECT @@innodb_lock_wait_timeout = @@global.innodb_lock_wait_timeout")
        assert cursor.fetchone() == (1,)
        second.commit()
        first.rollback()
    assert entries(store, draft.key.value) == 1


def test_a_snapshot_older_than_the_outcome_does_not_hide_it(store: MariadbStore) -> None:
    draft = claim()
    store.swap(None, draft)
    with closing(_connect(store)) as connection:
        joined = store.joined(connection)
        assert joined.read(draft.key).current.settled is None
        store.swap("a", outcome(draft))
        for expected in (None, "a"):
            reply = joined.swap(expected, claim("r", draft.key.value))
            assert reply.current.settled == Settled(True, "{}")


def test_a_snapshot_that_shows_a_swept_record_does_not_spin(store: MariadbStore) -> None:
    draft = outcome(claim())._replace(keep=-5)
    store.swap(None, draft)
    with closing(_connect(store)) as connection:
        joined = store.joined(connection)
        assert joined.read(draft.key).current is not None
        while store.read(draft.key).current is not None:
            store.sweep(1000)
        assert isinstance(joined.swap(None, claim("n", draft.key.value)), Swapped)
        connection.commit()
    assert store.read(draft.key).current.stamp == "n"


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "READ COMMITTED"])
def test_claims_of_neighbouring_keys_do_not_wait_for_each_other(store: MariadbStore, isolation: str) -> None:
    drafts = sorted((claim() for _ in range(20)), key=lambda draft: draft.key.digest, reverse=True)
    with ExitStack() as stack:
        for draft in drafts:  # each goes into the gap before the one that was claimed last, and is not committed
            connection = stack.enter_context(closing(_connect(store, isolation)))
            assert isinstance(store.joined(connection, wait=0).swap(None, draft), Swapped)


def test_a_deadlock_says_that_the_whole_transaction_is_gone(store: MariadbStore) -> None:
    one, other = claim(), claim()
    told: list[BaseException] = []
    with closing(_connect(store)) as first, closing(_connect(store)) as second, second.cursor() as cursor:
        cursor.executemany("INSERT INTO ledger VALUES (%s)", [("weight",)] * 50)
        store.joined(first).swap(None, one)
        store.joined(second).swap(None, other)

        def cross() -> None:
            try:
                store.joined(first).swap(None, other._replace(stamp="x"))
            except StoreUnavailable as error:
                told.append(error)

        crossing = threading.Thread(target=cross)
        crossing.start()
        _until_somebody_waits(store)
        assert isinstance(store.joined(second).swap(None, one._replace(stamp="y")), Swapped)
        crossing.join()
        first.rollback()
        second.rollback()
    assert "rolled the whole transaction back" in str(told[0])


def test_joining_asks_for_an_open_transaction_of_the_right_driver(store: MariadbStore) -> None:
    with closing(_connect(store, autocommit=True)) as connection:
        with pytest.raises(ConfigurationError, match="begin"):
            store.joined(connection).swap(None, claim())
        connection.begin()
        assert isinstance(store.joined(connection).swap(None, claim()), Swapped)
        connection.rollback()
        joined = store.joined(connection)
        for refused in (lambda: joined.sweep(1), joined.migrate, lambda: joined.joined(connection)):
            with pytest.raises(ConfigurationError):
                refused()
        with pytest.raises(ConfigurationError, match="asyncmy"):
            AsyncMariadbStore(store._address).joined(connection)
    with pytest.raises(ConfigurationError, match="PyMySQL"):
        store.joined("not a connection")


@pytest.mark.parametrize("mode", ["ANSI", "NO_BACKSLASH_ESCAPES,ANSI_QUOTES", ""])
def test_a_callers_sql_mode_does_not_change_what_is_kept(store: MariadbStore, mode: str) -> None:
    text = "it's \\' \" % \\ 😀"
    draft = claim()._replace(error=text)
    with closing(_connect(store, sql_mode=mode)) as connection:
        store.joined(connection).swap(None, draft)
        connection.commit()
    assert store.read(draft.key).current.error == text


@pytest.mark.parametrize("charset", ["utf8mb3", "latin1"])
def test_a_connection_that_would_change_texts_on_their_way_is_refused(store: MariadbStore, charset: str) -> None:
    """Not what was kept would be replayed there, but question marks in the place of what it does not know."""
    whole = claim()._replace(status=Status.SUCCESS, settled=Settled(True, '"ação 😀"'), keep=10_000)
    store.swap(None, whole)
    with closing(_connect(store, charset=charset, sql_mode="")) as connection:
        connection.begin()
        joined = store.joined(connection)
        for ask in (lambda: joined.read(whole.key), lambda: joined.swap(None, claim())):
            with pytest.raises(ConfigurationError, match="charset=utf8mb4"):
                ask()


def test_a_callers_dict_cursors_do_not_disturb(store: MariadbStore) -> None:
    with closing(_connect(store, cursorclass=pymysql.cursors.DictCursor)) as connection:
        assert isinstance(store.joined(connection).swap(None, claim()), Swapped)


def test_a_missing_table_is_told_and_the_transaction_lives(store: MariadbStore) -> None:
    with closing(_connect(store)) as connection, connection.cursor() as cursor:
        connection.select_db("mysql")
        with pytest.raises(SchemaOutdated):
            MariadbStore(store._address._replace(database="mysql")).joined(connection).swap(None, claim())
        cursor.execute("SELECT 1")


def test_the_async_store_joins_an_asyncmy_connection(store: MariadbStore) -> None:
    async def play() -> None:
        other = AsyncMariadbStore(store._address)
        first = await asyncmy.connect(**_arguments(store))
        second = await asyncmy.connect(**_arguments(store))
        draft = claim()
        async with second.cursor() as cursor:
            await cursor.execute("SELECT count(*) FROM ledger")
        assert isinstance(await other.joined(first).swap(None, draft), Swapped)
        with pytest.raises(OperationInProgress):
            await other.joined(second, wait=0).swap(None, claim("r", draft.key.value))
        rival = asyncio.create_task(other.joined(second).swap(None, claim("r", draft.key.value)))
        await asyncio.to_thread(_until_somebody_waits, store)
        await other.joined(first).swap("a", outcome(draft))
        await first.commit()
        reply = await rival
        assert isinstance(reply, Stale)
        assert reply.current.settled == Settled(True, "{}")
        assert len(await other.joined(second).find(Query(value=draft.key.value))) <= 1
        await second.rollback()
        for connection in (first, second):
            await connection.ensure_closed()
        await other.close()

    asyncio.run(play())


def test_an_async_rollback_undoes_claim_and_effect(store: MariadbStore) -> None:
    async def play() -> None:
        other = AsyncMariadbStore(store._address)
        connection = await asyncmy.connect(**_arguments(store))
        draft = claim()
        await other.joined(connection).swap(None, draft)
        async with connection.cursor() as cursor:
            await cursor.execute("INSERT INTO ledger VALUES (%s)", (draft.key.value,))
        await connection.rollback()
        assert (await other.read(draft.key)).current is None
        assert entries(store, draft.key.value) == 0
        await connection.autocommit(True)
        with pytest.raises(ConfigurationError, match="begin"):
            await other.joined(connection).swap(None, draft)
        await connection.ensure_closed()
        await other.close()

    asyncio.run(play())

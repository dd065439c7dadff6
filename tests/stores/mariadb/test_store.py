"""What only the MariaDB store has: its statements, its schema, its sessions."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import asyncmy
import pymysql
import pytest

from umavez.core.flow import Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Query, Settled, Status
from umavez.errors import ConfigurationError, NotStorable, SchemaOutdated, StoreUnavailable
from umavez.stores import open_async_store, open_store
from umavez.stores.mariadb.statements import Statement, finding
from umavez.stores.mariadb.store import MariadbStore
from umavez.stores.mariadb.url import address_of

DAY = 86_400_000


@pytest.fixture
def store(mariadb_url: str) -> Iterator[MariadbStore]:
    store = MariadbStore(address_of(mariadb_url))
    store.migrate()
    yield store
    store.close()


def connect(url: str, **options: Any) -> Any:
    address = address_of(url)
    return pymysql.connect(
        host=address.host,
        port=address.port,
        user=address.user,
        password=address.password,
        database=address.database,
        **options,
    )


def ask(url: str, text: str, *values: Any) -> list[tuple[Any, ...]]:
    with closing(connect(url, autocommit=True)) as connection, connection.cursor() as cursor:
        cursor.execute(text, values)
        return list(cursor.fetchall())


def new_key(value: str = "") -> Key:
    return Key("mariadb", "test", value or secrets.token_hex(8))


def claim(key: Key, stamp: str = "a") -> Draft:
    return Draft(key, stamp, Status.PENDING, True, 1, 30_000)


def outcome(key: Key, stamp: str = "b", body: str = "{}") -> Draft:
    return Draft(key, stamp, Status.SUCCESS, False, 1, None, DAY, settled=Settled(True, body))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("abc", "ABC"),
        ("x", "x "),
        ("e", "é"),
        ("\u00e9", "e\u0301"),
        ("ß", "ss"),
        ("😀" * 255, "😀" * 254 + "😁"),
    ],
)
def test_keys_that_differ_are_kept_apart_alone_and_in_a_batch(store: MariadbStore, one: str, other: str) -> None:
    run = secrets.token_hex(4)
    keys = [Key(run, "test", one), Key(run, "test", other)]
    for key in keys:
        assert isinstance(store.swap(None, claim(key)), Swapped)
    keys = [Key(run, "batch", one), Key(run, "batch", other)]
    replies = store._lanes[0].send([Swap(None, claim(key)) for key in keys])
    assert [type(reply) for reply in replies] == [Swapped, Swapped]


def test_a_search_finds_exactly_the_text_asked_for(store: MariadbStore) -> None:
    run = secrets.token_hex(4)
    for value in ("abc", "ABC", "abc ", "\u00e9", "e"):
        store.swap(None, claim(Key(run, "test", value)))
    assert [record.key.value for record in store.find(Query(scope=run, value="abc"))] == ["abc"]
    assert [record.key.value for record in store.find(Query(scope=run, value="e"))] == ["e"]


def test_texts_come_back_as_they_were(store: MariadbStore) -> None:
    text = "quotes ' \" \\ percent %s %% newline \n tab \t \x1a \0 NUL 😀 é e\u0301 ; -- /* X'00'"
    for number in (1, 2):
        keys = [new_key() for _ in range(number)]
        drafts = [
            claim(key)._replace(error=text, progress=text, evidence="", fingerprint=text, settled=None) for key in keys
        ]
        store._lanes[0].send([Swap(None, draft) for draft in drafts])
        record = store.read(keys[0]).current
        assert record is not None
        assert (record.error, record.progress, record.evidence, record.fingerprint) == (text, text, "", text)


def test_a_batch_answers_each_swap_as_if_it_had_been_alone(store: MariadbStore) -> None:
    keys = [new_key() for _ in range(8)]
    lane = store._lanes[0]
    for key in keys[1:6]:
        store.swap(None, claim(key))
    fences = {key: record.fence for key in keys if (record := store.read(key).current)}
    replies = lane.send(
        [
            Swap(None, claim(keys[0], "new")),  # nothing stands
            Swap(None, claim(keys[1], "late")),  # something stands
            Swap(None, claim(keys[2], "a")),  # sent again
            Swap("a", outcome(keys[3])),  # settles
            Swap("a", claim(keys[4], "taker")._replace(attempt=2)),  # takes over
            Swap("zz", outcome(keys[5])),  # names the wrong stamp
            Swap("a", outcome(keys[6])),  # nothing stands
            Swap(None, claim(keys[7], "new")._replace(lease=None)),
        ]
    )
    assert [type(reply) for reply in replies] == [Swapped, Stale, Stale, Swapped, Swapped, Stale, Stale, Swapped]
    assert replies[3].fence == fences[keys[3]]
    assert replies[4].fence > max(fences.values())
    assert replies[1].current.stamp == replies[2].current.stamp == replies[5].current.stamp == "a"
    assert replies[6].current is None
    settled = store.read(keys[3]).current
    assert settled.settled == Settled(True, "{}")
    assert (settled.lease_until, settled.expires_at) == (None, replies[3].now + DAY)
    assert store.read(keys[0]).current.lease_until == replies[0].now + 30_000
    assert store.read(keys[5]).current.stamp == "a"


def test_a_fresh_swap_in_a_batch_begins_a_new_life(store: MariadbStore) -> None:
    old, kept = new_key(), new_key()
    for key in (old, kept):
        store.swap(None, claim(key))
    ask(f"{_url(store)}", "UPDATE idempotency_records SET created_at = 1 WHERE digest IN %s", [old.digest, kept.digest])
    store._lanes[0].send([Swap("a", claim(old, "b")._replace(fresh=True)), Swap("a", claim(kept, "b"))])
    assert store.read(old).current.created_at > 1
    assert store.read(kept).current.created_at == 1


def _url(store: MariadbStore) -> str:
    address = store._address
    return f"mariadb://{address.user}:{address.password}@{address.host}:{address.port}/{address.database}"


def test_a_replay_writes_nothing_and_uses_no_fence(store: MariadbStore, mariadb_url: str) -> None:
    keys = [new_key() for _ in range(3)]
    lane = store._lanes[0]
    for key in keys:
        store.swap(None, claim(key))
        store.swap("a", outcome(key))
    # Only these rows: what other tests left behind may still be renewed by their heartbeat.
    mine = "SELECT * FROM idempotency_records WHERE idempotency_key IN ({}) ORDER BY digest".format(
        ", ".join(f"'{key.value}'" for key in keys)
    )
    stands = ask(mariadb_url, mine)
    assert len(stands) == len(keys)
    before = store.swap(None, claim(new_key()))
    for key in keys:
        assert isinstance(store.swap(None, claim(key, "again")), Stale)
    lane.send([Swap(None, claim(key, "again")) for key in keys])
    after = store.swap(None, claim(new_key()))
    assert after.fence == before.fence + 1
    assert ask(mariadb_url, mine) == stands


def test_a_first_call_is_two_statements_and_a_replay_one(store: MariadbStore) -> None:
    key = new_key()
    store.swap(None, claim(new_key()))
    lane = store._lanes[0]
    store._group._idle[:] = [lane]
    sent: list[str] = []
    execute = lane.connection._execute
    lane.connection._execute = lambda connection, statement: (
        sent.append(statement.text) or execute(connection, statement)
    )
    store.swap(None, claim(key))
    store.swap("a", outcome(key))
    assert len(sent) == 2
    store.swap(None, claim(key, "again"))
    assert len(sent) == 3


def test_a_hot_key_gives_one_winner_per_round_and_no_storm(store: MariadbStore, mariadb_url: str) -> None:
    rivals, rounds = 8, 15
    stores = [MariadbStore(address_of(mariadb_url)) for _ in range(rivals)]
    keys = [new_key() for _ in range(rounds)]
    wins: Counter[Key] = Counter()
    gate = threading.Barrier(rivals)

    def compete(number: int) -> None:
        for key in keys:
            gate.wait()
            reply = stores[number].swap(None, claim(key, f"rival-{number}"))
            if isinstance(reply, Swapped):
                wins[key] += 1
            else:
                assert reply.current is not None

    threads = [threading.Thread(target=compete, args=(number,)) for number in range(rivals)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [wins[key] for key in keys] == [1] * rounds
    assert sum(rival.retries for rival in stores) < rivals * rounds
    for rival in stores:
        rival.close()


def test_own_sessions_are_strict_and_read_committed(store: MariadbStore) -> None:
    with store._look() as connection:
        rows = connection.run(
            Statement(
                "SELECT @@sql_mode, @@tx_isolation, @@autocommit, @@collation_connection, @@innodb_lock_wait_timeout"
            )
        )[0]
    assert "STRICT_ALL_TABLES" in rows[0][0]
    assert rows[0][1:] == ("READ-COMMITTED", 1, "utf8mb4_nopad_bin", 1)


def test_the_clock_is_the_servers_whatever_the_time_zone(store: MariadbStore, mariadb_url: str) -> None:
    with closing(connect(mariadb_url, autocommit=False)) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '-11:30'")
        inside = store.joined(connection).read(new_key()).now
    outside = store.read(new_key()).now
    seconds = ask(mariadb_url, "SELECT unix_timestamp()")[0][0]
    assert 0 <= outside - inside < 5_000
    assert abs(outside - seconds * 1000) < 5_000


def test_the_schema_has_the_seeds_indexes(store: MariadbStore, mariadb_url: str) -> None:
    names = {row[2] for row in ask(mariadb_url, "SHOW INDEX FROM idempotency_records")}
    seeds = {"idx_idempotency_key", "idx_key_text", "idx_process_instance", "idx_created_at", "idx_expires_at"}
    assert names == {*seeds, "idx_status"}


def test_an_index_that_older_tables_lack_is_made_and_used(store: MariadbStore, mariadb_url: str) -> None:
    ask(mariadb_url, "ALTER TABLE idempotency_records DROP INDEX idx_status")
    assert "are now at version" in store.migrate()
    looking = finding(Query(status=Status.UNKNOWN), 0)
    (plan,) = ask(mariadb_url, f"EXPLAIN {looking.text}", *looking.values)
    assert "idx_status" in str(plan)
    assert "already" in store.migrate()


def test_a_record_is_readable_in_the_view(store: MariadbStore, mariadb_url: str) -> None:
    key = new_key()
    now = store.swap(None, claim(key)._replace(attempt=3)).now
    shown = datetime.fromtimestamp(now // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    text = "SELECT retry_count, created_at, expires_at FROM idempotency_records_readable WHERE idempotency_key = %s"
    retries, created, expires = ask(mariadb_url, text, key.value)[0]
    assert (retries, expires) == (2, None)
    assert str(created).startswith(shown)


def test_several_may_migrate_at_once_and_a_newer_schema_is_left_alone(mariadb_url: str) -> None:
    stores = [MariadbStore(address_of(mariadb_url)) for _ in range(4)]
    told: list[str] = []
    threads = [threading.Thread(target=lambda one=one: told.append(one.migrate())) for one in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 4
    ask(mariadb_url, "UPDATE umavez_meta SET value = 3 WHERE name = 'schema'")
    try:
        with pytest.raises(SchemaOutdated, match="upgrade umavez"):
            stores[0].migrate()
    finally:
        ask(mariadb_url, "UPDATE umavez_meta SET value = 2 WHERE name = 'schema'")
        for one in stores:
            one.close()


def test_sweeping_passes_over_a_locked_record(store: MariadbStore, mariadb_url: str) -> None:
    free, held = new_key(), new_key()
    for key in (free, held):
        store.swap(None, outcome(key, "a")._replace(keep=-5))
    with closing(connect(mariadb_url)) as rival, rival.cursor() as cursor:
        cursor.execute("SELECT 1 FROM idempotency_records WHERE digest = %s FOR UPDATE", (held.digest,))
        store.sweep(1000)
        assert store.read(free).current is None
    assert store.read(held).current is not None


def test_a_statement_above_the_packet_limit_is_refused_before_sending(store: MariadbStore, mariadb_url: str) -> None:
    key = new_key()
    store.swap(None, claim(key))
    limit = ask(mariadb_url, "SELECT @@global.max_allowed_packet")[0][0]
    with pytest.raises(NotStorable, match="max_allowed_packet"):
        store.swap("a", outcome(key, body="x" * limit))
    assert store.read(key).current.stamp == "a"
    body = "é" * (limit // 2 - 4000)
    assert isinstance(store.swap("a", outcome(key, body=body)), Swapped)
    assert store.read(key).current.settled == Settled(True, body)


def test_a_text_longer_than_its_column_is_refused_not_cut(store: MariadbStore) -> None:
    with pytest.raises(NotStorable, match="256"):
        store.swap(None, claim(new_key())._replace(process_instance="p" * 256))


@pytest.mark.parametrize(
    "url",
    [
        "mariadb://",
        "mariadb://host",
        "mariadb://host/",
        "mariadb:///database",
        "mariadb://host:port/database",
        "mariadb://host/a/b",
        "mariadb://host/database?lanes=0",
        "mariadb://host/database?lanes=many",
        "mariadb://host/database?pool=3",
    ],
)
def test_a_wrong_url_is_told_in_one_sentence(url: str) -> None:
    with pytest.raises(ConfigurationError) as told:
        open_store(url)
    assert str(told.value).count(". ") == 0
    with pytest.raises(ConfigurationError):
        open_async_store(url)


def test_a_password_is_never_shown() -> None:
    address = address_of("mariadb://me:s%40cret@host:3307/database?lanes=4&timeout=5")
    assert (address.password, address.port, address.lanes, address.timeout) == ("s@cret", 3307, 4, 5.0)
    assert "s@cret" not in f"{address} {address!r}"


def test_a_closed_async_store_opens_again_in_another_event_loop(mariadb_url: str, store: MariadbStore) -> None:
    other = open_async_store(mariadb_url)

    async def use() -> None:
        assert isinstance(await other.swap(None, claim(new_key())), Swapped)
        await other.close()

    asyncio.run(use())
    asyncio.run(use())


def test_many_tasks_that_look_at_once_share_a_few_connections(mariadb_url: str) -> None:
    """One each would take every connection of the server from everybody else."""

    async def look() -> int:
        store = open_async_store(mariadb_url + ("&" if "?" in mariadb_url else "?") + "lanes=3")
        await store.migrate()
        most, ended = 0, asyncio.Event()

        async def watch() -> None:
            nonlocal most
            watcher = await asyncmy.connect(**address_of(mariadb_url).arguments())
            me = watcher.thread_id()
            while not ended.is_set():
                async with watcher.cursor() as cursor:
                    await cursor.execute(
                        "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> %s", (me,)
                    )
                    most = max(most, (await cursor.fetchone())[0])
                await asyncio.sleep(0.001)
            watcher.close()

        watching = asyncio.create_task(watch())
        await asyncio.sleep(0.05)
        await asyncio.gather(*(store.read(Key("s", "o", str(number))) for number in range(200)))
        ended.set()
        await watching
        await store.close()
        return most

    assert 1 <= asyncio.run(look()) <= 3 + 3


def test_a_look_that_waits_for_a_connection_gives_up_in_time(mariadb_url: str) -> None:
    async def look() -> None:
        store = open_async_store(mariadb_url + ("&" if "?" in mariadb_url else "?") + "lanes=1&timeout=1")
        await store.migrate()
        async with store._look():  # type: ignore[attr-defined]  # somebody who keeps it
            with pytest.raises(StoreUnavailable, match="busy with other looks"):
                await store.read(Key("s", "o", "1"))
        assert (await store.read(Key("s", "o", "1"))).current is None
        await store.close()

    asyncio.run(look())

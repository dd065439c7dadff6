"""The PostgreSQL store when the network, the server or the process itself breaks, and how often it speaks."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from umavez.core.flow import Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Settled, Status
from umavez.errors import OperationInProgress, StoreUnavailable, StoreUncertain
from umavez.stores.postgres import store as postgres
from umavez.stores.postgres._async.connection import AsyncPostgresConnection
from umavez.stores.postgres._sync.connection import PostgresConnection
from umavez.stores.postgres.url import Target, target_of
from umavez.stores.postgres.values import parameters


def new_key() -> Key:
    return Key("faults", "charge", secrets.token_hex(8))


def claim(key: Key, stamp: str = "a") -> Draft:
    return Draft(key, stamp, Status.PENDING, True, 1, 30_000, None, "fp")


def settled(draft: Draft) -> Draft:
    return draft._replace(
        stamp="b", claims=False, status=Status.SUCCESS, lease=None, keep=60_000, settled=Settled(True, "{}")
    )


class Proxy:
    """Passes PostgreSQL's protocol on, counts what clients say, and can lose an answer that the server gave."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.said: Counter[str] = Counter()
        self.lose = 0
        """How many answers to statements to lose, each with its connection."""
        self.refuse = False
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refuse:
                client.close()
                continue
            server = socket.create_connection(self._server)
            self._sockets += [client, server]
            executed = threading.Event()
            for way in (self._upstream, self._downstream):
                self._threads.append(threading.Thread(target=way, args=(client, server, executed)))
                self._threads[-1].start()

    def _upstream(self, client: socket.socket, server: socket.socket, executed: threading.Event) -> None:
        try:
            (length,) = struct.unpack(">i", _exactly(client, 4))
            server.sendall(struct.pack(">i", length) + _exactly(client, length - 4))
            while True:
                head = _exactly(client, 5)
                body = _exactly(client, struct.unpack(">i", head[1:])[0] - 4)
                self.said[chr(head[0])] += 1
                if head[:1] == b"E":
                    executed.set()
                server.sendall(head + body)
        except OSError:
            _shut(client, server)

    def _downstream(self, client: socket.socket, server: socket.socket, executed: threading.Event) -> None:
        try:
            while answer := server.recv(65536):
                if self.lose and executed.is_set():
                    self.lose -= 1
                    break
                client.sendall(answer)
        except OSError:
            pass
        _shut(client, server)

    def close(self) -> None:
        _shut(self._listener, *self._sockets)
        for thread in self._threads:
            thread.join(5)
        for one in (self._listener, *self._sockets):
            one.close()


def _exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = source.recv(size - len(data))
        if not more:
            raise OSError("closed")
        data += more
    return data


def _shut(*sockets: socket.socket) -> None:
    for one in sockets:
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[Proxy]:
    parts = psycopg.conninfo.conninfo_to_dict(postgres_url)
    proxy = Proxy(str(parts["host"]), int(parts.get("port") or 5432))
    yield proxy
    proxy.close()


@pytest.fixture
def far_url(proxy: Proxy, postgres_url: str) -> str:
    """The database behind the proxy, its tables made."""
    postgres.PostgresStore(postgres_url).migrate()
    parts = psycopg.conninfo.conninfo_to_dict(postgres_url)
    user = f"{parts['user']}:{parts.get('password', '')}"
    return f"postgresql://{user}@127.0.0.1:{proxy.port}/{parts['dbname']}?lanes=1&sslmode=disable&gssencmode=disable"


@pytest.fixture
def store(far_url: str) -> Iterator[Any]:
    store = postgres.PostgresStore(far_url)
    yield store
    store.close()


@pytest.fixture
def session(postgres_url: str) -> Iterator[Any]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


def warm(store: Any) -> Key:
    """A settled key; both statements are prepared after it."""
    key = new_key()
    store.swap(None, claim(key))
    store.swap("a", settled(claim(key)))
    return key


def test_a_first_call_is_two_statements_and_two_round_trips(store: Any, proxy: Proxy) -> None:
    warm(store)
    proxy.said.clear()
    warm(store)
    assert proxy.said == Counter({"B": 2, "D": 2, "E": 2, "S": 2})


def test_a_replay_is_one_statement_and_one_round_trip(store: Any, proxy: Proxy) -> None:
    key = warm(store)
    proxy.said.clear()
    assert isinstance(store.swap(None, claim(key, "rival")), Stale)
    assert proxy.said == Counter({"B": 1, "D": 1, "E": 1, "S": 1})


def test_an_async_first_call_and_replay_are_three_statements(far_url: str, proxy: Proxy) -> None:
    async def main() -> None:
        store = postgres.AsyncPostgresStore(far_url)
        for _ in range(2):
            proxy.said.clear()
            key = new_key()
            await store.swap(None, claim(key))
            await store.swap("a", settled(claim(key)))
            await store.swap(None, claim(key, "rival"))
        await store.close()

    asyncio.run(main())
    assert proxy.said["E"] == proxy.said["S"] == 3


def test_a_statement_is_prepared_once_whatever_is_absent(store: Any, proxy: Proxy) -> None:
    warm(store)
    proxy.said.clear()
    key = new_key()
    store.swap(None, claim(key)._replace(fingerprint=None, process_instance="p", lease=None, attempt=40_000))
    store.swap("a", claim(key)._replace(error="e", progress="p", evidence="v", keep=2**40))
    assert proxy.said["P"] == 0


def test_a_batch_is_one_statement_and_one_round_trip(store: Any, proxy: Proxy) -> None:
    lane = store._lanes[0]
    lane.send([Swap(None, claim(new_key())), Swap("a", claim(new_key()))])
    proxy.said.clear()
    old = warm(store)
    proxy.said.clear()
    lane.send([Swap(None, claim(new_key())), Swap("b", claim(old)), *(Swap(None, claim(new_key())) for _ in range(30))])
    assert proxy.said["E"] == proxy.said["S"] == 1


def test_a_lost_answer_is_uncertain_and_the_resend_is_recognised(store: Any, proxy: Proxy) -> None:
    warm(store)
    key = new_key()
    proxy.lose, proxy.refuse = 1, True
    with pytest.raises(StoreUncertain) as caught:
        store.swap(None, claim(key))
    assert caught.value.may_have_happened
    assert isinstance(caught.value.__cause__, psycopg.Error)
    proxy.refuse = False
    reply = store.swap(None, claim(key))
    assert isinstance(reply, Stale)
    assert reply.current.stamp == "a"


def test_a_lost_answer_is_fetched_again_by_the_store_where_it_can(store: Any, proxy: Proxy) -> None:
    warm(store)
    key = new_key()
    proxy.lose = 1
    reply = store.swap(None, claim(key))
    assert isinstance(reply, Stale)
    assert reply.current.stamp == "a"


def test_a_lost_answer_on_a_new_connection_is_uncertain_at_once(far_url: str, proxy: Proxy) -> None:
    store = postgres.PostgresStore(far_url)
    warm(store)
    store.close()
    proxy.lose = 1
    with pytest.raises(StoreUncertain):
        store.swap(None, claim(new_key()))
    store.close()


def test_an_async_lost_answer_is_uncertain_and_the_resend_is_recognised(far_url: str, proxy: Proxy) -> None:
    async def main() -> Any:
        store = postgres.AsyncPostgresStore(far_url)
        await store.swap(None, claim(new_key()))
        key = new_key()
        proxy.lose, proxy.refuse = 1, True
        with pytest.raises(StoreUncertain):
            await store.swap(None, claim(key))
        proxy.refuse = False
        reply = await store.swap(None, claim(key))
        await store.close()
        return reply

    assert asyncio.run(main()).current.stamp == "a"


def test_a_lost_batch_stays_uncertain_for_each_of_its_callers(store: Any, proxy: Proxy) -> None:
    """One by one they cannot be sent, and `unavailable` would say that nothing was written."""
    from umavez.concurrency.batching import Shunned
    from umavez.concurrency.lanes import sent

    lane = store._lanes[0]
    lane.send([Swap(None, claim(new_key())), Swap(None, claim(new_key()))])
    swaps = [Swap(None, claim(new_key())) for _ in range(5)]
    proxy.lose, proxy.refuse = 1, True
    assert [type(answer) for answer in sent(lane, swaps, Shunned(1))] == [StoreUncertain] * 5
    proxy.refuse = False
    answers = sent(lane, swaps, Shunned(1))
    assert [answer.current.stamp for answer in answers] == ["a"] * 5


def test_a_killed_backend_is_replaced_without_a_word(store: Any, session: Any) -> None:
    warm(store)
    pid = store._lanes[0].connection._session.connection.info.backend_pid
    assert session.execute("SELECT pg_terminate_backend(%s, 5000)", [pid]).fetchone() == (True,)
    assert isinstance(store.swap(None, claim(new_key())), Swapped)


def test_a_swap_gives_way_to_an_open_transaction_that_holds_its_key(store: Any, session: Any) -> None:
    key = new_key()
    near = postgres.PostgresStore(str(session.info.dsn))
    with session.transaction(force_rollback=True):
        near.joined(session).swap(None, claim(key, "held"))
        with pytest.raises(OperationInProgress) as caught:
            store.swap(None, claim(key))
    assert caught.value.retry_after > 0
    assert isinstance(store.swap(None, claim(key)), Swapped)


def test_a_cancelled_task_leaves_no_statement_and_no_transaction_behind(postgres_url: str, session: Any) -> None:
    key = new_key()
    near = postgres.PostgresStore(postgres_url)
    near.migrate()

    async def main() -> tuple[Any, int, int]:
        store = postgres.AsyncPostgresStore(f"{postgres_url}?lanes=1")
        await store.swap(None, claim(new_key()))
        before = store._lanes[0].connection._session.connection.info.backend_pid
        with session.transaction(force_rollback=True):
            near.joined(session).swap(None, claim(key, "held"))
            task = asyncio.create_task(store.swap(None, claim(key)))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert store._lanes[0].connection._session is None
        reply = await store.swap(None, claim(new_key()))
        after = store._lanes[0].connection._session.connection.info.backend_pid
        await store.close()
        return reply, before, after

    reply, before, after = asyncio.run(main())
    assert isinstance(reply, Swapped)
    assert before != after


def test_a_forked_child_opens_its_own_connection_and_leaves_the_parents_alone(postgres_url: str) -> None:
    store = postgres.PostgresStore(f"{postgres_url}?lanes=1")
    store.migrate()
    store.swap(None, claim(new_key()))
    mine = store._lanes[0].connection._session.connection.info.backend_pid
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            store.swap(None, claim(new_key()))
            os.write(writing, str(store._lanes[0].connection._session.connection.info.backend_pid).encode())
            store.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        theirs = int(answer.read())
    assert theirs != mine
    assert isinstance(store.swap(None, claim(new_key())), Swapped)
    assert store._lanes[0].connection._session.connection.info.backend_pid == mine
    store.close()


@pytest.mark.slow
def test_a_server_that_fell_and_rose_again_is_used_again(private_server: Callable[[str], Any]) -> None:
    server = private_server("postgres")
    store = postgres.PostgresStore(server.url)
    store.migrate()
    key = warm(store)
    server.kill()
    with pytest.raises((StoreUncertain, StoreUnavailable)):
        store.swap(None, claim(new_key()))
    with pytest.raises(StoreUnavailable):
        store.swap(None, claim(new_key()))
    server.restart()
    assert store.swap(None, claim(key, "rival")).current.settled == Settled(True, "{}")
    store.close()


@pytest.mark.slow
def test_a_first_call_syncs_the_log_twice_and_a_replay_never(private_server: Callable[[str], Any]) -> None:
    """On a server that nobody else uses; the least of several counts, since its own background work is not ours."""
    server = private_server("postgres")
    store = postgres.PostgresStore(f"{server.url}?lanes=1")
    store.migrate()
    key = warm(store)
    with psycopg.connect(server.url, autocommit=True) as session:
        first = min(_syncs(session, store, lambda: warm(store)) for _ in range(5))
        replay = min(_syncs(session, store, lambda: store.swap(None, claim(key, "rival"))) for _ in range(5))
    store.close()
    assert (first, replay) == (2, 0)


def _syncs(session: Any, store: Any, call: Callable[[], Any]) -> int:
    """WAL syncs during `call`. A backend tells its counts when it ends, so the store's connection is closed for it."""

    def count() -> int:
        store.close()
        threading.Event().wait(0.1)
        (syncs,) = session.execute("SELECT wal_sync FROM pg_stat_wal").fetchone()
        return int(syncs)

    before = count()
    call()
    return count() - before


def test_settings_that_a_pooler_dropped_are_noticed_with_what_to_do(postgres_url: str) -> None:
    bare = Target(postgres_url, 2)

    async def awaited() -> None:
        await AsyncPostgresConnection(bare).rows("SELECT 1", [])

    with pytest.raises(StoreUnavailable, match="ALTER ROLE name SET lock_timeout"):
        PostgresConnection(bare).rows("SELECT 1", [])
    with pytest.raises(StoreUnavailable, match="ALTER ROLE name SET lock_timeout"):
        asyncio.run(awaited())


def test_a_lock_timeout_of_the_account_or_the_callers_own_wish_is_taken(postgres_url: str) -> None:
    for given in ("-c lock_timeout=500", "-c lock_timeout=0"):
        connection = PostgresConnection(Target(make_conninfo(postgres_url, options=given), 2))
        assert connection.rows("SELECT 1", []) == [(1,)]
        connection.close()


def test_prepared_statements_that_were_forgotten_on_the_way_are_sent_whole(postgres_url: str) -> None:
    connection = PostgresConnection(target_of(postgres_url))
    assert connection.rows("SELECT $1::bigint", parameters((1,))) == [(1,)]
    session = connection._session
    session.connection.execute("DEALLOCATE ALL")

    assert connection.rows("SELECT $1::bigint", parameters((2,))) == [(2,)]
    session.connection.execute("DEALLOCATE ALL")
    assert connection.rows("SELECT $1::bigint", parameters((3,))) == [(3,)]
    assert connection._session is session
    connection.close()

"""What happens when the network, the server or a process fails under the MariaDB store."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import pymysql
import pytest

from umavez.concurrency.batching import Shunned
from umavez.concurrency.lanes import sent
from umavez.core.flow import Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Status
from umavez.errors import OperationInProgress, SchemaOutdated, StoreError, StoreUnavailable, StoreUncertain
from umavez.stores.mariadb.statements import Statement
from umavez.stores.mariadb.store import AsyncMariadbStore, MariadbStore
from umavez.stores.mariadb.url import address_of


class Proxy:
    """Passes bytes on between a client and the server; with `deaf` set, swallows the answer and hangs up."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.deaf = False
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                for args in ((client, server, False), (server, client, True)):
                    thread = threading.Thread(target=self._pass_on, args=args, daemon=True)
                    thread.start()
                    self._threads.append(thread)

    def _pass_on(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if answers and self.deaf:
                    # Swallowed to its end, so that the server finishes its work and commits.
                    source.settimeout(0.2)
                else:
                    target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5)


@pytest.fixture
def url(mariadb_url: str) -> str:
    with closing(MariadbStore(address_of(mariadb_url))) as store:
        store.migrate()
    return f"{mariadb_url}?lanes=1"


@pytest.fixture
def store(url: str) -> Iterator[MariadbStore]:
    store = MariadbStore(address_of(url))
    yield store
    store.close()


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    address = address_of(url)
    proxy = Proxy(address.host, address.port)
    yield proxy
    proxy.close()


def claim(value: str = "", stamp: str = "a") -> Draft:
    return Draft(Key("faults", "test", value or secrets.token_hex(8)), stamp, Status.PENDING, True, 1, 30_000)


def ask(url: str, text: str, *values: Any) -> Any:
    with closing(connect(url, autocommit=True)) as connection, connection.cursor() as cursor:
        cursor.execute(text, values)
        return cursor.fetchall()


def connect(url: str, **options: Any) -> Any:
    address = address_of(url)
    return pymysql.connect(
        host=address.host, port=address.port, user=address.user, database=address.database, **options
    )


def identity(store: MariadbStore) -> int:
    """The server's number of the lane's connection."""
    return int(store._lanes[0].connection.run(Statement("SELECT connection_id()"))[0][0][0])


def in_child(work: Callable[[], None]) -> int:
    """The exit status of `work` in a forked child."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        work()
        status = 0
    except BaseException:  # noqa: BLE001 - a child must end here, whatever happened
        traceback.print_exc()
    finally:
        os._exit(status)


def test_a_lost_answer_is_uncertain_and_the_resend_is_recognised(store: MariadbStore, url: str, proxy: Proxy) -> None:
    far = MariadbStore(address_of(url)._replace(host="127.0.0.1", port=proxy.port))
    far.swap(None, claim())
    draft = claim()
    proxy.deaf = True
    with pytest.raises(StoreUncertain) as told:
        far.swap(None, draft)
    assert told.value.may_have_happened
    assert isinstance(told.value.__cause__, pymysql.MySQLError)
    proxy.deaf = False
    reply = far.swap(None, draft)
    assert isinstance(reply, Stale)
    assert reply.current.stamp == draft.stamp
    far.close()


def test_a_lost_answer_to_a_batch_is_settled_by_its_resend(url: str, store: MariadbStore, proxy: Proxy) -> None:
    far = MariadbStore(address_of(url)._replace(host="127.0.0.1", port=proxy.port))
    lane = far._lanes[0]
    lane.send([Swap(None, claim())])
    batch = [Swap(None, claim()) for _ in range(3)]
    proxy.deaf = True
    with pytest.raises(StoreUncertain):
        lane.send(batch)
    proxy.deaf = False
    assert {reply.current.stamp for reply in lane.send(batch)} == {"a"}
    far.close()


def test_an_async_lost_answer_is_uncertain_too(url: str, proxy: Proxy) -> None:
    async def play() -> None:
        far = AsyncMariadbStore(address_of(url)._replace(host="127.0.0.1", port=proxy.port))
        await far.swap(None, claim())
        draft = claim()
        proxy.deaf = True
        with pytest.raises(StoreUncertain):
            await far.swap(None, draft)
        proxy.deaf = False
        reply = await far.swap(None, draft)
        assert isinstance(reply, Stale)
        assert reply.current.stamp == draft.stamp
        await far.close()

    asyncio.run(play())


def test_a_connection_killed_while_idle_is_replaced_without_a_word(store: MariadbStore, url: str) -> None:
    number = identity(store)
    ask(url, "KILL %s", number)
    _gone(url, number)
    assert isinstance(store.swap(None, claim()), Swapped)
    assert identity(store) != number


def test_an_async_connection_killed_while_idle_is_replaced_without_a_word(url: str) -> None:
    async def play() -> None:
        store = AsyncMariadbStore(address_of(url))
        number = (await store._lanes[0].connection.run(Statement("SELECT connection_id()")))[0][0][0]
        await asyncio.to_thread(ask, url, "KILL %s", number)
        await asyncio.to_thread(_gone, url, number)
        assert isinstance(await store.swap(None, claim()), Swapped)
        await store.close()

    asyncio.run(play())


def _gone(url: str, number: int) -> None:
    while ask(url, "SELECT 1 FROM information_schema.processlist WHERE id = %s", number):
        pass


def test_a_connection_killed_while_working_is_uncertain(store: MariadbStore, url: str) -> None:
    """The statement waits for a lock when it is killed, so the server may or may not have got further."""
    draft = claim()
    number = identity(store)
    with closing(connect(url)) as holder, holder.cursor() as cursor:
        store.joined(holder).swap(None, draft._replace(stamp="holder"))
        told: list[BaseException] = []
        thread = threading.Thread(target=lambda: _kept(told, lambda: store.swap(None, draft)))
        thread.start()
        while not ask(url, "SELECT 1 FROM information_schema.innodb_lock_waits"):
            pass
        ask(url, "KILL %s", number)
        thread.join()
        cursor.execute("ROLLBACK")
    assert [type(error) for error in told] == [StoreUncertain]
    assert isinstance(store.swap(None, draft), Swapped)


def _kept(told: list[BaseException], work: Callable[[], object]) -> None:
    try:
        work()
    except StoreError as error:
        told.append(error)


def test_a_record_held_by_another_transaction_is_in_progress_and_leaves_nothing_open(
    store: MariadbStore, url: str
) -> None:
    draft = claim()
    store._lanes[0].connection.run(Statement("SET innodb_lock_wait_timeout = 0"))
    with closing(connect(url)) as holder:
        store.joined(holder).swap(None, draft._replace(stamp="holder"))
        with pytest.raises(OperationInProgress) as told:
            store.swap(None, draft)
        assert told.value.key == draft.key
        holder.rollback()
    assert store.retries == 1
    assert ask(url, "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'") == ((0,),)
    assert isinstance(store.swap(None, draft), Swapped)


def test_a_batch_that_meets_a_lock_writes_none_of_its_swaps(store: MariadbStore, url: str) -> None:
    held, free = claim(), claim()
    lane = store._lanes[0]
    lane.connection.run(Statement("SET innodb_lock_wait_timeout = 0"))
    with closing(connect(url)) as holder:
        store.joined(holder).swap(None, held._replace(stamp="holder"))
        with pytest.raises(StoreUnavailable):
            lane.send([Swap(None, held), Swap(None, free)])
        assert store.read(free.key).current is None
        holder.rollback()


def test_who_was_written_never_hears_that_nothing_was(store: MariadbStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server takes the batch, and nothing more: neither the question who overtook its neighbour nor the resends."""
    written, overtaken = claim(), claim()
    store.swap(None, overtaken)
    lane, run = store._lanes[0], store._lanes[0].connection.run
    asked: list[Statement] = []

    def only_once(statement: Statement) -> Any:
        asked.append(statement)
        if len(asked) > 1:
            raise StoreUnavailable("Nothing was written.")
        return run(statement)

    monkeypatch.setattr(lane.connection, "run", only_once)
    answers = sent(lane, [Swap(None, written), Swap("late", overtaken._replace(claims=False))], Shunned(1))
    monkeypatch.undo()

    assert store.read(written.key).current is not None
    assert [getattr(answer, "may_have_happened", None) for answer in answers] == [True, True]


def test_a_deadlock_is_tried_again_and_counted(store: MariadbStore, url: str) -> None:
    one, other = sorted((claim(), claim()), key=lambda draft: draft.key.digest)
    for draft in (one, other):
        store.swap(None, draft)
    with closing(connect(url)) as rival, rival.cursor() as cursor:
        # The rival holds the later row, has changed much (so the store is the victim), and wants the earlier one.
        for _ in range(50):
            cursor.execute("INSERT INTO umavez_meta VALUES (%s, 0)", (secrets.token_hex(8),))
        lock = "SELECT 1 FROM idempotency_records WHERE digest = %s FOR UPDATE"
        cursor.execute(lock, (other.key.digest,))
        batch = [Swap("a", draft._replace(stamp="b", claims=False)) for draft in (one, other)]
        replies: list[Any] = []
        thread = threading.Thread(target=lambda: replies.extend(store._lanes[0].send(batch)))
        thread.start()
        while not ask(url, "SELECT 1 FROM information_schema.innodb_lock_waits"):
            pass
        cursor.execute(lock, (one.key.digest,))
        rival.rollback()
        thread.join()
    assert [type(reply) for reply in replies] == [Swapped, Swapped]
    assert store.retries >= 1


def test_a_forked_child_opens_its_own_connection_and_leaves_the_parents_alone(store: MariadbStore) -> None:
    number = identity(store)

    def child() -> None:
        assert isinstance(store.swap(None, claim()), Swapped)
        assert identity(store) != number
        store.close()

    assert in_child(child) == 0
    assert identity(store) == number


def test_a_cancelled_task_drops_its_connection_and_the_next_gets_its_own_answer(url: str) -> None:
    async def play() -> None:
        store = AsyncMariadbStore(address_of(url))
        held, other = claim(), claim()
        await store.swap(None, other)
        with closing(connect(url)) as holder:
            MariadbStore(address_of(url)).joined(holder).swap(None, held._replace(stamp="holder"))
            task = asyncio.create_task(store.swap(None, held))
            while not await asyncio.to_thread(ask, url, "SELECT 1 FROM information_schema.innodb_lock_waits"):
                pass
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            reply = await store.swap(None, other._replace(stamp="late"))
            assert reply.current.key == other.key
            holder.rollback()
        await store.close()

    asyncio.run(play())


def test_a_missing_table_asks_for_migration(mariadb_url: str) -> None:
    name = f"umavez_empty_{secrets.token_hex(4)}"
    ask(mariadb_url, f"CREATE DATABASE {name}")
    address = address_of(mariadb_url)._replace(database=name)

    async def play() -> None:
        other = AsyncMariadbStore(address)
        with pytest.raises(SchemaOutdated, match="umavez migrate"):
            await other.swap(None, claim())
        await other.close()

    try:
        with closing(MariadbStore(address)) as store:
            for verb in (lambda: store.swap(None, claim()), lambda: store.read(claim().key), lambda: store.sweep(1)):
                with pytest.raises(SchemaOutdated, match="umavez migrate"):
                    verb()
        asyncio.run(play())
    finally:
        ask(mariadb_url, f"DROP DATABASE {name}")


@pytest.mark.parametrize("wrong", [{"port": 1}, {"user": "nobody", "password": "s3cret"}, {"database": "nowhere"}])
def test_a_server_that_cannot_be_reached_wrote_nothing(url: str, wrong: dict[str, Any]) -> None:
    address = address_of(url)._replace(**wrong)
    with closing(MariadbStore(address)) as store, pytest.raises(StoreUnavailable) as told:
        store.swap(None, claim())
    assert not told.value.may_have_happened
    assert "s3cret" not in str(told.value)

    async def play() -> None:
        other = AsyncMariadbStore(address)
        with pytest.raises(StoreUnavailable):
            await other.swap(None, claim())
        await other.close()

    asyncio.run(play())

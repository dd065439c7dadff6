"""The Redis store when the server, the network or the settings fail."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from typing import Any

import pytest
import redis
from hiredis import ReplyError

from tests.servers import Private
from tests.stores.redis.redis_drafts import claim, done, opened
from umavez.clock import SYSTEM
from umavez.core.flow import Stale, Swapped
from umavez.errors import ConfigurationError, StoreError, StoreUnavailable, StoreUncertain
from umavez.stores import open_async_store, open_store
from umavez.stores.redis.command import SWAP
from umavez.stores.redis.dialogue import Demoted, Dialogues
from umavez.stores.redis.url import address_of

pytestmark = pytest.mark.redis
KINDS = pytest.mark.parametrize("kind", ["sync", "async"])


@pytest.fixture
def server(private_server: Callable[[str], Private]) -> Private:
    return private_server("redis")


@pytest.fixture
def client(server: Private) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as opened_client:
        yield opened_client


@KINDS
def test_strict_mode_keeps_an_acknowledged_record_through_kill_9(kind: str, server: Private) -> None:
    draft = claim("k", "s")
    with opened(kind, f"{server.url}?strict=1") as store:
        fence = store.swap(None, draft).fence
        store.swap("s", done(draft, "t"))
        server.kill()
        with pytest.raises(StoreError):
            store.swap("t", done(draft, "u"))
        server.restart()
        assert store.read(draft.key).current.stamp == "t"
        assert store.swap(None, claim("other", "s")).fence > fence


@KINDS
@pytest.mark.parametrize(
    ("name", "value", "advice"),
    [
        ("maxmemory-policy", "allkeys-lru", "maxmemory-policy is allkeys-lru: set it to noeviction"),
        ("maxmemory-policy", "volatile-ttl", "maxmemory-policy is volatile-ttl: set it to noeviction"),
        ("appendonly", "no", "appendonly is no: set it to yes"),
        ("appendfsync", "everysec", "appendfsync is everysec: set it to always"),
    ],
)
def test_strict_mode_names_the_setting_it_refuses(
    kind: str, name: str, value: str, advice: str, server: Private, client: redis.Redis
) -> None:
    client.config_set(name, value)
    with opened(kind, f"{server.url}?strict=1") as store, pytest.raises(ConfigurationError, match=advice):
        store.swap(None, claim("k", "s"))
    with opened(kind, server.url) as store:
        assert isinstance(store.swap(None, claim("k", "s")), Swapped)


@KINDS
def test_strict_mode_refuses_a_replica(kind: str, server: Private, client: redis.Redis) -> None:
    client.replicaof("127.0.0.1", "1")
    with (
        opened(kind, f"{server.url}?strict=1") as store,
        pytest.raises(ConfigurationError, match="role is slave: connect to a master"),
    ):
        store.swap(None, claim("k", "s"))


@KINDS
def test_strict_mode_refuses_a_master_with_replicas(
    kind: str, server: Private, private_server: Callable[[str], Private]
) -> None:
    replica = private_server("redis")
    with redis.Redis.from_url(server.url) as master, redis.Redis.from_url(replica.url) as follower:
        follower.replicaof("127.0.0.1", server.url.rpartition(":")[2])
        deadline = time.monotonic() + 20
        while master.info("replication")["connected_slaves"] == 0:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    with (
        opened(kind, f"{server.url}?strict=1") as store,
        pytest.raises(ConfigurationError, match="connected_slaves is 1: detach the replicas"),
    ):
        store.swap(None, claim("k", "s"))


@KINDS
def test_strict_mode_says_so_when_it_may_not_read_the_settings(kind: str, server: Private, client: redis.Redis) -> None:
    client.acl_setuser("app", enabled=True, passwords=["+pw"], keys=["*"], commands=["+@all", "-config"])
    url = server.url.replace("redis://", "redis://app:pw@")
    with opened(kind, f"{url}?strict=1") as store, pytest.raises(ConfigurationError, match="grant both"):
        store.migrate()
    with opened(kind, url) as store:
        assert isinstance(store.swap(None, claim("k", "s")), Swapped)


@KINDS
def test_a_wrong_or_missing_password_is_a_clear_sentence(kind: str, server: Private, client: redis.Redis) -> None:
    client.config_set("requirepass", "right")
    for given, advice in (("", "asks for a password"), (":wr0ng@", "refused the user name or password")):
        with (
            opened(kind, server.url.replace("redis://", f"redis://{given}")) as store,
            pytest.raises(ConfigurationError, match=advice) as caught,
        ):
            store.read(claim("k", "s").key)
        assert "wr0ng" not in str(caught.value)
    with opened(kind, server.url.replace("redis://", "redis://:right@")) as store:
        assert isinstance(store.swap(None, claim("k", "s")), Swapped)


@KINDS
def test_a_database_that_is_not_there_is_a_clear_sentence(kind: str, server: Private) -> None:
    with (
        opened(kind, f"{server.url}/99") as store,
        pytest.raises(ConfigurationError, match="has no database 99; use a lower number"),
    ):
        store.read(claim("k", "s").key)


@KINDS
def test_a_server_without_memory_writes_nothing_and_still_replays(
    kind: str, server: Private, client: redis.Redis
) -> None:
    draft = claim("old", "s")
    with opened(kind, server.url) as store:
        store.swap(None, draft)
        before = client.dbsize()
        client.config_set("maxmemory", "1")
        with pytest.raises(StoreUnavailable, match="out of memory and wrote nothing"):
            store.swap(None, claim("new", "s"))
        with pytest.raises(StoreUnavailable, match="out of memory"):
            store.swap("s", done(draft, "t"))
        assert isinstance(store.swap(None, draft._replace(stamp="u")), Stale)
        assert (client.dbsize(), store.read(draft.key).current.stamp) == (before, "s")
        client.config_set("maxmemory", "0")
        assert isinstance(store.swap("s", done(draft, "t")), Swapped)


@KINDS
def test_a_server_that_only_reads_wrote_nothing(kind: str, server: Private, client: redis.Redis) -> None:
    client.replicaof("127.0.0.1", "1")
    with opened(kind, server.url) as store, pytest.raises(StoreUnavailable, match=r"READONLY|MASTERDOWN"):
        store.swap(None, claim("k", "s"))


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("READONLY You can't write against a read only replica.", Demoted),
        ("OOM command not allowed when used memory > 'maxmemory'.", StoreUnavailable),
        (
            "MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist",
            StoreUnavailable,
        ),
        ("ERR value is not an integer or out of range", StoreUncertain),
    ],
)
def test_what_a_script_was_refused_for_is_known_from_every_release(said: str, meant: type[StoreError]) -> None:
    """Before Redis 7 the code stands within a sentence; nothing was written all the same."""
    dialogues = Dialogues(address_of("redis://127.0.0.1"), SYSTEM)
    within = f"ERR Error running script (call to f_{SWAP.sha}): @user_script:84: @user_script: 84: -{said} "
    for reply in (said, within, f"{said} script: {SWAP.sha}, on @user_script:84."):
        with pytest.raises(StoreError) as caught:
            next(dialogues.taught(SWAP, b"", ReplyError(reply)))
        assert type(caught.value) is meant


@KINDS
def test_nobody_at_the_address_is_unavailable(kind: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    with opened(kind, f"redis://:secret@127.0.0.1:{port}") as store:
        with pytest.raises(StoreUnavailable, match="does not answer; check that it runs") as caught:
            store.swap(None, claim("k", "s"))
        assert "secret" not in str(caught.value)
        assert isinstance(caught.value.__cause__, OSError)


@KINDS
def test_a_frozen_server_is_uncertain_for_a_swap_and_unavailable_for_a_look(kind: str, server: Private) -> None:
    with opened(kind, f"{server.url}?timeout=0.2") as store:
        store.swap(None, claim("k", "s"))
        server.freeze()
        with pytest.raises(StoreUncertain):
            store.swap("s", done(claim("k", "s"), "t"))
        # Not greeted within the timeout: nothing of the store's own was sent.
        with pytest.raises(StoreUnavailable):
            store.swap("s", done(claim("k", "s"), "u"))
        server.thaw()
        stale = store.swap("s", done(claim("k", "s"), "t"))
        assert stale.current.stamp == "t"  # the uncertain write stands, and bears its stamp


@KINDS
def test_a_dropped_connection_is_uncertain_once_and_then_opened_anew(
    kind: str, server: Private, client: redis.Redis
) -> None:
    with opened(kind, server.url) as store:
        store.swap(None, claim("k", "s"))
        client.client_kill_filter(_type="normal", skipme=True)
        with pytest.raises(StoreUncertain) if kind == "sync" else _Whatever():
            store.swap("s", done(claim("k", "s"), "t"))
        assert isinstance(store.swap(None, claim("k", "u")), Stale)


class _Whatever:
    """The loop may or may not have heard of the end of the connection before the swap; both are right."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is None or issubclass(kind, StoreUncertain)


def test_a_connection_that_ended_while_idle_is_noticed_before_it_is_used(
    server: Private, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("umavez.stores.redis.pipe.QUIET", 0.0)
    with opened("sync", server.url) as store:
        store.swap(None, claim("k", "s"))
        client.client_kill_filter(_type="normal", skipme=True)
        assert isinstance(store.swap("s", done(claim("k", "s"), "t")), Swapped)


def test_commands_that_were_not_written_yet_are_unavailable_and_the_others_uncertain(server: Private) -> None:
    async def main() -> None:
        store: Any = open_async_store(server.url)
        await store.migrate()
        server.freeze()
        written = [asyncio.create_task(store.swap(None, claim(f"a{n}", "s"))) for n in range(3)]
        await asyncio.sleep(0.01)
        unwritten = [asyncio.create_task(store.swap(None, claim(f"b{n}", "s"))) for n in range(3)]
        asyncio.get_running_loop().call_soon(store._pipe._wire.fail, OSError("cut"))
        results = await asyncio.gather(*written, *unwritten, return_exceptions=True)
        server.thaw()
        assert [type(result) for result in results] == [StoreUncertain] * 3 + [StoreUnavailable] * 3
        assert [(await store.read(claim(f"b{n}", "s").key)).current for n in range(3)] == [None] * 3
        await store.close()

    asyncio.run(main())


def test_threads_that_ride_along_are_told_of_the_failure_too(server: Private) -> None:
    store = open_store(f"{server.url}?timeout=0.3")
    store.migrate()
    server.freeze()
    told: list[type] = []

    def swap(number: int) -> None:
        try:
            store.swap(None, claim(f"k{number}", "s"))
        except StoreError as error:
            told.append(type(error))

    threads = [threading.Thread(target=swap, args=(number,)) for number in range(8)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    server.thaw()
    assert sorted(kind.__name__ for kind in told) == ["StoreUnavailable"] * 7 + ["StoreUncertain"]
    assert time.monotonic() - started < 2  # together, not one timeout after the other
    store.close()


@contextmanager
def answering(reply: bytes, *, hang_up: bool = False) -> Iterator[tuple[str, threading.Event]]:
    """A stand-in that greets properly, then answers with `reply`; the event says that the client hung up."""
    ended = threading.Event()

    def serve(listener: socket.socket) -> None:
        with listener.accept()[0] as peer:
            peer.recv(65536)
            peer.sendall(b"+OK\r\n")
            peer.recv(65536)
            peer.sendall(reply)
            if hang_up:
                peer.shutdown(socket.SHUT_WR)
            while peer.recv(65536):
                pass
            ended.set()

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}", ended
        thread.join(5)


@pytest.mark.parametrize("garbage", [b"?what\r\n", b"+OK\r\n+OK\r\n+MORE\r\n", b"$5\r\nab"])
@KINDS
def test_an_answer_that_breaks_the_protocol_closes_the_connection(kind: str, garbage: bytes) -> None:
    with answering(garbage, hang_up=garbage.startswith(b"$")) as (url, ended), opened(kind, url) as store:
        with pytest.raises(StoreUncertain):
            store.swap(None, claim("k", "s"))
        if kind == "async":
            store.runner.run(asyncio.sleep(0))  # the loop closes the socket at its next turn
        assert ended.wait(5)


@KINDS
def test_a_right_answer_with_another_behind_it_closes_the_connection(kind: str) -> None:
    with answering(b"*2\r\n$-1\r\n:5\r\n+MORE\r\n") as (url, ended), opened(kind, url) as store:
        with pytest.raises(StoreUncertain) if kind == "sync" else nullcontext():
            store.swap("s", claim("k", "t"))
        if kind == "async":
            store.runner.run(asyncio.sleep(0))
        assert ended.wait(5)


def test_a_forked_child_opens_a_socket_of_its_own(server: Private) -> None:
    store = open_store(server.url)
    store.swap(None, claim("k", "s"))
    store._pipe._lock.acquire()  # as if another thread were in the middle of a call
    child = os.fork()
    if child == 0:
        answers = [store.swap(None, claim("k", f"c{number}")) for number in range(50)]
        os._exit(0 if all(isinstance(answer, Stale) for answer in answers) else 1)
    store._pipe._lock.release()
    for number in range(50):
        assert isinstance(store.swap(None, claim(f"p{number}", "s")), Swapped)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    store.close()


def test_a_forked_child_leaves_the_parents_loop_alone(server: Private) -> None:
    async def main() -> None:
        store = open_async_store(server.url, clock=SYSTEM)
        await store.swap(None, claim("k", "s"))
        child = os.fork()
        if child == 0:
            os._exit(_child(store))
        status = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status[1]) == 0
        assert isinstance(await store.swap(None, claim("parent", "s")), Swapped)
        await store.close()

    asyncio.run(main())


def _child(store: Any) -> int:
    if store._pipe._wire is not None:
        return 3  # the parent's connection is still at hand
    try:
        asyncio._set_running_loop(None)
        stale = asyncio.run(store.swap(None, claim("k", "c")))
    except BaseException:  # noqa: BLE001 -- the child must end here, whatever happens
        return 2
    return 0 if isinstance(stale, Stale) else 1


def test_an_async_store_follows_its_user_to_another_loop(server: Private) -> None:
    store = open_async_store(server.url)

    async def use(stamp: str) -> Any:
        try:
            return await store.swap(None, claim("k", stamp))
        finally:
            await store.close()

    assert isinstance(asyncio.run(use("a")), Swapped)
    assert isinstance(asyncio.run(use("b")), Stale)

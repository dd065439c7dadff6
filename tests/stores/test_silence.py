"""A server that falls silent, and a store that is closed while it is used: every caller hears something, in time."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pymysql
import pytest

from tests.servers import Private
from umavez import Once
from umavez.core.flow import Stale, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Settled, Status
from umavez.errors import OperationInProgress, StoreError, StoreUnavailable, StoreUncertain
from umavez.stores import open_async_store, open_store
from umavez.stores.mariadb.url import address_of

TIMEOUT = 1.0
BOUND = 2 * TIMEOUT + 2 + 3
"""Seconds: in line, for the answer, psycopg's shortest wait for a connection, and what a busy machine may add."""
SERVERS = pytest.mark.parametrize("name", ["postgres", "mariadb"])


def draft(stamp: str = "a", key: Key | None = None) -> Draft:
    return Draft(key or Key("s", "op", secrets.token_hex(8)), stamp, Status.PENDING, True, 1, 30_000, None, "fp")


def done(claim: Draft) -> Draft:
    return claim._replace(
        stamp="b", claims=False, status=Status.SUCCESS, lease=None, keep=60_000, settled=Settled(True, "{}")
    )


def heard(call: Callable[[], Any]) -> tuple[Any, float]:
    """What a call returned or raised, and after how long."""
    began = time.monotonic()
    try:
        answer = call()
    except Exception as error:  # noqa: BLE001  # every answer is looked at
        answer = error
    return answer, time.monotonic() - began


async def aheard(call: Awaitable[Any]) -> tuple[Any, float]:
    began = time.monotonic()
    try:
        answer = await call
    except Exception as error:  # noqa: BLE001  # every answer is looked at
        answer = error
    return answer, time.monotonic() - began


@pytest.fixture
def frozen(name: str, private_server: Callable[[str], Private]) -> Iterator[Private]:
    """A server with tables, to be frozen by the test; thawed in the end whatever happens."""
    server = private_server(name)
    if name == "mariadb":
        server.url += "silence"
        address = address_of(server.url)
        with pymysql.connect(host=address.host, port=address.port, user=address.user) as link:
            link.cursor().execute("CREATE DATABASE silence")
    store = open_store(server.url)
    store.migrate()
    store.close()
    yield server
    server.thaw()


@SERVERS
def test_threads_are_not_held_by_a_silent_server(frozen: Private) -> None:
    store = open_store(f"{frozen.url}?timeout={TIMEOUT}")
    claim = draft()
    store.swap(None, claim)
    store.read(claim.key)
    frozen.freeze()
    with ThreadPoolExecutor(20) as threads:
        first = threads.submit(heard, lambda: store.swap("a", done(claim)))
        time.sleep(0.1)  # so that it is the one whose connection was open
        others = [threads.submit(heard, lambda: store.swap(None, draft())) for _ in range(14)]
        looks = [threads.submit(heard, lambda: store.read(claim.key)) for _ in range(5)]
        answers = [one.result(60) for one in (first, *others, *looks)]

    assert type(answers[0][0]) is StoreUncertain
    assert all(isinstance(answer, StoreError) for answer, _ in answers), answers
    assert max(took for _, took in answers) < BOUND, [round(took, 1) for _, took in answers]
    frozen.thaw()
    again = store.swap("a", done(claim))
    assert isinstance(again, Swapped) or again.current.stamp == "b"
    assert isinstance(store.swap(None, claim), Stale)
    store.close()


@SERVERS
def test_tasks_are_not_held_by_a_silent_server(frozen: Private) -> None:
    async def story() -> None:
        store = open_async_store(f"{frozen.url}?timeout={TIMEOUT}")
        claim = draft()
        await store.swap(None, claim)
        await store.read(claim.key)
        frozen.freeze()
        first = asyncio.create_task(aheard(store.swap("a", done(claim))))
        await asyncio.sleep(0.1)
        others = [aheard(store.swap(None, draft())) for _ in range(14)]
        looks = [aheard(store.read(claim.key)) for _ in range(5)]
        async with asyncio.timeout(60):
            answers = [await first, *await asyncio.gather(*others, *looks)]
        assert type(answers[0][0]) is StoreUncertain
        assert all(isinstance(answer, StoreError) for answer, _ in answers), answers
        assert max(took for _, took in answers) < BOUND, [round(took, 1) for _, took in answers]
        frozen.thaw()
        again = await store.swap("a", done(claim))
        assert isinstance(again, Swapped) or again.current.stamp == "b"
        await store.close()

    asyncio.run(story())


@SERVERS
def test_a_store_closed_while_its_server_is_silent_holds_nobody(frozen: Private) -> None:
    store = open_store(f"{frozen.url}?timeout={TIMEOUT}")
    store.swap(None, draft())
    frozen.freeze()
    with ThreadPoolExecutor(9) as threads:
        callers = [threads.submit(heard, lambda: store.swap(None, draft())) for _ in range(8)]
        time.sleep(0.2)
        _, closing = heard(store.close)
        answers = [one.result(60) for one in callers]

    assert closing < BOUND
    assert {type(answer) for answer, _ in answers} <= {StoreUncertain, StoreUnavailable}, answers
    assert max(took for _, took in answers) < BOUND


@pytest.fixture
def url(name: str, request: pytest.FixtureRequest) -> str:
    made: str = request.getfixturevalue(f"{name}_url")
    store = open_store(made)
    store.migrate()
    store.close()
    return made


@SERVERS
def test_closing_a_store_in_use_leaves_every_caller_its_answer(url: str) -> None:
    """The seed is the machine's own timing: sixteen threads against a thread that does nothing but close."""
    store = open_store(url)
    stop = threading.Event()
    wrong: list[Any] = []

    def work() -> int:
        count = 0
        while not stop.is_set():
            claim = draft()
            for call in (lambda c=claim: store.swap(None, c), lambda c=claim: store.read(c.key)):
                answer, took = heard(call)
                if isinstance(answer, Exception) or took > 10:
                    wrong.append((answer, took))
                count += 1
        return count

    with ThreadPoolExecutor(16) as threads:
        workers = [threads.submit(work) for _ in range(16)]
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            store.close()
            time.sleep(0.003)
        stop.set()
        counts = [worker.result(30) for worker in workers]
    store.close()

    assert wrong == []
    assert sum(counts) >= 16


@SERVERS
def test_closing_an_async_store_in_use_leaves_every_caller_its_answer(url: str) -> None:
    async def story() -> None:
        store = open_async_store(url)

        async def work() -> list[Any]:
            answers = []
            for _ in range(15):
                claim = draft()
                answers.append((await aheard(store.swap(None, claim)))[0])
                answers.append((await aheard(store.read(claim.key)))[0])
            return answers

        async with asyncio.timeout(60):
            workers = [asyncio.create_task(work()) for _ in range(8)]
            while not all(worker.done() for worker in workers):
                await store.close()
                await asyncio.sleep(0.003)
            found = [answer for worker in workers for answer in worker.result()]
        await store.close()
        assert [answer for answer in found if isinstance(answer, Exception)] == []

    asyncio.run(story())


@SERVERS
def test_an_attempt_outlives_the_closing_of_its_engine_and_its_heart_beats_on(name: str, url: str) -> None:
    once = Once(url, scope=secrets.token_hex(4))
    with once.attempt("op", key="k", unknown="hold", lease=0.6) as attempt:
        once.store.close()
        time.sleep(1.0)
        once.store.close()
        attempt.succeed("done")
    assert once.run("op", key="k", call=lambda: "again", unknown="hold").value == "done"
    once.close()


@pytest.mark.postgres
def test_a_table_that_is_locked_is_in_progress_and_not_for_long(postgres_url: str) -> None:
    store = open_store(postgres_url)
    store.migrate()
    with psycopg.connect(postgres_url) as holder:
        holder.execute("LOCK TABLE idempotency_records IN ACCESS EXCLUSIVE MODE")
        answer, took = heard(lambda: store.swap(None, draft()))
        look, looked = heard(lambda: store.read(draft().key))
        holder.rollback()
    store.close()

    assert isinstance(answer, OperationInProgress)
    assert isinstance(look, StoreUnavailable)
    assert max(took, looked) < 3


@pytest.mark.mariadb
def test_a_table_that_is_locked_on_mariadb_is_given_up_in_time(mariadb_url: str) -> None:
    store = open_store(f"{mariadb_url}?timeout=3")
    store.migrate()
    holder: Any = pymysql.connect(**address_of(mariadb_url).arguments())
    with holder.cursor() as cursor:
        cursor.execute("LOCK TABLES idempotency_records WRITE")
    answer, took = heard(lambda: store.swap(None, draft()))
    look, looked = heard(lambda: store.read(draft().key))
    holder.close()
    after = store.swap(None, draft())
    store.close()

    assert isinstance(answer, OperationInProgress | StoreUncertain)
    assert isinstance(look, StoreError)
    assert max(took, looked) < 4 + 3
    assert isinstance(after, Swapped)


@pytest.mark.parametrize("text", ["0", "0.5", "nan", "4000", "soon", ""])
def test_a_time_out_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="timeout"):
        open_store(f"postgresql://localhost/x?timeout={text}")
